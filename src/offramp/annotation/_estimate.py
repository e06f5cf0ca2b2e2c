"""The bill of an annotation job, estimated from its first answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from offramp.annotation._annotate import open_job
from offramp.annotation._job import Job
from offramp.annotation._sampling import Scope
from offramp.backbone._backbone import Backbone
from offramp.model._choose import CONFIDENCE

__all__ = ["BillEstimate", "estimate_bill"]

FITS = 3
"""Fits on two thirds of the first answers each, tuned on the other third."""

SPEED, SPEED_GAIN = 0.85, 0.22
"""Of the power k with which the share that is not spared falls, by the k between half and all of the first answers:
fitted to two jobs on Banking77 (1.17 in the end, 1.4 in the beginning) and two on CLINC150 (1.35 and 2.2)."""

SPREAD = 1.5
"""Factor between the estimate of the inputs asked after learning and each end of its 90 % interval."""


@dataclass(frozen=True)
class BillEstimate:
    """The bill that a job will probably have.

    Example:
        >>> print(BillEstimate(5000, 300, 2000, (1600, 2500), full=10.0, currency="USD"))
        about 2,000 of 5,000 inputs will be asked (90 % interval 1,600 to 2,500, from 300 answers): 4 USD (3.2 to 5)
        instead of 10
    """

    inputs: int
    """Number of different inputs."""
    answers: int
    """Answers that the estimate is from; the job will not ask for them again."""
    asked: int
    """Inputs that the last member will be asked for, those for learning and for the guarantee included."""
    interval: tuple[int, int]
    """90 % interval of that number."""
    full: float
    """Price of asking the last member for every input."""
    currency: str
    """Name of the currency, or "calls"."""

    def price(self, asked: int) -> float:
        """Return the price of asking the last member for a number of inputs."""
        return self.full * asked / self.inputs

    def __str__(self) -> str:
        """Return one line to show."""
        low, high = self.interval
        return (
            f"about {self.asked:,} of {self.inputs:,} inputs will be asked (90 % interval {low:,} to {high:,}, from "
            f"{self.answers:,} answers): {self.price(self.asked):,.4g} {self.currency} ({self.price(low):,.4g} to "
            f"{self.price(high):,.4g}) instead of {self.full:,.4g}"
        )


def estimate_bill(
    inputs: Any,
    cascade: Backbone | Sequence[Any],
    *,
    label_budget: int = 1000,
    max_drop: float = 0.02,
    confidence: float = CONFIDENCE,
    scope: Scope = "inputs",
    classes: Sequence[str] = (),
    max_spend: float | None = None,
    store: str | Path | None = None,
    seed: int = 0,
    progress: bool = True,
) -> BillEstimate:
    """Estimate the bill of `annotate` from its first answers, three tenths of the label budget.

    With the same `store` and `seed` the job does not ask for them again. The share of inputs that
    the cheap members cannot spare after n answers is taken to be exp(-a n^k), with a and k from fits on them.

    Args:
        inputs: As for `annotate`; so are the other arguments.
        cascade: The cascade, or its members.
        label_budget: Answers that the job may buy for learning.
        max_drop: Largest share of answers that may differ.
        confidence: Confidence of the guarantee.
        scope: What the guarantee is about.
        classes: Class names, if no member knows them.
        max_spend: Spending cap for the last member.
        store: Folder for answers and features.
        seed: Seed of the random samples.
        progress: Show progress bars.
    """
    with open_job(
        inputs,
        cascade,
        max_drop=max_drop,
        confidence=confidence,
        scope=scope,
        classes=classes,
        max_spend=max_spend,
        anyway=True,
        store=store,
        seed=seed,
        progress=progress,
    ) as job:
        return estimate_from_start(job, label_budget)


def estimate_from_start(job: Job, label_budget: int) -> BillEstimate:
    """Spend the first part of the label budget of a job and estimate its bill.

    Args:
        job: The job, before it asked for anything.
        label_budget: Answers that it may buy for learning.
    """
    tune, fit, _ = job.start(label_budget)
    answered = np.random.default_rng(job.seed).permutation(np.concatenate([tune, fit]))
    if job.trains:
        learning, more = label_budget, (label_budget - len(tune)) / len(fit)
        fits = [(np.setdiff1d(answered, part), np.sort(part)) for part in np.array_split(answered, FITS)]
        candidates = [job.candidates(job.fit(rows, tuned)) for rows, tuned in fits]
        by_half = [job.candidates(job.fit(np.sort(rows[::2]), tuned)) for rows, tuned in fits]
        # The share that is not spared after n answers is taken to be exp(-a n^k).
        spared, spared_by_half = (fmean(map(job.count_spared, some)) for some in (candidates, by_half))
        decay, decay_by_half = (-np.log(1 - min(0.999, max(1e-3, some))) for some in (spared, spared_by_half))
        speed = SPEED + SPEED_GAIN * np.clip(np.log2(decay / decay_by_half), 1.0, 2.5)
        grown = 1 - np.exp(-decay * more**speed)
        # Planned samples turn out too large, for they have a margin; those of exact confidences need none.
        planned = fmean(job.foresee(some, growth=grown / max(1e-3, spared)) for some in candidates)
        share = (planned + 1 - grown) / 2
    else:
        learning = job.learning
        share = job.foresee(job.candidates(job.fit(None, np.sort(answered))), growth=1.0)
    rest = len(job.contents) - learning
    expected, low, high = (learning + round(min(1.0, share * factor) * rest) for factor in (1.0, 1 / SPREAD, SPREAD))
    last = job.rows.last.caller
    return BillEstimate(len(job.contents), job.learning, expected, (low, high), job.full_price(), last.price.currency)
