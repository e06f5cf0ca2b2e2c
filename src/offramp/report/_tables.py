"""Findings as HTML tables. All texts are escaped here."""

from collections.abc import Iterable, Sequence
from html import escape

from offramp.model._evaluation import Measured
from offramp.report._findings import Findings
from offramp.report._frontier import format_options
from offramp.report._words import change, change_span, clean, cost, cost_span, percent, span

__all__ = ["Cell", "alternatives", "coverage", "exits", "points", "table"]

Cell = tuple[str, str]
"""The text of a cell, not yet escaped, and its class: "" for numbers or "words"."""

_NOTHING = "\N{EN DASH}"  # for undefined numbers


def table(title: str, heads: Sequence[Cell], rows: Iterable[tuple[str, Sequence[Cell]]]) -> str:
    """Return a table in a box that scrolls if the table is wider than the page.

    Args:
        title: The caption.
        heads: The column heads.
        rows: The class and the cells of each row.

    Example:
        >>> table("a < b", [("n", "")], [("", [("1", "")])]).splitlines()[2:5]
        ['<caption>a &lt; b</caption>', '<thead><tr><th scope="col">n</th></tr></thead>', '<tbody>']
    """
    body = "\n".join(f"<tr{_class(kind)}>{''.join(_cell('td', cell) for cell in cells)}</tr>" for kind, cells in rows)
    return "\n".join(
        [
            f'<div class="box" role="region" tabindex="0" aria-label="{escape(clean(title))}">',
            "<table>",
            f"<caption>{escape(clean(title))}</caption>",
            f"<thead><tr>{''.join(_cell('th', head) for head in heads)}</tr></thead>",
            "<tbody>",
            body,
            "</tbody></table></div>",
        ]
    )


def points(findings: Findings, policy: str) -> str:
    """Return the table of the points of one policy, with the chosen point."""
    rows: list[tuple[str, Measured]] = [("", point) for point in findings.curves[policy]]
    if policy == findings.policy:
        rows = [row for row in rows if row[1] != findings.chosen] + [("chosen", findings.chosen)]
    rows.sort(key=lambda row: row[1].relative_cost)
    requests = {id(entry.measured): format_options(entry.request) for entry in findings.frontier}
    heads = (
        f"cost ({findings.cost_kind})",
        "95 %",
        "accuracy, %",
        "95 %",
        "change, points",
        "95 %",
        "calibration error, %",
        "options",
    )
    return table(
        f"Operating points of {policy}" + ("; the chosen point is bold" if policy == findings.policy else ""),
        [(head, "") for head in heads],
        [
            (
                kind,
                _numbers(
                    cost(point.relative_cost),
                    cost_span(point.cost_interval),
                    f"{100 * point.accuracy:.1f}",
                    span(point.accuracy_interval),
                    change(point.change),
                    change_span(point.change_interval),
                    f"{100 * point.calibration_error:.1f}",
                    requests.get(id(point)) or _NOTHING,
                ),
            )
            for kind, point in rows
        ],
    )


def exits(findings: Findings) -> str:
    """Return the table of the active exits."""
    several = len({use.network for use in findings.exits}) > 1
    heads = ("samples", "share", "accuracy, %", "95 %", "full network on these, %", "exit on all, %")
    return table(
        "Active exits at the chosen point",
        [("exit", ""), *([("network", "words")] if several else []), *((head, "") for head in heads)],
        [
            (
                "",
                [
                    (str(use.exit), ""),
                    *([(use.network, "words")] if several else []),
                    *_numbers(
                        f"{use.samples:,}",
                        percent(use.share),
                        _maybe(use.accuracy),
                        _NOTHING if use.accuracy_interval is None else span(use.accuracy_interval),
                        _maybe(use.full),
                        _maybe(use.everyone),
                    ),
                ],
            )
            for use in findings.exits
        ],
    )


def alternatives(findings: Findings) -> str:
    """Return the table of the alternatives."""
    heads = (f"cost ({findings.cost_kind})", "accuracy, %", "95 %", "lead over the chosen point", "95 %")
    return table(
        "Alternatives without early exits",
        [("", "words"), *((head, "") for head in heads)],
        [
            (
                "",
                [
                    (f"{row.name} by itself" if row.kind == "network" else f"{row.name} for all", "words"),
                    *_numbers(
                        cost(row.relative_cost),
                        f"{100 * row.accuracy:.1f}",
                        span(row.accuracy_interval),
                        change(row.lead),
                        change_span(row.lead_interval),
                    ),
                ],
            )
            for row in findings.alternatives
        ],
    )


def coverage(findings: Findings) -> str:
    """Return the table of guaranteed and measured coverage of the prediction sets."""
    return table(
        "Coverage of the prediction sets",
        [("guaranteed, %", ""), ("measured, %", ""), ("95 %", "")],
        [
            (
                "",
                _numbers(
                    f"{100 * (1 - row.miscoverage):.4g}", f"{100 * row.coverage:.1f}", span(row.coverage_interval)
                ),
            )
            for row in findings.coverage
        ],
    )


def _numbers(*cells: str) -> list[Cell]:
    return [(cell, "") for cell in cells]


def _maybe(share: float | None) -> str:
    return _NOTHING if share is None else f"{100 * share:.1f}"


def _cell(tag: str, cell: Cell) -> str:
    scope = ' scope="col"' if tag == "th" else ""
    return f"<{tag}{scope}{_class(cell[1])}>{escape(clean(cell[0]))}</{tag}>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
