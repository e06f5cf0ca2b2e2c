"""Findings as tables of a page. Every text from outside is escaped here."""

from collections.abc import Iterable, Sequence
from html import escape

from offramp.frontier import Measured
from offramp.report.answers import Sample
from offramp.report.findings import Findings
from offramp.report.words import change, change_span, clean, cost, cost_span, percent, span

__all__ = ["Cell", "coverage", "exits", "instead", "points", "table", "texts"]

Cell = tuple[str, str]
"""What a cell holds, not yet escaped, and its class: "" for numbers, "words", "text", "wrong"."""

_NOTHING = "\N{EN DASH}"  # where nothing can be said
_LONGEST = 300  # characters of a text; a page of two dozen should be read, not scrolled through


def table(title: str, heads: Sequence[Cell], rows: Iterable[tuple[str, Sequence[Cell]]]) -> str:
    """A table in a box of its own, in which it may be wider than the page.

    Args:
        title: What it shows.
        heads: The heads of its columns.
        rows: For each row its class and its cells.

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
    """The points of one policy's curve, the chosen one among them."""
    rows: list[tuple[str, Measured]] = [("", one) for one in findings.curves[policy]]
    if policy == findings.policy:
        rows = [row for row in rows if row[1] != findings.chosen] + [("chosen", findings.chosen)]
    rows.sort(key=lambda row: row[1].relative_cost)
    heads = ("cost", "95 %", "accuracy, %", "95 %", "change, points", "95 %", "calibration error, %")
    return table(
        f"Points of the frontier by {policy}" + ("; the chosen one is bold" if policy == findings.policy else ""),
        [(head, "") for head in heads],
        [
            (
                kind,
                _numbers(
                    cost(one.relative_cost),
                    cost_span(one.cost_interval),
                    f"{100 * one.accuracy:.1f}",
                    span(one.accuracy_interval),
                    change(one.change),
                    change_span(one.change_interval),
                    f"{100 * one.calibration_error:.1f}",
                ),
            )
            for kind, one in rows
        ],
    )


def exits(findings: Findings) -> str:
    """The exits in force, and who leaves there."""
    several = len({use.network for use in findings.exits}) > 1
    heads = ("samples", "share", "accuracy, %", "95 %", "full network on them, %", "exit on all, %")
    return table(
        "Exits in force at the chosen point",
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


def instead(findings: Findings) -> str:
    """The alternatives."""
    heads = ("cost", "accuracy, %", "95 %", "lead over the chosen point", "95 %")
    return table(
        "What one could run instead",
        [("", "words"), *((head, "") for head in heads)],
        [
            (
                "",
                [
                    (f"{one.name} by itself" if one.kind == "network" else f"{one.name} for all", "words"),
                    *_numbers(
                        cost(one.relative_cost),
                        f"{100 * one.accuracy:.1f}",
                        span(one.accuracy_interval),
                        change(one.lead),
                        change_span(one.lead_interval),
                    ),
                ],
            )
            for one in findings.alternatives
        ],
    )


def coverage(findings: Findings) -> str:
    """Promise and coverage of the prediction sets."""
    return table(
        "How often prediction sets hold the true class",
        [("promised, %", ""), ("held, %", ""), ("95 %", "")],
        [
            (
                "",
                _numbers(
                    f"{100 * (1 - one.miscoverage):.4g}", f"{100 * one.coverage:.1f}", span(one.coverage_interval)
                ),
            )
            for one in findings.coverage
        ],
    )


def texts(title: str, samples: Sequence[Sample], shown: Sequence[str], classes: Sequence[str]) -> str:
    """Texts with their answers, and the true class beside those that are wrong."""
    rows: list[tuple[str, Sequence[Cell]]] = []
    for sample, text in zip(samples, shown, strict=True):
        right = sample.predicted == sample.label
        answer = classes[sample.predicted]
        rows.append(
            (
                "",
                [
                    (text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…", "text"),
                    (answer, "words") if right else (f"{answer}, is {classes[sample.label]}", "words wrong"),
                    (str(sample.exit), ""),
                    (percent(sample.confidence), ""),
                ],
            )
        )
    return table(title, [("text", "words"), ("answer", "words"), ("exit", ""), ("confidence", "")], rows)


def _numbers(*cells: str) -> list[Cell]:
    return [(cell, "") for cell in cells]


def _maybe(share: float | None) -> str:
    return _NOTHING if share is None else f"{100 * share:.1f}"


def _cell(tag: str, cell: Cell) -> str:
    scope = ' scope="col"' if tag == "th" else ""
    return f"<{tag}{scope}{_class(cell[1])}>{escape(clean(cell[0]))}</{tag}>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
