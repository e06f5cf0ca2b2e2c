"""The network as a drawing: its stages, its exits, and the share of the samples that leaves at each."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from offramp.report._findings import Findings
from offramp.report._frontier import FrontierPoint
from offramp.report._markup import prose
from offramp.report._words import percent

__all__ = ["Flow", "draw_network", "list_exits", "list_flows"]


@dataclass(frozen=True)
class Flow:
    """The samples at one exit."""

    before: float
    """Share of all samples that reach it."""
    share: float
    """Share of all samples that leaves there."""
    text: str
    """The same, to read."""


def list_exits(findings: Findings) -> tuple[int, ...]:
    """Return the exits that are active at any point of the frontier, ascending."""
    return tuple(sorted({exit for entry in findings.frontier for exit in entry.active}))


def list_flows(entry: FrontierPoint, exits: Sequence[int]) -> tuple[Flow, ...]:
    """Return the samples at each exit of the drawing.

    Args:
        entry: A point of the frontier.
        exits: The exits of the drawing, which include its active ones.

    Returns:
        One flow per exit.
    """
    flows, before = [], 1.0
    for exit in exits:
        share = entry.measured.exit_shares[exit]
        flows.append(Flow(before, share, percent(share) if exit in entry.active else "unused"))
        before = max(0.0, before - share)
    return tuple(flows)


def draw_network(findings: Findings, entry: FrontierPoint) -> str:
    """Return the drawing at one point, as an HTML list that reads well without its bars.

    Args:
        findings: The findings.
        entry: A point of its frontier.
    """
    exits = list_exits(findings)
    rows, above = [], ""
    for (previous, exit), here in zip(pairwise((-1, *exits)), list_flows(entry, exits), strict=True):
        network = findings.networks[exit]
        if network != above:
            rows.append(f'<li class="member">{prose(network)}</li>')
            above = network
        stages = f"stage {exit}" if exit == previous + 1 else f"stages {previous + 1}\N{EN DASH}{exit}"
        rows.append(
            f'<li class="exit"><span class="stage"><span class="flow" style="width: {100 * here.before:.2f}%"></span>'
            f'<span class="name">{stages}</span></span><span class="label">exit {exit}</span>'
            f'<span class="ramp"><span style="width: {100 * here.share:.2f}%"></span></span>'
            f'<span class="share">{prose(here.text)}</span></li>'
        )
    return '<ol class="network">\n' + "\n".join(rows) + "\n</ol>"
