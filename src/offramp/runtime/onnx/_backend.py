"""The ONNX Runtime backend."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.pooling import Pooling
from offramp.runtime._eager import EagerBackend
from offramp.runtime._processor import warn_if_slow
from offramp.runtime.onnx._export import export_onnx, fingerprint_parts
from offramp.runtime.onnx._int8 import check_int8
from offramp_onnx import FolderError, open_session, read_manifest

__all__ = ["OnnxBackend", "onnx_backend"]


class OnnxBackend:
    """Stages and exits computed by ONNX Runtime.

    Tensors are passed without copying. It uses as many threads as torch does when it is made.

    Args:
        folder: A folder that `export_onnx` wrote for the same network.
        backbone: The network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        example: Inputs of at least one sample, from `backbone.prepare`; one pass shows the tree of the hidden states.

    Attributes:
        exact: True if it computes in float32, not in int8.
    """

    def __init__(
        self, folder: str | Path, backbone: Backbone, pooling: Pooling, exits: ExitSet, example: Hidden
    ) -> None:
        folder = Path(folder)
        manifest = _read_manifest(folder, backbone, pooling, exits)
        self._trained, self._carries_state = frozenset(exits.stages), exits.carries_state
        self._read = exits.averaging.read
        self.exact = manifest["precision"] == "float32"
        if not self.exact:
            check_int8(backbone)
            warn_if_slow("int8")
        self._stages: list[_GraphCall] = []
        self._exits: dict[int, _GraphCall] = {}
        eager = EagerBackend(backbone, pooling, exits)
        names = [leaf["name"] for leaf in manifest["inputs"]]
        state_names = {True: list(manifest["initial_state"]), False: []}  # of trained exits, and of own heads
        with torch.inference_mode():
            hidden = backbone.select(example, torch.zeros(1, dtype=torch.long), 0)
            state: Any = (exits.initial_state(1), ())
            classifier = None if exits.stacked == 1 else torch.zeros(1, dtype=torch.long)
            self._specs = [pytree.tree_structure(hidden)]
            for index, stage in enumerate(manifest["stages"]):
                hidden = eager.stage(index, hidden)
                self._specs.append(pytree.tree_structure(hidden))
                new_names = [leaf["name"] for leaf in stage["hidden"]]
                self._stages.append(_open_call(folder, stage, names, new_names, hidden))
                names = new_names
                if str(index) not in manifest["exits"]:
                    continue
                exit = manifest["exits"][str(index)]
                _, state = eager.exit(index, hidden, state, classifier, answer=True, carry=True)
                trained = index in self._trained
                own = state[0] if trained else state[1] if index in self._read else ()
                inputs = [*names, *state_names[trained], "classifier"]
                carried = [name for name in exit["state"] if name not in state_names[not trained]]
                self._exits[index] = _open_call(folder, exit, inputs, carried, own)
                state_names[trained] = carried

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """Run one stage."""
        return self._stages[index](_leaves(hidden, self._specs[index]))[1]

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
        (logits,), new_state = graph(leaves)
        return (logits if answer else None), ((new_state, heads) if trained else (exits, new_state))


def onnx_backend(backbone: Backbone, pooling: Pooling, exits: ExitSet, example: Hidden | None) -> OnnxBackend:
    """Export a network with all its exits to a temporary folder, and open it with ONNX Runtime.

    Args:
        backbone: The frozen network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        example: Inputs of at least one sample, from `backbone.prepare`.
    """
    if example is None:
        raise InputError(
            "example", expected="inputs to export the network with", got="none", hint="give some: example=..."
        )
    with TemporaryDirectory() as place:
        export_onnx(backbone, pooling, exits, example, Path(place) / "graphs")
        return OnnxBackend(Path(place) / "graphs", backbone, pooling, exits, example)


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


@dataclass(frozen=True)
class _GraphCall:
    """A graph with the sources of its inputs and the places of its outputs."""

    session: Any
    """The session; None if all leaves are passed on."""
    reads: Sequence[tuple[str, int]]
    """Names of the graph's inputs, and the index of each among the leaves."""
    writes: Sequence[str]
    """Names of the graph's outputs."""
    num_extra: int
    """Number of outputs, the first ones, that are not part of the tree."""
    tree: Sequence[tuple[bool, int]]
    """For each leaf of the tree: True and its index among the outputs, or False and its index among the leaves."""
    spec: pytree.TreeSpec
    """The structure of the tree."""

    def __call__(self, leaves: Sequence[Tensor]) -> tuple[Sequence[Tensor], Any]:
        """Return the outputs that are not part of the tree, and the tree."""
        outputs: list[Tensor] = []
        if self.session is not None:
            feeds = {name: leaves[place].numpy() for name, place in self.reads}
            outputs = [torch.from_numpy(array) for array in self.session.run(self.writes, feeds)]
        values = [outputs[place] if new else leaves[place] for new, place in self.tree]
        tree = values[0] if self.spec.is_leaf() else pytree.tree_unflatten(values, self.spec)
        return outputs[: self.num_extra], tree


def _open_call(folder: Path, entry: Any, names: Sequence[str], tree_names: Sequence[str], tree: Any) -> _GraphCall:
    """Open a graph, given the names of the leaves it is called with and of the leaves of its tree."""
    writes = entry["writes"]
    places = {name: (False, place) for place, name in enumerate(names)}
    places |= {name: (True, place) for place, name in enumerate(writes)}
    file = entry["file"]
    return _GraphCall(
        session=None if file is None else open_session(folder / file, threads=torch.get_num_threads()),
        reads=[(name, places[name][1]) for name in entry["reads"]],
        writes=writes,
        num_extra=len([name for name in writes if name not in tree_names]),
        tree=[places[name] for name in tree_names],
        spec=pytree.tree_structure(tree),
    )
