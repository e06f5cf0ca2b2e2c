"""Stages and exits computed by ONNX Runtime."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone import Backbone, Hidden, Pooling
from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.runtime.eager import EagerBackend
from offramp.runtime.onnx.export import export_onnx, identity
from offramp.runtime.onnx.int8 import check_int8
from offramp.runtime.processor import warn_if_slow
from offramp_onnx import FolderError, open_session, read_manifest

__all__ = ["OnnxBackend", "onnx_backend"]


class OnnxBackend:
    """Stages and exits as ONNX Runtime computes them, for the same engine.

    Tensors are handed over without being copied. As many threads as torch uses when it is made.

    Args:
        folder: What `export_onnx` wrote of the same network.
        backbone: The network: how its hidden states are put together is seen from one pass of the example.
        pooling: What exits see of a stage.
        bank: The trained exits.
        example: Inputs of at least one sample, as `backbone.prepare` gives them.

    Attributes:
        exact: Whether it computes in single precision, not in eight bits.

    Example:
        >>> import tempfile
        >>> from offramp.exits import LinearExits
        >>> from offramp.backbone import POOLINGS, CifarResNet
        >>> backbone, bank = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10)
        >>> pooling, images = POOLINGS.get("mean"), torch.randn(2, 3, 32, 32)
        >>> with tempfile.TemporaryDirectory() as place:
        ...     export_onnx(backbone, pooling, bank, images, f"{place}/graphs")
        ...     backend = OnnxBackend(f"{place}/graphs", backbone, pooling, bank, images)
        >>> backend.stage(0, images).shape
        torch.Size([2, 16, 32, 32])
    """

    def __init__(
        self, folder: str | Path, backbone: Backbone, pooling: Pooling, bank: ExitBank, example: Hidden
    ) -> None:
        folder = Path(folder)
        try:
            manifest = read_manifest(folder)
        except FolderError as error:
            raise InputError(str(error)) from error
        if len(manifest["stages"]) != backbone.num_exits or manifest["name"] != backbone.name:
            raise InputError(
                f"{folder} holds the graphs of '{manifest['name']}' with {len(manifest['stages'])} stages, and the "
                f"network given is '{backbone.name}' with {backbone.num_exits}; export this network"
            )
        given, exported = identity(backbone, pooling, bank), manifest["made_of"]
        differ = [part for part in given if given[part] != exported.get(part)]
        if differ:
            raise InputError(
                f"{folder} was exported from others than those given: {', '.join(differ)}; give what it was exported "
                "from, or export this"
            )
        self._trained, self._carries_state = frozenset(bank.stages), bank.carries_state
        self._read = bank.averaging.read
        self.exact = manifest["precision"] == "float32"
        if not self.exact:
            check_int8(backbone)
            warn_if_slow("int8")
        self._stages: list[_Call] = []
        self._exits: dict[int, _Call] = {}
        eager = EagerBackend(backbone, pooling, bank)
        names = [one["name"] for one in manifest["inputs"]]
        states = {True: list(manifest["initial_state"]), False: []}
        with torch.inference_mode():
            hidden = backbone.select(example, torch.zeros(1, dtype=torch.long), 0)
            state: Any = (bank.initial_state(1), ())
            classifier = None if bank.stacked == 1 else torch.zeros(1, dtype=torch.long)
            self._specs = [pytree.tree_structure(hidden)]
            for index, stage in enumerate(manifest["stages"]):
                hidden = eager.stage(index, hidden)
                self._specs.append(pytree.tree_structure(hidden))
                after = [one["name"] for one in stage["hidden"]]
                self._stages.append(_call(folder, stage, names, after, hidden))
                names = after
                if str(index) not in manifest["exits"]:
                    continue
                exit = manifest["exits"][str(index)]
                _, state = eager.exit(index, hidden, state, classifier, answer=True, carry=True)
                trained = index in self._trained
                own = state[0] if trained else state[1] if index in self._read else ()
                before = [*names, *states[trained], "classifier"]
                carried = [name for name in exit["state"] if name not in states[not trained]]
                self._exits[index] = _call(folder, exit, before, carried, own)
                states[trained] = carried

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """Run one stage."""
        return self._stages[index](_leaves(hidden, self._specs[index]))[1]

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        """Answer at one exit, as `Backend` says."""
        exits, heads = state
        trained = index in self._trained
        if not answer and not (carry and self._carries_state if trained else index in self._read):
            return None, state
        call = self._exits.get(index)
        if call is None:
            raise InputError(f"the exit after stage {index} was not exported; export with all the points that are used")
        leaves = _leaves(hidden, self._specs[index + 1]) + pytree.tree_leaves(exits if trained else heads)
        if classifier is not None:
            leaves.append(classifier)
        (logits,), made = call(leaves)
        return (logits if answer else None), ((made, heads) if trained else (exits, made))


def onnx_backend(backbone: Backbone, pooling: Pooling, bank: ExitBank, example: Hidden | None) -> OnnxBackend:
    """The network exported with all its exits, and run by ONNX Runtime; nothing is left on disk.

    Args:
        backbone: The frozen network.
        pooling: What exits see of a stage.
        bank: The trained exits.
        example: Inputs of at least one sample, as `backbone.prepare` gives them.
    """
    if example is None:
        raise InputError("expected an example to export the network with, got none; give some inputs: example=...")
    with TemporaryDirectory() as place:
        export_onnx(backbone, pooling, bank, example, Path(place) / "graphs")
        return OnnxBackend(Path(place) / "graphs", backbone, pooling, bank, example)


def _leaves(hidden: Hidden, spec: pytree.TreeSpec) -> list[Tensor]:
    """The leaves of a hidden state by name, not by place: two dictionaries may list the same keys in another order."""
    return [hidden] if spec.is_leaf() else spec.flatten_up_to(hidden)


@dataclass(frozen=True)
class _Call:
    """A graph with where its inputs come from and where its outputs go, looked up once."""

    session: Any
    """None where everything is passed on."""
    reads: Sequence[tuple[str, int]]
    """Names of its inputs, and which of the leaves each is."""
    writes: Sequence[str]
    before: int
    """How many of its outputs are not part of the tree."""
    tree: Sequence[tuple[bool, int]]
    """For each leaf of the tree: whether it is one of the outputs, else of the leaves passed on; which one."""
    spec: pytree.TreeSpec

    def __call__(self, leaves: Sequence[Tensor]) -> tuple[Sequence[Tensor], Any]:
        """Outputs that are not part of the tree, and the tree."""
        made: list[Tensor] = []
        if self.session is not None:
            feeds = {name: leaves[place].numpy() for name, place in self.reads}
            made = [torch.from_numpy(array) for array in self.session.run(self.writes, feeds)]
        kept = [made[place] if new else leaves[place] for new, place in self.tree]
        tree = kept[0] if self.spec.is_leaf() else pytree.tree_unflatten(kept, self.spec)
        return made[: self.before], tree


def _call(folder: Path, entry: Any, names: Sequence[str], after: Sequence[str], tree: Any) -> _Call:
    """A graph of the folder, given the names of the leaves it is called with, and those of the tree it leaves."""
    writes, spec = entry["writes"], pytree.tree_structure(tree)
    places = {name: (False, place) for place, name in enumerate(names)}
    places |= {name: (True, place) for place, name in enumerate(writes)}
    return _Call(
        session=None
        if entry["file"] is None
        else open_session(folder / entry["file"], threads=torch.get_num_threads()),
        reads=[(name, places[name][1]) for name in entry["reads"]],
        writes=writes,
        before=len([name for name in writes if name not in after]),
        tree=[places[name] for name in after],
        spec=spec,
    )
