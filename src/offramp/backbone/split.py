"""Cut any classifier into stages."""

import hashlib
import operator
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import isqrt
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from offramp.backbone.backbone import Backbone, check_axes
from offramp.backbone.capture import capture
from offramp.backbone.cuts import find_cuts, named_cuts
from offramp.backbone.example import as_tensors, describe_shapes, guess_axes, lacks_batch_axis, with_padding
from offramp.backbone.hidden import Hidden, at_length, batch_size, leaf_axes, lengths_of
from offramp.backbone.liveness import Liveness
from offramp.backbone.representation import Representation, Tokens
from offramp.backbone.spec import is_library_name, make_from_library, parse_spec
from offramp.backbone.task import agree, call_network, check_problem, logits_of
from offramp.backbone.tokens import check_padding, with_token_types
from offramp.errors import InputError, OfframpWarning, SplitRefusedError

__all__ = ["SplitBackbone", "split"]

LARGEST_PREFIX = 8
"""Tokens before the patches of an image at most: a class token, a distillation token, a few registers."""


def split(
    model: nn.Module | str,
    example: Hidden = None,
    *,
    at: Sequence[str] | None = None,
    axes: Any = None,
    mask: str | None = None,
    name: str | None = None,
) -> "SplitBackbone":
    """Cut a trained classifier into stages, one a repeated block.

    The model is captured by torch.fx or torch.export, put into evaluation mode and frozen, not copied. Every value that
    crosses a cut rides in the hidden state, a dictionary; batch and length stay free. A network in which no place to
    cut is found becomes one stage, with a warning: it can be a member of a cascade.

    Args:
        model: Gives class scores `N x K`, alone, as `logits`, or as the first of several outputs. Or the name of a
            network on this machine, which needs no other argument: `"hf:FOLDER"`, a folder that `save_pretrained`
            wrote, tokenizer included; `"timm:NAME"`; `"torchvision:NAME,weights=FILE"`. Nothing is downloaded.
        example: A batch of inputs as the model takes them: a tensor, a tuple of arguments, a dictionary of named ones,
            such as a tokenizer's output. Arrays become tensors.
        at: Modules to cut after, by their path (`layer3.2`); found if left out.
        axes: `Axes` of the inputs, as a tree like theirs, or a prefix. If left out, samples come first, and the second
            axis of integer inputs is the length of a text.
        mask: The name of the input that marks real tokens, where samples differ in length; exits must not look at
            padding. If left out, the one input with "mask" in its name.
        name: Part of the fingerprint; the class of the model if left out.

    Returns:
        The backbone.

    Example:
        >>> blocks = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(5)]
        >>> backbone = split(nn.Sequential(nn.Linear(4, 8), *blocks, nn.Linear(8, 3)), torch.randn(2, 4))
        >>> backbone.num_exits, backbone(torch.zeros(5, 4)).shape
        (5, torch.Size([5, 3]))
    """
    if isinstance(model, str):
        if any(argument is not None for argument in (example, at, axes, mask, name)):
            raise InputError(
                f"expected no other argument with the network '{model}', which brings its own; leave them out, or give "
                "the network itself instead of its name"
            )
        return _named(model)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"expected a torch.nn.Module, got {model!r}; of a function, offramp.backbone.scores makes a backbone"
        )
    if example is None:
        raise InputError(
            f"expected an example, a batch of inputs as {type(model).__name__} takes them, got none; give "
            "offramp.split(model, example)"
        )
    check_problem(model)
    model.eval()
    example = as_tensors(example, model)
    axes = guess_axes(example) if axes is None else axes
    if not batch_size(example, axes):
        raise InputError("expected an example of at least one sample, got none")
    if mask is None and isinstance(example, Mapping):
        masks = [str(key) for key in example if "mask" in str(key)]
        mask = masks[0] if len(masks) == 1 else None
    if mask is not None:
        example = with_padding(example, mask)
    try:
        graph = capture(model, example, axes)
    except (InputError, SplitRefusedError) as error:
        if lacks_batch_axis(model, example):
            raise InputError(
                f"expected a batch as example, got one sample, {describe_shapes(example)}: the batch axis is missing; "
                "add it with example[None], or of several inputs value[None] for each"
            ) from error
        raise
    liveness = Liveness(graph)
    cuts = find_cuts(liveness) if at is None else named_cuts(liveness, at)
    name = type(model).__name__.lower() if name is None else name
    backbone = SplitBackbone(name, liveness, cuts, example, axes, mask)
    _check_composed(backbone, model, example)
    if at is None and backbone.num_exits == 1:
        warnings.warn(
            f"no place to cut '{name}' was found, so it is one stage, from which no sample can leave early; name "
            "modules to cut after (at=[...]), give the stages by hand (offramp.Backbone), or put a cheaper network in "
            "front (offramp.cascade)",
            OfframpWarning,
            stacklevel=2,
        )
    return backbone


