"""Bets are fair: what they pay on average, by integration and by sums."""

import numpy as np
import pytest
from scipy import integrate

from offramp.monitor.bets import Bets, DisagreementBets, RankBets
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


@each("promised", [0.001, 0.02, 0.5, 0.99])
def test_a_bet_on_disagreement_pays_one_at_the_promise_and_less_below(promised: float) -> None:
    same, differs = np.exp(DisagreementBets(promised).log_factors(np.array([0.0, 1.0]))).T
    assert np.allclose(promised * differs + (1 - promised) * same, 1)
    below = promised / 2
    assert (below * differs + (1 - below) * same < 1).all()
    above = (1 + promised) / 2
    assert (above * differs + (1 - above) * same > 1).all()


@each("bets", [RankBets(both=True), RankBets(both=False), DisagreementBets(0.1)])
@each("samples", [0, 1, 3])
def test_one_row_a_bet(bets: Bets, samples: int) -> None:
    assert bets.log_factors(np.full(samples, 0.5)).shape == (bets.count, samples)
