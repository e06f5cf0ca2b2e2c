"""Check that `load` refuses a changed artifact with an error that names it, or gives the same answers.

    python -m offramp_bench.artifact [--check] [--quick]

Models of six networks are saved, and loaded and run in a new process, and so are those of 50 random architectures with
2, 11, 77 and 1,000 classes each (`offramp_bench.catalogue`). Then the artifacts of two small networks are changed in
thousands of ways and loaded; for most kinds of change, hashes and sizes are corrected to match. If a value of the
manifest is replaced by another valid value of the same field, the result is another valid artifact; callers must decide
whose artifacts they trust. Flipped bytes of a manifest may do that: such an artifact must be refused or give answers.

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
"""Budgets at which answers are compared."""

Files = dict[str, bytes]
Keys = tuple[Any, ...]
"""Keys and indices that lead to a value of the manifest."""


# Round trips


@dataclass(frozen=True)
class Case:
    """A model to save, the factory of its network, and inputs to predict."""

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
    """Return a user's own module, cut by `offramp.split`, with the same random weights every time."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, width, 3, stride=2), *(_Residual(width) for _ in range(blocks))]
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    backbone = offramp.split(module.eval(), torch.zeros(2, 3, 32, 32), name="own")
    backbone.preprocessing = PREPROCESSING
    return backbone


def _pictures(split: str, rows: int) -> tuple[Any, Any]:
    images = cifar10(split, rows=rows).read(0, rows)
    return images.inputs, images.labels


def _fit_pictures(backbone: Backbone) -> offramp.EarlyExitModel:
    data = _pictures("train", 400), _pictures("test", 400)
    return offramp.fit(backbone, *data, preprocessing=PREPROCESSING, settings=QUICK, anyway=True, progress=False)


def _texts(split: str, rows: int) -> tuple[Any, Any]:
    source = intents("clinc150", split)
    places = np.random.default_rng(0).permutation(len(source))[:rows]
    texts = source.read(0, len(source))
    return texts.inputs[places], texts.labels[places]


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
    """Return all answers of a model for the inputs, at some points of each policy."""
    torch.set_num_threads(1)  # with more threads, the last bits of sums may vary
    tensors: dict[str, Tensor] = {}
    for policy in frontier.points:
        cheapest = frontier.points[policy][0].tune_metrics["cost"]
        for cost in (cheapest, *(cost for cost in COSTS if cost > cheapest)):
            tensors |= _answers_at(frontier.at(cost=cost, policy=policy), inputs, f"{policy} {cost}")
    return tensors


def _answers_at(network: offramp.EarlyExitModel, inputs: Any, name: str) -> dict[str, Tensor]:
    answer = network.predict(inputs)
    return {
        f"{name} probabilities": answer.probabilities,
        f"{name} exits": answer.exits,
        f"{name} cost": answer.relative_cost,
        **{f"{name} set {level}": sets for level, sets in answer.prediction_sets.items()},
    }


def _equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def round_trip(name: str, folder: Path) -> dict[str, Any]:
    """Fit and save a model, load it and predict in a new process, and compare the answers."""
    case = CASES[name]
    frontier = case.fit()
    frontier.save(folder / "saved", factory=case.factory, weights=case.weights)
    expected = answers(frontier, case.inputs())
    command = [sys.executable, "-m", "offramp_bench.artifact", "--answer", name, str(folder)]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    same = process.returncode == 0 and _equal(expected, load_file(folder / "answers.safetensors"))
    say(f"round trip: {name}: {'identical' if same else 'DIFFERENT ' + process.stderr[-500:]}")
    size_mb = sum(file.stat().st_size for file in (folder / "saved").iterdir()) / 1e6
    return {
        "name": name,
        "backbone": frontier.backbone.name,
        "compared": len(expected),
        "mb": size_mb,
        "identical": same,
    }


def save_answers(name: str, folder: Path) -> None:
    """Load a model in the new process, and save its answers."""
    case = CASES[name]
    trust = [case.factory.name] if case.factory else []
    tensors = answers(offramp.load(folder / "saved", trust=trust), case.inputs())
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / "answers.safetensors")


