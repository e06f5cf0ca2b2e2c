"""A runner for networks with exits that `offramp export onnx` wrote, without torch and without offramp.

    python offramp_onnx.py FOLDER --input texts.txt

    import offramp_onnx

    network = offramp_onnx.load("FOLDER")
    answer = network.predict(["a text", "another text"], budget=0.6)

It needs numpy and onnxruntime; tokenizers for texts, and Pillow for image files. Every exported folder has a copy of
this file. Policies are graphs too, exported from the code of offramp.
"""

import argparse
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

__all__ = ["FolderError", "OnnxAnswer", "OnnxNetwork", "load"]

FORMAT, VERSION, SINGLE = "offramp-onnx", 1, "single.onnx"

MOST_RATIO = 100
"""Largest ratio of the sides of an image, as in `offramp.preprocessing`."""

LUMINANCE = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in gray, as in `offramp.preprocessing`."""

ROUNDING = 1e-6
"""Relative tolerance of a budget, as in `offramp.runtime._dial`."""

PARTS = {
    "name": str,
    "made_of": dict,
    "num_classes": int,
    "classes": list,
    "preprocessing": list,
    "inputs": list,
    "initial_state": dict,
    "stages": list,
    "exits": dict,
    "policies": dict,
    "points": list,
    "files": dict,
}
"""Required entries of a manifest, and their types."""

BATCH = 16
"""Inputs per batch on the command line: so many large photos fit into memory."""

HINT = "README.md in the folder says what the network takes"
"""End of messages about inputs."""

Array = npt.NDArray[Any]


class FolderError(ValueError):
    """A folder that `offramp export onnx` did not write, or that was changed since."""


@dataclass(frozen=True)
class OnnxAnswer:
    """The predictions for N inputs, in their order."""

    labels: Array
    """`N` predicted classes."""
    probabilities: Array
    """`N x K`, calibrated."""
    exits: Array
    """`N` exits at which the samples left, 0-based."""
    relative_cost: Array
    """`N` costs, relative to the full network."""
    prediction_sets: Mapping[float, Array]
    """`N x K` booleans for each miscoverage that was calibrated for all points used."""
    classes: tuple[str, ...] = ()
    """`K` class names; empty if they are not known."""

    @property
    def names(self) -> tuple[str, ...]:
        """`N` names of the predicted classes; empty if they are not known."""
        return tuple(self.classes[label] for label in self.labels) if self.classes else ()

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary of plain Python values per sample, as `offramp.Answer.to_dicts` does."""
        names: Sequence[Any] = self.classes or range(self.probabilities.shape[1])
        return [
            {
                "label": names[label],
                "confidence": float(self.probabilities[row, label]),
                "exit": int(self.exits[row]),
                "relative_cost": float(self.relative_cost[row]),
                "prediction_sets": {
                    miscoverage: [names[member] for member in sets[row].nonzero()[0]]
                    for miscoverage, sets in self.prediction_sets.items()
                },
            }
            for row, label in enumerate(self.labels)
        ]


def load(folder: str | Path, *, threads: int = 1) -> "OnnxNetwork":
    """Open an exported network, and check its files against their hashes.

    Args:
        folder: A folder that `offramp export onnx` wrote.
        threads: Number of threads.
    """
    return OnnxNetwork(Path(folder), read_manifest(folder), threads=threads)


