"""Findings in sentences."""

from unicodedata import category

from offramp.report.alternatives import Alternative
from offramp.report.findings import Findings

__all__ = ["cautions", "change", "change_span", "clean", "cost", "cost_span", "notes", "percent", "span", "verdict"]

_NAMED = 3  # alternatives told in full; more would bury the first


def verdict(findings: Findings) -> str:
    """What the chosen point does, in one sentence with intervals."""
    chosen = findings.chosen
    return (
        f"At {cost(chosen.relative_cost)} of the cost it is right {percent(chosen.accuracy)} of the time "
        f"({span(chosen.accuracy_interval)}); the full network {percent(findings.full.accuracy)}: "
        f"change {change(chosen.change)} points ({change_span(chosen.change_interval)})."
    )


def cautions(findings: Findings) -> tuple[str, ...]:
    """What speaks against the chosen point: alternatives that beat it, networks first, and promises not kept."""
    better = sorted(findings.better, key=lambda one: (one.kind == "exit", -one.accuracy, one.relative_cost))
    told = [_beaten(one, findings.chosen.relative_cost) for one in better[:_NAMED]]
    short = [one for one in findings.coverage if one.coverage_interval[1] < 1 - one.miscoverage]
    if short:
        kept = [
            f"{percent(one.coverage)} ({span(one.coverage_interval)}) instead of {percent(1 - one.miscoverage)}"
            for one in short
        ]
        told.append(
            f"Prediction sets hold the true class less often than promised: {'; '.join(kept)}. These samples may not "
            "be like those they were calibrated on, or those were few."
        )
    return tuple(told)


def notes(findings: Findings) -> tuple[str, ...]:
    """What a reader should know before believing the verdict."""
    chosen = findings.chosen
    told = []
    lower, upper = chosen.change_interval
    if lower <= 0 <= upper and chosen.change != 0:
        told.append("The change is within what chance does to this many samples.")
    if findings.guarantee is not None:
        told.append(_promised(findings))
    told.append(
        f"Measured on {findings.samples:,} samples of {len(findings.classes):,} classes. That nothing was fitted on "
        "them is the word of whoever made this report."
    )
    empty = sum(one.samples == 0 for one in findings.by_class)
    if empty:
        told.append(f"{empty} of the classes {'has' if empty == 1 else 'have'} no samples: nothing is said of them.")
    told.append(
        "Intervals hold 95 % (of accuracies Wilson's, of changes Bonett and Price's, of costs by bootstrap) and speak "
        "of other samples of the same kind; not of another training run, nor of data that has drifted. Costs are "
        "counted, not timed."
    )
    return tuple(told)


def clean(text: str) -> str:
    r"""A text without the characters that no page or picture may hold: controls, halves of pairs.

    Example:
        >>> clean("a\x00b")
        'a�b'
    """
    return "".join("\N{REPLACEMENT CHARACTER}" if _forbidden(letter) else letter for letter in text)


def percent(share: float) -> str:
    """A share, with a decimal and no line break before the sign."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def span(interval: tuple[float, float]) -> str:
    """An interval of a share, in percent: 92.5 to 93.7."""
    return f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"


def change(difference: float) -> str:
    """A difference of shares, in points, with its sign: \N{MINUS SIGN}0.3."""
    points = round(100 * difference, 1)
    return f"{points:+.1f}".replace("-", "\N{MINUS SIGN}") if points else "0.0"


def change_span(interval: tuple[float, float]) -> str:
    """An interval of a difference."""
    return f"{change(interval[0])} to {change(interval[1])}"


def cost(relative: float) -> str:
    """A relative cost: 0.55."""
    return f"{relative:.2f}" if relative >= 0.095 else f"{relative:.3f}"


def cost_span(interval: tuple[float, float] | None) -> str:
    """Return an interval of a relative cost in words; a single sample gives none."""
    return "n/a: one row" if interval is None else f"{cost(interval[0])} to {cost(interval[1])}"


def _forbidden(letter: str) -> bool:
    return letter not in "\t\n" and (category(letter) in ("Cc", "Cs") or letter in "\ufffe\uffff")


def _promised(findings: Findings) -> str:
    """The promise, and what it rests on."""
    told = findings.guarantee
    assert told is not None
    how = {"ltt": "by Learn then Test", "wsr": "by the bound of Waudby-Smith and Ramdas"}[told.bound]
    return f"Promised {how}: {told}. It assumes that {told.assumes}."


def _beaten(one: Alternative, chosen: float) -> str:
    by_itself = f"{one.name} by itself" if one.kind == "network" else f"Always leaving at {one.name}"
    cheaper = "cheaper" if one.relative_cost < chosen else "as cheap"
    better = "more accurate" if one.lead > 0 else "as accurate"
    return (
        f"{by_itself} is {cheaper} ({cost(one.relative_cost)}) and {better} here ({percent(one.accuracy)}: "
        f"{change(one.lead)} points, {change_span(one.lead_interval)})."
    )
