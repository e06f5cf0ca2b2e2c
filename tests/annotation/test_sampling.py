"""Guarantees of a sample: how often they are broken, and whether the planned size is enough."""

import numpy as np
import pytest

from offramp.annotation._sampling import Candidate, Scope, last_passing_point, plan_sample
from tests.cases import each

ROWS, ALLOWED = 2000, 0.05


def population(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidences, and errors that are as frequent as they say on average."""
    generator = np.random.default_rng(seed)
    confidence = generator.beta(6, 1, ROWS)
    return confidence, generator.random(ROWS) > confidence


def draw(confidence: np.ndarray, errors: np.ndarray, size: int, seed: int) -> tuple[list[Candidate], list[np.ndarray]]:
    """Candidates from the fewest accepted to all, with the errors of one random sample."""
    sample = np.random.default_rng(seed).permutation(ROWS)[:size]
    inside = np.zeros(ROWS, bool)
    inside[sample] = True
    accepted = [confidence >= level for level in np.quantile(confidence, np.linspace(0.95, 0, 20))]
    candidates = [
        Candidate(int(taken.sum()), int((taken & inside).sum()), int((taken & inside & errors).sum()))
        for taken in accepted
    ]
    return candidates, [taken & ~inside for taken in accepted]


def test_a_guarantee_about_the_set_is_broken_in_at_most_the_risk() -> None:
    broken = given = 0
    for seed in range(1000):
        confidence, errors = population(seed % 20)
        candidates, left = draw(confidence, errors, 300, seed)
        place = last_passing_point(candidates, scope="inputs", allowed=ALLOWED * ROWS, samples=300, confidence=0.9)
        if place is not None:
            given += 1
            broken += (errors & left[place]).sum() > ALLOWED * ROWS
    assert given > 900
    assert broken / 1000 <= 0.1 + 2 * (0.09 / 1000) ** 0.5


def test_a_guarantee_about_the_future_is_broken_in_at_most_the_risk() -> None:
    broken = given = 0
    generator = np.random.default_rng(0)
    levels = np.linspace(0.99, 0.3, 20)
    large = generator.beta(6, 1, 1_000_000)
    rates = [(np.where(large >= level, 1 - large, 0)).mean() for level in levels]
    for _ in range(1000):
        confidence = generator.beta(6, 1, 300)
        errors = generator.random(300) > confidence
        taken = [confidence >= level for level in levels]
        candidates = [Candidate(int(t.sum()), int(t.sum()), int((t & errors).sum())) for t in taken]
        place = last_passing_point(candidates, scope="future", allowed=ALLOWED, samples=300, confidence=0.9)
        if place is not None:
            given += 1
            broken += rates[place] > ALLOWED
    assert given > 900
    assert broken / 1000 <= 0.1 + 2 * (0.09 / 1000) ** 0.5


@each("scope", ["inputs", "future"])
def test_a_sample_of_the_planned_size_gives_a_guarantee(scope: Scope) -> None:
    confidence, _ = population(0)
    accepted = [confidence >= level for level in np.quantile(confidence, np.linspace(0.95, 0, 20))]
    candidates = [
        Candidate(int(taken.sum()), expected_errors=float((1 - confidence)[taken].sum())) for taken in accepted
    ]
    allowed = ALLOWED * ROWS if scope == "inputs" else ALLOWED
    plan = plan_sample(candidates, scope=scope, allowed=allowed, unanswered=ROWS, available=ROWS, confidence=0.9)
    assert plan is not None
    size, asked = plan.size, plan.asked
    assert size < asked < ROWS
    spared = []
    for seed in range(50):
        drawn, left = draw(*population(seed), size, seed)
        place = last_passing_point(drawn, scope=scope, allowed=allowed, samples=size, confidence=0.9)
        spared.append(0 if place is None else int(left[place].sum()))
    # As many are asked as was planned, within a tenth of all: the plan is made for one candidate of twenty.
    assert ROWS - np.mean(spared) == pytest.approx(asked, abs=0.1 * ROWS)


@each("scope", ["inputs", "future"])
def test_no_size_is_planned_where_everything_is_wrong(scope: Scope) -> None:
    candidates = [Candidate(count, expected_errors=0.9 * count) for count in (200, 1000, 2000)]
    allowed = 20 if scope == "inputs" else 0.01
    plan = plan_sample(candidates, scope=scope, allowed=allowed, unanswered=2000, available=2000, confidence=0.95)
    assert plan is None


def test_without_errors_everything_is_accepted() -> None:
    candidates = [Candidate(count, sampled=count // 10) for count in (200, 1000, 2000)]
    assert last_passing_point(candidates, scope="inputs", allowed=100, samples=200, confidence=0.95) == 2
    assert last_passing_point([], scope="inputs", allowed=100, samples=200, confidence=0.95) is None