class OnnxNetwork:
    """An exported network. Made by `load`.

    Args:
        folder: The folder of the graphs.
        manifest: Its manifest.
        threads: Number of threads.

    Attributes:
        points: The operating points, each with its policy, active exits, parameters and figures on the tune split.
        default_point: Index of the point that `predict` takes by default.
        classes: Names of the classes; empty if they are not known.
        takes_texts: True if the preprocessing takes texts.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], *, threads: int) -> None:
        self.points: Sequence[Mapping[str, Any]] = manifest["points"]
        self.classes: tuple[str, ...] = tuple(manifest["classes"])
        if not self.points:
            raise FolderError(f"{folder}: expected operating points, got none; export it with some")
        self.default_point: int = manifest.get("default_point", -1)
        if self.default_point not in range(len(self.points)):
            raise FolderError(f"{folder}: expected a default_point of 0 to {len(self.points) - 1}; export it again")
        self.takes_texts = any(name == "tokenize" for name, _ in manifest["preprocessing"])
        self._steps = [
            partial(
                STEPS[name],
                **{
                    key: (folder / value["file"]).read_bytes() if isinstance(value, dict) else value
                    for key, value in parameters.items()
                },
            )
            for name, parameters in manifest["preprocessing"]
        ]
        self._manifest, self._folder, self._threads = manifest, folder, threads
        self._single: onnxruntime.InferenceSession | None = None
        self._inputs = {leaf["name"]: leaf for leaf in manifest["inputs"]}
        files = [name for name in manifest["files"] if name.endswith(".onnx") and name != SINGLE]
        self._sessions = {name: open_session(folder / name, threads=threads) for name in files}
        self._stages, self._exits = manifest["stages"], manifest["exits"]
        leaves = [*manifest["inputs"], *(leaf for stage in self._stages for leaf in stage["hidden"])]
        self._batch_axes = {leaf["name"]: leaf["batch"] for leaf in leaves}
        self._states = {name for entry in self._exits.values() for name in entry["state"]}
        self._states |= set(manifest["initial_state"])
        self._active = np.zeros((len(self.points), len(self._stages)), dtype=bool)
        for row, point in enumerate(self.points):
            self._active[row, point["active"]] = True
        self._temperatures = np.array([point["temperatures"] for point in self.points], dtype=np.float32)
        self._classifier = np.array([point["classifier"] for point in self.points], dtype=np.int64)
        self._policy = np.array([point["policy"] for point in self.points])
        # Only early exits read the state of exits: after the last active one it is not needed.
        self._last_early = np.array([point["active"][-2] if len(point["active"]) > 1 else -1 for point in self.points])
        self._parameters = {name: self._stack_parameters(name, policy) for name, policy in manifest["policies"].items()}

    def predict(
        self,
        inputs: Any,
        *,
        point: int | Array | Sequence[int] | None = None,
        budget: float | None = None,
        prepared: bool = False,
        generator: np.random.Generator | None = None,
    ) -> OnnxAnswer:
        """Classify a batch of raw inputs; each stage runs on the samples that have not left.

        One sample at the point of `single.onnx`, if there is one, runs by that graph, which is faster.

        Args:
            inputs: N inputs as the preprocessing takes them: a list of texts; images as bytes `N x H x W x C`, or as a
                list of Pillow images or of bytes `H x W x C`, also of several sizes. Without a preprocessing: an array
                of N samples, or a dictionary of arrays by the names of the network's inputs.
            point: The index of the operating point, or `N` of them; `default_point` if left out.
            budget: Instead of `point`, a share of the full network's cost. Of the points within it, the one that was
                most accurate on the tune split is taken, the cheapest of equals.
            prepared: True if the inputs are arrays that went through the preprocessing already.
            generator: The random generator of policies that draw.

        Returns:
            Labels, probabilities, exits, costs and prediction sets, in the order of the inputs.
        """
        values = self._check_inputs(inputs if prepared else self._preprocess(inputs))
        first = next(iter(self._inputs.values()))
        count = values[first["name"]].shape[first["batch"]]
        rows = self._pick_rows(point, budget, count)
        generator = np.random.default_rng() if generator is None else generator
        sizes = np.ones(count)
        if "sizes" in self._manifest:
            sizes = self._run(self._manifest["sizes"], values)["sizes"].astype(float)
        single = self._manifest.get("single")
        if single is not None and count == 1 and rows[0] == single["point"]:
            return self._answer(*self._run_single(single, values), rows, sizes)
        values |= {name: _repeat(value, count) for name, value in self._manifest["initial_state"].items()}
        values |= {
            f"{name}/{carry['name']}": _repeat(carry, count)
            for name, policy in self._manifest["policies"].items()
            for carry in policy["carry"]
        }
        probabilities = np.zeros((count, self._manifest["num_classes"]), dtype=np.float32)
        exits = np.zeros(count, dtype=np.int64)
        remaining = np.arange(count)
        for index, stage in enumerate(self._stages):
            if not len(remaining):
                break
            values |= self._run(stage, values)
            hidden = {leaf["name"] for leaf in stage["hidden"]}
            values = {name: value for name, value in values.items() if name in hidden or name not in self._batch_axes}
            stage_probabilities, leave = self._exit(index, values, rows[remaining], generator)
            leaving = leave.nonzero()[0]
            probabilities[remaining[leaving]], exits[remaining[leaving]] = stage_probabilities[leaving], index
            if len(leaving):
                staying = (~leave).nonzero()[0]
                remaining = remaining[staying]
                values = {name: self._select(name, value, staying) for name, value in values.items()}
        return self._answer(probabilities, exits, rows, sizes)

    def _run_single(self, single: Mapping[str, Any], values: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return probabilities and exit of one sample; its graph is opened when it is first needed."""
        if self._single is None:
            self._single = open_session(self._folder / single["file"], threads=self._threads)
        feeds = {given.name: values[given.name] for given in self._single.get_inputs()}
        probabilities, exits = self._single.run(["probabilities", "exit"], feeds)
        return probabilities, exits

    def _exit(
        self, index: int, values: dict[str, Array], rows: Array, generator: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return probabilities and leave flags after a stage; states and carries in `values` are updated."""
        last = index == len(self._stages) - 1
        active = self._active[rows, index]
        entry = self._exits.get(str(index))
        leave = np.zeros(len(rows), dtype=bool)
        probabilities = np.zeros((len(rows), self._manifest["num_classes"]), dtype=np.float32)
        carried = entry is not None and entry["carried"] and bool((index <= self._last_early[rows]).any())
        if entry is None or not (active.any() or entry["always"] or carried):
            return probabilities, leave
        outputs = self._run(entry, {**values, "classifier": self._classifier[rows]})
        logits = outputs.pop(f"logits_{index:02d}")
        values |= outputs
        for name in self._states - set(entry["state"]):
            values.pop(name, None)
        for name in dict.fromkeys(self._policy[rows].tolist()):
            own = (active & (self._policy[rows] == name)).nonzero()[0]
            if not len(own):
                continue
            policy, own_rows = self._manifest["policies"][name], rows[own]
            inputs = {"logits": logits[own], "temperature": self._temperatures[own_rows, index][:, None]}
            for parameter, table in self._parameters[name].items():
                inputs[parameter] = table[own_rows, index] if parameter in policy["per_exit"] else table[own_rows]
            if "noise" in policy["reads"]:
                inputs["noise"] = generator.random(len(own), dtype=np.float32)
            inputs |= {carry["name"]: values[f"{name}/{carry['name']}"][own] for carry in policy["carry"]}
            decision = self._run(policy, inputs)
            probabilities[own], leave[own] = decision["probabilities"], decision["leave"] | last
            for carry in policy["carry"]:
                if carry["becomes"] in decision:
                    updated = values[f"{name}/{carry['name']}"].copy()
                    updated[own] = decision[carry["becomes"]]
                    values[f"{name}/{carry['name']}"] = updated
        return probabilities, leave

    def _run(self, entry: Mapping[str, Any], values: Mapping[str, Array]) -> dict[str, Array]:
        if entry["file"] is None:
            return {}
        feeds = {name: values[name] for name in entry["reads"]}
        outputs = self._sessions[entry["file"]].run(entry["writes"], feeds)
        return dict(zip(entry["writes"], outputs, strict=True))

    def _select(self, name: str, value: Array, rows: Array) -> Array:
        axis = self._batch_axes.get(name, 0)
        return value if axis is None else value.take(rows, axis)

    def _answer(self, probabilities: Array, exits: Array, rows: Array, sizes: Array) -> OnnxAnswer:
        powers = sizes[:, None] ** np.arange(max(len(point["costs"]) for point in self.points))
        spent = np.zeros(len(rows))
        sets: dict[float, Array] = {}
        for row in np.unique(rows):
            own, point = (rows == row).nonzero()[0], self.points[row]
            costs, weights = np.array(point["costs"]), powers[own][:, : len(point["costs"])]
            spent[own] = (weights * costs[:, exits[own]].T).sum(1) / (weights @ np.array(point["full"]))
            for miscoverage, thresholds in point["conformal_thresholds"].items():
                members = sets.setdefault(float(miscoverage), np.zeros(probabilities.shape, dtype=bool))
                limits = np.array(thresholds)[exits[own]].reshape(len(own), -1)  # one for all classes, or one each
                members[own] = np.float32(1) - probabilities[own] <= limits
        common = [set(map(float, self.points[row]["conformal_thresholds"])) for row in np.unique(rows)]
        shared = set.intersection(*common) if common else set()
        sets = {miscoverage: members for miscoverage, members in sets.items() if miscoverage in shared}
        return OnnxAnswer(probabilities.argmax(1), probabilities, exits, spent, sets, self.classes)

    def _pick_rows(self, point: Any, budget: float | None, count: int) -> Array:
        """Return the point of each sample."""
        if point is not None and budget is not None:
            raise ValueError("expected point or budget, got both")
        if point is None:
            point = self.default_point
        if budget is not None:
            if not isinstance(budget, int | float):
                raise ValueError(f"budget: expected one share of the full network's cost, such as 0.6, got {budget!r}")
            point = self._pick_within(budget)
        rows = np.asarray(point)
        if rows.dtype.kind not in "iu" or rows.ndim > 1 or (rows.ndim and len(rows) != count):
            raise ValueError(f"point: expected one index, or {count}, got {point!r}")
        if rows.size and (rows.min() < 0 or rows.max() >= len(self.points)):
            raise ValueError(f"point: expected indices in 0 to {len(self.points) - 1}, got {point!r}")
        return np.broadcast_to(rows, (count,)).astype(np.int64)

    def _pick_within(self, budget: float) -> int:
        """Pick the point for a budget, by the rule of `offramp.runtime.Dial`."""
        costs = [point["tune_metrics"].get("cost", np.inf) for point in self.points]
        affordable = [row for row, cost in enumerate(costs) if cost <= budget * (1 + ROUNDING)]
        if not affordable:
            raise ValueError(f"budget: expected {min(costs):.4f} or more, the cost of the cheapest point, got {budget}")
        return max(affordable, key=lambda row: (self.points[row]["tune_metrics"]["accuracy"], -costs[row]))

    def _preprocess(self, inputs: Any) -> Any:
        """Return raw inputs as the network takes them."""
        if isinstance(inputs, str):
            raise ValueError("inputs: expected a list of texts, got one text; give [text]")
        if isinstance(inputs, list | tuple) and inputs and all(map(_is_image, inputs)):
            images = [image if isinstance(image, np.ndarray) else np.asarray(image.convert("RGB")) for image in inputs]
            if len({image.shape for image in images}) > 1:
                parts = [self._preprocess(image[None]) for image in images]
                if len({part.shape for part in parts}) > 1:
                    raise ValueError("inputs: expected images of one size, got several; resize them")
                return np.concatenate(parts)
            inputs = np.stack(images)
        for step in self._steps:
            inputs = step(inputs)
        return inputs

    def _check_inputs(self, inputs: Any) -> dict[str, Array]:
        """Return the inputs by name, with the types and shapes that the graphs take."""
        arrays = dict(inputs) if isinstance(inputs, Mapping) else {next(iter(self._inputs)): inputs}
        types = "token_type_ids"  # many tokenizers return them for every network
        if types in self._inputs and "input_ids" in arrays:
            arrays.setdefault(types, np.zeros_like(arrays["input_ids"]))
        elif types in arrays and not np.any(arrays[types]):
            del arrays[types]
        if set(arrays) != set(self._inputs):
            raise ValueError(f"inputs: expected {sorted(self._inputs)}, got {sorted(map(str, arrays))}")
        values = {}
        for name, leaf in self._inputs.items():
            array = np.asarray(arrays[name])
            real = np.dtype(leaf["dtype"]).kind == "f"
            if (array.dtype.kind == "f") != real or (real and not np.isfinite(array).all()):
                expected = "finite real numbers" if real else "whole numbers"
                got = "NaN or infinite numbers" if real and array.dtype.kind == "f" else array.dtype
                raise ValueError(f"'{name}': expected {expected}, got {got}; {HINT}")
            array = np.ascontiguousarray(array, dtype=leaf["dtype"])
            fits = array.ndim == len(leaf["shape"]) and all(
                size in (None, length) for size, length in zip(leaf["shape"], array.shape, strict=True)
            )
            if not fits:
                shape = " x ".join("N" if size is None else str(size) for size in leaf["shape"])
                raise ValueError(f"'{name}': expected shape {shape}, got {array.shape}; {HINT}")
            values[name] = array
        return values

    def _stack_parameters(self, name: str, policy: Mapping[str, Any]) -> dict[str, Array]:
        """Stack the parameters of one policy, `P x ...`; points of other policies have any, as they are not read."""
        own = next(point for point in self.points if point["policy"] == name)
        return {
            parameter: np.array(
                [(point if point["policy"] == name else own)["parameters"][parameter] for point in self.points],
                dtype=np.float32,
            )
            for parameter in policy["parameters"]
        }


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Read the manifest of a folder, and check every file against its hash.

    Args:
        folder: A folder that `offramp export onnx` wrote.
    """
    path = Path(folder) / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise FolderError(f"cannot read {path}; name a folder that `offramp export onnx` wrote") from error
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path} is not JSON ({error}); export the network again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise FolderError(f"{path} is no manifest of exported graphs; name a folder that `offramp export onnx` wrote")
    if manifest.get("version") != VERSION:
        raise FolderError(
            f"{path}: expected version {VERSION}, got {manifest.get('version')}; use the offramp that wrote it, or "
            "export the network again"
        )
    wrong = [f"{part} ({kind.__name__})" for part, kind in PARTS.items() if not isinstance(manifest.get(part), kind)]
    if wrong:
        raise FolderError(f"{path}: expected {', '.join(wrong)}; export the network again")
    _check_entries(path, manifest)
    for name, expected in manifest["files"].items():
        if Path(name).name != name or not name.endswith((".onnx", ".json")):
            raise FolderError(f"{path} names a file outside its folder, {name!r}; do not trust it")
        try:
            digest = hashlib.sha256((Path(folder) / name).read_bytes()).hexdigest()
        except (OSError, ValueError) as error:
            raise FolderError(f"{folder} lacks {name}, which its manifest names; copy the whole folder") from error
        if digest != expected:
            raise FolderError(f"{name} in {folder} is not the file that was exported; copy or export it again")
    return manifest


