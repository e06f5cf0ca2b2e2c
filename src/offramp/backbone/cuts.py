"""Where to cut a captured graph: after every repeated block."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from offramp.backbone.capture import Call
from offramp.backbone.liveness import Liveness
from offramp.errors import InputError, SplitRefusedError
from offramp.registry import unknown_name

__all__ = ["LARGEST_SHARE", "find_cuts", "named_cuts"]

LARGEST_SHARE = 0.3
"""No stage should cost more of the network than this: an exit that comes late saves little."""


@dataclass(frozen=True)
class _Span:
    """The nodes of one call of a module."""

    call: Call
    start: int
    stop: int


def find_cuts(liveness: Liveness) -> list[int]:
    """Cut after each repeated block; further where a stage would cost too much; before the first block of words.

    A block is a module that comes at least twice, does matrix products, and after which as few values cross as anywhere
    in the network: usually one, the stream that blocks add to. Of blocks inside blocks, the innermost count. Where no
    module is a block, every layer with weights is one.

    Args:
        liveness: Of the captured graph.

    Returns:
        Positions, ascending; the last one is where the network's own head begins.
    """
    spans = _spans(liveness)
    working = [span for span in spans if _works(liveness, span)]
    blocks = _blocks(liveness, working)
    if blocks:
        blocks = [*blocks, *_siblings(liveness, working, blocks)]
        cuts = {span.stop for span in blocks}
        inputs = [liveness.value(node) for node in liveness.graph.inputs]
        if not any(value.real for value in inputs):
            # Words: looking them up costs nothing, so an exit after it is nearly free.
            cuts.add(min(span.start for span in blocks))
    else:
        cuts = set(_layer_starts(liveness))
    cuts = {cut for cut in cuts if _sound(liveness, cut)}
    if not cuts:
        raise SplitRefusedError(
            "no place to cut was found: no module comes twice with few values crossing behind it, and no layer can be "
            "cut off; name the modules to cut after (at=[...]), or give the stages by hand: offramp.Backbone(...)"
        )
    return _refined(liveness, sorted(cuts), [span.stop for span in spans])


def named_cuts(liveness: Liveness, names: Sequence[str]) -> list[int]:
    """Cut after the named modules.

    Args:
        liveness: Of the captured graph.
        names: Paths of modules, such as `layer3.2`.

    Returns:
        Positions, ascending.
    """
    if not names:
        raise InputError("at=[] names no module to cut after; leave it out to have them found")
    stops = {span.call.path: span.stop for span in _spans(liveness)}
    cuts = set()
    for name in names:
        if name not in stops:
            raise unknown_name("module that the network calls", name, stops)
        if stops[name] > liveness.index[liveness.graph.logits]:
            raise SplitRefusedError(f"cannot cut after '{name}': nothing is left for the network's own head behind it")
        if not _sound(liveness, stops[name]):
            raise SplitRefusedError(
                f"cannot cut after '{name}': a value that crosses there has no axis of its own for the samples (they "
                "are folded into another axis); cut after an earlier or later module"
            )
        cuts.add(stops[name])
    return sorted(cuts)


def _spans(liveness: Liveness) -> list[_Span]:
    """Every call of a module, in the order in which they end."""
    first: dict[Call, int] = {}
    last: dict[Call, int] = {}
    for position, stack in enumerate(liveness.graph.stacks):
        for call in stack:
            first.setdefault(call, position)
            last[call] = position
    return sorted(
        (_Span(call, first[call], last[call] + 1) for call in first), key=lambda span: (span.stop, -span.start)
    )


def _works(liveness: Liveness, span: _Span) -> bool:
    """Whether a call does matrix products, in more than one operation."""
    values = liveness.graph.values[span.start : span.stop]
    return span.stop - span.start > 1 and any(value.mul_adds for value in values)


def _blocks(liveness: Liveness, spans: Sequence[_Span]) -> list[_Span]:
    """The calls that are blocks, in order: with as few values crossing as leaves no block too costly."""
    kinds: dict[str, list[_Span]] = defaultdict(list)
    for span in spans:
        kinds[_kind(liveness, span)].append(span)
    widths = {
        kind: max(len(liveness.crossing[call.stop]) for call in calls)
        for kind, calls in kinds.items()
        if len(calls) > 1 and _apart(calls) and all(_sound(liveness, call.stop) for call in calls)
    }
    costs = [value.mul_adds for value in liveness.graph.values]
    blocks: list[_Span] = []
    for width in sorted(set(widths.values())):
        narrow = [kinds[kind] for kind in widths if widths[kind] <= width]
        # What comes in a list (`blocks.3`) is what its author repeats; parts of it may come as often.
        listed = [calls for calls in narrow if 2 * sum(_listed(call) for call in calls) > len(calls)]
        calls = [call for alike in listed or narrow for call in alike]
        innermost = [call for call in calls if not any(_inside(other, call) for other in calls)]
        blocks = sorted(innermost, key=lambda span: span.stop)
        if max(sum(costs[block.start : block.stop]) for block in blocks) <= LARGEST_SHARE * sum(costs):
            break
    return blocks


def _siblings(liveness: Liveness, spans: Sequence[_Span], blocks: Sequence[_Span]) -> list[_Span]:
    """Calls that stand in the same lists as blocks and are of another kind: a first block that is simpler."""
    places = {_place(span) for span in blocks if _listed(span)}
    most = max(len(liveness.crossing[span.stop]) for span in blocks)
    alike = [span for span in spans if _listed(span) and _place(span) in places]
    return [span for span in alike if _sound(liveness, span.stop) and len(liveness.crossing[span.stop]) <= most]


def _place(span: _Span) -> str:
    """A module's path without its numbers: `blocks..`, of `blocks.3.1`."""
    return "".join(letter for letter in span.call.path.partition("@")[0] if not letter.isdigit())