# Mutations


def _manifest(files: Files) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(files["manifest.json"])
    return manifest


def _with_manifest(files: Files, manifest: dict[str, Any]) -> Files:
    return {**files, "manifest.json": json.dumps(manifest, sort_keys=True, indent=1).encode()}


def _with_file(files: Files, name: str, raw: bytes) -> Files:
    """Replace the bytes of a file, with matching name and manifest entry."""
    manifest, entry_name, digest = _manifest(files), _entry_name(name), hashlib.sha256(raw).hexdigest()
    manifest["files"][entry_name] = {"bytes": len(raw), "sha256": digest}
    others = {other: content for other, content in files.items() if other != name}
    return _with_manifest({**others, f"{entry_name}-{digest[:16]}.safetensors": raw}, manifest)


def _entry_name(name: str) -> str:
    """Return the name of a file in the manifest."""
    return name.rpartition("-")[0]


def _paths(value: Any, path: Keys = ()) -> list[Keys]:
    """Return the path of every value within a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [below for key, child in inner for below in [(*path, key), *_paths(child, (*path, key))]]


def _at(value: Any, path: Keys) -> Any:
    for key in path:
        value = value[key]
    return value


def _replace_value(files: Files, path: Keys, value: Any) -> Files:
    manifest = _manifest(files)
    _at(manifest, path[:-1])[path[-1]] = value
    return _with_manifest(files, manifest)


def _draw_value(files: Files, draw: random.Random) -> tuple[Keys, Any]:
    """Draw a value of the manifest, mostly of its content, step by step: of all values, most belong to points."""
    manifest = _manifest(files)
    path: Keys = ("content",) if draw.random() < 0.9 else ()
    while True:
        value = _at(manifest, path)
        keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
        if not keys or (len(path) > 1 and draw.random() < 0.15):
            return path, value
        path = (*path, draw.choice(keys))


def _draw_tensor_file(files: Files, draw: random.Random) -> str:
    return draw.choice([name for name in files if name.endswith(".safetensors")])


def flip_tensor_bytes(files: Files, draw: random.Random) -> Files:
    """Flip some bytes of a tensor file."""
    return _flip_bytes(files, _draw_tensor_file(files, draw), draw)


def flip_manifest_bytes(files: Files, draw: random.Random) -> Files:
    """Flip some bytes of the manifest, or change one of its digits."""
    if draw.random() < 0.5:
        return _flip_bytes(files, "manifest.json", draw)
    raw = bytearray(files["manifest.json"])
    raw[draw.choice([place for place, byte in enumerate(raw) if chr(byte).isdigit()])] = ord(
        draw.choice("0123456789-e.")
    )
    return {**files, "manifest.json": bytes(raw)}


def _flip_bytes(files: Files, name: str, draw: random.Random) -> Files:
    raw = bytearray(files[name])
    for _ in range(draw.choice((1, 1, 2, 8))):
        raw[draw.randrange(len(raw))] ^= draw.randrange(1, 256)
    return {**files, name: bytes(raw)}


def remove_field(files: Files, draw: random.Random) -> Files:
    """Remove a field of the manifest."""
    manifest = _manifest(files)
    objects = [
        path for path in [(), *_paths(manifest)] if isinstance(_at(manifest, path), dict) and _at(manifest, path)
    ]
    holder = _at(manifest, draw.choice(objects[:20] if draw.random() < 0.5 else objects))
    del holder[draw.choice(list(holder))]
    return _with_manifest(files, manifest)


def change_field_type(files: Files, draw: random.Random) -> Files:
    """Replace a field by a value of another type."""
    path, value = _draw_value(files, draw)
    kinds = {type(value)} | ({int} if isinstance(value, float) else set())
    values = [None, True, "text", "", [], [[1]], {}, {"a": 1}, 1, 1.5, -1]
    return _replace_value(files, path, draw.choice([other for other in values if type(other) not in kinds]))


def enlarge_field(files: Files, draw: random.Random) -> Files:
    """Make a field far too large."""
    path, value = _draw_value(files, draw)
    if isinstance(value, list):
        return _replace_value(files, path, (value or [0]) * 300)
    if isinstance(value, dict):
        return _replace_value(files, path, {**value, **{f"key{index}": index for index in range(2000)}})
    if isinstance(value, str):
        return _replace_value(files, path, "x" * draw.choice((2_000, 100_000)))
    if isinstance(value, float):
        return _replace_value(files, path, draw.choice((1e308, -1e308, 10**400)))
    return _replace_value(files, path, draw.choice((10**9, 2**31, 2**63, 10**18, 10**400, -(10**9), -(10**400))))


def nest_field(files: Files, draw: random.Random) -> Files:
    """Replace a field, or the whole manifest, by deeply nested lists and objects."""
    levels = draw.choice((6, 20, 40, 300, 100_000))
    if levels > 1000:
        opening = draw.choice(("[", '{"a":'))
        return {**files, "manifest.json": (opening * levels).encode()}
    path, value = _draw_value(files, draw)
    nested: Any = 1
    for _ in range(levels):
        nested = [nested] if not isinstance(value, list) or draw.random() < 0.5 else {"a": nested}
    return _replace_value(files, path, nested if not isinstance(value, list) else {"a": nested})


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


def name_files_outside(files: Files, draw: random.Random) -> Files:
    """Name files outside the folder."""
    manifest = _manifest(files)
    name = draw.choice(list(manifest["files"]))
    entry = manifest["files"].pop(name) if draw.random() < 0.5 else manifest["files"][name]
    manifest["files"][draw.choice(OUTSIDE).format(name)] = entry
    return _with_manifest(files, manifest)


def change_file_length(files: Files, draw: random.Random) -> Files:
    """Cut or lengthen a tensor file, with a matching hash or not."""
    name = _draw_tensor_file(files, draw)
    raw = files[name]
    raw = draw.choice((raw[: draw.randrange(len(raw))], raw + bytes(draw.randrange(1, 1000)), b""))
    return _with_file(files, name, raw) if draw.random() < 0.7 else {**files, name: raw}


def swap_files(files: Files, draw: random.Random) -> Files:
    """Put one tensor file in place of another, with matching hashes or not."""
    first, second = draw.sample([name for name in files if name.endswith(".safetensors")], 2)
    if draw.random() < 0.3:
        return {**files, first: files[second], second: files[first]}
    changed = _with_file(files, first, files[second])
    return changed if draw.random() < 0.5 else _with_file(changed, second, files[first])


def _change_tensors(files: Files, draw: random.Random, change: Callable[[Tensor], Tensor]) -> Files:
    tensors_of = {name: load(raw) for name, raw in files.items() if name.endswith(".safetensors")}
    # Some files hold no floating-point numbers.
    changeable = {name: keys for name, tensors in tensors_of.items() if (keys := _float_keys(tensors))}
    name = draw.choice(list(changeable))
    tensors, keys = tensors_of[name], changeable[name]
    for key in keys if draw.random() < 0.1 else [draw.choice(keys)]:
        tensors[key] = change(tensors[key]).contiguous().clone()
    return _with_file(files, name, save(tensors))


def _float_keys(tensors: dict[str, Tensor]) -> list[str]:
    return sorted(key for key, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel())


def change_shapes(files: Files, draw: random.Random) -> Files:
    """Change shapes of tensors, with a matching hash."""

    def change(tensor: Tensor) -> Tensor:
        choices = [tensor[None], tensor[..., None], tensor[:0], torch.cat([tensor, tensor]), tensor.sum(), tensor[0]]
        return draw.choice([choice for choice in choices if choice.shape != tensor.shape])

    return _change_tensors(files, draw, change)


def change_types(files: Files, draw: random.Random) -> Files:
    """Change types of tensors, with a matching hash."""
    types = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
    types += [torch.complex64, torch.float8_e4m3fn]

    def change(tensor: Tensor) -> Tensor:
        return tensor.to(draw.choice([dtype for dtype in types if dtype != tensor.dtype]))

    return _change_tensors(files, draw, change)


def insert_nan(files: Files, draw: random.Random) -> Files:
    """Put NaN or infinity into tensors, with a matching hash."""

    def change(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor.view(-1)[draw.randrange(tensor.numel())] = draw.choice((float("nan"), float("-inf")))
        return tensor

    return _change_tensors(files, draw, change)


def forge_sizes(files: Files, draw: random.Random) -> Files:
    """State impossible sizes, in the header of a tensor file with a matching hash, or in the manifest."""
    name = _draw_tensor_file(files, draw)
    if draw.random() < 0.3:
        return _replace_value(
            files, ("files", _entry_name(name), "bytes"), draw.choice((0, 2**30, 2**40, 2**62, 10**30))
        )
    raw = files[name]
    length = struct.unpack("<Q", raw[:8])[0]
    if draw.random() < 0.3:
        forged = draw.choice((0, 2**20, 2**40, 2**63, 2**64 - 1))
        return _with_file(files, name, struct.pack("<Q", forged) + raw[8:])
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


def insert_code(files: Files, draw: random.Random) -> Files:
    """Put third-party code in place of the network's factory."""
    manifest = _manifest(files)
    factory = manifest["content"]["backbone"]["factory"]
    factory = draw.choice([factory, *factory["members"]])
    factory["name"] = draw.choice((*CODE, "offramp_bench.artifact:own_backbone", "nobody:nothing", ":", "unknown"))
    factory["options"] = draw.choice(
        (factory["options"], {"command": "touch ../touched"}, {"args": ["touch", "../touched"]}, {"path_name": "x.py"})
    )
    return _with_manifest(files, manifest)


