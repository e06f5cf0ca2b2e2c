"""Exported graphs combined into larger ones: a stage with its exit and policy, or the whole network for one sample."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from offramp.errors import InputError
from offramp.runtime.onnx._network import write_manifest
from offramp_onnx import SINGLE, FolderError, read_manifest

__all__ = ["FusedGraph", "compose_single", "fuse_stage", "write_single"]

ANSWER = ("probabilities", "exit", "leaves")
"""Outputs of a decision: the answer, the number of the exit, and true if the sample leaves."""


def write_single(folder: str | Path, point: int) -> None:
    """Combine the graphs of an exported folder into one, `single.onnx`, at one operating point.

    Args:
        folder: A folder of graphs with points.
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
    model = compose_single(folder, manifest, manifest["points"][point], policy)
    onnx.checker.check_model(model)
    (folder / SINGLE).write_bytes(model.SerializeToString(deterministic=True))
    write_manifest(folder, {**manifest, "single": {"file": SINGLE, "point": point}})


def compose_single(folder: Path, manifest: Mapping[str, Any], point: Mapping[str, Any], policy: Any) -> Any:
    """Return a graph of the whole network for one sample, with the stages after each active exit in an `If` branch.

    It returns the `probabilities` (`1 x K`) and the `exit` of the sample. Stages after the exit are in branches that
    are not run. All weights are there once.

    Args:
        folder: A folder of graphs.
        manifest: Its manifest.
        point: The entry of the operating point.
        policy: The entry of its policy, which draws nothing at random.
    """
    return _SingleComposer(folder, manifest, point, policy).compose()


@dataclass(frozen=True)
class FusedGraph:
    """A graph made of several."""

    model: bytes
    """The graph."""
    reads: Sequence[str]
    """Names of its inputs; those of the policy begin with "policy/"."""
    writes: Sequence[str]
    """Names of its outputs: new leaves of the hidden state and of the exits' state, "policy/probabilities" and,
    except after the last stage, "policy/leave" and new carries of the policy."""


def fuse_stage(folder: Path, manifest: Mapping[str, Any], index: int, policy: Mapping[str, Any] | None) -> FusedGraph:
    """Combine a stage, its exit, the temperature and a policy into one graph.

    Args:
        folder: A folder of graphs.
        manifest: Its manifest.
        index: The stage; its exit was exported.
        policy: The entry of the policy; None after the last stage, where all samples leave.
    """
    composer = _Composer(folder)
    nodes = composer.add_piece(f"stage_{index:02d}", manifest["stages"][index], {})
    nodes += composer.add_piece(f"exit_{index:02d}", manifest["exits"][str(index)], {})
    logits = f"logits_{index:02d}"
    if policy is None:
        composer.types["policy/temperature"] = (TensorProto.FLOAT, (None, 1))
        nodes.append(helper.make_node("Div", [logits, "policy/temperature"], ["policy/scaled"]))
        nodes.append(helper.make_node("Softmax", ["policy/scaled"], ["policy/probabilities"], axis=1))
        composer.types["policy/probabilities"] = composer.types[logits]
    else:
        known = {name: logits if name == "logits" else f"policy/{name}" for name in policy["reads"]}
        nodes += composer.add_piece("policy", policy, known, own_outputs=True)
    made = {name for node in nodes for name in node.output}
    weights = {weight.name for weight in composer.weights}
    read = dict.fromkeys(name for node in nodes for name in node.input if name)
    reads = [name for name in read if name not in made | weights]
    # Decisions first: what is not part of a state is found by its place.
    decided = [name for name in ("policy/probabilities", "policy/leave") if name in made]
    writes = decided + [name for name in composer.types if name in made and name not in (logits, *decided)]
    inputs, outputs = ([_describe(name, composer.types[name]) for name in names] for names in (reads, writes))
    model = composer.make_model(nodes, inputs, outputs)
    return FusedGraph(model.SerializeToString(), reads, writes)


