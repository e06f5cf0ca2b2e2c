"""The ONNX Runtime backend."""

import json
import shutil
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NamedTuple

import onnx
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.policy import OperatingPoint, Policy
from offramp.pooling import Pooling
from offramp.runtime._backend import Step
from offramp.runtime._eager import EagerBackend
from offramp.runtime._processor import warn_if_slow
from offramp.runtime.onnx._composing import compose_single, fuse_stage
from offramp.runtime.onnx._network import fingerprint_parts, write_network
from offramp.runtime.onnx._pieces import describe_point, write_policy
from offramp_onnx import FolderError, open_session, read_manifest

__all__ = ["OnnxBackend", "int8_backend", "onnx_backend", "open_graphs"]

MOST_SINGLES = 2
"""Points whose whole networks are kept as one graph: each holds all weights."""


class OnnxBackend:
    """Stages and exits computed by ONNX Runtime.

    A stage with its exit and the policy is one graph; so is the whole network, for a single sample. These graphs are
    made when they are first needed. Tensors are passed without copying. It uses as many threads as torch does when it
    is made.

    Args:
        folder: A folder that `write_network` wrote for the same network. It has to stay.
        backbone: The network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        example: Inputs of at least one sample, from `backbone.prepare`; one pass shows the tree of the hidden states.

    Attributes:
        folder: As above.
        example: One sample of the example.
        precision: "float32" or "int8".
        exact: True if it computes in float32.
    """

    def __init__(
        self, folder: str | Path, backbone: Backbone, pooling: Pooling, exits: ExitSet, example: Hidden
    ) -> None:
        self.folder = folder = Path(folder)
        self.example = backbone.select(example, torch.zeros(1, dtype=torch.long), 0)
        self._parts = backbone, pooling, exits
        manifest = _read_manifest(folder, backbone, pooling, exits)
        self._trained, self._carries_state = frozenset(exits.stages), exits.carries_state
        self._read = exits.averaging.read
        self.precision: str = manifest["precision"]
        self.exact = self.precision == "float32"
        if not self.exact:
            warn_if_slow("int8")
        self._manifest, self._num_classes = manifest, backbone.num_classes
        self._threads = torch.get_num_threads()
        self._stages: list[_GraphCall] = []
        self._exits: dict[int, _GraphCall] = {}
        self._fused: dict[tuple[int, str | None], _GraphCall | None] = {}
        self._singles: dict[str, Any] = {}
        self._policies: dict[str, dict[str, Any]] = {}
        eager = EagerBackend(backbone, pooling, exits)
        names = [leaf["name"] for leaf in manifest["inputs"]]
        state_names = {True: list(manifest["initial_state"]), False: []}  # of trained exits, and of own heads
        with torch.inference_mode():
            hidden = self.example
            state: Any = (exits.initial_state(1), ())
            classifier = None if exits.stacked == 1 else torch.zeros(1, dtype=torch.long)
            self._specs = [pytree.tree_structure(hidden)]
            for index, stage in enumerate(manifest["stages"]):
                hidden = eager.stage(index, hidden)
                self._specs.append(pytree.tree_structure(hidden))
                new_names = [leaf["name"] for leaf in stage["hidden"]]
                after = _Tree(new_names, self._specs[-1])
                self._stages.append(self._open(stage, names, [after]))
                names = new_names
                if str(index) not in manifest["exits"]:
                    continue
                exit = manifest["exits"][str(index)]
                _, state = eager.exit(index, hidden, state, classifier, answer=True, carry=True)
                trained = index in self._trained
                own = state[0] if trained else state[1] if index in self._read else ()
                carried = [name for name in exit["state"] if name not in state_names[not trained]]
                carry = _Tree(carried, pytree.tree_structure(own))
                self._exits[index] = self._open(exit, [*names, *state_names[trained], "classifier"], [carry])
                state_names[trained] = carried

    def __reduce__(self) -> tuple[Callable[..., "OnnxBackend"], tuple[Any, ...]]:
        """Send the graphs to another process, which opens sessions of its own."""
        return open_graphs, (self.read_files(), *self._parts, self.example)

    def read_files(self) -> dict[str, bytes]:
        """Read the graphs and their manifest, by the names of the files."""
        return {file: (self.folder / file).read_bytes() for file in (*self._manifest["files"], "manifest.json")}

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """Run one stage."""
        _, (after,) = self._stages[index](_leaves(hidden, self._specs[index]))
        return after

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        """Run one exit, as `Backend` says."""
        exits, heads = state
        trained = index in self._trained
        if not answer and not (carry and self._carries_state if trained else index in self._read):
            return None, state
        graph = self._exits.get(index)
        if graph is None:
            raise InputError(
                f"the exit after stage {index} was not exported", hint="export with all the points that are used"
            )
        leaves = _leaves(hidden, self._specs[index + 1]) + pytree.tree_leaves(exits if trained else heads)
        if classifier is not None:
            leaves.append(classifier)
        (logits,), (new_state,) = graph(leaves)
        return (logits if answer else None), ((new_state, heads) if trained else (exits, new_state))

    def step(
        self,
        index: int,
        hidden: Hidden,
        state: Any,
        classifier: Tensor | None,
        policy: Policy | None,
        parameters: Mapping[str, Tensor],
        carry: Any,
    ) -> Step | None:
        """Run one stage, its exit and the policy as one graph, as `FusedBackend` says."""
        key = index, None if policy is None else policy.name
        if key not in self._fused:
            self._fused[key] = self._fuse(index, policy) if index in self._exits else None
        graph = self._fused[key]
        if graph is None:
            return None
        exits, heads = state
        trained = index in self._trained
        leaves = _leaves(hidden, self._specs[index]) + pytree.tree_leaves(exits if trained else heads)
        leaves += [parameters[parameter] for parameter in _parameters(policy)] + pytree.tree_leaves(carry)
        if classifier is not None:
            leaves.append(classifier)
        (probabilities, *leave), (after, new_state, new_carry) = graph(leaves)
        states = (new_state, heads) if trained else (exits, new_state)
        return Step(after, states, probabilities, leave[0] if leave else None, new_carry)

    def single(self, point: OperatingPoint) -> Callable[[Hidden], tuple[Tensor, Tensor]] | None:
        """Return the network at a point as one graph, as `FusedBackend` says; those of the last few points are kept."""
        described = describe_point(point)
        key = json.dumps(described, sort_keys=True)
        if key not in self._singles:
            missing = set(point.active) - self._exits.keys()
            session = None if "noise" in point.rule.reads or missing else self._open_single(described)
            self._singles[key] = session
            for oldest in list(self._singles)[:-MOST_SINGLES]:
                self._singles.pop(oldest, None)
        return None if self._singles[key] is None else self._runner(self._singles[key])

    def _open_single(self, point: Mapping[str, Any]) -> Any:
        """Open the whole network at a point as one graph; None if it cannot be one."""
        try:
            model = compose_single(self.folder, self._manifest, point, self._write_policy(point["policy"]))
            return open_session(model.SerializeToString(), threads=self._threads)
        except Exception:  # of any of the libraries: types that differ, too large a file; the parts run by themselves
            return None

    def _runner(self, session: Any) -> Callable[[Hidden], tuple[Tensor, Tensor]]:
        """Return a function that runs a graph of the whole network."""
        places = {leaf["name"]: place for place, leaf in enumerate(self._manifest["inputs"])}
        reads = [(given.name, places[given.name]) for given in session.get_inputs()]
        outputs, spec = ("probabilities", "exit"), self._specs[0]

        def run(hidden: Hidden) -> tuple[Tensor, Tensor]:
            leaves = _leaves(hidden, spec)
            feeds = {name: leaves[place].numpy() for name, place in reads}
            with _ExplainErrors(feeds):
                probabilities, exit = session.run(outputs, feeds)
            return torch.from_numpy(probabilities), torch.from_numpy(exit)

        return run

    def _fuse(self, index: int, policy: Policy | None) -> "_GraphCall | None":
        """Make the graph of a stage, its exit and a policy; None if they cannot be one."""
        try:
            return self._open_fused(index, policy)
        except Exception:  # of any of the libraries: types that differ, a policy that cannot be exported
            return None

    def _open_fused(self, index: int, policy: Policy | None) -> "_GraphCall":
        entry = None if policy is None else self._write_policy(policy.name)
        graph = fuse_stage(self.folder, self._manifest, index, entry)
        stage, exit = self._stages[index], self._exits[index]
        carries = [] if entry is None else entry["carry"]
        names = [*stage.names, *exit.names[len(stage.trees[0].names) : -1]]
        names += [f"policy/{name}" for name in (*_parameters(policy), *(carry["name"] for carry in carries))]
        first = () if policy is None else policy.initial_carry(torch.zeros(1))
        carry = _Tree([f"policy/{carry['becomes']}" for carry in carries], pytree.tree_structure(first))
        fused = {"file": graph.model, "reads": graph.reads, "writes": graph.writes}
        return self._open(fused, [*names, "classifier"], [*stage.trees, *exit.trees, carry])

    def _write_policy(self, name: str) -> dict[str, Any]:
        """Return the entry of a policy, as in a manifest but with its graph, made when it is first needed."""
        if name not in self._policies:
            with TemporaryDirectory() as place:
                entry = write_policy(Path(place), name, self._num_classes)
                self._policies[name] = {**entry, "file": (Path(place) / entry["file"]).read_bytes()}
        return self._policies[name]

    def _open(self, entry: Mapping[str, Any], names: Sequence[str], trees: Sequence["_Tree"]) -> "_GraphCall":
        """Open a graph, given the names of the leaves it is called with, and the trees it returns."""
        writes, file = entry["writes"], entry["file"]
        places = {name: (False, place) for place, name in enumerate(names)}
        places |= {name: (True, place) for place, name in enumerate(writes)}
        in_trees = {name for tree in trees for name in tree.names}
        graph = self.folder / file if isinstance(file, str) else file
        return _GraphCall(
            session=None if graph is None else open_session(graph, threads=self._threads),
            names=names,
            reads=[(name, places[name][1]) for name in entry["reads"]],
            writes=writes,
            extra=[place for place, name in enumerate(writes) if name not in in_trees],
            trees=trees,
            places=[[places[name] for name in tree.names] for tree in trees],
        )