def remove_or_add_file(files: Files, draw: random.Random) -> Files:
    """Remove a file, or add one that is not in the manifest."""
    name = draw.choice(list(files))
    if draw.random() < 0.2:
        return {**files, draw.choice(("more.safetensors", "setup.py", "exits.pkl")): files[name]}
    return {other: raw for other, raw in files.items() if other != name}


KINDS: dict[str, Callable[[Files, random.Random], Files]] = {
    "bytes of tensors flipped": flip_tensor_bytes,
    "bytes of the manifest flipped": flip_manifest_bytes,
    "field removed": remove_field,
    "field of another type": change_field_type,
    "field far too large": enlarge_field,
    "field nested deeply": nest_field,
    "files named outside": name_files_outside,
    "tensor file cut or too long": change_file_length,
    "tensor files swapped": swap_files,
    "tensors of another shape": change_shapes,
    "tensors of another type": change_types,
    "tensors with NaN": insert_nan,
    "sizes that nothing has": forge_sizes,
    "third-party code": insert_code,
    "files missing or more": remove_or_add_file,
}


MAY_DIFFER = ("bytes of the manifest flipped",)
"""Kinds that may result in another valid artifact, with other answers."""


class Watch:
    """A record of what loading must not do: open a file elsewhere or for writing, start a process, run new code."""

    FORBIDDEN = tuple(
        "os.system os.exec os.spawn os.posix_spawn os.fork subprocess. exec compile import os.remove os.rename "
        "os.mkdir os.rmdir os.link os.symlink shutil. socket. ctypes.".split()
    )

    def __init__(self, folder: Path) -> None:
        self.on = False
        self.events: list[str] = []
        self._inside = str(folder) + os.sep
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = arguments
            writing = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or set(str(mode)) & set("wax+")
            if writing or not str(path).startswith(self._inside):
                self.events.append(f"open {path} {mode}")
        elif event.startswith(self.FORBIDDEN):
            self.events.append(f"{event} {str(arguments)[:200]}")


