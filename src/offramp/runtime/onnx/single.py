"""One graph for one sample at a time: stages inside the branches of nested conditions."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from offramp.errors import InputError
from offramp_onnx import SINGLE, FolderError, read_manifest

__all__ = ["write_single"]


def write_single(folder: str | Path, point: int) -> None:
    """Put the graphs of an exported folder together into one, `single.onnx`, at one operating point.

    It takes one sample, and gives its `probabilities` (`1 x K`) and its `exit`. Stages after the exit are in a branch
    that is not run. All weights stand in the outer graph, once.

    Args:
        folder: What `export_onnx` wrote, with points.
        point: The number of the operating point.
    """
    folder = Path(folder)
    try:
        manifest = read_manifest(folder)
    except FolderError as error:
        raise InputError(str(error)) from error
    if not 0 <= point < len(manifest["points"]):
        raise InputError(f"expected the number of a point, 0 to {len(manifest['points']) - 1}, got {point}")
    policy = manifest["policies"][manifest["points"][point]["policy"]]
    if "noise" in policy["reads"]:
        raise InputError("a policy that draws at random cannot be put into one graph; choose a point of another policy")
    model = _Composer(folder, manifest, manifest["points"][point], policy).composed()
    onnx.checker.check_model(model)
    (folder / SINGLE).write_bytes(model.SerializeToString(deterministic=True))
    manifest["files"][SINGLE] = sha256((folder / SINGLE).read_bytes()).hexdigest()
    manifest["single"] = {"file": SINGLE, "point": point}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, allow_nan=False) + "\n", encoding="utf-8")


class _Composer:
    """Collects the weights of all pieces, and nests their nodes."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any], point: Mapping[str, Any], policy: Any) -> None:
        self.folder, self.manifest, self.point, self.policy = folder, manifest, point, policy
        self.last = len(manifest["stages"]) - 1
        self.weights: list[Any] = []
        self.opsets: dict[str, int] = {}
        self.ir_version = 0

    def composed(self) -> Any:
        """The whole model."""
        known = {name: self._constant(f"initial/{name}", one) for name, one in self.manifest["initial_state"].items()}
        known |= {one["name"]: self._constant(f"initial/{one['name']}", one) for one in self.policy["carry"]}
        known["classifier"] = self._constant("classifier", {"dtype": "int64", "value": self.point["classifier"]})
        nodes, outputs = self._from(0, known)
        inputs = []
        for one in self.manifest["inputs"]:
            shape: list[int | str] = [
                1 if axis == one["batch"] else "length" if size is None else size
                for axis, size in enumerate(one["shape"])
            ]
            inputs.append(helper.make_tensor_value_info(one["name"], _type(one["dtype"]), shape))
        results = [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, self.manifest["num_classes"]]),
            helper.make_tensor_value_info("exit", TensorProto.INT64, [1]),
        ]
        nodes += [
            helper.make_node("Identity", [made], [name])
            for made, name in zip(outputs, ("probabilities", "exit"), strict=True)
        ]
        graph = helper.make_graph(nodes, "offramp", inputs, results, self.weights)
        opsets = [helper.make_opsetid(domain, version) for domain, version in sorted(self.opsets.items())]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version, producer_name="offramp")

    def _from(self, index: int, known: dict[str, str]) -> tuple[list[Any], Sequence[str]]:
        """Nodes from a stage to the end, and the names of the probabilities and the exit.

        Args:
            index: The stage.
            known: What values are called here that pieces call otherwise: constants, and what policies carry.
        """
        known = dict(known)
        nodes = self._piece(f"stage_{index:02d}", self.manifest["stages"][index], known)
        entry = self.manifest["exits"].get(str(index))
        active = index in self.point["active"]
        early = self.point["active"][-2] if len(self.point["active"]) > 1 else -1
        if entry is None or not (active or entry["always"] or (entry["carried"] and index <= early)):
            more, outputs = self._from(index + 1, known)
            return nodes + more, outputs
        nodes += self._piece(f"exit_{index:02d}", entry, known)
        if not active:
            more, outputs = self._from(index + 1, known)
            return nodes + more, outputs
        made = f"policy_{index:02d}"
        nodes += self._decision(made, index, known)
        number = self._constant(f"{made}/exit", {"dtype": "int64", "value": index})
        if index == self.last:
            return nodes, (f"{made}/probabilities", number)
        scalar = self._constant("scalar", {"dtype": "int64", "value": []}, batched=False)
        nodes.append(helper.make_node("Reshape", [f"{made}/leave", scalar], [f"{made}/leaves"]))
        more, outputs = self._from(index + 1, known)
        branches = {}
        for name, inside, results in (
            ("then", [], (f"{made}/probabilities", number)),
            ("else", more, outputs),
        ):
            ends = [f"{made}/{name}/probabilities", f"{made}/{name}/exit"]
            kept = [helper.make_node("Identity", [source], [end]) for source, end in zip(results, ends, strict=True)]
            types = (TensorProto.FLOAT, [1, self.manifest["num_classes"]]), (TensorProto.INT64, [1])
            given = [helper.make_tensor_value_info(end, *kind) for end, kind in zip(ends, types, strict=True)]
            branches[f"{name}_branch"] = helper.make_graph([*inside, *kept], f"{made}/{name}", [], given)
        found = [f"{made}/if/probabilities", f"{made}/if/exit"]
        nodes.append(helper.make_node("If", [f"{made}/leaves"], found, name=made, **branches))
        return nodes, found

    def _decision(self, made: str, index: int, known: dict[str, str]) -> list[Any]:
        """The policy's nodes at one exit; what it carries on is entered into `known`."""
        given = {name: known[name] for name in (one["name"] for one in self.policy["carry"])}
        given["logits"] = f"logits_{index:02d}"
        temperature = {"dtype": "float32", "value": [self.point["temperatures"][index]]}
        given["temperature"] = self._constant(f"{made}/temperature", temperature)
        for name in self.policy["parameters"]:
            value = self.point["parameters"][name]
            value = value[index] if name in self.policy["per_exit"] else value
            given[name] = self._constant(f"{made}/{name}", {"dtype": "float32", "value": value})
        nodes = self._piece(made, self.policy, given, own_outputs=True)
        for one in self.policy["carry"]:
            if one["becomes"] in self.policy["writes"]:
                known[one["name"]] = f"{made}/{one['becomes']}"
        return nodes

    def _piece(
        self, prefix: str, entry: Mapping[str, Any], known: Mapping[str, str], *, own_outputs: bool = False
    ) -> list[Any]:
        """The nodes of one graph, renamed; its weights go to the outer graph."""
        if entry["file"] is None:
            return []
        model = onnx.load(self.folder / entry["file"])
        self.ir_version = max(self.ir_version, model.ir_version)
        for opset in model.opset_import:
            if self.opsets.setdefault(opset.domain, opset.version) != opset.version:
                raise InputError(f"{entry['file']} uses another version of the operations; export the network again")
        shared = set(entry["reads"]) | (set() if own_outputs else set(entry["writes"]))

        def renamed(name: str) -> str:
            return known.get(name, name) if name in shared else f"{prefix}/{name}" if name else ""

        for weight in model.graph.initializer:
            weight.name = renamed(weight.name)
            self.weights.append(weight)
        for node in model.graph.node:
            node.name = f"{prefix}/{node.name}"
            node.input[:] = [renamed(name) for name in node.input]
            node.output[:] = [renamed(name) for name in node.output]
        return list(model.graph.node)

    def _constant(self, name: str, one: Mapping[str, Any], *, batched: bool = True) -> str:
        """A constant of the outer graph, of one sample."""
        value = np.array(one["value"], dtype=one["dtype"])
        if all(weight.name != name for weight in self.weights):
            self.weights.append(numpy_helper.from_array(value[None] if batched else value, name))
        return name


def _type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