def onnx_backend(backbone: Backbone, pooling: Pooling, exits: ExitSet, example: Hidden | None) -> OnnxBackend:
    """Export a network with all its exits to a temporary folder, and open it with ONNX Runtime.

    Args:
        backbone: The frozen network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        example: Inputs of at least one sample, from `backbone.prepare`.
    """
    return _made(backbone, pooling, exits, example, int8=False)


def int8_backend(backbone: Backbone, pooling: Pooling, exits: ExitSet, example: Hidden | None) -> OnnxBackend:
    """Make the same backend with the stages in int8.

    Args:
        backbone: The frozen network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        example: Inputs of a few hundred samples, from `backbone.prepare`: activations have their ranges.
    """
    return _made(backbone, pooling, exits, example, int8=True)


def open_graphs(
    files: Mapping[str, bytes], backbone: Backbone, pooling: Pooling, exits: ExitSet, example: Hidden
) -> OnnxBackend:
    """Write graphs to a temporary folder, and open it with ONNX Runtime; refuse graphs that read other files.

    Args:
        files: The files of a folder that `export_onnx` wrote for the same network, by their names.
        backbone: The frozen network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        example: Inputs of at least one sample, from `backbone.prepare`.
    """

    def write(folder: Path) -> None:
        for name, content in files.items():
            if name != "manifest.json" and _reads_files(onnx.ModelProto.FromString(content)):
                raise InputError(name, expected="a graph that holds its weights", got="one that reads another file")
            (folder / name).write_bytes(content)

    return _open_temporary(write, backbone, pooling, exits, example)


