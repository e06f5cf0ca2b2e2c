"""The stages, exits and policies of a network as ONNX graphs, each checked with a few batches."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden, leaf_axes, with_length
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.policy import POLICIES, OperatingPoint
from offramp.policy._observation import observe
from offramp.pooling import Pooling
from offramp.runtime._eager import EagerBackend
from offramp.runtime.onnx._graphs import GraphFunction, Leaf, call, write_checked

__all__ = ["PieceWriter", "describe_point", "write_policy"]

BATCHES = ((1, 5), (3, 8), (64, 12))
"""Batch sizes that every graph is checked with, and lengths, where samples have one; the second is traced."""

TRACED = 1


class PieceWriter:
    """The writer of the graphs: it runs a few batches stage by stage, and writes and checks each piece.

    Args:
        backbone: The frozen network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        example: Inputs of at least one sample, from `backbone.prepare`.
        folder: The folder to write to.
    """

    def __init__(self, backbone: Backbone, pooling: Pooling, exits: ExitSet, example: Hidden, folder: Path) -> None:
        self._backbone, self._exits, self._folder = backbone, exits, folder
        self._eager = EagerBackend(backbone, pooling, exits)
        self._hiddens = [_make_batch(backbone, example, size, length) for size, length in BATCHES]
        self._leaves = self._name_leaves(_input_names(self._hiddens[TRACED]), 0)
        states = [pytree.tree_map(Tensor.clone, exits.initial_state(size)) for size, _ in BATCHES]
        self._states: list[Any] = [pytree.tree_leaves(state) for state in states]
        self._state_spec = pytree.tree_structure(states[0])
        self._state_names = [f"state_{place}" for place in range(len(self._states[0]))]
        self._heads: list[list[Tensor]] = [[] for _ in BATCHES]
        self._head_spec = pytree.tree_structure(())
        self._head_names: list[str] = []

    def write(self) -> dict[str, Any]:
        """Write the graphs of all stages and exits; return their part of the manifest."""
        manifest: dict[str, Any] = {
            "inputs": self._describe_leaves(),
            "initial_state": {
                name: {"dtype": str(values.dtype).removeprefix("torch."), "value": values[0].tolist()}
                for name, values in zip(self._state_names, self._states[TRACED], strict=True)
            },
        }
        if self._backbone.varies_in_size:
            manifest["sizes"] = self._write_sizes()
        manifest |= {"stages": [], "exits": {}}
        for index in range(self._backbone.num_exits):
            manifest["stages"].append(self._write_stage(index))
            if index in (*self._exits.stages, *self._backbone.own_heads):
                manifest["exits"][str(index)] = self._write_exit(index)
        return manifest

    def _write_stage(self, index: int) -> dict[str, Any]:
        spec = pytree.tree_structure(self._hiddens[TRACED])

        def run(*leaves: Tensor) -> Hidden:
            return self._backbone.stages[index](pytree.tree_unflatten(list(leaves), spec))

        before, batches = self._leaves, self._flat_batches()
        results = [call(run, values) for values in batches]
        self._hiddens = [pytree.tree_unflatten(result.outputs, result.spec) for result in results]
        names = _name_outputs(before, results[TRACED].passed, f"hidden_{index:02d}")
        self._leaves = self._name_leaves(names, index + 1)
        entry = write_checked(
            self._folder / f"stage_{index:02d}.onnx",
            GraphFunction(f"stage {index} of '{self._backbone.name}'", run, before, [self._backbone.stages[index]]),
            batches,
            self._flat_batches(),
            names,
            traced=TRACED,
        )
        return {**entry, "hidden": self._describe_leaves()}

    def _write_exit(self, index: int) -> dict[str, Any]:
        trained = index in self._exits.stages
        states, names = (self._states, self._state_names) if trained else (self._heads, self._head_names)
        run = self._exit_function(index, self._state_spec if trained else self._head_spec)
        stacked = trained and self._exits.stacked > 1
        leaves = [*self._leaves, *map(Leaf, names), *([Leaf("classifier")] if stacked else [])]
        batches = [
            [*hidden, *state, *([torch.arange(size) % self._exits.stacked] if stacked else [])]
            for hidden, state, (size, _) in zip(self._flat_batches(), states, BATCHES, strict=True)
        ]
        results = [call(run, values) for values in batches]
        new_names = _name_outputs(leaves, results[TRACED].passed[1:], f"state_{index:02d}")
        entry = write_checked(
            self._folder / f"exit_{index:02d}.onnx",
            GraphFunction(
                f"the exit after stage {index} of '{self._backbone.name}'",
                run,
                leaves,
                [self._backbone.heads, self._exits],
            ),
            batches,
            [result.outputs for result in results],
            [f"logits_{index:02d}", *new_names],
            traced=TRACED,
        )
        new_states = [result.outputs[1:] for result in results]
        _, state = pytree.tree_unflatten(results[TRACED].outputs, results[TRACED].spec)
        spec = pytree.tree_structure(state)
        if trained:
            self._states, self._state_names, self._state_spec = new_states, new_names, spec
        else:
            self._heads, self._head_names, self._head_spec = new_states, new_names, spec
        return {
            **entry,
            "state": [*self._state_names, *self._head_names],
            "carried": trained and self._exits.carries_state,
            "always": index in self._exits.averaging.read,
        }

    def _exit_function(self, index: int, state_spec: pytree.TreeSpec) -> Callable[..., tuple[Tensor, Any]]:
        """Make an exit a function of leaves, to its logits and the state that later exits of its kind read."""
        hidden_spec, trained = pytree.tree_structure(self._hiddens[TRACED]), index in self._exits.stages
        width, depth = hidden_spec.num_leaves, state_spec.num_leaves
        is_read = trained or index in self._exits.averaging.read

        def run(*leaves: Tensor) -> tuple[Tensor, Any]:
            hidden = pytree.tree_unflatten(list(leaves[:width]), hidden_spec)
            state: Any = pytree.tree_unflatten(list(leaves[width : width + depth]), state_spec)
            classifier = leaves[width + depth] if len(leaves) > width + depth else None
            both = (state, ()) if trained else ((), state)
            logits, both = self._eager.exit(index, hidden, both, classifier, answer=True, carry=True)
            assert logits is not None
            return logits, both[0 if trained else 1] if is_read else ()

        return run

    def _write_sizes(self) -> dict[str, Any]:
        """Write the graph of the samples' sizes, which costs depend on."""
        spec, batches = pytree.tree_structure(self._hiddens[TRACED]), self._flat_batches()

        def run(*values: Tensor) -> list[Tensor]:
            return [self._backbone.sizes(pytree.tree_unflatten(list(values), spec)).float()]

        function = GraphFunction(f"the sizes of samples of '{self._backbone.name}'", run, self._leaves)
        expected = [run(*values) for values in batches]
        return write_checked(self._folder / "sizes.onnx", function, batches, expected, ["sizes"], traced=TRACED)

    def _flat_batches(self) -> list[list[Tensor]]:
        """Return the leaves of the present hidden state of each batch."""
        batches = [pytree.tree_leaves(hidden) for hidden in self._hiddens]
        kinds = [type(leaf).__name__ for leaves in batches for leaf in leaves if not isinstance(leaf, Tensor)]
        if kinds:
            raise InputError(
                f"hidden state of '{self._backbone.name}'",
                expected="tensors",
                got=", ".join(dict.fromkeys(kinds)),
                hint="give inputs as tensors, or run this network with another backend",
            )
        return batches

    def _name_leaves(self, names: Sequence[str], depth: int) -> list[Leaf]:
        """Return the named leaves of the present hidden state; refuse leaves without an axis of samples."""
        axes = leaf_axes(self._hiddens[TRACED], self._backbone.axes(depth))
        for leaves, (size, _) in zip(self._flat_batches(), BATCHES, strict=True):
            for leaf, ax in zip(leaves, axes, strict=True):
                if ax.batch is not None and leaf.shape[ax.batch] != size:
                    raise InputError(
                        f"hidden state of '{self._backbone.name}' after {depth} stages",
                        expected=f"{size} samples along axis {ax.batch}",
                        got=f"shape {tuple(leaf.shape)}",
                        hint="run this network with another backend: its samples do not lie along one axis, as in "
                        "batches of graphs",
                    )
        return [Leaf(name, ax.batch, tuple(ax.lengths)) for name, ax in zip(names, axes, strict=True)]

    def _describe_leaves(self) -> list[dict[str, Any]]:
        return [
            {
                "name": leaf.name,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": [None if axis in leaf.dynamic else size for axis, size in enumerate(tensor.shape)],
                "batch": leaf.batch,
                "lengths": list(leaf.lengths),
            }
            for leaf, tensor in zip(self._leaves, self._flat_batches()[TRACED], strict=True)
        ]