class _Composer:
    """The nodes of several graphs under one set of names, and the list of their weights.

    Attributes:
        weights: Weights and constants.
        types: Element type and sizes (None if they may differ) of each input and output of the graphs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.weights: list[Any] = []
        self.types: dict[str, tuple[int, Sequence[int | None]]] = {}
        self._opsets: dict[str, int] = {}
        self._ir_version = 0

    def add_piece(
        self, prefix: str, entry: Mapping[str, Any], known: Mapping[str, str], *, own_outputs: bool = False
    ) -> list[Any]:
        """Return the nodes of one graph, renamed, and add its weights.

        Args:
            prefix: Prefix of all names that are not shared.
            entry: The graph's entry in the manifest; its file may be the graph itself.
            known: Other names of inputs.
            own_outputs: True if outputs are not shared.
        """
        if entry["file"] is None:
            return []
        file = entry["file"]
        model = onnx.load_from_string(file) if isinstance(file, bytes) else onnx.load(self.folder / file)
        self._ir_version = max(self._ir_version, model.ir_version)
        for opset in model.opset_import:
            if self._opsets.setdefault(opset.domain, opset.version) != opset.version:
                raise InputError(
                    prefix,
                    expected=f"version {self._opsets[opset.domain]} of the operators",
                    got=f"{opset.version}",
                    hint="export the network again",
                )
        shared = set(entry["reads"]) | (set() if own_outputs else set(entry["writes"]))

        def rename(name: str) -> str:
            return known.get(name, name) if name in shared else f"{prefix}/{name}" if name else ""

        for value in (*model.graph.input, *model.graph.output):
            kind = value.type.tensor_type
            sizes = [axis.dim_value or None for axis in kind.shape.dim]
            self.types.setdefault(rename(value.name), (kind.elem_type, sizes))
        for weight in model.graph.initializer:
            weight.name = rename(weight.name)
            self.weights.append(weight)
        for node in model.graph.node:
            if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
                raise InputError(
                    prefix, expected="a graph without branches or loops", got=node.op_type, hint="run it in parts"
                )
            node.name = f"{prefix}/{node.name}"
            node.input[:] = [rename(name) for name in node.input]
            node.output[:] = [rename(name) for name in node.output]
        return list(model.graph.node)

    def add_constant(self, name: str, constant: Mapping[str, Any], *, batched: bool = True) -> str:
        """Add a constant, with an axis of one sample, and return its name."""
        value = np.array(constant["value"], dtype=constant["dtype"])
        if all(weight.name != name for weight in self.weights):
            self.weights.append(numpy_helper.from_array(value[None] if batched else value, name))
        return name

    def make_model(self, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Return the whole graph."""
        graph = helper.make_graph(nodes, "offramp", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid(domain, version) for domain, version in sorted(self._opsets.items())]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self._ir_version, producer_name="offramp")


class _Segment(NamedTuple):
    """A part of the network, from one active exit to the next."""

    prefix: str
    """Prefix of the decision at its end."""
    nodes: list[Any]
    """Its nodes."""
    weights: list[Any]
    """Its weights and constants."""


