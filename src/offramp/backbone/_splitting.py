"""Splitting of any classifier into stages."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isqrt
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone, check_axes
from offramp.backbone._capture import capture
from offramp.backbone._classifier import (
    agree,
    call_network,
    check_problem_type,
    describe_shapes,
    example_tensors,
    guess_axes,
    lacks_batch_axis,
    logits_of,
    mark_padding,
)
from offramp.backbone._cuts import find_cuts, named_cuts
from offramp.backbone._hidden import Hidden, batch_size, leaf_axes, lengths_of, with_length
from offramp.backbone._liveness import Liveness
from offramp.backbone._making import is_library_name, make_from_library, parse_spec
from offramp.backbone._parts import build_part, carried_values, hash_all, is_convolution, newest_value, node_digests
from offramp.errors import InputError, OfframpWarning, SplitRefusedError
from offramp.pooling import Representation, Tokens
from offramp.preprocessing._text import check_padding, match_token_types

__all__ = ["SplitBackbone", "split"]

LARGEST_PREFIX = 8
"""Maximum number of tokens before the patches of an image: class token, distillation token, registers."""


def split(
    model: nn.Module | str,
    example: Hidden = None,
    *,
    at: Sequence[str] | None = None,
    axes: Any = None,
    mask: str | None = None,
    name: str | None = None,
) -> "SplitBackbone":
    """Split a trained classifier into stages, one per repeated block.

    The model is put into evaluation mode and frozen, not copied, and captured by torch.fx or torch.export. The hidden
    state is a dictionary of all values that cross a cut; batch size and length stay free. A network without a place to
    cut becomes one stage, with a warning: it can still be a member of a cascade.

    Args:
        model: A module that returns class scores `N x K`: alone, as `logits`, or as the first of several outputs. Or
            the name of a network on this machine, without further arguments: `"hf:FOLDER"` (written by
            `save_pretrained`, tokenizer included), `"timm:NAME"` or `"torchvision:NAME,weights=FILE"`. Nothing is
            downloaded.
        example: A batch of inputs as the model takes them: a tensor, a tuple of arguments, or a dictionary of named
            ones, such as a tokenizer's output. Arrays become tensors.
        at: Paths of modules to cut after (`layer3.2`); found automatically by default.
        axes: `Axes` of the inputs, as a tree like theirs, or a prefix. By default samples come first, and the second
            axis of integer inputs is the length of a text.
        mask: The name of the input that marks real tokens, so that exits ignore padding; by default the only input
            with "mask" in its name.
        name: Part of the fingerprint; the model's class by default.

    Returns:
        The backbone.

    Example:
        >>> blocks = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(5)]
        >>> backbone = split(nn.Sequential(nn.Linear(4, 8), *blocks, nn.Linear(8, 3)), torch.randn(2, 4))
        >>> backbone.num_exits, backbone(torch.zeros(5, 4)).shape
        (5, torch.Size([5, 3]))
    """
    if isinstance(model, str):
        arguments = {"example": example, "at": at, "axes": axes, "mask": mask, "name": name}
        if given := [argument for argument, value in arguments.items() if value is not None]:
            raise InputError(
                f"split('{model}')",
                expected="no other argument",
                got=", ".join(given),
                hint="remove them, or pass the torch module instead of its name",
            )
        return _split_by_name(model)
    if not isinstance(model, nn.Module):
        raise InputError(
            expected="a torch.nn.Module",
            got=model,
            hint="make a function a member of a cascade with offramp.callable_model",
        )
    if example is None:
        raise InputError(
            expected=f"an example, a batch of inputs as {type(model).__name__} takes them",
            got="none",
            hint="call offramp.split(model, example)",
        )
    check_problem_type(model)
    model.eval()
    example = example_tensors(example, model)
    axes = guess_axes(example) if axes is None else axes
    if not batch_size(example, axes):
        raise InputError(expected="an example of at least one sample", got="none")
    if mask is None and isinstance(example, Mapping):
        masks = [str(key) for key in example if "mask" in str(key)]
        mask = masks[0] if len(masks) == 1 else None
    if mask is not None:
        example = mark_padding(example, mask)
    try:
        graph = capture(model, example, axes)
    except (InputError, SplitRefusedError) as error:
        if lacks_batch_axis(model, example):
            raise InputError(
                expected="a batch as example",
                got=f"one sample, {describe_shapes(example)}: the batch axis is missing",
                hint="add it with example[None], or with value[None] for each of several inputs",
            ) from error
        raise
    liveness = Liveness(graph)
    cuts = find_cuts(liveness) if at is None else named_cuts(liveness, at)
    name = type(model).__name__.lower() if name is None else name
    backbone = SplitBackbone(name, liveness, cuts, example, axes, mask)
    _check_composed(backbone, model, example)
    if at is None and backbone.num_exits == 1:
        warnings.warn(
            f"no place to cut '{name}' was found, so it is one stage without early exits; name modules to cut after "
            "(at=[...]), give the stages by hand (offramp.Backbone), or put a cheaper network in front "
            "(offramp.cascade)",
            OfframpWarning,
            stacklevel=2,
        )
    return backbone


def _split_by_name(spec: str) -> "SplitBackbone":
    """Make the backbone of a network on this machine."""
    name, options = parse_spec(spec)
    if not is_library_name(name):
        raise InputError(
            expected="a torch.nn.Module, or hf:FOLDER, timm:NAME or torchvision:NAME,weights=FILE",
            got=f"'{spec}'",
            hint="put hf: before a folder that save_pretrained wrote",
        )
    backbone = make_from_library(name, options)
    assert isinstance(backbone, SplitBackbone)
    return backbone


class _Stage(nn.Module):
    """A part of a captured graph: named values to named values."""

    def __init__(self, graph: fx.GraphModule, digest: str) -> None:
        super().__init__()
        self.graph = graph
        self.digest = digest

    def forward(self, hidden: dict[str, Tensor]) -> Any:
        return self.graph(**hidden)

    def extra_repr(self) -> str:
        # Printed, and so part of the fingerprint.
        return self.digest


class _First(nn.Module):
    """The first part of a captured graph: names the leaves of the inputs."""

    def __init__(self, stage: _Stage, names: Sequence[str], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self.stage = stage
        self.names, self.spec = tuple(names), spec

    def forward(self, inputs: Hidden) -> Any:
        inputs = match_token_types(inputs, self.spec.context)  # if the inputs were not prepared
        return self.stage(dict(zip(self.names, _flatten(inputs, self.spec), strict=True)))


class SplitBackbone(Backbone):
    """A captured network, cut into stages; made by `split`.

    Hidden states are dictionaries of the values that cross a cut, by the names of the graph's nodes.
    """

    def __init__(
        self, name: str, liveness: Liveness, cuts: Sequence[int], example: Hidden, axes: Any, mask: str | None
    ) -> None:
        graph = liveness.graph
        ends = [0, *cuts, len(graph.nodes)]
        parts = [graph.nodes[start:stop] for start, stop in pairwise(ends)]
        nodes_by_name = dict(zip(_leaf_names(example), graph.inputs, strict=True))
        carried = carried_values(liveness, parts, always=[] if mask is None else [nodes_by_name[mask]])
        arriving = [list(graph.inputs), *carried]
        digests = node_digests(graph.nodes)
        stages: list[nn.Module] = [
            _Stage(build_part(liveness, part, before, after), hash_all(digests[node] for node in [*part, *before]))
            for part, before, after in zip(parts, arriving, [*carried, None], strict=True)
        ]
        assert isinstance(stages[0], _Stage)
        stages[0] = _First(stages[0], [node.name for node in graph.inputs], pytree.tree_structure(example))
        shapes = liveness.value(graph.logits).shapes
        assert shapes is not None
        super().__init__(name, stages[:-1], {len(carried) - 1: stages[-1]}, shapes[0][1])
        self.captured_by = graph.by
        self._spec = pytree.tree_structure(example)
        self._inputs = [
            (entry if isinstance(example, Mapping) else "", leaf.ndim, ax.batch)
            for entry, leaf, ax in zip(
                _leaf_names(example), pytree.tree_leaves(example), leaf_axes(example, axes), strict=True
            )
        ]
        self._mask = mask
        self._mask_node = None if mask is None else nodes_by_name[mask].name
        pads = dict(zip(graph.inputs, (ax.pad for ax in leaf_axes(example, axes)), strict=True))
        self._axes = [
            axes,
            *({node.name: liveness.axes(node, pads.get(node, 0.0)) for node in nodes} for nodes in carried),
        ]
        newest = [newest_value(liveness, nodes) for nodes in carried]
        self._newest = [node.name for node in newest]
        self._channels_first = {node.name for node in newest if is_convolution(liveness, node)}

    def axes(self, depth: int) -> Any:
        """Return the axes given for the inputs, or those found for values that cross a cut."""
        return self._axes[depth]

    def representation(self, hidden: Hidden, stage: int) -> Representation:
        """Return the value computed last: a map, tokens, or a vector."""
        name = self._newest[stage]
        value: Tensor = hidden[name]
        if value.ndim == 3:
            lengths = self._axes[stage + 1][name].lengths
            positions_last = lengths == (2,) or name in self._channels_first
            if positions_last and not lengths:
                return value
            value = value.mT if positions_last else value
            if lengths:
                if self._mask_node is not None:
                    return Tokens(value, mask=hidden[self._mask_node])
                return Tokens(value, mask=torch.ones(value.shape[:2], dtype=torch.bool, device=value.device))
            tokens = value.shape[1]
            prefix = tokens - isqrt(tokens) ** 2
            return Tokens(value, prefix=prefix if prefix <= LARGEST_PREFIX < tokens else 0)
        if value.ndim == 4 and value.shape[1] == value.shape[2] != value.shape[3]:
            return value.permute(0, 3, 1, 2)  # rows, columns, channels
        return value

    def prepare(self, inputs: Any) -> Hidden:
        """Return inputs as tensors, without padding that no sample needs.

        `token_type_ids` may be left out, and are then 0. If the network was captured without them, zeros are dropped.

        Raises:
            InputError: If the inputs differ from the example the network was split with, their batch axis is missing,
                or texts are padded on the left.
        """
        prepared = match_token_types(super().prepare(inputs), self._spec.context)
        for leaf, (entry, count, batch) in zip(_flatten(prepared, self._spec), self._inputs, strict=True):
            check_axes(leaf, count, name=self.name, batch=batch, entry=entry)
        if self._mask is not None:
            check_padding(prepared[self._mask])
        return self.trim(prepared, 0)

    def trim(self, hidden: Hidden, depth: int) -> Hidden:
        """Drop the columns after the last real token of any sample."""
        marks = self._mask if depth == 0 else self._mask_node
        if marks is None:
            return hidden
        used = hidden[marks].bool().any(0).nonzero()
        length = int(used[-1]) + 1 if len(used) else 1
        return hidden if length == hidden[marks].shape[1] else with_length(hidden, length, self.axes(depth))

    def sizes(self, inputs: Hidden) -> Tensor:
        """Return the number of tokens per sample, by the mask or the length; ones if inputs have no length."""
        if self._mask is not None:
            return torch.as_tensor(inputs[self._mask]).sum(1).float()
        return super().sizes(inputs) * max(lengths_of(inputs, self.axes(0)), default=1)


def _flatten(inputs: Hidden, spec: pytree.TreeSpec) -> list[Any]:
    """Return the leaves of inputs, which must have the structure of the example."""
    if spec.type is dict and isinstance(inputs, Mapping):
        _check_entries(inputs, spec.context)
    try:
        return spec.flatten_up_to(inputs)
    except ValueError as error:
        names = f" ({', '.join(map(str, spec.context))})" if spec.type is dict else ""
        raise InputError(
            expected=f"inputs like the example the network was split with{names}",
            got=f"{type(inputs).__name__}: {error}",
        ) from error


def _check_entries(inputs: Mapping[Any, Any], names: Sequence[Any]) -> None:
    """Refuse a dictionary with other entries than the example's."""
    missing, extra = [name for name in names if name not in inputs], [name for name in inputs if name not in names]
    if missing or extra:
        steps = [f"add {', '.join(map(str, missing))}"] if missing else []
        steps += [f"remove {', '.join(map(str, extra))}"] if extra else []
        raise InputError(
            expected=f"inputs like the example the network was split with ({', '.join(map(str, names))})",
            got=", ".join(map(str, inputs)) or "none",
            hint=" and ".join(steps),
        )


def _leaf_names(example: Hidden) -> list[str]:
    """Return the names of an example's leaves: the last key on the path to each."""
    return [
        str(getattr(path[-1], "key", path[-1])) if path else "" for path, _ in pytree.tree_leaves_with_path(example)
    ]


def _check_composed(backbone: SplitBackbone, model: nn.Module, example: Hidden) -> None:
    """Refuse stages that do not compute what the network computes."""
    with torch.no_grad():
        whole, composed = logits_of(call_network(model, example)), backbone(example)
    if not agree(composed, whole):
        distance = float((whole - composed).abs().max())
        raise SplitRefusedError(
            f"the stages put together differ from the network by up to {distance:.3g}",
            hint="cut elsewhere (at=[...]), or give the stages by hand: offramp.Backbone(...)",
        )
