import itertools

import pytest
from scipy import stats

from offramp.errors import InputError
from offramp.uncertainty import paired_interval, wilson_interval
from tests.cases import each


@each(("hits", "count"), [(0, 1), (1, 1), (3, 10), (10, 10), (931, 1000)])
def test_wilson_agrees_with_scipy(hits: int, count: int) -> None:
    expected = stats.binomtest(hits, count).proportion_ci(method="wilson")
    assert wilson_interval(hits, count) == pytest.approx(tuple(expected), abs=1e-6)


@each(("up", "down"), [(0.1, 0.05), (0.02, 0.02), (0.3, 0.0), (0.0, 0.0), (0.0, 0.1), (0.9, 0.0)])
def test_paired_interval_covers_about_as_often_as_it_says(up: float, down: float) -> None:
    count, covered = 30, 0.0
    for gained, lost in itertools.product(range(count + 1), repeat=2):
        if gained + lost <= count:
            lower, upper = paired_interval(gained, lost, count)
            chance = stats.multinomial.pmf([gained, lost, count - gained - lost], count, [up, down, 1 - up - down])
            covered += chance * (lower <= up - down <= upper)
    assert 0.93 < covered <= 1


def test_paired_interval_holds_its_estimate_and_is_never_sure() -> None:
    for count in (1, 2, 5, 40):
        for gained, lost in itertools.product(range(count + 1), repeat=2):
            if gained + lost <= count:
                lower, upper = paired_interval(gained, lost, count)
                assert -1 <= lower <= (gained - lost) / count <= upper <= 1
                assert upper - lower > 1 / count
    assert paired_interval(4000, 4000, 100_000) == pytest.approx((-0.00175, 0.00175), abs=2e-5)  # Wald's


def test_no_samples_are_refused() -> None:
    with pytest.raises(InputError, match="at least one sample"):
        wilson_interval(0, 0)
    with pytest.raises(InputError, match="at least one sample"):
        paired_interval(0, 0, 0)
    with pytest.raises(InputError, match="5 and 6 of 10"):
        paired_interval(5, 6, 10)