def _reads_files(part: Any) -> bool:
    """Tell if a graph, or a part of it, has tensors in other files."""
    if isinstance(part, onnx.TensorProto):
        return part.data_location == onnx.TensorProto.EXTERNAL or bool(part.external_data)
    fields = [value for field, value in part.ListFields() if field.message_type is not None]
    return any(
        _reads_files(inner) for value in fields for inner in ([value] if hasattr(value, "ListFields") else value)
    )


def _made(backbone: Backbone, pooling: Pooling, exits: ExitSet, example: Hidden | None, *, int8: bool) -> OnnxBackend:
    if example is None:
        raise InputError(
            "example", expected="inputs to export the network with", got="none", hint="give some: example=..."
        )

    def write(folder: Path) -> None:
        write_network(backbone, pooling, exits, example, folder, int8=int8)

    return _open_temporary(write, backbone, pooling, exits, example)


def _open_temporary(
    write: Callable[[Path], None], backbone: Backbone, pooling: Pooling, exits: ExitSet, example: Hidden
) -> OnnxBackend:
    """Open a temporary folder that `write` fills; it is removed with the backend."""
    place = Path(mkdtemp(prefix="offramp-"))
    try:
        write(place)
        backend = OnnxBackend(place, backbone, pooling, exits, example)
    except BaseException:
        shutil.rmtree(place)
        raise
    weakref.finalize(backend, shutil.rmtree, place, ignore_errors=True)
    return backend


