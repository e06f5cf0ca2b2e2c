"""Findings in sentences, and the format of their numbers."""

from unicodedata import category

from offramp.cost._unit import MANY, CostUnit
from offramp.model._evaluation import Measured
from offramp.report._alternatives import Alternative
from offramp.report._findings import Findings

__all__ = [
    "change",
    "change_span",
    "clean",
    "cost",
    "cost_span",
    "describe_cost",
    "headline",
    "list_cautions",
    "list_facts",
    "list_notes",
    "percent",
    "span",
    "verdict",
]

_NAMED = 3  # alternatives described in full


def headline(relative_cost: float, unit: CostUnit) -> str:
    """Describe a relative cost in a few words: how many times cheaper, or that nothing is saved.

    Example:
        >>> headline(0.098, CostUnit()), headline(0.42, CostUnit("ms", 8.0)), headline(1.2, CostUnit())
        ('10x cheaper', '2.4x faster', '20 % more expensive than the full network: nothing is saved')
    """
    less, more = ("faster", "slower") if unit.full_ms is not None else ("cheaper", "more expensive")
    if relative_cost <= 0:
        return "No cost at all"
    if relative_cost <= 1 / 1.2:
        ratio = 1 / relative_cost
        return f"{ratio:,.0f}x {less}" if ratio >= 9.95 else f"{ratio:.1f}x {less}"
    points = round(100 * (relative_cost - 1))
    if points == 0:
        return "The cost of the full network: nothing is saved"
    if points < 0:
        return f"{-points} % {less}"
    return f"{points} % {more} than the full network: nothing is saved"


def list_facts(findings: Findings) -> tuple[tuple[str, str, str], ...]:
    """Return names, values and details of what changes at the chosen point: accuracy, cost, time or price."""
    chosen, full, unit = findings.chosen, findings.full, findings.unit
    rows = [
        (
            "Accuracy",
            f"{percent(full.accuracy)} before, {percent(chosen.accuracy)} after",
            f"95 % intervals: {span(full.accuracy_interval)} before, {span(chosen.accuracy_interval)} after. "
            f"Change: {change(chosen.change)} points ({change_span(chosen.change_interval)}).",
        ),
        (
            "Cost",
            f"{percent(chosen.relative_cost)} of the full network's",
            f"95 % interval: {_percent_span(chosen.cost_interval)}. Unit: {findings.cost_kind}.",
        ),
    ]
    if unit.full is not None:
        name, detail = ("Price", f"Per {MANY:,} inputs") if unit.is_money else ("Time", "Mean per input")
        before, after = (f"{unit.figure(share)} {unit.name}" for share in (1, chosen.relative_cost))
        rows.append((name, f"{before} before, {after} after", f"{detail}, on these samples."))
    return tuple(rows)


def describe_cost(measured: Measured, unit: CostUnit) -> str:
    """Describe the cost of a point with its interval, and in milliseconds or money where that is known."""
    share = f"{percent(measured.relative_cost)} of the full network's ({_percent_span(measured.cost_interval)})"
    if unit.full is None:
        return share
    return f"{share}; {unit.show(measured.relative_cost)} {'inputs' if unit.is_money else 'per input'}"


def _percent_span(interval: tuple[float, float] | None) -> str:
    return "n/a: one row" if interval is None else span(interval)


def verdict(findings: Findings) -> str:
    """Describe the chosen point in one sentence with intervals, after the bill if costs are money."""
    chosen, unit = findings.chosen, findings.unit
    bill = f"The bill: {unit.show(1)} before, {unit.show(chosen.relative_cost)} after. " if unit.is_money else ""
    return (
        f"{bill}At {percent(chosen.relative_cost)} of the full network's cost ({findings.cost_kind}) it is right "
        f"{percent(chosen.accuracy)} of the time ({span(chosen.accuracy_interval)}); the full network "
        f"{percent(findings.full.accuracy)}: change {change(chosen.change)} points "
        f"({change_span(chosen.change_interval)})."
    )


