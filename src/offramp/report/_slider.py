"""The slider along the frontier: the texts of each point, the data of the page's script, and the script."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from offramp.report._findings import Findings
from offramp.report._frontier import format_arguments, format_options
from offramp.report._markup import encode_data
from offramp.report._network import list_exits, list_flows
from offramp.report._words import change, change_span, clean, describe_cost, headline, percent, span

if TYPE_CHECKING:
    from offramp.report._chart import Chart

__all__ = ["collect_data", "describe_point", "find_chosen", "write_content_policy", "write_script"]

_NO_REQUEST = "None: cost, accuracy, latency and guarantees lead to other points."
_NO_OPTION = "None: the command line has no option for the bound of this guarantee."


def find_chosen(findings: Findings) -> int:
    """Return the index of the chosen point among those of the frontier."""
    return next(index for index, entry in enumerate(findings.frontier) if entry.measured is findings.chosen)


def describe_point(findings: Findings, index: int, command: str) -> dict[str, str]:
    """Return the texts of one point, by the ids of the elements that show them.

    Args:
        findings: The findings.
        index: Index of the point in the frontier.
        command: The command to which its options are added.
    """
    entry, count = findings.frontier[index], len(findings.frontier)
    measured = entry.measured
    refusal = _NO_OPTION if entry.request else _NO_REQUEST
    mark = ", the chosen one" if measured is findings.chosen else ""
    texts = {
        "summary": f"{headline(measured.relative_cost, findings.unit)}, {percent(measured.accuracy)} right",
        "index": f"Point {index + 1} of {count}{mark}",
        "accuracy": f"{percent(measured.accuracy)} ({span(measured.accuracy_interval)}); change "
        f"{change(measured.change)} points ({change_span(measured.change_interval)})",
        "cost": describe_cost(measured, findings.unit),
        "guarantee": f"{entry.guarantee}" if entry.guarantee is not None else "None at this point.",
        "command": f"{command} \\\n  {options}" if (options := format_options(entry.request)) else refusal,
        "call": f"model.at({format_arguments(entry.request)})" if entry.request else _NO_REQUEST,
    }
    return {name: clean(text) for name, text in texts.items()}


def collect_data(findings: Findings, charts: "Sequence[Chart]", command: str) -> dict[str, Any]:
    """Return the data of the page's script: for each point its texts, positions and shares.

    Args:
        findings: The findings.
        charts: The charts in which a marker moves, in the page's order.
        command: The command to which options are added.
    """
    exits = list_exits(findings)
    return {
        "chosen": find_chosen(findings),
        "points": [
            {
                "texts": describe_point(findings, index, command),
                "positions": [chart.positions[index] for chart in charts],
                "exits": [
                    [round(100 * here.before, 2), round(100 * here.share, 2), here.text]
                    for here in list_flows(entry, exits)
                ],
            }
            for index, entry in enumerate(findings.frontier)
        ],
    }


def write_script(data: Mapping[str, Any]) -> str:
    """Return the elements of the data and of the script."""
    return f'<script type="application/json" id="frontier">{encode_data(data)}</script>\n<script>{_source()}</script>'


def write_content_policy() -> str:
    """Return the page's Content-Security-Policy: its own script by its hash, its own styles, images within it."""
    digest = b64encode(sha256(_source().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _source() -> str:
    return files("offramp.report").joinpath("page.js").read_text(encoding="utf-8")
