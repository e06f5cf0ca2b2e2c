"""Positions to cut a captured graph at: after every repeated block."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from offramp._registry import unknown_name
from offramp.backbone._capture import Call
from offramp.backbone._liveness import Liveness
from offramp.errors import InputError, SplitRefusedError

__all__ = ["LARGEST_SHARE", "find_cuts", "named_cuts"]

LARGEST_SHARE = 0.3
"""Maximum share of the network's cost per stage: a late exit saves little."""


@dataclass(frozen=True)
class _Span:
    """The nodes of one call of a module."""

    call: Call
    start: int
    stop: int


def find_cuts(liveness: Liveness) -> list[int]:
    """Find cuts after each repeated block, inside stages that cost too much, and after embeddings of words.

    A block is a module that is called at least twice, does matrix products, and after which as few values cross as
    possible: usually one, the residual stream. Of nested blocks, the innermost count. If there is no block, every layer
    with weights is one.

    Returns:
        Positions, ascending; at the last one the network's own head begins.
    """
    spans = _spans(liveness)
    working = [span for span in spans if _does_work(liveness, span)]
    blocks = _blocks(liveness, working)
    if blocks:
        blocks = [*blocks, *_siblings(liveness, working, blocks)]
        cuts = {span.stop for span in blocks}
        inputs = [liveness.value(node) for node in liveness.graph.inputs]
        if not any(value.real for value in inputs):
            # An exit after the embeddings of words is nearly free.
            cuts.add(min(span.start for span in blocks))
    else:
        cuts = set(_layer_starts(liveness))
    cuts = {cut for cut in cuts if _is_sound(liveness, cut)}
    if not cuts:
        raise SplitRefusedError(
            "no place to cut was found: no module is called twice with few values crossing after it, and no layer can "
            "be cut off",
            hint="name the modules to cut after (at=[...]), or give the stages by hand: offramp.Backbone(...)",
        )
    return _refine(liveness, sorted(cuts), [span.stop for span in spans])


def named_cuts(liveness: Liveness, names: Sequence[str]) -> list[int]:
    """Return the cuts after the named modules (`layer3.2`), ascending."""
    if not names:
        raise InputError("at=[] names no module to cut after", hint="leave it out to find cuts")
    stops = {span.call.path: span.stop for span in _spans(liveness)}
    cuts = set()
    for name in names:
        if name not in stops:
            raise unknown_name("module that the network calls", name, stops)
        if stops[name] > liveness.index[liveness.graph.logits]:
            raise SplitRefusedError(f"cannot cut after '{name}': nothing is left for the network's own head")
        if not _is_sound(liveness, stops[name]):
            raise SplitRefusedError(
                f"cannot cut after '{name}': a value that crosses there has no axis of its own for the samples",
                hint="cut after an earlier or later module",
            )
        cuts.add(stops[name])
    return sorted(cuts)


def _spans(liveness: Liveness) -> list[_Span]:
    """Return every call of a module, in the order in which they end."""
    first: dict[Call, int] = {}
    last: dict[Call, int] = {}
    for position, stack in enumerate(liveness.graph.stacks):
        for call in stack:
            first.setdefault(call, position)
            last[call] = position
    return sorted(
        (_Span(call, first[call], last[call] + 1) for call in first), key=lambda span: (span.stop, -span.start)
    )


def _does_work(liveness: Liveness, span: _Span) -> bool:
    """True if a call does matrix products, in more than one operation."""
    values = liveness.graph.values[span.start : span.stop]
    return span.stop - span.start > 1 and any(value.mul_adds for value in values)


def _blocks(liveness: Liveness, spans: Sequence[_Span]) -> list[_Span]:
    """Return the calls that are blocks, in order, with the fewest crossing values for which no block costs too much."""
    kinds: dict[str, list[_Span]] = defaultdict(list)
    for span in spans:
        kinds[_kind(liveness, span)].append(span)
    widths = {
        kind: max(len(liveness.crossing[call.stop]) for call in calls)
        for kind, calls in kinds.items()
        if len(calls) > 1 and _are_disjoint(calls) and all(_is_sound(liveness, call.stop) for call in calls)
    }
    costs = [value.mul_adds for value in liveness.graph.values]
    blocks: list[_Span] = []
    for width in sorted(set(widths.values())):
        narrow = [kinds[kind] for kind in widths if widths[kind] <= width]
        # Members of lists (`blocks.3`) are the blocks; parts of them may be called as often.
        in_lists = [calls for calls in narrow if 2 * sum(_is_in_list(call) for call in calls) > len(calls)]
        calls = [call for kind in in_lists or narrow for call in kind]
        innermost = [call for call in calls if not any(_is_inside(other, call) for other in calls)]
        blocks = sorted(innermost, key=lambda span: span.stop)
        if max(sum(costs[block.start : block.stop]) for block in blocks) <= LARGEST_SHARE * sum(costs):
            break
    return blocks


