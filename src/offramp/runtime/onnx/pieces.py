"""The stages and exits of a network, walked with a few batches: each written as a graph, and checked."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from offramp.backbone import Backbone, Hidden, Pooling
from offramp.backbone.hidden import at_length, leaf_axes
from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.runtime.eager import EagerBackend
from offramp.runtime.onnx.graphs import Leaf, called, check_graph, write_graph
from offramp_onnx import open_session

__all__ = ["PieceWriter"]

BATCHES = ((1, 5), (3, 8), (64, 12))
"""Samples and, where samples differ in length, their length, that every graph is checked with; the second is traced."""

TRACED = 1


class PieceWriter:
    """Walks the stages with a few batches, and writes and checks what it passes.

    Args:
        backbone: The frozen network.
        pooling: What exits see of a stage.
        bank: The trained exits.
        example: Inputs of at least one sample, as `backbone.prepare` gives them.
        folder: Where to write.
    """

    def __init__(self, backbone: Backbone, pooling: Pooling, bank: ExitBank, example: Hidden, folder: Path) -> None:
        self.backbone, self.bank, self.folder = backbone, bank, folder
        self.eager = EagerBackend(backbone, pooling, bank)
        self.hiddens = [_batch(backbone, example, size, length) for size, length in BATCHES]
        names = _input_names(self.hiddens[TRACED])
        self.leaves = self._leaves(names, 0)
        states = [pytree.tree_map(Tensor.clone, bank.initial_state(size)) for size, _ in BATCHES]
        self.states: list[Any] = [pytree.tree_leaves(state) for state in states]
        self.state_spec = pytree.tree_structure(states[0])
        self.state_names = [f"state_{place}" for place in range(len(self.states[0]))]
        self.heads: list[list[Tensor]] = [[] for _ in BATCHES]
        self.head_names: list[str] = []
        self.head_spec = pytree.tree_structure(())

    def write(self, wanted: frozenset[int]) -> dict[str, Any]:
        """All graphs of stages and of the exits `wanted`; returns what the manifest says of them."""
        inputs = [_described(leaf, tensor) for leaf, tensor in zip(self.leaves, self._flat(TRACED), strict=True)]
        initial = {name: _row(values) for name, values in zip(self.state_names, self.states[TRACED], strict=True)}
        stages, exits = [], {}
        described: dict[str, Any] = {"inputs": inputs, "initial_state": initial}
        if self.backbone.grows:
            spec = pytree.tree_structure(self.hiddens[TRACED])
            described["sizes"] = self._sizes([self._flat(flow) for flow in range(len(BATCHES))], spec, self.leaves)
        for index in range(self.backbone.num_exits):
            stages.append(self._stage(index))
            if index in wanted:
                exits[str(index)] = self._exit(index)
        return {**described, "stages": stages, "exits": exits}

    def _stage(self, index: int) -> dict[str, Any]:
        spec = pytree.tree_structure(self.hiddens[TRACED])

        def run(*leaves: Tensor) -> Hidden:
            return self.backbone.stages[index](pytree.tree_unflatten(list(leaves), spec))

        before, values = self.leaves, [self._flat(flow) for flow in range(len(BATCHES))]
        made = [called(run, given) for given in values]
        self.hiddens = [pytree.tree_unflatten(one.outputs, one.spec) for one in made]
        after = [self._flat(flow) for flow in range(len(BATCHES))]
        names = _names(before, made[TRACED].passed, f"hidden_{index:02d}")
        self.leaves = self._leaves(names, index + 1)
        entry = self._written(
            f"stage_{index:02d}", run, [self.backbone.stages[index]], before, values, after, names, f"stage {index}"
        )
        described = [_described(leaf, tensor) for leaf, tensor in zip(self.leaves, after[TRACED], strict=True)]
        return {**entry, "hidden": described}

    def _exit(self, index: int) -> dict[str, Any]:
        trained = index in self.bank.stages
        kept, names = (self.states, self.state_names) if trained else (self.heads, self.head_names)
        function = self._answering(index, self.state_spec if trained else self.head_spec)
        stacked = trained and self.bank.stacked > 1
        leaves = [*self.leaves, *map(Leaf, names), *([Leaf("classifier")] if stacked else [])]
        values = [
            [*self._flat(flow), *kept[flow], *([torch.arange(size) % self.bank.stacked] if stacked else [])]
            for flow, (size, _) in enumerate(BATCHES)
        ]
        made = [called(function, given) for given in values]
        carried = _names(leaves, made[TRACED].passed[1:], f"state_{index:02d}")
        entry = self._written(
            f"exit_{index:02d}",
            function,
            [self.backbone.heads, self.bank],
            leaves,
            values,
            [one.outputs for one in made],
            [f"logits_{index:02d}", *carried],
            f"the exit after stage {index}",
        )
        states = [one.outputs[1:] for one in made]
        _, state = pytree.tree_unflatten(made[TRACED].outputs, made[TRACED].spec)
        spec = pytree.tree_structure(state)
        if trained:
            self.states, self.state_names, self.state_spec = states, carried, spec
        else:
            self.heads, self.head_names, self.head_spec = states, carried, spec
        return {
            **entry,
            "state": [*self.state_names, *self.head_names],
            "carried": trained and self.bank.carries_state,
            "always": index in self.bank.averaging.read,
        }

    def _answering(self, index: int, state_spec: pytree.TreeSpec) -> Callable[..., tuple[Tensor, Any]]:
        """An exit as a function of leaves: its answer, and the state that later exits of its kind read."""
        hidden_spec, trained = pytree.tree_structure(self.hiddens[TRACED]), index in self.bank.stages
        width, depth = hidden_spec.num_leaves, state_spec.num_leaves
        read = trained or index in self.bank.averaging.read

        def run(*leaves: Tensor) -> tuple[Tensor, Any]:
            hidden = pytree.tree_unflatten(list(leaves[:width]), hidden_spec)
            state: Any = pytree.tree_unflatten(list(leaves[width : width + depth]), state_spec)
            classifier = leaves[width + depth] if len(leaves) > width + depth else None
            both = (state, ()) if trained else ((), state)
            logits, both = self.eager.exit(index, hidden, both, classifier, answer=True, carry=True)
            assert logits is not None
            return logits, both[0 if trained else 1] if read else ()

        return run

    def _sizes(
        self, given: Sequence[Sequence[Tensor]], spec: pytree.TreeSpec, leaves: Sequence[Leaf]
    ) -> dict[str, Any]:
        """The graph that tells how large samples are, where their cost depends on it."""

        def run(*values: Tensor) -> list[Tensor]:
            return [self.backbone.sizes(pytree.tree_unflatten(list(values), spec)).float()]

        expected = [run(*values) for values in given]
        return self._written("sizes", run, [], leaves, given, expected, ["sizes"], "the sizes of samples")

    def _written(
        self,
        name: str,
        function: Callable[..., Any],
        parts: Sequence[nn.Module],
        leaves: Sequence[Leaf],
        values: Sequence[Sequence[Tensor]],
        expected: Sequence[Sequence[Tensor]],
        outputs: Sequence[str],
        what: str,
    ) -> dict[str, Any]:
        """Write one graph, of the outputs that are not inputs passed on, and check it with every batch."""
        known = {leaf.name for leaf in leaves}
        new = {place: output for place, output in enumerate(outputs) if output not in known}
        if not new:
            return {"file": None, "reads": [], "writes": []}
        path = self.folder / f"{name}.onnx"
        graph = write_graph(
            path,
            function,
            parts,
            list(zip(leaves, values[TRACED], strict=True)),
            new,
            what=f"{what} of '{self.backbone.name}'",
        )
        session = open_session(path)
        for given, wanted in zip(values, expected, strict=True):
            named = {leaf.name: tensor.numpy() for leaf, tensor in zip(leaves, given, strict=True)}
            found = session.run(list(graph.writes), {key: np.ascontiguousarray(named[key]) for key in graph.reads})
            check_graph(found, [wanted[place] for place in new], what=f"{what} of '{self.backbone.name}'")
        return {"file": path.name, "reads": list(graph.reads), "writes": list(graph.writes)}

    def _flat(self, flow: int) -> list[Tensor]:
        leaves = pytree.tree_leaves(self.hiddens[flow])
        strange = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, Tensor)]
        if strange:
            raise InputError(
                f"hidden states of '{self.backbone.name}' hold {', '.join(strange)}; ONNX graphs take tensors alone: "
                "give inputs as tensors, or run this network with another backend"
            )
        return leaves

    def _leaves(self, names: Sequence[str], depth: int) -> list[Leaf]:
        """The leaves of the present hidden state, by name, with their axes; refused where samples do not lie apart."""
        axes = leaf_axes(self.hiddens[TRACED], self.backbone.axes(depth))
        for flow, (size, _) in enumerate(BATCHES):
            for leaf, ax in zip(self._flat(flow), axes, strict=True):
                if ax.batch is not None and leaf.shape[ax.batch] != size:
                    raise InputError(
                        f"after {depth} stages of '{self.backbone.name}', a part of the hidden state has shape "
                        f"{tuple(leaf.shape)} for {size} samples: samples do not lie along one axis, as in batches of "
                        "graphs; run this network with another backend"
                    )
        return [Leaf(name, ax.batch, tuple(ax.lengths)) for name, ax in zip(names, axes, strict=True)]


def _batch(backbone: Backbone, example: Hidden, size: int, length: int) -> Hidden:
    """So many samples of the example, repeated; of so many tokens, where samples have lengths."""
    chosen = backbone.select(example, torch.arange(size) % backbone.batch_size(example, 0), 0)
    grows = any(ax.lengths for ax in leaf_axes(chosen, backbone.axes(0)))
    return at_length(chosen, length, backbone.axes(0)) if grows else chosen


def _input_names(inputs: Hidden) -> list[str]:
    """The keys on the way to each leaf; of a single tensor, "input"."""
    paths = [path for path, _ in pytree.tree_leaves_with_path(inputs)]
    if any(not path for path in paths):
        return ["input"]
    return ["_".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) for path in paths]


def _names(before: Sequence[Leaf], passed: Sequence[int | None], prefix: str) -> list[str]:
    """Names of tensors: what is handed on unchanged keeps its own."""
    numbers = count()
    return [f"{prefix}_{next(numbers)}" if place is None else before[place].name for place in passed]


def _described(leaf: Leaf, tensor: Tensor) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = [None if axis in leaf.free else size for axis, size in enumerate(tensor.shape)]
    return {"name": leaf.name, "dtype": dtype, "shape": shape, "batch": leaf.batch, "lengths": list(leaf.lengths)}


def _row(values: Tensor) -> dict[str, Any]:
    """What every sample starts with."""
    return {"dtype": str(values.dtype).removeprefix("torch."), "value": values[0].tolist()}
