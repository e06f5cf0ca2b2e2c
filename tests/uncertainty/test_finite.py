"""Tests about finite sets, against exact fractions and against draws."""

import math
from fractions import Fraction

import numpy as np
import pytest

from offramp.uncertainty._finite import finite_p_value, most_passing_errors
from tests.cases import each


def exact(errors: int, sampled: int, total: int, allowed: int) -> float:
    bad = allowed + errors + 1
    ways = sum(math.comb(bad, k) * math.comb(total - bad, sampled - k) for k in range(errors + 1) if k <= sampled)
    return float(Fraction(ways, math.comb(total, sampled)))


@each(
    ("errors", "sampled", "total", "allowed"),
    [(0, 50, 100, 4), (3, 50, 100, 4), (0, 1, 3, 0), (2, 30, 200, 10), (7, 400, 5000, 250), (0, 10, 20, 5)],
)
def test_p_values_are_exact(errors: int, sampled: int, total: int, allowed: int) -> None:
    found = finite_p_value(errors, sampled=sampled, total=total, allowed=allowed)
    assert found == pytest.approx(exact(errors, sampled, total, allowed), rel=1e-9)


@each(
    ("sampled", "total", "allowed"),
    [(100, 100, 0), (60, 100, 40), (0, 5, 5), (0, 0, 0), (95, 100, 7)],
)
def test_nothing_is_to_be_shown_where_no_more_errors_than_allowed_can_be_left(
    sampled: int, total: int, allowed: int
) -> None:
    assert finite_p_value(0, sampled=sampled, total=total, allowed=allowed) == 0.0


@each(("sampled", "total", "allowed"), [(300, 5000, 300), (50, 100, 4), (10, 1000, 5), (2000, 100_000, 2000)])
def test_the_most_errors_that_pass_are_found(sampled: int, total: int, allowed: int) -> None:
    most = most_passing_errors(sampled=sampled, total=total, allowed=allowed, confidence=0.95)
    options = {"sampled": sampled, "total": total, "allowed": allowed}
    assert most == -1 or finite_p_value(most, **options) <= 0.05
    assert finite_p_value(most + 1, **options) > 0.05


@each(("total", "sampled", "allowed"), [(400, 100, 20), (60, 20, 5), (1000, 300, 10)])
def test_too_many_errors_pass_in_at_most_the_risk(total: int, sampled: int, allowed: int) -> None:
    generator = np.random.default_rng(0)
    most = most_passing_errors(sampled=sampled, total=total, allowed=allowed, confidence=0.9)
    worst = 0.0
    for bad in range(allowed + 1, allowed + most + 3):
        drawn = generator.hypergeometric(bad, total - bad, sampled, size=20_000)
        broken = (bad - drawn > allowed) & (drawn <= most)
        worst = max(worst, float(broken.mean()))
    assert worst <= 0.1 + 3 * (0.09 / 20_000) ** 0.5