def _siblings(liveness: Liveness, spans: Sequence[_Span], blocks: Sequence[_Span]) -> list[_Span]:
    """Return calls of another kind in the same lists as blocks, such as a simpler first block."""
    lists = {_list_path(span) for span in blocks if _is_in_list(span)}
    most = max(len(liveness.crossing[span.stop]) for span in blocks)
    siblings = [span for span in spans if _is_in_list(span) and _list_path(span) in lists]
    return [span for span in siblings if _is_sound(liveness, span.stop) and len(liveness.crossing[span.stop]) <= most]


def _list_path(span: _Span) -> str:
    """Return a module's path without numbers: `blocks..` for `blocks.3.1`."""
    return "".join(letter for letter in span.call.path.partition("@")[0] if not letter.isdigit())


def _is_in_list(span: _Span) -> bool:
    """True if a module is a member of a list: its name ends with a number."""
    return span.call.path.partition("@")[0][-1].isdigit() or "@" in span.call.path


def _kind(liveness: Liveness, span: _Span) -> str:
    """Return the kind of block: the class, or for an `nn.Sequential` its depth and the classes of its members."""
    if span.call.kind != "Sequential":
        return span.call.kind
    path = span.call.path.partition("@")[0]
    members = [stack[-1].kind for stack in liveness.graph.stacks[span.start : span.stop] if stack]
    return f"{path.count('.')} {members}"


def _are_disjoint(calls: Sequence[_Span]) -> bool:
    """True if calls follow one another, none inside another."""
    return all(first.stop <= second.start for first, second in pairwise(calls))


def _is_inside(inner: _Span, outer: _Span) -> bool:
    """True if a call lies within another, larger one."""
    within = outer.start <= inner.start and inner.stop <= outer.stop
    return within and (inner.start, inner.stop) != (outer.start, outer.stop)


def _is_sound(liveness: Liveness, cut: int) -> bool:
    """Return True if every crossing value has a batch axis of its own, and it is axis 0 in the value computed last."""
    nodes = liveness.crossing[cut]
    if not nodes or cut > liveness.index[liveness.graph.logits]:
        return False
    axes = {node: liveness.axes(node) for node in nodes}
    newest = max(nodes, key=lambda node: liveness.index[node])
    newest_axes = axes[newest]
    return None not in axes.values() and newest_axes is not None and newest_axes.batch == 0


def _layer_starts(liveness: Liveness) -> list[int]:
    """Return the positions before each layer with weights except the first."""
    working = [position for position, value in enumerate(liveness.graph.values) if value.mul_adds]
    few = min((len(liveness.crossing[position]) for position in working[1:]), default=0)
    return [position for position in working[1:] if len(liveness.crossing[position]) == few]


def _shares(liveness: Liveness, cuts: Sequence[int]) -> list[float]:
    """Return each stage's share of the network's cost, without the own head."""
    costs = [value.mul_adds for value in liveness.graph.values]
    total = max(1, sum(costs))
    return [sum(costs[start:stop]) / total for start, stop in zip([0, *cuts], cuts, strict=False)]


def _refine(liveness: Liveness, cuts: list[int], candidates: Sequence[int]) -> list[int]:
    """Cut stages that cost too much at the end of a module, with few crossing values and near their middle."""
    while True:
        ends = [*cuts, len(liveness.graph.nodes)]
        shares = _shares(liveness, ends)
        best = None
        for (start, stop), share in zip(zip([0, *ends], ends, strict=False), shares, strict=True):
            if share <= LARGEST_SHARE:
                continue
            inner = [cut for cut in set(candidates) if start < cut < stop and _is_sound(liveness, cut)]
            inner = [cut for cut in inner if 0 < _shares(liveness, [start, cut])[1] < share]
            if inner:
                best = min(
                    inner,
                    key=lambda cut: (
                        len(liveness.crossing[cut]),
                        abs(_shares(liveness, [start, cut])[1] - share / 2),
                        cut,
                    ),
                )
                break
        if best is None:
            return cuts
        cuts = sorted({*cuts, best})