def _listed(span: _Span) -> bool:
    """Whether a module is one of a list: its name ends with a number."""
    return span.call.path.partition("@")[0][-1].isdigit() or "@" in span.call.path


def _kind(liveness: Liveness, span: _Span) -> str:
    """What makes two calls the same block: the class, and of a plain sequence its members'."""
    if span.call.kind != "Sequential":
        return span.call.kind
    path = span.call.path.partition("@")[0]
    members = [stack[-1].kind for stack in liveness.graph.stacks[span.start : span.stop] if stack]
    return f"{path.count('.')} {members}"


def _apart(calls: Sequence[_Span]) -> bool:
    """Whether calls follow one another, none inside another."""
    return all(one.stop <= other.start for one, other in pairwise(calls))


def _inside(inner: _Span, outer: _Span) -> bool:
    """Whether a call lies within another that does more."""
    within = outer.start <= inner.start and inner.stop <= outer.stop
    return within and (inner.start, inner.stop) != (outer.start, outer.stop)


def _sound(liveness: Liveness, cut: int) -> bool:
    """Whether every value that crosses keeps samples apart, and the last computed one has them first."""
    nodes = liveness.crossing[cut]
    if not nodes or cut > liveness.index[liveness.graph.logits]:
        return False
    axes = {node: liveness.axes(node) for node in nodes}
    newest = max(nodes, key=lambda node: liveness.index[node])
    first = axes[newest]
    return all(found is not None for found in axes.values()) and first is not None and first.batch == 0


def _layer_starts(liveness: Liveness) -> list[int]:
    """Positions before each layer with weights but the first."""
    working = [position for position, value in enumerate(liveness.graph.values) if value.mul_adds]
    few = min((len(liveness.crossing[position]) for position in working[1:]), default=0)
    return [position for position in working[1:] if len(liveness.crossing[position]) == few]


def _shares(liveness: Liveness, cuts: Sequence[int]) -> list[float]:
    """What part of the network's cost lies in each stage, the own head left out."""
    costs = [value.mul_adds for value in liveness.graph.values]
    total = max(1, sum(costs))
    return [sum(costs[start:stop]) / total for start, stop in zip([0, *cuts], cuts, strict=False)]


def _refined(liveness: Liveness, cuts: list[int], candidates: Sequence[int]) -> list[int]:
    """Cut stages that cost too much where a module ends, as near to their middle and with as few values as possible."""
    while True:
        ends = [*cuts, len(liveness.graph.nodes)]
        shares = _shares(liveness, ends)
        found = None
        for (start, stop), share in zip(zip([0, *ends], ends, strict=False), shares, strict=True):
            if share <= LARGEST_SHARE:
                continue
            inner = [cut for cut in set(candidates) if start < cut < stop and _sound(liveness, cut)]
            inner = [cut for cut in inner if 0 < _shares(liveness, [start, cut])[1] < share]
            if inner:
                found = min(
                    inner,
                    key=lambda cut: (
                        len(liveness.crossing[cut]),
                        abs(_shares(liveness, [start, cut])[1] - share / 2),
                        cut,
                    ),
                )
                break
        if found is None:
            return cuts
        cuts = sorted({*cuts, found})
