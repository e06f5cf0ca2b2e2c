"""Guarantees about a set of inputs, or about inputs like them: the tests, and the size of the sample they need."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from offramp.uncertainty._bounds import binomial_p_values
from offramp.uncertainty._finite import finite_p_value, most_passing_errors

__all__ = [
    "Candidate",
    "Passed",
    "Plan",
    "Scope",
    "SetGuarantee",
    "expect_errors",
    "last_passing_point",
    "plan_sample",
]

Scope = Literal["inputs", "future"]
"""Subject of a guarantee: these inputs, or inputs to come that are drawn as these were."""

POWER = 0.9
"""Probability with which a planned test should pass."""

WORTH = 0.1
"""Smallest share of the calls that a plan must spare: within the bound, a few answers could always be guessed."""

SAMPLES = tuple(round(100 * 1.25**step) for step in range(24))
"""Sizes of samples that are considered: 100 to 17,000."""


@dataclass(frozen=True)
class SetGuarantee:
    """A bound on the disagreement over the inputs of one job, with a confidence.

    The confidence refers to the draw of the sample: nothing is assumed about the inputs or the models.

    Example:
        >>> print(SetGuarantee(0.05, 0.95, inputs=6414, samples=400, measured=0.03))
        with 95 % confidence at most 5 % of these 6,414 answers differ from the last member's (3 % of a random sample of
        400 did)
    """

    at_most: float
    """The bound on the share of answers that differ."""
    confidence: float
    """The confidence."""
    inputs: int
    """Number of inputs."""
    samples: int
    """Size of the random sample."""
    measured: float
    """Share of the sample on which the cheap members' answers differ."""

    def without(self, failed: int) -> "SetGuarantee":
        """Return the guarantee about the other inputs, if some got no answer: as many errors among fewer inputs.

        Args:
            failed: Number of inputs without an answer.
        """
        left = self.inputs - failed
        return replace(self, at_most=min(1.0, self.at_most * self.inputs / max(1, left)), inputs=left)

    def __str__(self) -> str:
        """Return one line to show."""
        return (
            f"with {100 * self.confidence:.4g} % confidence at most {100 * self.at_most:.3g} % of these "
            f"{self.inputs:,} answers differ from the last member's ({100 * self.measured:.3g} % of a random sample of "
            f"{self.samples:,} did)"
        )


@dataclass(frozen=True)
class Plan:
    """A sample to draw, and what is expected of it."""

    size: int
    """Size of the sample."""
    accepted: int
    """Inputs that the cheap members are expected to answer, those in the sample included."""
    asked: int
    """Inputs that the last member is expected to be asked for from here on, the sample included."""


@dataclass(frozen=True)
class Candidate:
    """An operating point, as far as a test needs it."""

    accepted: int
    """Inputs not asked yet that the cheap members would answer."""
    sampled: int = 0
    """Accepted inputs in the sample."""
    errors: int = 0
    """Accepted inputs in the sample where the answers differ."""
    expected_errors: float = 0.0
    """Errors expected among the accepted inputs, by the confidences."""


@dataclass(frozen=True)
class Passed:
    """A candidate that passed a test."""

    place: int
    """Its place among the candidates."""
    candidate: Candidate
    """The candidate, as it was tested."""
    samples: int
    """Size of the sample."""


def expect_errors(candidate: Candidate, tested: Candidate) -> Candidate:
    """Return a candidate whose expected errors are at the rate that an earlier sample had, counted with one more.

    Args:
        candidate: The candidate, over the inputs that are left.
        tested: The same operating point in the earlier sample.
    """
    return replace(candidate, expected_errors=candidate.accepted * (tested.errors + 1) / (tested.sampled + 1))


def last_passing_point(
    candidates: Sequence[Candidate], *, scope: Scope, allowed: float, samples: int, confidence: float
) -> int | None:
    """Test candidates from the safest to the cheapest, up to the first that fails; return the last that passed.

    Args:
        candidates: Candidates, the one that accepts fewest inputs first.
        scope: "inputs": at most `allowed` errors are left in the set. "future": the error rate is at most `allowed`.
        allowed: The number of errors, or the rate.
        samples: Size of the whole sample.
        confidence: Confidence of the guarantee: one wrong candidate passes with probability 1 - confidence at most.
    """
    passed = None
    for place, candidate in enumerate(candidates):
        if scope == "inputs":
            p_value = finite_p_value(
                candidate.errors, sampled=candidate.sampled, total=candidate.accepted, allowed=int(allowed)
            )
        else:
            p_value = float(binomial_p_values(torch.tensor(candidate.errors), samples=samples, max_loss=allowed))
        if p_value > 1 - confidence:
            break
        passed = place
    return passed


def plan_sample(
    candidates: Sequence[Candidate],
    *,
    scope: Scope,
    allowed: float,
    unanswered: int,
    available: int,
    confidence: float,
) -> Plan | None:
    """Choose the size of the sample with which the fewest inputs are expected to go to the last member.

    Args:
        candidates: Candidates with their expected errors, over the unanswered inputs.
        scope: As for `last_passing_point`.
        allowed: As for `last_passing_point`.
        unanswered: Inputs not asked yet.
        available: Inputs that the sample can be drawn from.
        confidence: Confidence of the test.

    Returns:
        The plan; None where no size is expected to give a guarantee that spares a tenth of the inputs.
    """
    best: Plan | None = None
    for size in (*(size for size in SAMPLES if size < available), available):
        most_future = _most_future_errors(size, allowed, confidence) if scope == "future" else 0
        for candidate in candidates:
            rate = candidate.expected_errors / max(1, candidate.accepted)
            share = candidate.accepted / max(1, unanswered)
            sampled = round(size * share)
            asked = sampled + unanswered - candidate.accepted
            if asked > (1 - WORTH) * unanswered or (best is not None and asked >= best.asked):
                continue
            if scope == "inputs":
                most = most_passing_errors(
                    sampled=sampled, total=candidate.accepted, allowed=int(allowed), confidence=confidence
                )
                chance = _binomial_cdf(most, sampled, rate)
            else:
                chance = _binomial_cdf(most_future, size, rate * share)
            if chance >= POWER:
                best = Plan(size, candidate.accepted, asked)
    return best


def _most_future_errors(samples: int, allowed: float, confidence: float) -> int:
    """Return the largest number of errors with which the test about future inputs passes; -1 if there is none."""
    p_values = binomial_p_values(torch.arange(samples + 1), samples=samples, max_loss=allowed)
    return int((p_values <= 1 - confidence).sum()) - 1


def _binomial_cdf(most: int, samples: int, rate: float) -> float:
    """Return the probability of at most `most` errors among some samples, at a rate."""
    if most < 0:
        return 0.0
    if most >= samples or rate <= 0:
        return 1.0
    if rate >= 1:
        return 0.0
    return float(binomial_p_values(torch.tensor(most), samples=samples, max_loss=rate))
