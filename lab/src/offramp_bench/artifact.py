"""The artifact's promise: whatever is in the folder, `load` refuses it by name or gives the same answers.

    python -m offramp_bench.artifact [--check] [--quick]

Frontiers of six networks are saved, loaded in a new process and asked there, and so are those of 50 random
architectures with 2, 11, 77 and 1,000 classes each (`offramp_bench.catalogue`). Then a small network's artifact is
changed in thousands of ways, everything that vouches for it made right again where the kind says so, and loaded. A
value of the manifest changed to another valid one of the same field is another artifact, as good as any; whom to take
artifacts from is the caller's to decide. Flipped bytes of a manifest may do that: such an artifact must be refused or
give answers.

Results go to stdout as JSON, progress to stderr.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, load_file, save, save_file
from torch import Tensor, nn

import offramp
from offramp.backbone import CifarResNet, Factory
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.errors import OfframpError
from offramp.features import ArraySource, StoreSource, extract, split_by_id
from offramp.model import fit_features
from offramp.pooling._rich import DEFAULT_POOLING
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.catalogue import ARCHITECTURES, CLASSES, frontier_of, named_text, round_trips
from offramp_bench.cifar import PREPROCESSING, cifar10, resnet
from offramp_bench.texts import intents, minilm

MUTATIONS = 10_000
QUICK = replace(offramp.DEFAULT, warmup_epochs=1, epochs=1, cost_weights=(0.1, 1.0))
LINEAR = replace(offramp.PAPER, warmup_epochs=1, epochs=1, cost_weights=(0.03, 0.3))
COSTS = (0.5, 0.7, 0.9, 2.0)
"""Points at which answers are compared."""

Files = dict[str, bytes]


# Round trips


@dataclass(frozen=True)
class Case:
    """A frontier to save, what makes its network elsewhere, and inputs to ask it."""

    fit: Callable[[], offramp.EarlyExitModel]
    inputs: Callable[[], Any]
    factory: Factory | None = None
    weights: bool = True


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.norm(self.conv(x)))


def own_backbone(width: int = 12, blocks: int = 4) -> Backbone:
    """A user's own module, cut by `offramp.split`, with weights that come out the same every time."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, width, 3, stride=2), *(_Residual(width) for _ in range(blocks))]
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    backbone = offramp.split(module.eval(), torch.zeros(2, 3, 32, 32), name="own")
    backbone.preprocessing = PREPROCESSING
    return backbone


def _pictures(split: str, rows: int) -> tuple[Any, Any]:
    read = cifar10(split, rows=rows).read(0, rows)
    return read.inputs, read.labels


def _fit_pictures(backbone: Backbone) -> offramp.EarlyExitModel:
    data = _pictures("train", 400), _pictures("test", 400)
    return offramp.fit(backbone, *data, preprocessing=PREPROCESSING, settings=QUICK, anyway=True, progress=False)


def _texts(split: str, rows: int) -> tuple[Any, Any]:
    source = intents("clinc150", split)
    places = np.random.default_rng(0).permutation(len(source))[:rows]
    read = source.read(0, len(source))
    return read.inputs[places], read.labels[places]


def _fit_texts() -> offramp.EarlyExitModel:
    data = _texts("train", 400), _texts("val", 400)
    return offramp.fit(minilm("clinc150"), *data, settings=QUICK, progress=False)


def _fit_named(classes: int) -> offramp.EarlyExitModel:
    torch.manual_seed(classes)
    return frontier_of(named_text().make(classes), named_text().inputs, random.Random(classes))


CASES = {
    "ResNet-20": Case(lambda: _fit_pictures(resnet(20)), lambda: _pictures("test", 300)[0]),
    "ResNet-20, then ResNet-56": Case(
        lambda: _fit_pictures(cascade(resnet(20), resnet(56))), lambda: _pictures("test", 300)[0]
    ),
    "MiniLM on CLINC150, from texts": Case(_fit_texts, lambda: _texts("test", 300)[0].tolist()),
    "a module of one's own": Case(
        lambda: _fit_pictures(own_backbone()),
        lambda: _pictures("test", 300)[0],
        Factory("offramp_bench.artifact:own_backbone", {"width": 12}),
        weights=False,
    ),
    "BERT with 77 named classes": Case(lambda: _fit_named(77), lambda: named_text().inputs),
    "BERT with 1,000 named classes": Case(lambda: _fit_named(1000), lambda: named_text().inputs),
}