def _small(folder: Path) -> list[tuple[Files, Any]]:
    """Return the artifacts to change: a ladder on a small ResNet, and the paper's exits on a cascade of two."""
    torch.manual_seed(0)
    images = torch.randint(0, 256, (120, 32, 32, 3), dtype=torch.uint8)
    labels = torch.arange(120) % 3
    artifacts = []
    for backbone, settings in (
        (CifarResNet(8, num_classes=3), replace(QUICK, ladder_width=8)),
        (cascade(CifarResNet(8, num_classes=3), CifarResNet(8, num_classes=3), name="two"), LINEAR),
    ):
        # Not by `offramp.fit`: it would drop such untrained members.
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
        points = {policy: own[:: max(1, len(own) // 3)][:4] for policy, own in frontier.points.items()}
        replace(frontier, points=points).save(folder / "base", weights=True)
        paths = sorted(file for file in (folder / "base").iterdir() if file.name != ".lock")
        artifacts.append(({file.name: file.read_bytes() for file in paths}, images[:6]))
        shutil.rmtree(folder / "base")
    return artifacts


def _outcome(folder: Path, inputs: Any, expected: dict[str, Tensor] | None) -> tuple[str, Any]:
    try:
        frontier = offramp.load(folder)
        tensors = {
            name: value
            for policy, points in sorted(frontier.points.items())
            for name, value in _answers_at(replace(frontier, chosen=points[1]), inputs, policy).items()
        }
    except OfframpError as error:
        return ("refused", None) if str(folder) in str(error) else ("other", f"names no file: {error}")
    except Exception as error:
        return "other", f"{type(error).__name__}: {str(error)[:300]}"
    if expected is None:
        return "identical", tensors
    return ("identical", None) if _equal(tensors, expected) else ("different", "other answers")


def mutate(count: int, folder: Path) -> dict[str, Any]:
    """Load changed artifacts and count the outcomes."""
    base = _small(folder)
    place = folder / "mutated"
    expected = []
    for files, inputs in base:
        _write(place, files)
        outcome, tensors = _outcome(place, inputs, None)
        assert outcome == "identical", tensors
        expected.append(tensors)
    watch = Watch(place)
    rows: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    bad: list[dict[str, Any]] = []
    touched: list[dict[str, Any]] = []
    slowest_s, before_kb = 0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for index in range(-len(KINDS), count):  # the first of each kind warms up: it may import modules
        kind = list(KINDS)[index % len(KINDS)]
        draw = random.Random(index)
        which = draw.randrange(len(base))
        files, inputs = base[which]
        _write(place, KINDS[kind](files, draw))
        watch.events.clear()
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
        if watch.events:
            touched.append({"index": index, "kind": kind, "events": watch.events[:5]})
            say(f"mutation {index}, {kind}: {watch.events[:5]}")
        if (index + 1) % 1000 == 0:
            say(f"mutations: {index + 1} of {count}")
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1e3
    kinds = {
        kind: {name: counts[name] for name in ("refused", "identical", "different", "other")}
        for kind, counts in rows.items()
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
        save_answers(arguments.answer[0], Path(arguments.answer[1]))
        return 0
    trips = []
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            trips.append(round_trip(name, Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        catalogue = round_trips(range(ARCHITECTURES // 10 if arguments.quick else ARCHITECTURES), CLASSES, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        mutations = mutate(MUTATIONS // 20 if arguments.quick else MUTATIONS, Path(folder).resolve())
    kinds = mutations["kinds"].items()
    errors = sum(counts["other"] for _, counts in kinds)
    different = sum(counts["different"] for kind, counts in kinds if kind not in MAY_DIFFER)
    bars = [
        Bar("round trips with other answers", sum(not trip["identical"] for trip in trips), 0),
        Bar("random architectures that did not come back the same", sum(bool(row["wrong"]) for row in catalogue), 0),
        Bar("changed artifacts that end in another error", errors, 0),
        Bar("changed artifacts that give other answers", different, 0),
        Bar("changed artifacts that touch anything outside", mutations["touched"], 0),
    ]
    return report({"round_trips": trips, "drawn": catalogue, "mutations": mutations}, bars, check=arguments.check)


def _arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument(
        "--quick", action="store_true", help="a tenth of the architectures and a twentieth of the mutations"
    )
    options.add_argument("--answer", nargs=2, help=argparse.SUPPRESS)
    return options.parse_args()


if __name__ == "__main__":
    sys.exit(main())
