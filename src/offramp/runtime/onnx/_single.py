"""One graph for one sample at a time, with the stages in nested `If` branches."""

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
    """Combine the graphs of an exported folder into one, `single.onnx`, at one operating point.

    It takes one sample, and returns its `probabilities` (`1 x K`) and its `exit`. Stages after the exit are in a
    branch that is not run. The outer graph holds all weights once.

    Args:
        folder: A folder that `export_onnx` wrote with points.
        point: The index of the operating point.
    """
    folder = Path(folder)
    try:
        manifest = read_manifest(folder)
    except FolderError as error:
        raise InputError(str(error)) from error
    if not 0 <= point < len(manifest["points"]):
        raise InputError("point", expected=f"an index in 0 to {len(manifest['points']) - 1}", got=f"{point}")
    policy = manifest["policies"][manifest["points"][point]["policy"]]
    if "noise" in policy["reads"]:
        raise InputError(
            "a policy that draws at random cannot be part of a graph", hint="choose a point of another policy"
        )
    model = _Composer(folder, manifest, manifest["points"][point], policy).compose()
    onnx.checker.check_model(model)
    (folder / SINGLE).write_bytes(model.SerializeToString(deterministic=True))
    manifest["files"][SINGLE] = sha256((folder / SINGLE).read_bytes()).hexdigest()
    manifest["single"] = {"file": SINGLE, "point": point}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, allow_nan=False) + "\n", encoding="utf-8")