def write_policy(folder: Path, name: str, num_classes: int) -> dict[str, Any]:
    """Write the graph of a policy's step: from logits to probabilities, leave flags and the new carry.

    Args:
        folder: The folder to write to.
        name: Name of the policy.
        num_classes: K.

    Returns:
        The entry of the manifest.
    """
    policy = POLICIES.get(name)
    carry_spec = pytree.tree_structure(policy.initial_carry(torch.zeros(1)))
    parameters = sorted(policy.parameters)
    carried = [f"carry_{place}" for place in range(carry_spec.num_leaves)]
    noise = ["noise"] if "noise" in policy.reads else []
    leaves = [Leaf(leaf) for leaf in ("logits", "temperature", *noise, *parameters, *carried)]

    def run(*values: Tensor) -> list[Tensor]:
        inputs = {leaf.name: value for leaf, value in zip(leaves, values, strict=True)}
        probabilities = torch.softmax(inputs["logits"] / inputs["temperature"], dim=1)
        observation = observe(policy.reads, inputs["logits"], probabilities, inputs.get("noise"))
        carry = pytree.tree_unflatten([inputs[leaf] for leaf in carried], carry_spec)
        leave, carry = policy.step(observation, carry, {parameter: inputs[parameter] for parameter in parameters})
        return [probabilities, leave, *pytree.tree_leaves(carry)]

    def draw_inputs(size: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(size)
        draws = [torch.rand(size, generator=generator) for _ in noise]
        shapes = [policy.shape(key, num_exits=size, num_classes=num_classes) or (size,) for key in parameters]
        return [
            3 * torch.randn(size, num_classes, generator=generator),
            torch.rand(size, 1, generator=generator) + 0.5,
            *draws,
            *(torch.rand(shape, generator=generator) for shape in shapes),
            *pytree.tree_leaves(policy.initial_carry(torch.zeros(size))),
        ]

    batches = [draw_inputs(size) for size, _ in BATCHES]
    results = [call(run, values) for values in batches]
    passed = results[TRACED].passed[2:]
    outputs = ["probabilities", "leave"] + [
        f"new_{name}" if place is None else leaves[place].name for name, place in zip(carried, passed, strict=True)
    ]
    entry = write_checked(
        folder / f"policy_{name}.onnx",
        GraphFunction(f"policy '{name}'", run, leaves),
        batches,
        [result.outputs for result in results],
        outputs,
        traced=TRACED,
    )
    initial = pytree.tree_leaves(policy.initial_carry(torch.zeros(1)))
    return {
        **entry,
        "parameters": parameters,
        "per_exit": sorted(policy.per_exit),
        "carry": [
            {
                "name": name,
                "becomes": output,
                "dtype": str(value.dtype).removeprefix("torch."),
                "value": value[0].tolist(),
            }
            for name, output, value in zip(carried, outputs[2:], initial, strict=True)
        ],
    }


def describe_point(point: OperatingPoint) -> dict[str, Any]:
    """Return what the decisions of an operating point depend on, as in a manifest."""
    return {
        "policy": point.policy,
        "parameters": {name: value.tolist() for name, value in sorted(point.parameters.items())},
        "active": list(point.active),
        "temperatures": point.temperatures.tolist(),
        "classifier": point.classifier,
    }


def _make_batch(backbone: Backbone, example: Hidden, size: int, length: int) -> Hidden:
    """Repeat the example to `size` samples, cut or padded to `length` where samples have one."""
    batch = backbone.select(example, torch.arange(size) % backbone.batch_size(example, 0), 0)
    grows = any(ax.lengths for ax in leaf_axes(batch, backbone.axes(0)))
    return with_length(batch, length, backbone.axes(0)) if grows else batch


def _input_names(inputs: Hidden) -> list[str]:
    """Name each leaf by the keys that lead to it; a single tensor is "input"."""
    paths = [path for path, _ in pytree.tree_leaves_with_path(inputs)]
    if any(not path for path in paths):
        return ["input"]
    return ["_".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) for path in paths]


def _name_outputs(inputs: Sequence[Leaf], passed: Sequence[int | None], prefix: str) -> list[str]:
    """Number the new tensors; an input that is passed on unchanged keeps its name."""
    numbers = count()
    return [f"{prefix}_{next(numbers)}" if place is None else inputs[place].name for place in passed]
