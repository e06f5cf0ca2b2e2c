"""Hidden states as pytrees of tensors: select samples, concatenate batches, count.

A hidden state is any pytree (a tensor, a tuple, a dictionary, nested). `Axes` declares for each leaf its batch axis and
its length axes, so that the same functions serve maps, token sequences and masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.errors import InputError

__all__ = [
    "SAMPLES_FIRST",
    "Axes",
    "Hidden",
    "batch_size",
    "concatenate",
    "leaf_axes",
    "lengths_of",
    "select",
    "with_length",
]

Hidden = Any  # a pytree of tensors; Python's types cannot say so


@dataclass(frozen=True)
class Axes:
    """The meaning of the axes of one leaf of a hidden state."""

    batch: int | None = 0
    """The axis of the samples; None for a leaf that all samples share."""
    lengths: tuple[int, ...] = ()
    """The axes that grow with the length of the longest sample."""
    pad: float = 0.0
    """The value that pads a shorter sample along `lengths`."""


SAMPLES_FIRST = Axes()


def _pairs(hidden: Hidden, axes: Any) -> tuple[list[tuple[Any, Axes]], pytree.TreeSpec]:
    """Pair the leaves of `hidden` with their axes; one `Axes` may stand for a whole subtree."""
    leaves, spec = pytree.tree_flatten(hidden)
    try:
        # By key, not by position: two dictionaries may order the same keys differently.
        full = pytree.tree_map(
            lambda ax, subtree: pytree.tree_map(lambda _: ax, subtree),
            axes,
            hidden,
            is_leaf=lambda node: isinstance(node, Axes),
        )
        spread = spec.flatten_up_to(full)
    except ValueError as error:
        raise InputError(
            f"the declared axes do not fit the hidden state ({error})",
            hint="declare one Axes per leaf, or one for a whole subtree",
        ) from error
    return list(zip(leaves, spread, strict=True)), spec


def _leaf_pairs(hidden: Hidden, axes: Any) -> list[tuple[Any, Axes]]:
    """Pair leaves with their axes; a shortcut for tensors and flat dictionaries, as walking trees is slow."""
    if isinstance(hidden, Tensor) and isinstance(axes, Axes):
        return [(hidden, axes)]
    if isinstance(hidden, dict) and isinstance(axes, dict) and hidden.keys() == axes.keys():
        pairs = [(leaf, axes[name]) for name, leaf in hidden.items()]
        if all(isinstance(leaf, Tensor) and isinstance(ax, Axes) for leaf, ax in pairs):
            return pairs
    return _pairs(hidden, axes)[0]


def leaf_axes(hidden: Hidden, axes: Any) -> list[Axes]:
    """Return the `Axes` of each leaf, in the order of the leaves."""
    return [ax for _, ax in _pairs(hidden, axes)[0]]


def lengths_of(hidden: Hidden, axes: Any) -> set[int]:
    """Return the sizes along all length axes; empty if there are none."""
    return {leaf.shape[axis] for leaf, ax in _pairs(hidden, axes)[0] for axis in ax.lengths}


def batch_size(hidden: Hidden, axes: Any = SAMPLES_FIRST) -> int:
    """Count the samples in a hidden state.

    Args:
        hidden: A pytree of tensors.
        axes: `Axes` of its leaves: the same tree, or a prefix of it.

    Example:
        >>> batch_size({"tokens": torch.zeros(3, 7), "table": torch.zeros(5)}, {"tokens": Axes(), "table": Axes(None)})
        3
    """
    sizes = set()
    for leaf, ax in _leaf_pairs(hidden, axes):
        if ax.batch is None:
            continue
        if len(getattr(leaf, "shape", ())) <= ax.batch:
            raise InputError(
                expected=f"samples along axis {ax.batch}",
                got=f"{_describe(leaf)}: the batch axis is missing",
                hint="add it with inputs[None]",
            )
        sizes.add(leaf.shape[ax.batch])
    if not sizes:
        raise InputError(
            expected="samples along an axis",
            got="single numbers: the batch axis is missing",
            hint="add it with inputs[None]",
        )
    if len(sizes) != 1:
        raise InputError(expected="one batch size in all leaves", got=sorted(sizes), hint="check the declared axes")
    return int(sizes.pop())


def select(hidden: Hidden, keep: Tensor, axes: Any = SAMPLES_FIRST) -> Hidden:
    """Select samples of a hidden state.

    Args:
        hidden: A pytree of tensors.
        keep: Sample indices (integers), or `N` booleans.
        axes: `Axes` of its leaves: the same tree, or a prefix of it.

    Returns:
        The same tree with those samples, in that order.

    Example:
        >>> select((torch.arange(3), torch.eye(3)), torch.tensor([2, 0]))[0]
        tensor([2, 0])
    """
    if keep.dtype == torch.bool and len(keep) != batch_size(hidden, axes):
        raise InputError(expected=f"{batch_size(hidden, axes)} booleans, one per sample", got=f"{len(keep)}")
    indices = keep.nonzero().squeeze(1) if keep.dtype == torch.bool else keep
    pairs, spec = _pairs(hidden, axes)
    selected = [leaf if ax.batch is None else _take(leaf, indices, ax.batch) for leaf, ax in pairs]
    return pytree.tree_unflatten(selected, spec)


def concatenate(hiddens: Sequence[Hidden], axes: Any = SAMPLES_FIRST) -> Hidden:
    """Join batches into one, padding shorter samples to the longest.

    Args:
        hiddens: Hidden states of the same structure, at least one.
        axes: `Axes` of their leaves: the same tree, or a prefix of it.

    Returns:
        One hidden state; leaves that all samples share are taken from the first.

    Example:
        >>> concatenate([torch.ones(1, 1), torch.ones(1, 2)], Axes(lengths=(1,), pad=0))
        tensor([[1., 0.],
                [1., 1.]])
    """
    if not hiddens:
        raise InputError(expected="at least one hidden state to concatenate", got="none")
    pairs, spec = _pairs(hiddens[0], axes)
    try:
        columns = [spec.flatten_up_to(hidden) for hidden in hiddens]
    except ValueError as error:
        raise InputError(expected="hidden states of one structure to concatenate", got=str(error)) from error
    joined = []
    for (_, ax), *leaves in zip(pairs, *columns, strict=True):
        if ax.batch is None:
            joined.append(leaves[0])
            continue
        if isinstance(leaves[0], np.ndarray):
            joined.append(np.concatenate(leaves, axis=ax.batch))
            continue
        longest = {length: max(leaf.shape[length] for leaf in leaves) for length in ax.lengths}
        try:
            joined.append(torch.cat([_pad(leaf, longest, ax.pad) for leaf in leaves], dim=ax.batch))
        except RuntimeError as error:
            shapes = ", ".join(sorted({str(tuple(leaf.shape)) for leaf in leaves})[:4])
            raise InputError(
                expected="batches of samples of one size", got=shapes, hint="run each size by itself"
            ) from error
    return pytree.tree_unflatten(joined, spec)


def with_length(hidden: Hidden, length: int, axes: Any) -> Hidden:
    """Return the same samples at another length: cut, or repeated from the start.

    Args:
        hidden: A pytree of tensors.
        length: The new size of every length axis.
        axes: `Axes` of its leaves: the same tree, or a prefix of it.

    Example:
        >>> with_length(torch.tensor([[1, 2]]), 5, Axes(lengths=(1,)))
        tensor([[1, 2, 1, 2, 1]])
    """
    pairs, spec = _pairs(hidden, axes)
    changed = []
    for leaf, ax in pairs:
        for axis in ax.lengths:
            leaf = leaf.index_select(axis, torch.arange(length, device=leaf.device) % leaf.shape[axis])
        changed.append(leaf)
    return pytree.tree_unflatten(changed, spec)


def _describe(leaf: Any) -> str:
    """Describe a leaf for an error message: by shape, or by type."""
    return f"shape {tuple(leaf.shape)}" if hasattr(leaf, "shape") else f"a {type(leaf).__name__}"


def _take(leaf: Any, indices: Tensor, axis: int) -> Any:
    """Select samples of a tensor, or of an array of texts."""
    if isinstance(leaf, np.ndarray):
        return leaf.take(indices.numpy(), axis)
    # In memory order: on maps with channels last, index_select would return channels first, four times slower, and
    # slow down the convolutions after it.
    order = sorted(range(leaf.ndim), key=leaf.stride, reverse=True)
    if order == list(range(leaf.ndim)) or order[0] != axis:
        return leaf.index_select(axis, indices)
    back = sorted(range(leaf.ndim), key=order.__getitem__)
    return leaf.permute(order).index_select(0, indices).permute(back)


def _pad(leaf: Tensor, longest: dict[int, int], value: float) -> Tensor:
    """Pad `leaf` to the sizes in `longest`, by axis."""
    widths = [0] * (2 * leaf.ndim)  # F.pad takes two numbers per axis, the last axis first
    for axis, size in longest.items():
        widths[2 * (leaf.ndim - 1 - axis % leaf.ndim) + 1] = size - leaf.shape[axis]
    return F.pad(leaf, widths, value=value) if any(widths) else leaf