def _read_manifest(folder: Path, backbone: Backbone, pooling: Pooling, exits: ExitSet) -> dict[str, Any]:
    """Read a manifest and refuse that of another network."""
    try:
        manifest = read_manifest(folder)
    except FolderError as error:
        raise InputError(str(error)) from error
    if len(manifest["stages"]) != backbone.num_exits or manifest["name"] != backbone.name:
        raise InputError(
            f"{folder}",
            expected=f"the graphs of '{backbone.name}' with {backbone.num_exits} stages",
            got=f"'{manifest['name']}' with {len(manifest['stages'])}",
            hint="export this network",
        )
    parts, exported = fingerprint_parts(backbone, pooling, exits), manifest["made_of"]
    if differing := [part for part in parts if parts[part] != exported.get(part)]:
        raise InputError(
            f"{folder}",
            expected="graphs of this backbone, pooling and exits",
            got=f"graphs of another {', '.join(differing)}",
            hint="give the parts that were exported, or export these",
        )
    return manifest


def _leaves(hidden: Hidden, spec: pytree.TreeSpec) -> list[Tensor]:
    """Flatten a hidden state by key, not by position: two dictionaries may have the same keys in another order."""
    return [hidden] if spec.is_leaf() else spec.flatten_up_to(hidden)


def _parameters(policy: Policy | None) -> list[str]:
    """Return the names of what a decision depends on beside the logits and the carry."""
    return ["temperature", *([] if policy is None else sorted(policy.parameters))]


class _ExplainErrors:
    """Says which inputs ONNX Runtime could not take. Not a generator, which would take as long as a small graph."""

    def __init__(self, feeds: Mapping[str, Any]) -> None:
        self._feeds = feeds

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if not isinstance(error, Exception) or "allocate" in str(error):  # memory can run out whatever the inputs are
            return
        shapes = ", ".join(f"{name} of shape {feed.shape}" for name, feed in list(self._feeds.items())[:4])
        raise InputError(
            f"the network cannot take these inputs ({shapes})",
            # In the hint, which servers keep for themselves: it tells how the network is built.
            hint=f"{str(error)[:300]}; give a batch of samples like those it was exported with",
        ) from error


class _Tree(NamedTuple):
    """A tree of tensors that a graph returns."""

    names: Sequence[str]
    """Names of its leaves."""
    spec: pytree.TreeSpec
    """Its structure."""


@dataclass(frozen=True)
class _GraphCall:
    """A graph with the sources of its inputs and the places of its outputs."""

    session: Any
    """The session; None if all leaves are passed on."""
    names: Sequence[str]
    """Names of the leaves it is called with."""
    reads: Sequence[tuple[str, int]]
    """Names of the graph's inputs, and the index of each among the leaves."""
    writes: Sequence[str]
    """Names of the graph's outputs."""
    extra: Sequence[int]
    """Indices of the outputs that are not part of a tree."""
    trees: Sequence[_Tree]
    """The trees that it returns."""
    places: Sequence[Sequence[tuple[bool, int]]]
    """For each leaf of each tree: True and its index among the outputs, or False and its index among the leaves."""

    def __call__(self, leaves: Sequence[Tensor]) -> tuple[list[Tensor], list[Any]]:
        """Return the outputs that are not part of a tree, and the trees."""
        outputs: list[Tensor] = []
        if self.session is not None:
            feeds = {name: leaves[place].numpy() for name, place in self.reads}
            with _ExplainErrors(feeds):
                outputs = [torch.from_numpy(array) for array in self.session.run(self.writes, feeds)]
        trees = []
        for (_, spec), places in zip(self.trees, self.places, strict=True):
            values = [outputs[place] if new else leaves[place] for new, place in places]
            trees.append(values[0] if spec.is_leaf() else pytree.tree_unflatten(values, spec))
        return [outputs[place] for place in self.extra], trees