class _SingleComposer(_Composer):
    """The network in segments, each but the first in a branch."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any], point: Mapping[str, Any], policy: Any) -> None:
        super().__init__(folder)
        self.manifest, self.point, self.policy = manifest, point, policy

    def compose(self) -> Any:
        """Return the whole graph."""
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
        nodes, ends = self._join(self._segments())
        nodes += [
            helper.make_node("Identity", [end], [name])
            for end, name in zip(ends, ("probabilities", "exit"), strict=True)
        ]
        return self.make_model(nodes, inputs, results)

    def _segments(self) -> list["_Segment"]:
        """Return the parts of the network."""
        initial = self.manifest["initial_state"]
        known = {name: self.add_constant(f"initial/{name}", value) for name, value in initial.items()}
        for carry in self.policy["carry"]:
            known[carry["name"]] = self.add_constant(f"initial/{carry['name']}", carry)
        known["classifier"] = self.add_constant("classifier", {"dtype": "int64", "value": self.point["classifier"]})
        scalar = self.add_constant("scalar", {"dtype": "int64", "value": []}, batched=False)
        early = self.point["active"][-2] if len(self.point["active"]) > 1 else -1
        constants, segments, nodes = self.weights, [], []
        self.weights = []
        for index, stage in enumerate(self.manifest["stages"]):
            nodes += self.add_piece(f"stage_{index:02d}", stage, known)
            entry, active = self.manifest["exits"].get(str(index)), index in self.point["active"]
            if entry is not None and (active or entry["always"] or (entry["carried"] and index <= early)):
                nodes += self.add_piece(f"exit_{index:02d}", entry, known)
            if active:
                prefix = f"policy_{index:02d}"
                nodes += self._add_decision(prefix, index, known)
                self.add_constant(f"{prefix}/exit", {"dtype": "int64", "value": index})
                nodes.append(helper.make_node("Reshape", [f"{prefix}/leave", scalar], [f"{prefix}/leaves"]))
                segments.append(_Segment(prefix, nodes, self.weights))
                nodes, self.weights = [], []
        self.weights = constants
        return segments

    def _join(self, segments: Sequence["_Segment"]) -> tuple[list[Any], Sequence[str]]:
        """Return the nodes of the outer graph, and the names of the probabilities and the exit.

        A segment is skipped if the sample has left; what it would have given to later ones is then empty. Nested
        branches would need no such values, but files of more than some 25 of them cannot be read.
        """
        first, *others = segments
        self.weights += first.weights
        joined, answer = first.nodes, [f"{first.prefix}/{name}" for name in ANSWER]
        after: dict[str, str] = {}
        for place, (prefix, nodes, weights) in enumerate(others):
            for node in nodes:
                node.input[:] = [after.get(name, name) for name in node.input]
            made = dict.fromkeys(name for node in nodes for name in node.output)
            read = {name for later in others[place + 1 :] for node in later.nodes for name in node.input}
            live = [name for name in made if name in read]
            inside = [*(f"{prefix}/{name}" for name in ANSWER), *live]
            outside = [f"{prefix}/after/{name}" for name in (*ANSWER, *live)]
            branches = {
                "then_branch": self._branch(f"{prefix}/then", [], [*answer, *map(self._empty, live)], live, []),
                "else_branch": self._branch(f"{prefix}/else", nodes, inside, live, weights),
            }
            joined.append(helper.make_node("If", [answer[-1]], outside, name=prefix, **branches))
            after |= dict(zip(live, outside[len(ANSWER) :], strict=True))
            answer = outside[: len(ANSWER)]
        return joined, answer[:2]

    def _branch(
        self, name: str, nodes: Sequence[Any], sources: Sequence[str], live: Sequence[str], weights: Sequence[Any]
    ) -> Any:
        """Return a branch that gives an answer, and values for later segments.

        Args:
            name: Its name.
            nodes: Its nodes.
            sources: Names of what it gives.
            live: Names of the values that later segments read; keys of `types`.
            weights: Its weights. Those of the outer graph would not be laid out for convolutions.
        """
        types = [
            (TensorProto.FLOAT, [1, self.manifest["num_classes"]]),
            (TensorProto.INT64, [1]),
            (TensorProto.BOOL, []),
            *((kind, [None] * len(sizes)) for kind, sizes in (self.types[value] for value in live)),
        ]
        ends = [f"{name}/{place}" for place in range(len(sources))]
        copies = [helper.make_node("Identity", [source], [end]) for source, end in zip(sources, ends, strict=True)]
        values = [helper.make_tensor_value_info(end, *kind) for end, kind in zip(ends, types, strict=True)]
        return helper.make_graph([*nodes, *copies], name, [], values, weights)

    def _empty(self, name: str) -> str:
        """Return the name of an empty constant of the type of a value."""
        kind, sizes = self.types[name]
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        constant = {"dtype": dtype, "value": np.zeros([0] * len(sizes), dtype)}
        return self.add_constant(f"empty/{dtype}/{len(sizes)}", constant, batched=False)

    def _add_decision(self, prefix: str, index: int, known: dict[str, str]) -> list[Any]:
        """Return the policy's nodes at one exit, and enter its new carry into `known`."""
        inputs = {carry["name"]: known[carry["name"]] for carry in self.policy["carry"]}
        inputs["logits"] = f"logits_{index:02d}"
        temperature = {"dtype": "float32", "value": [self.point["temperatures"][index]]}
        inputs["temperature"] = self.add_constant(f"{prefix}/temperature", temperature)
        for name in self.policy["parameters"]:
            value = self.point["parameters"][name]
            value = value[index] if name in self.policy["per_exit"] else value
            inputs[name] = self.add_constant(f"{prefix}/{name}", {"dtype": "float32", "value": value})
        nodes = self.add_piece(prefix, self.policy, inputs, own_outputs=True)
        for carry in self.policy["carry"]:
            if carry["becomes"] in self.policy["writes"]:
                known[carry["name"]] = f"{prefix}/{carry['becomes']}"
        return nodes


def _describe(name: str, type: tuple[int, Sequence[int | None]]) -> Any:
    return helper.make_tensor_value_info(name, *type)


def _onnx_type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