def _named(spec: str) -> "SplitBackbone":
    """Make the backbone that a spec names."""
    name, options = parse_spec(spec)
    if not is_library_name(name):
        raise InputError(
            f"expected a torch.nn.Module, or hf:FOLDER, timm:NAME or torchvision:NAME,weights=FILE, got '{spec}'; a "
            "folder that save_pretrained wrote is named with hf: before it"
        )
    made = make_from_library(name, options)
    assert isinstance(made, SplitBackbone)
    return made


class _Stage(nn.Module):
    """A part of a captured graph: named values to named values."""

    def __init__(self, graph: fx.GraphModule, digest: str) -> None:
        super().__init__()
        self.graph = graph
        self.digest = digest

    def forward(self, hidden: dict[str, Tensor]) -> Any:
        return self.graph(**hidden)

    def extra_repr(self) -> str:
        # What is computed is part of what a backbone prints, and so of its fingerprint.
        return self.digest


class _First(nn.Module):
    """Names the leaves of the inputs, then runs the first part."""

    def __init__(self, stage: _Stage, names: Sequence[str], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self.stage = stage
        self.names, self.spec = tuple(names), spec

    def forward(self, inputs: Hidden) -> Any:
        inputs = with_token_types(inputs, self.spec.context)  # of those that were not prepared
        return self.stage(dict(zip(self.names, _leaves(inputs, self.spec), strict=True)))


class SplitBackbone(Backbone):
    """A captured network, cut into stages. Made by `split`.

    Hidden states are dictionaries of the values that cross each cut, by the names of the graph's nodes.
    """

    def __init__(
        self, name: str, liveness: Liveness, cuts: Sequence[int], example: Hidden, axes: Any, mask: str | None
    ) -> None:
        graph = liveness.graph
        ends = [0, *cuts, len(graph.nodes)]
        parts = [graph.nodes[start:stop] for start, stop in pairwise(ends)]
        named = dict(zip(_leaf_names(example), graph.inputs, strict=True))
        carried = _carried(liveness, parts, kept=[] if mask is None else [named[mask]])
        arriving = [list(graph.inputs), *carried]
        digests = _digests(graph.nodes)
        stages: list[nn.Module] = [
            _Stage(_part(liveness, part, before, after), _join(digests[node] for node in [*part, *before]))
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
        self._mask_node = None if mask is None else named[mask].name
        pads = dict(zip(graph.inputs, (ax.pad for ax in leaf_axes(example, axes)), strict=True))
        found = [{node.name: liveness.axes(node, pads.get(node, 0.0)) for node in nodes} for nodes in carried]
        self._axes = [axes, *found]
        seen = [_newest(liveness, nodes) for nodes in carried]
        self._seen = [node.name for node in seen]
        self._channels_first = {node.name for node in seen if _of_convolution(liveness, node)}

    def axes(self, depth: int) -> Any:
        """As given for the inputs, as found for everything else."""
        return self._axes[depth]

    def representation(self, hidden: Hidden, stage: int) -> Representation:
        """The value computed last: a map, tokens, or a vector."""
        name = self._seen[stage]
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
        """As any backbone does; the columns behind the longest sample are dropped.

        Of what tokenizers return, `token_type_ids` may be left out: they are then 0. Where the network was captured
        without them, those that are all 0 are dropped.

        Raises:
            InputError: If the inputs are not like the example the network was split with, their batch axis is missing,
                or texts are padded on the left.
        """
        prepared = with_token_types(super().prepare(inputs), self._spec.context)
        for leaf, (entry, count, batch) in zip(_leaves(prepared, self._spec), self._inputs, strict=True):
            check_axes(leaf, count, name=self.name, batch=batch, entry=entry)
        if self._mask is not None:
            check_padding(prepared[self._mask])
        return self.trimmed(prepared, 0)

    def trimmed(self, hidden: Hidden, depth: int) -> Hidden:
        """Cut off the columns behind the last one that the mask of any sample marks."""
        marks = self._mask if depth == 0 else self._mask_node
        if marks is None:
            return hidden
        used = hidden[marks].bool().any(0).nonzero()
        length = int(used[-1]) + 1 if len(used) else 1
        return hidden if length == hidden[marks].shape[1] else at_length(hidden, length, self.axes(depth))

    def sizes(self, inputs: Hidden) -> Tensor:
        """Tokens of each sample where there is a mask, or the length of all of them; ones where nothing grows."""
        if self._mask is not None:
            return torch.as_tensor(inputs[self._mask]).sum(1).float()
        return super().sizes(inputs) * max(lengths_of(inputs, self.axes(0)), default=1)


def _leaves(inputs: Hidden, spec: pytree.TreeSpec) -> list[Any]:
    if spec.type is dict and isinstance(inputs, Mapping):
        _check_entries(inputs, spec.context)
    try:
        return spec.flatten_up_to(inputs)
    except ValueError as error:
        names = f" ({', '.join(map(str, spec.context))})" if spec.type is dict else ""
        raise InputError(
            f"expected inputs like the example the network was split with{names}, got {type(inputs).__name__}: {error}"
        ) from error


def _check_entries(inputs: Mapping[Any, Any], names: Sequence[Any]) -> None:
    """Refuse a dictionary with other entries than the network was split with."""
    missing, further = [name for name in names if name not in inputs], [name for name in inputs if name not in names]
    if missing or further:
        steps = [f"add {', '.join(map(str, missing))}"] if missing else []
        steps += [f"remove {', '.join(map(str, further))}"] if further else []
        raise InputError(
            f"expected inputs like the example the network was split with ({', '.join(map(str, names))}), got "
            f"{', '.join(map(str, inputs)) or 'none'}; {' and '.join(steps)}"
        )


def _digests(nodes: Sequence[fx.Node]) -> dict[fx.Node, str]:
    """Hash what each node computes, whatever its name: some networks compute in another order in every process."""
    found: dict[fx.Node, str] = {}
    for node in nodes:
        target: Any = node.target  # a name, or a function, which may print with an address
        called = target if isinstance(target, str) else f"{target.__module__}.{target.__name__}"
        arguments = fx.map_arg((node.args, node.kwargs), found.__getitem__)
        found[node] = _join([f"{node.op} {called} {arguments}"])
    return found


def _join(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]


def _leaf_names(example: Hidden) -> list[str]:
    """The names of an example's leaves: the last key on the way to each."""
    return [
        str(getattr(path[-1], "key", path[-1])) if path else "" for path, _ in pytree.tree_leaves_with_path(example)
    ]


def _carried(liveness: Liveness, parts: Sequence[Sequence[fx.Node]], kept: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """For each cut, the values that later parts need from before it, in the order they are computed."""
    needed: set[fx.Node] = set(kept)
    carried = []
    for index in range(len(parts) - 1, 0, -1):
        needed |= liveness.carried_for(parts[index])
        first = liveness.index[parts[index][0]]
        carried.append(sorted((n for n in needed if liveness.index[n] < first), key=lambda n: liveness.index[n]))
    return carried[::-1]


def _newest(liveness: Liveness, nodes: Sequence[fx.Node]) -> fx.Node:
    """What exits look at: of the values carried, the one computed last."""
    computed = [node for node in nodes if node.op != "placeholder" and liveness.value(node).real]
    return max(computed, key=lambda node: liveness.index[node])


def _of_convolution(liveness: Liveness, node: fx.Node) -> bool:
    """Whether a value of three axes comes from a convolution along its last, channels before positions."""
    while not liveness.value(node).mul_adds:
        target = str(getattr(node.target, "__name__", node.target))
        if any(word in target for word in ("permute", "transpose", "mT", "flatten", "reshape", "view")):
            return False
        sources = [source for source in node.all_input_nodes if liveness.value(source).real]
        if not sources:
            return False
        node = max(sources, key=lambda source: liveness.index[source])
    if node.op == "call_module":
        return isinstance(liveness.graph.module.get_submodule(str(node.target)), nn.Conv1d)
    return "conv1d" in str(node.target)


def _part(
    liveness: Liveness, nodes: Sequence[fx.Node], before: Sequence[fx.Node], after: Sequence[fx.Node] | None
) -> fx.GraphModule:
    """The graph of one part: from the values in `before` to those in `after`, or to the class scores."""
    graph = fx.Graph()
    made = {node: graph.placeholder(node.name) for node in before}

    def bring(node: fx.Node) -> Any:
        if node not in made:
            if liveness.is_number(node) and node not in inside:
                try:
                    return _number(liveness, liveness.value(node).results, graph, made, before)
                except SplitRefusedError:
                    # A product or sum of numbers that can be read off one by one.
                    if not node.all_input_nodes or not all(map(liveness.is_number, node.all_input_nodes)):
                        raise
            made[node] = graph.node_copy(node, bring)
        return made[node]

    inside = set(nodes)
    for node in [*liveness.repeated_for(nodes), *nodes]:
        if node.op not in ("placeholder", "get_attr"):  # weights come with what uses them
            bring(node)
    if after is None:
        graph.output(bring(liveness.graph.logits))
    else:
        graph.output({node.name: bring(node) for node in after})
    return fx.GraphModule(liveness.graph.module, graph)


def _number(
    liveness: Liveness,
    results: Sequence[Any],
    graph: fx.Graph,
    made: Mapping[fx.Node, fx.Node],
    before: Sequence[fx.Node],
) -> Any:
    """A number that was computed before the cut, from the sizes of what crosses it."""
    if all(type(result) is type(results[0]) and result == results[0] for result in results):
        return results[0]
    if isinstance(results[0], tuple | list):
        return tuple(_number(liveness, part, graph, made, before) for part in zip(*results, strict=True))
    for node in before if isinstance(results[0], int) else ():
        for axis, sizes in enumerate(zip(*(liveness.value(node).shapes or ()), strict=True)):
            factor = results[0] // max(1, sizes[0])
            if len(set(sizes)) > 1 and [factor * size for size in sizes] == list(results):
                size = graph.call_method("size", (made[node], axis))
                return size if factor == 1 else graph.call_function(operator.mul, (size, factor))
    raise SplitRefusedError(
        f"a number that changes with batch or length ({results[0]}) crosses a cut and cannot be read off the values "
        "that cross with it; cut elsewhere (at=[...])"
    )


def _check_composed(backbone: SplitBackbone, model: nn.Module, example: Hidden) -> None:
    with torch.no_grad():
        whole, composed = logits_of(call_network(model, example)), backbone(example)
    if not agree(composed, whole):
        distance = float((whole - composed).abs().max())
        raise SplitRefusedError(
            f"the stages put together differ from the network by up to {distance:.3g}; cut elsewhere (at=[...]), or "
            "give the stages by hand: offramp.Backbone(...)"
        )