def answers(frontier: offramp.EarlyExitModel, inputs: Any) -> dict[str, Tensor]:
    """Everything a frontier says of inputs, at some points of each policy."""
    torch.set_num_threads(1)  # how work is shared between threads may show in a last bit on a busy machine
    found: dict[str, Tensor] = {}
    for policy in frontier.points:
        cheapest = frontier.points[policy][0].tune_metrics["cost"]
        for cost in (cheapest, *(cost for cost in COSTS if cost > cheapest)):
            found |= _said(frontier.at(cost=cost, policy=policy), inputs, f"{policy} {cost}")
    return found


def _said(network: offramp.EarlyExitModel, inputs: Any, name: str) -> dict[str, Tensor]:
    answer = network.predict(inputs)
    return {
        f"{name} probabilities": answer.probabilities,
        f"{name} exits": answer.exits,
        f"{name} cost": answer.relative_cost,
        **{f"{name} set {level}": sets for level, sets in answer.prediction_sets.items()},
    }


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def round_trip(name: str, folder: Path) -> dict[str, Any]:
    """Fit, save, load and predict in a new process, compare."""
    case = CASES[name]
    frontier = case.fit()
    frontier.save(folder / "saved", factory=case.factory, weights=case.weights)
    expected = answers(frontier, case.inputs())
    command = [sys.executable, "-m", "offramp_bench.artifact", "--answer", name, str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    same = done.returncode == 0 and _equal(expected, load_file(folder / "answers.safetensors"))
    say(f"round trip: {name}: {'identical' if same else 'DIFFERENT ' + done.stderr[-500:]}")
    size_mb = sum(file.stat().st_size for file in (folder / "saved").iterdir()) / 1e6
    return {
        "name": name,
        "backbone": frontier.backbone.name,
        "compared": len(expected),
        "mb": size_mb,
        "identical": same,
    }


def answer_there(name: str, folder: Path) -> None:
    """The other process's part."""
    case = CASES[name]
    trust = [case.factory.name] if case.factory else []
    said = answers(offramp.load(folder / "saved", trust=trust), case.inputs())
    save_file({key: tensor.contiguous() for key, tensor in said.items()}, folder / "answers.safetensors")


# Mutations


def _manifest(files: Files) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(files["manifest.json"])
    return whole


def _with_manifest(files: Files, whole: dict[str, Any]) -> Files:
    return {**files, "manifest.json": json.dumps(whole, sort_keys=True, indent=1).encode()}


def _with_file(files: Files, name: str, raw: bytes) -> Files:
    """Other bytes in a file, under the name of their hash."""
    whole, known, digest = _manifest(files), _known_as(name), hashlib.sha256(raw).hexdigest()
    whole["files"][known] = {"bytes": len(raw), "sha256": digest}
    others = {other: content for other, content in files.items() if other != name}
    return _with_manifest({**others, f"{known}-{digest[:16]}.safetensors": raw}, whole)


def _known_as(name: str) -> str:
    """The manifest's name of a file."""
    return name.rpartition("-")[0]


def _places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to every value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, one in inner for place in [(*way, key), *_places(one, (*way, key))]]


