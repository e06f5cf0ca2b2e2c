"""Findings in sentences, and the format of their numbers."""

from unicodedata import category

from offramp.report._alternatives import Alternative
from offramp.report._findings import Findings

__all__ = ["cautions", "change", "change_span", "clean", "cost", "cost_span", "notes", "percent", "span", "verdict"]

_NAMED = 3  # alternatives described in full


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


def cautions(findings: Findings) -> tuple[str, ...]:
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


def notes(findings: Findings) -> tuple[str, ...]:
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
