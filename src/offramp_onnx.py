"""A runner for networks with exits that `offramp export onnx` wrote. It needs numpy and onnxruntime only.

    import offramp_onnx

    network = offramp_onnx.load("graphs")
    answer = network.predict(images, budget=0.6)

Inputs are arrays, preprocessed as the network takes them. Policies are graphs too, exported from the code of offramp.
You may copy this file beside an exported folder.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

__all__ = ["FolderError", "OnnxAnswer", "OnnxNetwork", "load"]

FORMAT, VERSION, SINGLE = "offramp-onnx", 1, "single.onnx"

ROUNDING = 1e-6
"""Relative tolerance of a budget, as in `offramp.runtime._dial`."""

PARTS = {
    "name": str,
    "made_of": dict,
    "num_classes": int,
    "classes": list,
    "inputs": list,
    "initial_state": dict,
    "stages": list,
    "exits": dict,
    "policies": dict,
    "points": list,
    "files": dict,
}
"""Required entries of a manifest, and their types."""

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
        classes: Names of the classes; empty if they are not known.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], *, threads: int) -> None:
        self.points: Sequence[Mapping[str, Any]] = manifest["points"]
        self.classes: tuple[str, ...] = tuple(manifest["classes"])
        if not self.points:
            raise FolderError(f"{folder}: expected operating points, got none; export it with some")
        self._manifest, self._folder, self._threads = manifest, folder, threads
        self._single: onnxruntime.InferenceSession | None = None
        self._inputs = {leaf["name"]: leaf for leaf in manifest["inputs"]}
        files = [name for name in manifest["files"] if name != SINGLE]
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
        generator: np.random.Generator | None = None,
    ) -> OnnxAnswer:
        """Classify a batch of preprocessed inputs; each stage runs on the samples that have not left.

        One sample at the point of `single.onnx`, if there is one, runs by that graph, which is faster.

        Args:
            inputs: An array of N samples, or a dictionary of arrays by the names of the network's inputs.
            point: The index of the operating point, or `N` of them; not needed if there is one.
            budget: Instead of `point`, a share of the full network's cost. Of the points within it, the one that was
                most accurate on the tune split is taken, the cheapest of equals.
            generator: The random generator of policies that draw.

        Returns:
            Labels, probabilities, exits, costs and prediction sets, in the order of the inputs.
        """
        values = self._check_inputs(inputs)
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
        return OnnxAnswer(probabilities.argmax(1), probabilities, exits, spent, sets)

    def _pick_rows(self, point: Any, budget: float | None, count: int) -> Array:
        """Return the point of each sample."""
        if point is None and budget is None and len(self.points) == 1:
            point = 0
        if (point is None) == (budget is None):
            raise ValueError(f"expected either point=0 to {len(self.points) - 1} or budget=..., got both or neither")
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
                raise ValueError(f"'{name}': expected {expected}, got {got}; preprocess as the network does")
            array = np.ascontiguousarray(array, dtype=leaf["dtype"])
            fits = array.ndim == len(leaf["shape"]) and all(
                size in (None, length) for size, length in zip(leaf["shape"], array.shape, strict=True)
            )
            if not fits:
                shape = " x ".join("N" if size is None else str(size) for size in leaf["shape"])
                raise ValueError(f"'{name}': expected shape {shape}, got {array.shape}; preprocess as the network does")
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
        if Path(name).name != name or not name.endswith(".onnx"):
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
    source = graph if isinstance(graph, bytes) else str(graph)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _repeat(initial: Mapping[str, Any], count: int) -> Array:
    """Repeat an initial value for `count` samples."""
    value = np.array(initial["value"], dtype=initial["dtype"])
    return np.repeat(value[None], count, axis=0)