def _at(whole: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        whole = whole[key]
    return whole


def _replaced(files: Files, way: tuple[Any, ...], value: Any) -> Files:
    whole = _manifest(files)
    _at(whole, way[:-1])[way[-1]] = value
    return _with_manifest(files, whole)


def _any_place(files: Files, draw: random.Random) -> tuple[tuple[Any, ...], Any]:
    """A place of the manifest, mostly in its content, at any depth alike: else nearly all would be of points."""
    whole = _manifest(files)
    way: tuple[Any, ...] = ("content",) if draw.random() < 0.9 else ()
    while True:
        here = _at(whole, way)
        keys = list(here) if isinstance(here, dict) else list(range(len(here))) if isinstance(here, list) else []
        if not keys or (len(way) > 1 and draw.random() < 0.15):
            return way, here
        way = (*way, draw.choice(keys))


def _tensor_file(files: Files, draw: random.Random) -> str:
    return draw.choice([name for name in files if name.endswith(".safetensors")])


def flipped(files: Files, draw: random.Random) -> Files:
    """Some bytes of a tensor file flipped."""
    return _flipped(files, _tensor_file(files, draw), draw)


def manifest_flipped(files: Files, draw: random.Random) -> Files:
    """Some bytes of the manifest flipped, or a digit of it changed."""
    if draw.random() < 0.5:
        return _flipped(files, "manifest.json", draw)
    raw = bytearray(files["manifest.json"])
    raw[draw.choice([place for place, byte in enumerate(raw) if chr(byte).isdigit()])] = ord(
        draw.choice("0123456789-e.")
    )
    return {**files, "manifest.json": bytes(raw)}


def _flipped(files: Files, name: str, draw: random.Random) -> Files:
    raw = bytearray(files[name])
    for _ in range(draw.choice((1, 1, 2, 8))):
        raw[draw.randrange(len(raw))] ^= draw.randrange(1, 256)
    return {**files, name: bytes(raw)}


def removed(files: Files, draw: random.Random) -> Files:
    """A field taken out."""
    whole = _manifest(files)
    objects = [way for way in [(), *_places(whole)] if isinstance(_at(whole, way), dict) and _at(whole, way)]
    holder = _at(whole, draw.choice(objects[:20] if draw.random() < 0.5 else objects))
    del holder[draw.choice(list(holder))]
    return _with_manifest(files, whole)


def retyped(files: Files, draw: random.Random) -> Files:
    """A field of another type."""
    way, value = _any_place(files, draw)
    kinds = {type(value)} | ({int} if isinstance(value, float) else set())
    other = [None, True, "text", "", [], [[1]], {}, {"a": 1}, 1, 1.5, -1]
    return _replaced(files, way, draw.choice([one for one in other if type(one) not in kinds]))


def huge(files: Files, draw: random.Random) -> Files:
    """A field far too large."""
    way, value = _any_place(files, draw)
    if isinstance(value, list):
        return _replaced(files, way, (value or [0]) * 300)
    if isinstance(value, dict):
        return _replaced(files, way, {**value, **{f"key{index}": index for index in range(2000)}})
    if isinstance(value, str):
        return _replaced(files, way, "x" * draw.choice((2_000, 100_000)))
    if isinstance(value, float):
        return _replaced(files, way, draw.choice((1e308, -1e308, 10**400)))
    return _replaced(files, way, draw.choice((10**9, 2**31, 2**63, 10**18, 10**400, -(10**9), -(10**400))))


def nested(files: Files, draw: random.Random) -> Files:
    """Lists within lists in place of a field, or of the whole manifest."""
    levels = draw.choice((6, 20, 40, 300, 100_000))
    if levels > 1000:
        opening = draw.choice(("[", '{"a":'))
        return {**files, "manifest.json": (opening * levels).encode()}
    way, value = _any_place(files, draw)
    made: Any = 1
    for _ in range(levels):
        made = [made] if not isinstance(value, list) or draw.random() < 0.5 else {"a": made}
    return _replaced(files, way, made if not isinstance(value, list) else {"a": made})


OUTSIDE = (
    "../{}",
    "../outside/{}",
    "/etc/passwd",
    "/tmp/{}",
    "sub/../../{}",
    "..\\{}",
    "{}\n",
    "{}/",
    "./{}",
    "~/{}",
    "",
)


def named(files: Files, draw: random.Random) -> Files:
    """Names of files outside the folder."""
    whole = _manifest(files)
    name = draw.choice(list(whole["files"]))
    entry = whole["files"].pop(name) if draw.random() < 0.5 else whole["files"][name]
    whole["files"][draw.choice(OUTSIDE).format(name)] = entry
    return _with_manifest(files, whole)


def truncated(files: Files, draw: random.Random) -> Files:
    """A tensor file cut short or too long, vouched for or not."""
    name = _tensor_file(files, draw)
    raw = files[name]
    raw = draw.choice((raw[: draw.randrange(len(raw))], raw + bytes(draw.randrange(1, 1000)), b""))
    return _with_file(files, name, raw) if draw.random() < 0.7 else {**files, name: raw}


def swapped(files: Files, draw: random.Random) -> Files:
    """One tensor file in place of another, vouched for or not."""
    one, other = draw.sample([name for name in files if name.endswith(".safetensors")], 2)
    if draw.random() < 0.3:
        return {**files, one: files[other], other: files[one]}
    made = _with_file(files, one, files[other])
    return made if draw.random() < 0.5 else _with_file(made, other, files[one])


def _changed(files: Files, draw: random.Random, change: Callable[[Tensor], Tensor]) -> Files:
    name = _tensor_file(files, draw)
    tensors = load(files[name])
    real = sorted(key for key, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel())
    for key in real if draw.random() < 0.1 else [draw.choice(real)]:
        tensors[key] = change(tensors[key]).contiguous().clone()
    return _with_file(files, name, save(tensors))


def reshaped(files: Files, draw: random.Random) -> Files:
    """Tensors of another shape, vouched for."""

    def change(tensor: Tensor) -> Tensor:
        ways = [tensor[None], tensor[..., None], tensor[:0], torch.cat([tensor, tensor]), tensor.sum(), tensor[0]]
        return draw.choice([way for way in ways if way.shape != tensor.shape])

    return _changed(files, draw, change)


def recast(files: Files, draw: random.Random) -> Files:
    """Tensors of another type, vouched for."""
    types = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
    types += [torch.complex64, torch.float8_e4m3fn]

    def change(tensor: Tensor) -> Tensor:
        return tensor.to(draw.choice([dtype for dtype in types if dtype != tensor.dtype]))

    return _changed(files, draw, change)


def poisoned(files: Files, draw: random.Random) -> Files:
    """Numbers that are none, vouched for."""

    def change(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor.view(-1)[draw.randrange(tensor.numel())] = draw.choice((float("nan"), float("-inf")))
        return tensor

    return _changed(files, draw, change)


def bombs(files: Files, draw: random.Random) -> Files:
    """Sizes that nothing has, in the header of a tensor file or in the manifest, vouched for."""
    name = _tensor_file(files, draw)
    if draw.random() < 0.3:
        return _replaced(files, ("files", _known_as(name), "bytes"), draw.choice((0, 2**30, 2**40, 2**62, 10**30)))
    raw = files[name]
    length = struct.unpack("<Q", raw[:8])[0]
    if draw.random() < 0.3:
        lied = draw.choice((0, 2**20, 2**40, 2**63, 2**64 - 1))
        return _with_file(files, name, struct.pack("<Q", lied) + raw[8:])
    header = json.loads(raw[8 : 8 + length])
    entry = header[draw.choice([key for key in header if key != "__metadata__"])]
    size = draw.choice((2**31, 2**40, 2**62))
    if draw.random() < 0.5:
        entry["shape"] = draw.choice(([size], [size, size], [*entry["shape"], size], [size, 0]))
    else:
        entry["data_offsets"] = draw.choice(([0, size], [size, size], [size, 0]))
    text = json.dumps(header).encode()
    return _with_file(files, name, struct.pack("<Q", len(text)) + text + raw[8 + length :])


CODE = ("os:system", "builtins:eval", "builtins:exec", "subprocess:Popen", "runpy:run_path", "importlib:import_module")


def factories(files: Files, draw: random.Random) -> Files:
    """Somebody's code in place of the network's factory."""
    whole = _manifest(files)
    factory = whole["content"]["backbone"]["factory"]
    factory = draw.choice([factory, *factory["members"]])
    factory["name"] = draw.choice((*CODE, "offramp_bench.artifact:own_backbone", "nobody:nothing", ":", "unknown"))
    factory["options"] = draw.choice(
        (factory["options"], {"command": "touch ../touched"}, {"args": ["touch", "../touched"]}, {"path_name": "x.py"})
    )
    return _with_manifest(files, whole)


def missing(files: Files, draw: random.Random) -> Files:
    """A file taken away, or one more that nobody lists."""
    name = draw.choice(list(files))
    if draw.random() < 0.2:
        return {**files, draw.choice(("more.safetensors", "setup.py", "exits.pkl")): files[name]}
    return {other: raw for other, raw in files.items() if other != name}


KINDS: dict[str, Callable[[Files, random.Random], Files]] = {
    "bytes of tensors flipped": flipped,
    "bytes of the manifest flipped": manifest_flipped,
    "field removed": removed,
    "field of another type": retyped,
    "field far too large": huge,
    "field nested deeply": nested,
    "files named outside": named,
    "tensor file cut or too long": truncated,
    "tensor files swapped": swapped,
    "tensors of another shape": reshaped,
    "tensors of another type": recast,
    "tensors with NaN": poisoned,
    "sizes that nothing has": bombs,
    "somebody's code": factories,
    "files missing or more": missing,
}


MAY_DIFFER = ("bytes of the manifest flipped",)
"""Kinds that may make another valid artifact, which gives answers of its own."""


class Watch:
    """Counts what loading must not do: open a file elsewhere or for writing, start a process, run new code."""

    EVENTS = tuple(
        "os.system os.exec os.spawn os.posix_spawn os.fork subprocess. exec compile import os.remove os.rename "
        "os.mkdir os.rmdir os.link os.symlink shutil. socket. ctypes.".split()
    )

    def __init__(self, folder: Path) -> None:
        self.on = False
        self.seen: list[str] = []
        self._inside = str(folder) + os.sep
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = arguments
            writing = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(str(mode)) & set("wax+")
            if writing or not str(path).startswith(self._inside):
                self.seen.append(f"open {path} {mode}")
        elif event.startswith(self.EVENTS):
            self.seen.append(f"{event} {str(arguments)[:200]}")


def _small(folder: Path) -> list[tuple[Files, Any]]:
    """The artifacts that are changed: a ladder on a small ResNet, the paper's exits on a cascade of two."""
    torch.manual_seed(0)
    images = torch.randint(0, 256, (120, 32, 32, 3), dtype=torch.uint8)
    labels = torch.arange(120) % 3
    made = []
    for backbone, settings in (
        (CifarResNet(8, num_classes=3), replace(QUICK, ladder_width=8)),
        (cascade(CifarResNet(8, num_classes=3), CifarResNet(8, num_classes=3), name="two"), LINEAR),
    ):
        # Not by `offramp.fit`, which would drop a member as useless as these.
        source = ArraySource(images.numpy(), labels.numpy(), name="small")
        store = extract(backbone, source, folder / backbone.name, views=(PREPROCESSING,), progress=False)
        frontier = fit_features(
            backbone,
            *(
                StoreSource(store, pooling=DEFAULT_POOLING, rows=rows)
                for rows in split_by_id(store.ids(), [60, 30, 30])
            ),
            example=backbone.prepare(PREPROCESSING(images[:1])),
            preprocessing=PREPROCESSING,
            settings=settings,
        )
        points = {policy: listed[:: max(1, len(listed) // 3)][:4] for policy, listed in frontier.points.items()}
        replace(frontier, points=points).save(folder / "base", weights=True)
        written = [file for file in (folder / "base").iterdir() if file.name != ".lock"]
        made.append(({file.name: file.read_bytes() for file in written}, images[:6]))
        shutil.rmtree(folder / "base")
    return made


def _outcome(folder: Path, inputs: Any, expected: dict[str, Tensor] | None) -> tuple[str, Any]:
    try:
        frontier = offramp.load(folder)
        said = {
            name: value
            for policy, points in sorted(frontier.points.items())
            for name, value in _said(replace(frontier, chosen=points[1]), inputs, policy).items()
        }
    except OfframpError as error:
        return ("refused", None) if str(folder) in str(error) else ("other", f"names no file: {error}")
    except Exception as error:
        return "other", f"{type(error).__name__}: {str(error)[:300]}"
    if expected is None:
        return "identical", said
    return ("identical", None) if _equal(said, expected) else ("different", "other answers")


def mutate(count: int, folder: Path) -> dict[str, Any]:
    """Load changed artifacts and count what comes of it."""
    base = _small(folder)
    place = folder / "mutated"
    expected = []
    for files, inputs in base:
        _write(place, files)
        outcome, said = _outcome(place, inputs, None)
        assert outcome == "identical", said
        expected.append(said)
    watch = Watch(place)
    rows: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    bad: list[dict[str, Any]] = []
    touched: list[dict[str, Any]] = []
    slowest_s, before_kb = 0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for index in range(-len(KINDS), count):  # the first of each kind warms up: what is imported on first use
        kind = list(KINDS)[index % len(KINDS)]
        draw = random.Random(index)
        which = draw.randrange(len(base))
        files, inputs = base[which]
        _write(place, KINDS[kind](files, draw))
        watch.seen.clear()
        watch.on = index >= 0
        began = time.perf_counter()
        outcome, detail = _outcome(place, inputs, expected[which])
        took_s = time.perf_counter() - began
        watch.on = False
        if index < 0:
            continue
        slowest_s = max(slowest_s, took_s)
        rows[kind][outcome] += 1
        if outcome == "other" or (outcome == "different" and kind not in MAY_DIFFER):
            bad.append({"index": index, "kind": kind, "detail": detail})
            say(f"mutation {index}, {kind}: {outcome}: {detail}")
        if watch.seen:
            touched.append({"index": index, "kind": kind, "events": watch.seen[:5]})
            say(f"mutation {index}, {kind}: {watch.seen[:5]}")
        if (index + 1) % 1000 == 0:
            say(f"mutations: {index + 1} of {count}")
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1e3
    kinds = {
        kind: {name: found[name] for name in ("refused", "identical", "different", "other")}
        for kind, found in rows.items()
    }
    return {
        "count": count,
        "kinds": kinds,
        "bad": bad[:50],
        "touched": len(touched),
        "touches": touched[:50],
        "slowest_s": slowest_s,
        "grown_mb": grown_mb,
    }


def _write(folder: Path, files: Files) -> None:
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        if file.name not in files:
            file.unlink()
    for name, raw in files.items():
        (folder / name).write_bytes(raw)


def main() -> int:
    arguments = _arguments()
    torch.set_num_threads(1)  # the same order of sums in both processes
    if arguments.answer:
        answer_there(arguments.answer[0], Path(arguments.answer[1]))
        return 0
    trips = []
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            trips.append(round_trip(name, Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        drawn = round_trips(range(ARCHITECTURES // 10 if arguments.quick else ARCHITECTURES), CLASSES, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        mutations = mutate(MUTATIONS // 20 if arguments.quick else MUTATIONS, Path(folder).resolve())
    kinds = mutations["kinds"].items()
    errors = sum(found["other"] for _, found in kinds)
    different = sum(found["different"] for kind, found in kinds if kind not in MAY_DIFFER)
    bars = [
        Bar("round trips with other answers", sum(not trip["identical"] for trip in trips), 0),
        Bar("random architectures that did not come back the same", sum(bool(row["wrong"]) for row in drawn), 0),
        Bar("changed artifacts that end in another error", errors, 0),
        Bar("changed artifacts that give other answers", different, 0),
        Bar("changed artifacts that touch anything outside", mutations["touched"], 0),
    ]
    return report({"round_trips": trips, "drawn": drawn, "mutations": mutations}, bars, check=arguments.check)


def _arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument(
        "--quick", action="store_true", help="a tenth of the architectures and a twentieth of the mutations"
    )
    made.add_argument("--answer", nargs=2, help=argparse.SUPPRESS)
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(main())