def list_cautions(findings: Findings) -> tuple[str, ...]:
    """Return warnings: alternatives that beat the chosen point, networks first, and guarantees that do not hold."""
    better = sorted(findings.better, key=lambda other: (other.kind == "exit", -other.accuracy, other.relative_cost))
    sentences = [_describe_better(other, findings.chosen.relative_cost) for other in better[:_NAMED]]
    short = [row for row in findings.coverage if row.coverage_interval[1] < 1 - row.miscoverage]
    if short:
        shares = [
            f"{percent(row.coverage)} ({span(row.coverage_interval)}) instead of {percent(1 - row.miscoverage)}"
            for row in short
        ]
        sentences.append(
            f"Prediction sets contain the true class less often than guaranteed: {'; '.join(shares)}. These samples "
            "may differ from the calibrate samples, or those were few."
        )
    return tuple(sentences)


def list_notes(findings: Findings) -> tuple[str, ...]:
    """Return notes on the verdict and its assumptions."""
    chosen = findings.chosen
    sentences = []
    lower, upper = chosen.change_interval
    if lower <= 0 <= upper and chosen.change != 0:
        sentences.append("The interval of the change contains 0: it may be chance.")
    if findings.guarantee is not None:
        sentences.append(_guarantee(findings))
    sentences.append(
        f"Measured on {findings.samples:,} samples of {len(findings.classes):,} classes. The report assumes that "
        "nothing was fitted on them."
    )
    empty = sum(row.samples == 0 for row in findings.by_class)
    if empty:
        sentences.append(f"{empty} of the classes {'has' if empty == 1 else 'have'} no samples and no figures.")
    sentences.append(
        "Intervals are 95 % intervals (Wilson for accuracies, Bonett and Price for changes, bootstrap for costs) for "
        "other samples of the same kind; they do not cover another training run or changed data. Costs are "
        f"{findings.cost_kind}, relative to the full network."
    )
    if any("cost" in entry.request for entry in findings.frontier):
        sentences.append("A cost in a command is one of the tune split; on other samples it is a little different.")
    if any(entry.guarantee not in (None, findings.guarantee) for entry in findings.frontier):
        sentences.append("The confidence of a guarantee is that of a bound decided on before any results were seen.")
    return tuple(sentences)


def clean(text: str) -> str:
    r"""Replace characters that are not allowed in a page or figure: controls and surrogates.

    Example:
        >>> clean("a\x00b")
        'a�b'
    """
    return "".join("\N{REPLACEMENT CHARACTER}" if _forbidden(letter) else letter for letter in text)


def percent(share: float) -> str:
    """Format a share as percent, with a no-break space."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def span(interval: tuple[float, float]) -> str:
    """Format an interval of a share in percent: 92.5 to 93.7."""
    return f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"


def change(difference: float) -> str:
    """Format a difference of shares in points, with its sign: \N{MINUS SIGN}0.3."""
    points = round(100 * difference, 1)
    return f"{points:+.1f}".replace("-", "\N{MINUS SIGN}") if points else "0.0"


def change_span(interval: tuple[float, float]) -> str:
    """Format an interval of a difference."""
    return f"{change(interval[0])} to {change(interval[1])}"


def cost(relative: float) -> str:
    """Format a relative cost: 0.55."""
    return f"{relative:.2f}" if relative >= 0.095 else f"{relative:.3f}"


def cost_span(interval: tuple[float, float] | None) -> str:
    """Format an interval of a relative cost; a single sample has none."""
    return "n/a: one row" if interval is None else f"{cost(interval[0])} to {cost(interval[1])}"


def _forbidden(letter: str) -> bool:
    return letter not in "\t\n" and (category(letter) in ("Cc", "Cs") or letter in "\ufffe\uffff")


def _guarantee(findings: Findings) -> str:
    """Describe the guarantee and its assumption."""
    guarantee = findings.guarantee
    assert guarantee is not None
    bound = {"ltt": "by Learn then Test", "wsr": "by the bound of Waudby-Smith and Ramdas"}[guarantee.bound]
    return f"Guaranteed {bound}: {guarantee}. It assumes that {guarantee.assumes}."


def _describe_better(other: Alternative, chosen: float) -> str:
    by_itself = f"{other.name} by itself" if other.kind == "network" else f"Always leaving at {other.name}"
    cheaper = "cheaper" if other.relative_cost < chosen else "as cheap"
    better = "more accurate" if other.lead > 0 else "as accurate"
    return (
        f"{by_itself} is {cheaper} ({cost(other.relative_cost)}) and {better} here ({percent(other.accuracy)}: "
        f"{change(other.lead)} points, {change_span(other.lead_interval)})."
    )
