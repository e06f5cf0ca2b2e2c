"""Verdicts on a claim, from differences task by task and their noise."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "LEVEL",
    "Claim",
    "Gap",
    "Measure",
    "Verdict",
    "agree",
    "differences",
    "furthest",
    "improves",
    "is_alike",
    "is_at_most",
    "judge",
    "noise_of_share",
    "signed",
    "summarize",
]

Verdict = Literal["holds", "mixed", "not shown", "does not hold", "not tested"]
"""Outcome of a claim; "not shown" has no difference beyond noise either way."""

LEVEL = 0.002
"""Accuracies closer than two tenths of a point are level, however many samples there are."""


@dataclass(frozen=True)
class Gap:
    """A difference on one task."""

    figure: float
    """The difference; positive speaks for a claim that something is better."""
    noise: float
    """Largest difference that may be chance, or that the claim allows."""


@dataclass(frozen=True)
class Measure:
    """One figure behind a claim."""

    what: str
    """The figure in words."""
    by_task: dict[str, Gap]
    """The figure on every task that has it."""
    against: tuple[str, ...]
    """Tasks that speak against the claim beyond noise."""
    verdict: Verdict
    """The verdict of this figure alone."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper with its verdict."""

    name: str
    """Short name."""
    claim: str
    """Statement of the paper."""
    verdict: Verdict
    """The verdict of all figures together."""
    why: str
    """The reason, with the measured figures."""
    figures: tuple[Measure, ...]
    """The figures."""


def noise_of_share(share: float, samples: int, *more_samples: int) -> float:
    """Return half of the 95 % interval of a share, at least `LEVEL`.

    Args:
        share: The share.
        samples: Number of samples it was measured on.
        more_samples: Sizes of other sets that it depends on alike, such as the calibrate split of a coverage.

    Example:
        >>> round(noise_of_share(0.9, 900), 4)
        0.0196
    """
    variance = share * (1 - share) * sum(1 / count for count in (samples, *more_samples))
    return max(LEVEL, 1.96 * math.sqrt(variance))


def differences(
    tasks: Mapping[str, Any],
    figure: Callable[[Any], float | None],
    noise: Callable[[Any], float | None],
    *,
    scale: float = 100.0,
) -> dict[str, Gap]:
    """Return the figure of every task that has both the figure and its noise.

    Args:
        tasks: Results by task.
        figure: Computes the figure of a task; None where a contestant is missing.
        noise: Computes its noise; None where it is not known.
        scale: Factor of both: 100 for points.
    """
    gaps = {}
    for name, task in tasks.items():
        value = figure(task)
        task_noise = None if value is None else noise(task)
        if value is not None and task_noise is not None:
            gaps[name] = Gap(round(scale * value, 3), round(scale * task_noise, 3))
    return gaps


def improves(what: str, by_task: Mapping[str, Gap]) -> Measure:
    """Judge a claim that something is better.

    It holds if it is better on at least half of the tasks and worse on none. It is not shown if all tasks are level. It
    does not hold if it is worse on more tasks than better.

    Args:
        what: The figure in words.
        by_task: Differences, positive where it is better.
    """
    better = sum(gap.figure > gap.noise for gap in by_task.values())
    worse = tuple(name for name, gap in by_task.items() if gap.figure < -gap.noise)
    verdict: Verdict = "mixed"
    if not by_task:
        verdict = "not tested"
    elif not better and not worse:
        verdict = "not shown"
    elif len(worse) > better:
        verdict = "does not hold"
    elif not worse and 2 * better >= len(by_task):
        verdict = "holds"
    return Measure(what, dict(by_task), worse, verdict)


def is_alike(what: str, by_task: Mapping[str, Gap]) -> Measure:
    """Judge a claim that two things are the same: it holds if no task differs beyond noise, not if half of them do.

    Args:
        what: The figure in words.
        by_task: Differences.
    """
    return _judge_unless(what, by_task, tuple(name for name, gap in by_task.items() if abs(gap.figure) > gap.noise))


def is_at_most(what: str, by_task: Mapping[str, Gap]) -> Measure:
    """Judge a claim that something is no more than the noise, which stands for what is allowed.

    Args:
        what: The figure in words.
        by_task: The excess; less is as good.
    """
    return _judge_unless(what, by_task, tuple(name for name, gap in by_task.items() if gap.figure > gap.noise))


def _judge_unless(what: str, by_task: Mapping[str, Gap], against: tuple[str, ...]) -> Measure:
    verdict: Verdict = "mixed"
    if not by_task:
        verdict = "not tested"
    elif not against:
        verdict = "holds"
    elif 2 * len(against) >= len(by_task):
        verdict = "does not hold"
    return Measure(what, dict(by_task), against, verdict)


def agree(measures: Iterable[Measure]) -> Verdict:
    """Return the verdict of all measures together: mixed unless those that could be taken agree.

    Where some are against the claim and the others level, it does not hold.

    Args:
        measures: Parts of one claim.
    """
    verdicts = {measure.verdict for measure in measures} - {"not tested"}
    if not verdicts:
        return "not tested"
    if verdicts == {"not shown", "does not hold"}:
        return "does not hold"
    return verdicts.pop() if len(verdicts) == 1 else "mixed"


def judge(name: str, claim: str, measures: Sequence[Measure], *, cause: str = "", note: str = "") -> Claim:
    """Return a claim with the verdict of its measures and the reason.

    Args:
        name: Short name.
        claim: What the paper says.
        measures: The figures.
        cause: Sentence with the measured figures that explains a claim that does not hold; the figure that speaks most
            against it if left out.
        note: Sentence for any verdict: what differs from the paper's test.
    """
    verdict = agree(measures)
    explains = verdict in ("does not hold", "mixed", "not shown")
    parts = ((cause or furthest(measures)) if explains else "", summarize(measures), note)
    return Claim(name, claim, verdict, " ".join(part for part in parts if part), tuple(measures))


def furthest(measures: Sequence[Measure]) -> str:
    """Return a sentence with the figure that speaks most against the claim, or else with the largest one.

    Args:
        measures: Parts of one claim.
    """
    rows = [
        (task in measure.against, abs(gap.figure) / max(gap.noise, 1e-9), measure, task)
        for measure in measures
        for task, gap in measure.by_task.items()
    ]
    if not rows:
        return ""
    is_against, _, measure, task = max(rows, key=lambda row: row[:2])
    gap = measure.by_task[task]
    opening = "Most against it" if is_against else "The largest difference"
    return f"{opening}: {signed(gap.figure)} {measure.what} on {task}, where up to {gap.noise:.2f} counts as level."


def summarize(measures: Sequence[Measure]) -> str:
    """Return the mean of each measure and the tasks beyond noise, in words.

    Args:
        measures: Parts of one claim.
    """
    return " ".join(f"{measure.what[0].upper()}{measure.what[1:]}: {_counts(measure)}." for measure in measures)


def signed(figure: float) -> str:
    """Return a figure with its sign and two digits.

    Example:
        >>> signed(1.2)
        '+1.20'
    """
    return f"{figure:+.2f}".replace("-", "\N{MINUS SIGN}")


def _counts(measure: Measure) -> str:
    gaps = measure.by_task
    if not gaps:
        return "not measured"
    beyond = sum(abs(gap.figure) > gap.noise for gap in gaps.values())
    mean = signed(sum(gap.figure for gap in gaps.values()) / len(gaps))
    text = f"{mean} on average, beyond noise on {beyond} of {len(gaps)} tasks"
    return f"{text}, against the claim on {', '.join(measure.against)}" if measure.against else text
