"""Computing with stages and exits that were compiled, for a few batch sizes."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.runtime.eager import EagerBackend
from offramp.trunk import Axes, Hidden, Pooling, Trunk, concatenate, select
from offramp.trunk.hidden import leaf_axes, lengths_of

__all__ = ["CompiledBackend"]

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Compiled unless told otherwise: less than half of a batch is filling."""

WARM_LENGTH = 11
"""Of the texts that stages are compiled with: no batch size and no width, or the compiler would take it for that."""


class CompiledBackend:
    """Stages and exits compiled by `torch.compile`, once for each of some batch sizes.

    A batch is filled up to the next of these sizes with copies of its last sample, and cut back; a larger one is run in
    pieces. Lengths of texts stay free. After `warm_up` nothing is compiled again, whatever the size of a batch. What
    the compiler does not take as a whole runs as torch does by itself, and so do texts of a single token.

    Args:
        trunk: The frozen network; graphs, no two of which have one shape, are refused.
        pooling: What exits see of a stage.
        bank: The trained exits.
        batch_sizes: Ascending; `BATCH_SIZES` if left out.

    Attributes:
        batch_sizes: As given.
        exact: True: in the trunk's own precision.

    Example:
        >>> from offramp.exits import LinearExits
        >>> from offramp.trunk import POOLINGS, CifarResNet
        >>> trunk, bank = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10)
        >>> CompiledBackend(trunk, POOLINGS.get("mean"), bank).batch_sizes
        (1, 2, 4, 8, 16, 32, 64)
    """

    def __init__(
        self, trunk: Trunk, pooling: Pooling, bank: ExitBank, *, batch_sizes: Sequence[int] | None = None
    ) -> None:
        batch_sizes = BATCH_SIZES if batch_sizes is None else batch_sizes
        if list(batch_sizes) != sorted(set(batch_sizes)) or not batch_sizes or batch_sizes[0] < 1:
            raise InputError(f"expected ascending batch sizes from 1 on, got {tuple(batch_sizes)}")
        declared = pytree.tree_leaves(trunk.axes(0), is_leaf=lambda node: isinstance(node, Axes))
        if trunk.grows and not any(axes.lengths for axes in declared):
            raise InputError(
                f"samples of '{trunk.name}' have any shape, so that every batch would be compiled anew; use backend "
                "'eager' or 'bfloat16'"
            )
        self._trunk, self._bank = trunk, bank
        self._plain = EagerBackend(trunk, pooling, bank)
        self.batch_sizes, self.exact = tuple(batch_sizes), True
        self._device = next((parameter.device for parameter in trunk.parameters()), torch.device("cpu"))
        self._compiled: dict[tuple[str, int, int], Callable[..., Any]] = {}
        self._orders: dict[tuple[str, int], list[list[int]]] = {}

    @torch.inference_mode()
    def warm_up(self, example: Hidden) -> None:
        """Compile everything, for every batch size.

        Args:
            example: Inputs of at least one sample, as `trunk.prepare` gives them.
        """
        trunk = self._trunk
        if trunk.grows:
            example = trunk.resized(example, WARM_LENGTH)
        for size in reversed(self.batch_sizes):  # many samples first: one does not show how samples lie in memory
            hidden = trunk.select(example, self._rows(size) % trunk.batch_size(example, 0), 0)
            state: Any = self._bank.initial_state(size), ()
            classifier = None if self._bank.stacked == 1 else torch.zeros_like(self._rows(size))
            for index in range(trunk.num_exits):
                hidden = self.stage(index, hidden)
                _, state = self.exit(index, hidden, state, classifier, answer=True, carry=True)

    @torch.inference_mode()
    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """Run one stage."""
        trunk, done = self._trunk, []
        with trunk.explaining(hidden):
            for rows, size, bucket in self._pieces(trunk.batch_size(hidden, index)):
                piece = hidden if rows is None else trunk.select(hidden, rows, index)
                result = self._run("stage", index, bucket, trunk.stages[index], index, piece)
                done.append(result if size == bucket else trunk.select(result, self._rows(size), index + 1))
        return done[0] if len(done) == 1 else trunk.concatenate(done, index + 1)

    @torch.inference_mode()
    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        """Answer at one exit, as `Backend` says."""
        if self._plain.passes(index, answer=answer, carry=carry):
            return None, state
        trunk, done = self._trunk, []
        compute = partial(self._plain.exit, index, answer=True, carry=True)
        for rows, size, bucket in self._pieces(trunk.batch_size(hidden, index + 1)):
            piece, before, chosen = hidden, state, classifier
            if rows is not None:
                piece, before = trunk.select(hidden, rows, index + 1), select(state, rows)
                chosen = None if classifier is None else classifier[rows]
            result = self._run("exit", index, bucket, compute, index + 1, piece, before, chosen)
            done.append(result if size == bucket else select(result, self._rows(size)))
        logits, state = done[0] if len(done) == 1 else concatenate(done)
        return logits if answer else None, state

    def _rows(self, count: int) -> Tensor:
        return torch.arange(count, device=self._device)

    def _pieces(self, count: int) -> Iterator[tuple[Tensor | None, int, int]]:
        """The rows of each piece of a batch, the last repeated, or None for all as they are; how many; filled up to."""
        if count in self.batch_sizes:
            yield None, count, count
            return
        largest = self.batch_sizes[-1]
        for start in range(0, count, largest):
            size = min(largest, count - start)
            bucket = next(fits for fits in self.batch_sizes if fits >= size)
            yield start + self._rows(bucket).clamp_max(size - 1), size, bucket

    def _run(
        self, what: str, index: int, bucket: int, function: Callable[..., Any], depth: int, hidden: Hidden, *rest: Any
    ) -> Any:
        """Call what was compiled for this place and size; the first call compiles it."""
        leaves, spec = pytree.tree_flatten((hidden, *rest))
        axes = self._trunk.axes(depth) if self._trunk.grows else None
        if any(isinstance(leaf, np.ndarray) for leaf in leaves) or (axes and 1 in lengths_of(hidden, axes)):
            return function(hidden, *rest)
        orders = self._orders.get((what, index))
        if orders is None:
            orders = self._orders[what, index] = [_order(leaf) for leaf in leaves]
        # A program takes all its arguments for different ones: a tensor that comes twice is copied.
        again = [any(leaf is other for other in leaves[:place]) for place, leaf in enumerate(leaves)]
        laid = list(map(_laid_out, leaves, orders, again))
        arguments = pytree.tree_unflatten(laid, spec)
        key = what, index, bucket
        if key in self._compiled:
            return self._compiled[key](*arguments)
        for leaf, ax in zip(laid, leaf_axes(arguments[0], axes) if axes else (), strict=False):
            torch._dynamo.mark_dynamic(leaf, ax.lengths)
        self._compiled[key], result = _compiled(function, arguments)
        return result