def _check_entries(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest that names a graph without its hash."""
    graphs = {f"stage {index}": entry for index, entry in enumerate(manifest["stages"])}
    graphs |= {f"the exit after stage {index}": entry for index, entry in manifest["exits"].items()}
    graphs |= {f"policy '{name}'": entry for name, entry in manifest["policies"].items()}
    graphs |= {name: manifest[name] for name in ("sizes", "single") if name in manifest}
    for name, entry in graphs.items():
        keys = {"file"} if name == "single" else {"file", "reads", "writes"}
        if not isinstance(entry, dict) or not keys <= entry.keys():
            raise FolderError(f"{path}: expected {', '.join(sorted(keys))} for {name}; export the network again")
        file = entry["file"]
        passes = file is None and name.startswith("stage")  # a stage without a graph passes everything on
        if not passes and not (isinstance(file, str) and file in manifest["files"]):
            raise FolderError(f"{path} names for {name} a file without a hash, {file!r}; do not trust it")
    for entry in manifest["preprocessing"]:
        name, parameters = entry if isinstance(entry, list) and len(entry) == 2 else (entry, {})
        if not isinstance(name, str) or name not in STEPS:
            raise FolderError(
                f"{path} has a preprocessing step {name!r}, which this runner does not know; use the offramp_onnx.py "
                "of its folder"
            )
        try:
            inspect.signature(STEPS[name]).bind(None, **parameters)
        except TypeError as error:
            raise FolderError(f"{path}, preprocessing step '{name}': {error}; export the network again") from error
        for value in parameters.values():
            if isinstance(value, dict) and str(value.get("file")) not in manifest["files"]:
                raise FolderError(f"{path} names for step '{name}' a file without a hash, {value}; do not trust it")


def open_session(graph: str | Path | bytes, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Open a session that leaves the processor to the other sessions of its network between calls.

    A shared thread pool could only be set for the whole process, and would make other sessions with their own threads,
    the default, fail. So each session has its own pool, whose threads sleep between calls; by default they spin, and
    slow down the next stage.

    Args:
        graph: The graph, or its file.
        threads: Number of threads.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    _share_memory()
    options.add_session_config_entry("session.use_env_allocators", "1")
    source = graph if isinstance(graph, bytes) else str(graph)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


@cache
def _share_memory() -> None:
    """Let the sessions of this process share memory: stages run one after the other, so one's is free for the next."""
    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, None)


