"""Bets are fair; wealth equals its formula and is rarely large by chance."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import integrate

from offramp.monitor._betting import START_EVERY, Bets, DisagreementBets, RankBets, Wealth
from tests.cases import each


@each("both", [False, True])
def test_a_bet_on_uniform_ranks_pays_one(both: bool) -> None:
    bets = RankBets(both=both)
    for index in range(bets.count):
        pays, _ = integrate.quad(
            lambda rank, index=index: np.exp(bets.log_factors(np.array([rank]))[index, 0]), 0, 1, limit=500
        )
        assert pays == pytest.approx(1, abs=1e-6)


def test_both_sides_mirror_each_other() -> None:
    bets, ranks = RankBets(both=True), np.array([0.01, 0.3, 0.9])
    half = bets.count // 2
    assert np.allclose(bets.log_factors(ranks)[:half], bets.log_factors(1 - ranks)[half:])
    assert np.allclose(bets.log_factors(ranks)[:half], RankBets(both=False).log_factors(ranks))
    assert (RankBets(both=False).log_factors(np.array([1e-3])) > 0).all()
    assert (RankBets(both=False).log_factors(np.array([0.999])) < 0).all()


@each("max_disagreement", [0.001, 0.02, 0.5, 0.99])
def test_a_bet_on_disagreement_pays_one_at_the_limit_and_less_below(max_disagreement: float) -> None:
    same, differs = np.exp(DisagreementBets(max_disagreement).log_factors(np.array([0.0, 1.0]))).T
    assert np.allclose(max_disagreement * differs + (1 - max_disagreement) * same, 1)
    below = max_disagreement / 2
    assert (below * differs + (1 - below) * same < 1).all()
    above = (1 + max_disagreement) / 2
    assert (above * differs + (1 - above) * same > 1).all()


@each("bets", [RankBets(both=True), RankBets(both=False), DisagreementBets(0.1)])
@each("samples", [0, 1, 3])
def test_one_row_a_bet(bets: Bets, samples: int) -> None:
    assert bets.log_factors(np.full(samples, 0.5)).shape == (bets.count, samples)


def by_formula(observations: npt.NDArray[np.float64], bets: RankBets) -> float:
    """The sum over starting times, with what is not staked at the end kept."""
    factors, total, staked = np.exp(bets.log_factors(observations)), 0.0, 0.0
    for k, start in enumerate(range(0, len(observations), START_EVERY)):
        weight = 1 / ((k + 1) * (k + 2))
        total += weight * factors[:, start:].prod(1).mean()
        staked += weight
    return float(total + 1 - staked)


@each("samples", [1, 99, 100, 101, 350])
def test_as_the_formula_says(samples: int) -> None:
    bets, observations = RankBets(both=True), np.random.default_rng(samples).random(samples)
    assert np.exp(Wealth(bets).update(observations)[-1]) == pytest.approx(by_formula(observations, bets))


def test_every_moment_is_told() -> None:
    bets, observations = RankBets(both=True), np.random.default_rng(0).random(250)
    log_wealth = np.exp(Wealth(bets).update(observations))
    expected = [by_formula(observations[: stop + 1], bets) for stop in range(250)]
    # Stakes placed with the sample after a moment are still kept at it: worth the same.
    assert np.allclose(log_wealth, expected)


def test_batches_do_not_matter() -> None:
    observations = np.random.default_rng(0).random(350)
    whole = Wealth(RankBets(both=True)).update(observations)
    wealth = Wealth(RankBets(both=True))
    parts = [wealth.update(part) for part in np.split(observations, [1, 99, 100, 100, 201])]
    assert np.allclose(np.concatenate(parts), whole, rtol=1e-12)


def test_rarely_ever_large_by_chance() -> None:
    """Ville: a fair game reaches 20 with a probability of at most 1/20, whenever one looks."""
    random = np.random.default_rng(0)
    ever = [Wealth(RankBets(both=True)).update(random.random(1000)).max() >= np.log(20) for _ in range(1000)]
    assert 0.005 < np.mean(ever) < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)


@each("rate", [0.05, 0.01])
def test_rarely_ever_large_below_the_limit(rate: float) -> None:
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
        log_wealth = wealth.update(random.random(1000) ** 1.5)  # ranks of a third more scores below any level
        delays.append(int(np.argmax(log_wealth >= np.log(100))) if log_wealth.max() >= np.log(100) else 1000)
    assert np.quantile(delays, 0.95) < 600
