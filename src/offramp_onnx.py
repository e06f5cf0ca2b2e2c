"""Runs a network with exits that `offramp export onnx` wrote: numpy and onnxruntime are all it needs.

    import offramp_onnx

    network = offramp_onnx.load("graphs")
    answer = network.predict(images, budget=0.6)

Inputs are what the network itself takes: prepared, as arrays. Nothing here knows what a policy computes: that is in the
graphs, which were made from the very code that offramp runs.
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

__all__ = ["Answer", "FolderError", "Network", "load", "open_session", "read_manifest"]

FORMAT, VERSION, SINGLE = "offramp-onnx", 1, "single.onnx"

ROUNDING = 1e-6
"""By which a point may be dearer than the budget: the same as in `offramp.runtime.dial`."""

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
"""What every manifest has."""

Array = npt.NDArray[Any]


class FolderError(ValueError):
    """A folder is not what `offramp export onnx` writes, or not what its manifest says."""


@dataclass(frozen=True)
class Answer:
    """What the network says of N inputs, in their order."""

    labels: Array
    """`N` predicted classes."""
    probabilities: Array
    """`N x K`, calibrated."""
    exits: Array
    """`N` exits the samples left at, 0-based."""
    relative_cost: Array
    """`N` costs, as shares of the full network's."""
    prediction_sets: Mapping[float, Array]
    """`N x K` booleans for each miscoverage that all points asked for offer."""


def load(folder: str | Path, *, threads: int = 1) -> "Network":
    """Open an exported network, its files checked against their hashes.

    Args:
        folder: Made by `offramp export onnx`.
        threads: How many threads compute.
    """
    return Network(Path(folder), read_manifest(folder), threads=threads)