def _repeat(initial: Mapping[str, Any], count: int) -> Array:
    """Repeat an initial value for `count` samples."""
    value = np.array(initial["value"], dtype=initial["dtype"])
    return np.repeat(value[None], count, axis=0)


def channels_first(inputs: Any) -> Array:
    """Permute `N x H x W x C` to `N x C x H x W`."""
    images = np.asarray(inputs)
    if images.ndim != 4:
        raise ValueError(f"inputs: expected images N x H x W x C, got shape {images.shape}; give a batch")
    return images.transpose(0, 3, 1, 2)


def resize(inputs: Array, *, size: int, mode: str, squash: bool = False) -> Array:
    """Resize the shorter side to `size` pixels (with `squash`, both sides), antialiased, in float32."""
    shorter = min(inputs.shape[2:])
    if not squash and max(inputs.shape[2:]) > MOST_RATIO * shorter:
        raise ValueError(f"inputs: expected images whose longer side is at most {MOST_RATIO} times the shorter")
    rows, columns = (
        resize_weights(side, size if squash else size * side // shorter, mode) for side in inputs.shape[2:]
    )
    resized: Array = rows @ inputs.astype(np.float32) @ columns.T
    return resized if inputs.dtype.kind == "f" else resized.clip(0, 255)


@lru_cache(maxsize=16)
def resize_weights(before: int, after: int, mode: str) -> Array:
    """Return the `after x before` weights of pixels along a side, as torch's `interpolate(antialias=True)` has them."""
    scale = np.float32(before) / np.float32(after)  # in float32 from here on, as in torch
    centers = scale * (np.arange(after, dtype=np.float32)[:, None] + 0.5)
    distance = np.abs(np.arange(before, dtype=np.float32) - centers + 0.5) / max(scale, np.float32(1))
    if mode == "bilinear":
        weights = np.maximum(1 - distance, 0)
    else:  # Keys' cubic with a = -0.5
        near = (1.5 * distance - 2.5) * distance**2 + 1
        far = -0.5 * (((distance - 5) * distance + 8) * distance - 4)
        weights = np.where(distance < 1, near, np.where(distance < 2, far, 0))
    normalized: Array = weights / weights.sum(1, keepdims=True)
    return normalized


def center_crop(inputs: Array, *, size: int) -> Array:
    """Crop the square of `size` pixels in the middle."""
    height, width = inputs.shape[2:]
    if min(height, width) < size:
        raise ValueError(f"inputs: expected images of at least {size} x {size} pixels to crop, got {height} x {width}")
    top, left = round((height - size) / 2), round((width - size) / 2)
    return inputs[:, :, top : top + size, left : left + size]


def normalize(inputs: Array, *, scale: float, mean: Sequence[float], std: Sequence[float]) -> Array:
    """Return `(inputs * scale - mean) / std` in float32, channel by channel."""
    if inputs.dtype.kind == "f" and scale < 0.1 and inputs.size and 0 < inputs.max() <= 1:
        raise ValueError(f"inputs: expected images of bytes, 0 to 255, got numbers up to {inputs.max():.3g}")
    if len(mean) == 1 and inputs.shape[1] == 3:  # image files are read in colour, gray ones too
        gray = (inputs.astype(np.float32) * np.array(LUMINANCE, np.float32)[:, None, None]).sum(1, keepdims=True)
        inputs = gray if inputs.dtype.kind == "f" else gray.round()
    if inputs.shape[1] != len(mean):
        kind = f"images of {len(mean)} channel{'s' * (len(mean) > 1)}"
        raise ValueError(f"inputs: expected {kind}, got {inputs.shape[1]}; convert them first")
    means, stds = (np.array(values, np.float32)[:, None, None] for values in (mean, std))
    normalized: Array = (inputs.astype(np.float32) * np.float32(scale) - means) / stds
    return normalized


def tokenize(inputs: Any, *, tokenizer: bytes, longest: int, pad: int) -> dict[str, Array]:
    """Turn N texts into `N x T` token ids and an attention mask; a dictionary with `input_ids` is passed on."""
    if isinstance(inputs, Mapping) and "input_ids" in inputs:
        return dict(inputs)
    texts = inputs.tolist() if isinstance(inputs, np.ndarray) else inputs
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"inputs: expected a list of texts, got {type(inputs).__name__}")
    rows = [encoding.ids for encoding in open_tokenizer(tokenizer, longest).encode_batch(list(texts))]
    ids = np.full((len(rows), max([1, *map(len, rows)])), pad, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
    return {"input_ids": ids, "attention_mask": mask}


@lru_cache(maxsize=8)
def open_tokenizer(content: bytes, longest: int) -> Any:
    """Load a tokenizer from its JSON, truncating texts at `longest` tokens."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ImportError("texts need the tokenizers library; pip install tokenizers") from error
    tokenizer = Tokenizer.from_str(content.decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    return tokenizer


STEPS: Mapping[str, Callable[..., Any]] = {
    "center_crop": center_crop,
    "channels_first": channels_first,
    "normalize": normalize,
    "resize": resize,
    "tokenize": tokenize,
}
"""The steps of `offramp.preprocessing` that this file knows, with the same numbers; random ones are for training."""


def _is_image(value: Any) -> bool:
    """Return True for a Pillow image, or bytes `H x W x C`."""
    if isinstance(value, np.ndarray):
        return value.ndim == 3 and value.dtype == np.uint8 and value.shape[2] <= 4
    return hasattr(value, "convert") and hasattr(value, "getbands")


def read_batches(network: OnnxNetwork, files: Sequence[str]) -> Iterator[tuple[list[str], Any]]:
    """Yield the inputs of some files in batches, each with the names of its inputs.

    Args:
        network: The network, which takes texts or not.
        files: `.npy` and `.npz` files hold arrays; others hold one text per line, or an image each.
    """
    images = []
    for file in files:
        if file.endswith((".npy", ".npz")):
            content = np.load(file)
            arrays = {name: content[name] for name in content} if file.endswith(".npz") else {"": content}
            for start in range(0, len(next(iter(arrays.values()))), BATCH):
                part = {name: array[start : start + BATCH] for name, array in arrays.items()}
                rows = range(start, start + len(next(iter(part.values()))))
                yield [f"{file}:{row}" for row in rows], part if len(part) > 1 else next(iter(part.values()))
        elif network.takes_texts:
            with open(file, encoding="utf-8-sig", newline="\n") as opened:
                lines = [line.removesuffix("\n").removesuffix("\r") for line in opened]
            while lines and not lines[-1]:
                lines.pop()
            for start in range(0, len(lines), BATCH):
                texts = lines[start : start + BATCH]
                yield [f"{file}:{start + row + 1}" for row in range(len(texts))], texts
        else:
            images.append(file)
    for start in range(0, len(images), BATCH):
        names = images[start : start + BATCH]
        yield names, [open_image(name) for name in names]


def open_image(file: str) -> Any:
    """Open an image file, upright, as a Pillow image."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ImportError("image files need Pillow; pip install pillow") from error
    with Image.open(file) as image:
        if image.mode.startswith(("I", "F")):
            raise ValueError(
                f"{file}: expected 8 bits per channel, got an image of mode {image.mode}; convert it first"
            )
        return ImageOps.exif_transpose(image).convert("RGB")


def main() -> None:
    """Print one answer per line for the inputs of some files."""
    parser = argparse.ArgumentParser(description="Run a network that `offramp export onnx` wrote.")
    parser.add_argument("folder", metavar="FOLDER", help="the exported folder")
    parser.add_argument(
        "--input",
        metavar="FILE",
        nargs="+",
        required=True,
        help="files with one text per line; image files; or .npy or .npz files of arrays",
    )
    picked = parser.add_mutually_exclusive_group()
    picked.add_argument("--budget", type=float, help="share of the full network's cost, such as 0.6")
    picked.add_argument("--point", type=int, help="number of the operating point, as in README.md")
    parser.add_argument("--json", action="store_true", help="print JSON lines with prediction sets")
    options = parser.parse_args()
    try:
        network = load(options.folder)
        for names, inputs in read_batches(network, options.input):
            answer = network.predict(inputs, point=options.point, budget=options.budget)
            for name, row in zip(names, answer.to_dicts(), strict=True):
                shares = f"{row['confidence']:.4f}\t{row['exit']}\t{row['relative_cost']:.4f}"
                line = {"input": name, **row}
                print(json.dumps(line, ensure_ascii=False) if options.json else f"{name}\t{row['label']}\t{shares}")
    except (ImportError, OSError, ValueError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