def _compiled(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Callable[..., Any], Any]:
    """The function compiled for arguments like these, or as it is where the compiler does not take it; its result."""
    from torch._dynamo.exc import BackendCompilerFailed, Unsupported  # a second to import, for those who compile

    program = torch.compile(_with_own_code(function), fullgraph=True, dynamic=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler's own workings
            return program, program(*arguments)
    except Unsupported:
        return function, function(*arguments)
    except BackendCompilerFailed as error:
        raise InputError(
            f"torch.compile has failed: {str(error)[:300]}; it needs a C++ compiler such as gcc; use backend 'eager'"
        ) from error


def _with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """A call of the function in a code object of its own: compiled programs are kept by that, eight at most."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return FunctionType(call.__code__.replace(), call.__globals__, "call", None, call.__closure__)


def _order(leaf: Any) -> list[int]:
    """The axes of a tensor as they lie in memory, outermost first."""
    return sorted(range(leaf.ndim), key=leaf.stride, reverse=True) if isinstance(leaf, Tensor) else []


def _laid_out(leaf: Any, order: Sequence[int], copy: bool) -> Any:
    """A tensor with its axes in that order in memory, without gaps, made in inference mode: as programs expect it."""
    if not isinstance(leaf, Tensor):
        return leaf
    strides, step = [0] * leaf.ndim, 1
    for axis in reversed(order):
        strides[axis], step = step, step * max(1, leaf.shape[axis])
    if not copy and leaf.stride() == tuple(strides) and leaf.is_inference():
        return leaf
    return torch.empty_strided(leaf.shape, strides, dtype=leaf.dtype, device=leaf.device).copy_(leaf)
