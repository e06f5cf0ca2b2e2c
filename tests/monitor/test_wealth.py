"""A fortune against its formula, and how often it is ever large by chance."""

import numpy as np
import numpy.typing as npt
import pytest

from offramp.monitor.bets import DisagreementBets, RankBets
from offramp.monitor.wealth import START_EVERY, Wealth
from tests.cases import each


def by_formula(observed: npt.NDArray[np.float64], bets: RankBets) -> float:
    """The sum over starting times, with what is not staked at the end kept."""
    factors, total, staked = np.exp(bets.log_factors(observed)), 0.0, 0.0
    for k, start in enumerate(range(0, len(observed), START_EVERY)):
        weight = 1 / ((k + 1) * (k + 2))
        total += weight * factors[:, start:].prod(1).mean()
        staked += weight
    return float(total + 1 - staked)


@each("samples", [1, 99, 100, 101, 350])
def test_as_the_formula_says(samples: int) -> None:
    bets, observed = RankBets(both=True), np.random.default_rng(samples).random(samples)
    assert np.exp(Wealth(bets).update(observed)[-1]) == pytest.approx(by_formula(observed, bets))


def test_every_moment_is_told() -> None:
    bets, observed = RankBets(both=True), np.random.default_rng(0).random(250)
    fortunes = np.exp(Wealth(bets).update(observed))
    expected = [by_formula(observed[: stop + 1], bets) for stop in range(250)]
    # Stakes placed with the sample after a moment are still kept at it: worth the same.
    assert np.allclose(fortunes, expected)


def test_batches_do_not_matter() -> None:
    observed = np.random.default_rng(0).random(350)
    whole = Wealth(RankBets(both=True)).update(observed)
    wealth = Wealth(RankBets(both=True))
    parts = [wealth.update(part) for part in np.split(observed, [1, 99, 100, 100, 201])]
    assert np.allclose(np.concatenate(parts), whole, rtol=1e-12)


def test_rarely_ever_large_by_chance() -> None:
    """Ville: a fair game reaches 20 with a probability of at most 1/20, whenever one looks."""
    random = np.random.default_rng(0)
    ever = [Wealth(RankBets(both=True)).update(random.random(1000)).max() >= np.log(20) for _ in range(1000)]
    assert 0.005 < np.mean(ever) < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)


@each("rate", [0.05, 0.01])
def test_rarely_ever_large_while_a_promise_is_kept(rate: float) -> None:
    random = np.random.default_rng(0)
    ever = [
        Wealth(DisagreementBets(0.05)).update((random.random(1000) < rate).astype(float)).max() >= np.log(20)
        for _ in range(1000)
    ]
    assert np.mean(ever) < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)


@each("before", [0, 1000, 5000])
def test_a_change_is_found_soon_whenever_it_comes(before: int) -> None:
    random = np.random.default_rng(before)
    delays = []
    for _ in range(50):
        wealth = Wealth(RankBets(both=True))
        wealth.update(random.random(before))
        fortunes = wealth.update(random.random(1000) ** 1.5)  # ranks of a third more scores below any level
        delays.append(int(np.argmax(fortunes >= np.log(100))) if fortunes.max() >= np.log(100) else 1000)
    assert np.quantile(delays, 0.95) < 600