class _Composer:
    """The nesting of the nodes of all pieces, and the list of their weights."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any], point: Mapping[str, Any], policy: Any) -> None:
        self.folder, self.manifest, self.point, self.policy = folder, manifest, point, policy
        self.last = len(manifest["stages"]) - 1
        self.weights: list[Any] = []
        self.opsets: dict[str, int] = {}
        self.ir_version = 0

    def compose(self) -> Any:
        """Return the whole model."""
        initial = self.manifest["initial_state"]
        known = {name: self._add_constant(f"initial/{name}", value) for name, value in initial.items()}
        for carry in self.policy["carry"]:
            known[carry["name"]] = self._add_constant(f"initial/{carry['name']}", carry)
        known["classifier"] = self._add_constant("classifier", {"dtype": "int64", "value": self.point["classifier"]})
        nodes, outputs = self._nodes_from(0, known)
        inputs = []
        for leaf in self.manifest["inputs"]:
            shape: list[int | str] = [
                1 if axis == leaf["batch"] else "length" if size is None else size
                for axis, size in enumerate(leaf["shape"])
            ]
            inputs.append(helper.make_tensor_value_info(leaf["name"], _onnx_type(leaf["dtype"]), shape))
        results = [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, self.manifest["num_classes"]]),
            helper.make_tensor_value_info("exit", TensorProto.INT64, [1]),
        ]
        nodes += [
            helper.make_node("Identity", [output], [name])
            for output, name in zip(outputs, ("probabilities", "exit"), strict=True)
        ]
        graph = helper.make_graph(nodes, "offramp", inputs, results, self.weights)
        opsets = [helper.make_opsetid(domain, version) for domain, version in sorted(self.opsets.items())]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version, producer_name="offramp")

    def _nodes_from(self, index: int, known: dict[str, str]) -> tuple[list[Any], Sequence[str]]:
        """Return the nodes from a stage to the end, and the names of the probabilities and the exit.

        Args:
            index: The stage.
            known: Names in the whole graph of values that pieces name otherwise: constants, and carries of the policy.
        """
        known = dict(known)
        nodes = self._add_piece(f"stage_{index:02d}", self.manifest["stages"][index], known)
        entry = self.manifest["exits"].get(str(index))
        active = index in self.point["active"]
        early = self.point["active"][-2] if len(self.point["active"]) > 1 else -1
        if entry is None or not (active or entry["always"] or (entry["carried"] and index <= early)):
            more, outputs = self._nodes_from(index + 1, known)
            return nodes + more, outputs
        nodes += self._add_piece(f"exit_{index:02d}", entry, known)
        if not active:
            more, outputs = self._nodes_from(index + 1, known)
            return nodes + more, outputs
        prefix = f"policy_{index:02d}"
        nodes += self._add_decision(prefix, index, known)
        number = self._add_constant(f"{prefix}/exit", {"dtype": "int64", "value": index})
        if index == self.last:
            return nodes, (f"{prefix}/probabilities", number)
        scalar = self._add_constant("scalar", {"dtype": "int64", "value": []}, batched=False)
        nodes.append(helper.make_node("Reshape", [f"{prefix}/leave", scalar], [f"{prefix}/leaves"]))
        more, outputs = self._nodes_from(index + 1, known)
        branches = {}
        for name, inside, results in (
            ("then", [], (f"{prefix}/probabilities", number)),
            ("else", more, outputs),
        ):
            ends = [f"{prefix}/{name}/probabilities", f"{prefix}/{name}/exit"]
            copies = [helper.make_node("Identity", [source], [end]) for source, end in zip(results, ends, strict=True)]
            types = (TensorProto.FLOAT, [1, self.manifest["num_classes"]]), (TensorProto.INT64, [1])
            values = [helper.make_tensor_value_info(end, *kind) for end, kind in zip(ends, types, strict=True)]
            branches[f"{name}_branch"] = helper.make_graph([*inside, *copies], f"{prefix}/{name}", [], values)
        ends = [f"{prefix}/if/probabilities", f"{prefix}/if/exit"]
        nodes.append(helper.make_node("If", [f"{prefix}/leaves"], ends, name=prefix, **branches))
        return nodes, ends

    def _add_decision(self, prefix: str, index: int, known: dict[str, str]) -> list[Any]:
        """Return the policy's nodes at one exit, and enter its new carry into `known`."""
        inputs = {carry["name"]: known[carry["name"]] for carry in self.policy["carry"]}
        inputs["logits"] = f"logits_{index:02d}"
        temperature = {"dtype": "float32", "value": [self.point["temperatures"][index]]}
        inputs["temperature"] = self._add_constant(f"{prefix}/temperature", temperature)
        for name in self.policy["parameters"]:
            value = self.point["parameters"][name]
            value = value[index] if name in self.policy["per_exit"] else value
            inputs[name] = self._add_constant(f"{prefix}/{name}", {"dtype": "float32", "value": value})
        nodes = self._add_piece(prefix, self.policy, inputs, own_outputs=True)
        for carry in self.policy["carry"]:
            if carry["becomes"] in self.policy["writes"]:
                known[carry["name"]] = f"{prefix}/{carry['becomes']}"
        return nodes

    def _add_piece(
        self, prefix: str, entry: Mapping[str, Any], known: Mapping[str, str], *, own_outputs: bool = False
    ) -> list[Any]:
        """Return the nodes of one graph, renamed, and add its weights to the outer graph."""
        if entry["file"] is None:
            return []
        model = onnx.load(self.folder / entry["file"])
        self.ir_version = max(self.ir_version, model.ir_version)
        for opset in model.opset_import:
            if self.opsets.setdefault(opset.domain, opset.version) != opset.version:
                raise InputError(
                    f"{entry['file']}",
                    expected=f"version {self.opsets[opset.domain]} of the operators",
                    got=f"{opset.version}",
                    hint="export the network again",
                )
        shared = set(entry["reads"]) | (set() if own_outputs else set(entry["writes"]))

        def rename(name: str) -> str:
            return known.get(name, name) if name in shared else f"{prefix}/{name}" if name else ""

        for weight in model.graph.initializer:
            weight.name = rename(weight.name)
            self.weights.append(weight)
        for node in model.graph.node:
            node.name = f"{prefix}/{node.name}"
            node.input[:] = [rename(name) for name in node.input]
            node.output[:] = [rename(name) for name in node.output]
        return list(model.graph.node)

    def _add_constant(self, name: str, constant: Mapping[str, Any], *, batched: bool = True) -> str:
        """Add a constant to the outer graph, with an axis of one sample, and return its name."""
        value = np.array(constant["value"], dtype=constant["dtype"])
        if all(weight.name != name for weight in self.weights):
            self.weights.append(numpy_helper.from_array(value[None] if batched else value, name))
        return name


def _onnx_type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