class Network:
    """An exported network. Made by `load`.

    Args:
        folder: Where the graphs are.
        manifest: What it says of them.
        threads: How many threads compute.

    Attributes:
        points: The operating points, each with its policy, active exits, parameters and promised figures.
        classes: Names of the classes; empty where nobody has named them.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], *, threads: int) -> None:
        self.points: Sequence[Mapping[str, Any]] = manifest["points"]
        self.classes: tuple[str, ...] = tuple(manifest["classes"])
        if not self.points:
            raise FolderError(f"{folder} was exported without operating points; export it with some")
        self._manifest, self._folder = manifest, folder
        self._inputs = {one["name"]: one for one in manifest["inputs"]}
        opened = {name: open_session(folder / name, threads=threads) for name in manifest["files"] if name != SINGLE}
        self._sessions = opened
        self._stages, self._exits = manifest["stages"], manifest["exits"]
        self._batch = {
            one["name"]: one["batch"] for stage in self._stages for one in (*manifest["inputs"], *stage["hidden"])
        }
        self._states = {name for entry in self._exits.values() for name in entry["state"]} | set(
            manifest["initial_state"]
        )
        self._active = np.zeros((len(self.points), len(self._stages)), dtype=bool)
        for row, point in enumerate(self.points):
            self._active[row, point["active"]] = True
        self._temperatures = np.array([point["temperatures"] for point in self.points], dtype=np.float32)
        self._classifier = np.array([point["classifier"] for point in self.points], dtype=np.int64)
        self._policy = np.array([point["policy"] for point in self.points])
        # What exits remember is read by early exits alone: behind the last one in force nobody asks for it.
        self._last_early = np.array([point["active"][-2] if len(point["active"]) > 1 else -1 for point in self.points])
        self._parameters = {name: self._stacked(name, policy) for name, policy in manifest["policies"].items()}

    def predict(
        self,
        inputs: Any,
        *,
        point: int | Array | Sequence[int] | None = None,
        budget: float | None = None,
        generator: np.random.Generator | None = None,
    ) -> Answer:
        """Answer a batch of prepared inputs; each stage runs on those who have not left.

        Args:
            inputs: An array of N samples, or a dictionary of arrays by the names of the network's inputs.
            point: The number of the operating point, or `N` of them; may be left out where there is one.
            budget: Instead of it: the point that was most accurate on the tune split among those that cost no more
                than this share of the network, the cheapest of equals; as `offramp.EarlyExitNetwork.predict` does.
            generator: Of the draws of a policy that samples.

        Returns:
            Labels, probabilities, exits, costs and prediction sets, in the order of the inputs.
        """
        values = self._checked(inputs)
        first = next(iter(self._inputs.values()))
        count = values[first["name"]].shape[first["batch"]]
        rows = self._rows(point, budget, count)
        draw = np.random.default_rng() if generator is None else generator
        sizes = np.ones(count)
        if "sizes" in self._manifest:
            sizes = self._run(self._manifest["sizes"], values)["sizes"].astype(float)
        values |= {name: _repeated(one, count) for name, one in self._manifest["initial_state"].items()}
        values |= {
            f"{name}/{one['name']}": _repeated(one, count)
            for name, policy in self._manifest["policies"].items()
            for one in policy["carry"]
        }
        probabilities = np.zeros((count, self._manifest["num_classes"]), dtype=np.float32)
        exits = np.zeros(count, dtype=np.int64)
        here = np.arange(count)  # those who have not left
        for index, stage in enumerate(self._stages):
            if not len(here):
                break
            values |= self._run(stage, values)
            kept = {one["name"] for one in stage["hidden"]}
            values = {name: value for name, value in values.items() if name in kept or name not in self._batch}
            answered, leave = self._exit(index, values, rows[here], draw)
            gone = leave.nonzero()[0]
            probabilities[here[gone]], exits[here[gone]] = answered[gone], index
            if len(gone):
                stay = (~leave).nonzero()[0]
                here = here[stay]
                values = {name: self._taken(name, value, stay) for name, value in values.items()}
        return self._answer(probabilities, exits, rows, sizes)

    def _exit(
        self, index: int, values: dict[str, Array], rows: Array, draw: np.random.Generator
    ) -> tuple[Array, Array]:
        """Probabilities and who leaves after a stage; what is remembered goes into `values`."""
        last = index == len(self._stages) - 1
        active = self._active[rows, index]
        entry = self._exits.get(str(index))
        leave = np.zeros(len(rows), dtype=bool)
        answered = np.zeros((len(rows), self._manifest["num_classes"]), dtype=np.float32)
        carried = entry is not None and entry["carried"] and bool((index <= self._last_early[rows]).any())
        if entry is None or not (active.any() or entry["always"] or carried):
            return answered, leave
        found = self._run(entry, {**values, "classifier": self._classifier[rows]})
        logits = found.pop(f"logits_{index:02d}")
        values |= found
        for name in self._states - set(entry["state"]):
            values.pop(name, None)
        for name in dict.fromkeys(self._policy[rows].tolist()):
            own = (active & (self._policy[rows] == name)).nonzero()[0]
            if not len(own):
                continue
            policy, mine = self._manifest["policies"][name], rows[own]
            given = {"logits": logits[own], "temperature": self._temperatures[mine, index][:, None]}
            for parameter, table in self._parameters[name].items():
                given[parameter] = table[mine, index] if parameter in policy["per_exit"] else table[mine]
            if "noise" in policy["reads"]:
                given["noise"] = draw.random(len(own), dtype=np.float32)
            given |= {one["name"]: values[f"{name}/{one['name']}"][own] for one in policy["carry"]}
            made = self._run(policy, given)
            answered[own], leave[own] = made["probabilities"], made["leave"] | last
            for one in policy["carry"]:
                if one["becomes"] in made:
                    remembered = values[f"{name}/{one['name']}"].copy()
                    remembered[own] = made[one["becomes"]]
                    values[f"{name}/{one['name']}"] = remembered
        return answered, leave

    def _run(self, entry: Mapping[str, Any], values: Mapping[str, Array]) -> dict[str, Array]:
        if entry["file"] is None:
            return {}
        feeds = {name: values[name] for name in entry["reads"]}
        found = self._sessions[entry["file"]].run(entry["writes"], feeds)
        return dict(zip(entry["writes"], found, strict=True))

    def _taken(self, name: str, value: Array, stay: Array) -> Array:
        axis = self._batch.get(name, 0)
        return value if axis is None else value.take(stay, axis)

    def _answer(self, probabilities: Array, exits: Array, rows: Array, sizes: Array) -> Answer:
        powers = sizes[:, None] ** np.arange(max(len(point["costs"]) for point in self.points))
        spent = np.zeros(len(rows))
        sets: dict[float, Array] = {}
        for row in np.unique(rows):
            own, point = (rows == row).nonzero()[0], self.points[row]
            costs, weights = np.array(point["costs"]), powers[own][:, : len(point["costs"])]
            spent[own] = (weights * costs[:, exits[own]].T).sum(1) / (weights @ np.array(point["full"]))
            for miscoverage, thresholds in point["conformal_thresholds"].items():
                found = sets.setdefault(float(miscoverage), np.zeros(probabilities.shape, dtype=bool))
                limits = np.array(thresholds)[exits[own]].reshape(len(own), -1)  # one for all classes, or one each
                found[own] = np.float32(1) - probabilities[own] <= limits
        common = [set(map(float, self.points[row]["conformal_thresholds"])) for row in np.unique(rows)]
        offered = set.intersection(*common) if common else set()
        sets = {miscoverage: found for miscoverage, found in sets.items() if miscoverage in offered}
        return Answer(probabilities.argmax(1), probabilities, exits, spent, sets)

    def _rows(self, point: Any, budget: float | None, count: int) -> Array:
        """The point of each sample."""
        if point is None and budget is None and len(self.points) == 1:
            point = 0
        if (point is None) == (budget is None):
            raise ValueError(f"predict takes either point=0 to {len(self.points) - 1} or budget=..., one of the two")
        if budget is not None:
            if not isinstance(budget, int | float):
                raise ValueError(f"expected one share of the network's cost as budget, such as 0.6, got {budget!r}")
            point = self._within(budget)
        rows = np.asarray(point)
        if rows.dtype.kind not in "iu" or rows.ndim > 1 or (rows.ndim and len(rows) != count):
            raise ValueError(f"expected one number of an operating point, or {count}, got {point!r}")
        if rows.size and (rows.min() < 0 or rows.max() >= len(self.points)):
            raise ValueError(f"expected numbers of operating points, 0 to {len(self.points) - 1}, got {point!r}")
        return np.broadcast_to(rows, (count,)).astype(np.int64)

    def _within(self, budget: float) -> int:
        """The point for a budget, by the rule of `offramp.runtime.Dial`."""
        costs = [point["promised"].get("cost", np.inf) for point in self.points]
        affordable = [row for row, cost in enumerate(costs) if cost <= budget * (1 + ROUNDING)]
        if not affordable:
            raise ValueError(
                f"no point costs {budget} or less; the cheapest costs {min(costs):.4f}: ask for that or more"
            )
        return max(affordable, key=lambda row: (self.points[row]["promised"]["accuracy"], -costs[row]))

    def _checked(self, inputs: Any) -> dict[str, Array]:
        """The inputs by name, of the types and shapes that the graphs take."""
        given = dict(inputs) if isinstance(inputs, Mapping) else {next(iter(self._inputs)): inputs}
        types = "token_type_ids"  # tokenizers return them whether a network takes them or not
        if types in self._inputs and "input_ids" in given:
            given.setdefault(types, np.zeros_like(given["input_ids"]))
        elif types in given and not np.any(given[types]):
            del given[types]
        if set(given) != set(self._inputs):
            raise ValueError(f"expected inputs {sorted(self._inputs)}, got {sorted(map(str, given))}")
        values = {}
        for name, one in self._inputs.items():
            array = np.asarray(given[name])
            real = np.dtype(one["dtype"]).kind == "f"
            if (array.dtype.kind == "f") != real or (real and not np.isfinite(array).all()):
                wanted = "finite real numbers" if real else "whole numbers"
                found = "NaN or infinite ones" if real and array.dtype.kind == "f" else array.dtype
                raise ValueError(f"expected '{name}' as {wanted}, prepared as the network takes them, got {found}")
            array = np.ascontiguousarray(array, dtype=one["dtype"])
            fits = array.ndim == len(one["shape"]) and all(
                size is None or size == found for size, found in zip(one["shape"], array.shape, strict=True)
            )
            if not fits:
                shape = " x ".join("N" if size is None else str(size) for size in one["shape"])
                raise ValueError(f"expected '{name}' of shape {shape}, prepared, got {array.shape}")
            values[name] = array
        return values

    def _stacked(self, name: str, policy: Mapping[str, Any]) -> dict[str, Array]:
        """`P x ...` parameters of one policy; of points of other policies, nobody asks."""
        own = next(point for point in self.points if point["policy"] == name)
        return {
            parameter: np.array(
                [(point if point["policy"] == name else own)["parameters"][parameter] for point in self.points],
                dtype=np.float32,
            )
            for parameter in policy["parameters"]
        }


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """What a folder says of itself, every file checked against its hash.

    Args:
        folder: Made by `offramp export onnx`.
    """
    path = Path(folder) / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise FolderError(f"there is no {path}; name a folder that `offramp export onnx` wrote") from error
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path} is not JSON ({error}); export the network again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise FolderError(f"{path} is not a manifest of exported graphs; name a folder `offramp export onnx` wrote")
    if manifest.get("version") != VERSION:
        raise FolderError(
            f"{path} has version {manifest.get('version')}, and this library reads version {VERSION}; install the "
            "offramp that wrote it, or export the network again with this one"
        )
    strange = [part for part, kind in PARTS.items() if not isinstance(manifest.get(part), kind)]
    if strange:
        raise FolderError(f"{path} lacks {', '.join(strange)}, or has them in another form; export the network again")
    _check_entries(path, manifest)
    for name, expected in manifest["files"].items():
        if Path(name).name != name or not name.endswith(".onnx"):
            raise FolderError(f"{path} names a file outside its folder, {name!r}; do not use it")
        try:
            found = hashlib.sha256((Path(folder) / name).read_bytes()).hexdigest()
        except (OSError, ValueError) as error:
            raise FolderError(f"{folder} lacks {name}, which its manifest names; copy the whole folder") from error
        if found != expected:
            raise FolderError(f"{name} in {folder} is not the file that was exported; copy or export it again")
    return manifest


def _check_entries(path: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest that names a graph whose hash it does not have, wherever it does."""
    graphs = {f"stage {index}": entry for index, entry in enumerate(manifest["stages"])}
    graphs |= {f"the exit after stage {index}": entry for index, entry in manifest["exits"].items()}
    graphs |= {f"policy '{name}'": entry for name, entry in manifest["policies"].items()}
    graphs |= {name: manifest[name] for name in ("sizes", "single") if name in manifest}
    for what, entry in graphs.items():
        needed = {"file"} if what == "single" else {"file", "reads", "writes"}
        if not isinstance(entry, dict) or not needed <= entry.keys():
            raise FolderError(f"{path} does not say of {what} its {', '.join(sorted(needed))}; export it again")
        file = entry["file"]
        passes = file is None and what.startswith("stage")  # it hands everything on, and no graph runs
        if not passes and not (isinstance(file, str) and file in manifest["files"]):
            raise FolderError(f"{path} names for {what} a file without a hash, {file!r}; do not use it")


def open_session(path: str | Path, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """A session that shares the processor with the others of its network.

    A pool of threads that all sessions share would be set for the whole process, and every other session of the
    process that keeps its own threads, which is the default, would then be refused. So each has its own pool, whose
    threads sleep between calls: by default they spin, and those of one stage take the time of the next.

    Args:
        path: The graph.
        threads: How many threads a call uses.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _repeated(one: Mapping[str, Any], count: int) -> Array:
    """What every sample starts with, `count` times."""
    value = np.array(one["value"], dtype=one["dtype"])
    return np.repeat(value[None], count, axis=0)
