"""The slider along the frontier: the texts of each point, the data of the page's script, and the script."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from offramp.report._findings import Findings
from offramp.report._frontier import arguments, options
from offramp.report._markup import script_data
from offramp.report._network import flow, shown_exits
from offramp.report._words import change, change_span, clean, describe_cost, headline, percent, span

if TYPE_CHECKING:
    from offramp.report._chart import Chart

__all__ = ["chosen_place", "content_policy", "frontier_data", "point_texts", "script"]

_NO_REQUEST = "None: cost, accuracy, latency and guarantees lead to other points."


def chosen_place(findings: Findings) -> int:
    """Return the index of the chosen point among those of the frontier."""
    return next(place for place, entry in enumerate(findings.frontier) if entry.measured is findings.chosen)


def point_texts(findings: Findings, place: int, command: str) -> dict[str, str]:
    """Return the texts of one point, by the ids of the elements that show them.

    Args:
        findings: The findings.
        place: Index of the point in the frontier.
        command: The command to which its options are added.
    """
    entry, count = findings.frontier[place], len(findings.frontier)
    measured = entry.measured
    mark = ", the chosen one" if measured is findings.chosen else ""
    texts = {
        "summary": f"{headline(measured.relative_cost, findings.unit)}, {percent(measured.accuracy)} right",
        "place": f"Point {place + 1} of {count}{mark}",
        "accuracy": f"{percent(measured.accuracy)} ({span(measured.accuracy_interval)}); change "
        f"{change(measured.change)} points ({change_span(measured.change_interval)})",
        "cost": describe_cost(measured, findings.unit),
        "guarantee": f"{entry.guarantee}" if entry.guarantee is not None else "None at this point.",
        "command": f"{command} \\\n  {given}" if (given := options(entry.request)) else _NO_REQUEST,
        "call": f"model.at({arguments(entry.request)})" if entry.request else _NO_REQUEST,
    }
    return {name: clean(text) for name, text in texts.items()}


def frontier_data(findings: Findings, charts: "Sequence[Chart]", command: str) -> dict[str, Any]:
    """Return the data of the page's script: for each point its texts, positions and shares.

    Args:
        findings: The findings.
        charts: The charts in which a marker moves, in the page's order.
        command: The command to which options are added.
    """
    exits = shown_exits(findings)
    return {
        "chosen": chosen_place(findings),
        "points": [
            {
                "texts": point_texts(findings, place, command),
                "places": [chart.places[place] for chart in charts],
                "exits": [
                    [round(100 * here.before, 2), round(100 * here.share, 2), here.text] for here in flow(entry, exits)
                ],
            }
            for place, entry in enumerate(findings.frontier)
        ],
    }


def script(data: Mapping[str, Any]) -> str:
    """Return the elements of the data and of the script."""
    return f'<script type="application/json" id="frontier">{script_data(data)}</script>\n<script>{_source()}</script>'


def content_policy() -> str:
    """Return the page's Content-Security-Policy: its own script by its hash, its own styles, images within it."""
    digest = b64encode(sha256(_source().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _source() -> str:
    return files("offramp.report").joinpath("page.js").read_text(encoding="utf-8")
