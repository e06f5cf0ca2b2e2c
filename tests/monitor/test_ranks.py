"""Ranks against their definition, and their distribution against what makes the tests exact."""

import pickle

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from offramp.errors import InputError
from offramp.monitor._ranks import Ranks
from tests.cases import each


def by_definition(
    reference: npt.NDArray[np.float64], scores: npt.NDArray[np.float64], seed: int, most_edges: int
) -> npt.NDArray[np.float64]:
    """Ranks by the places between all scores so far, kept as pairs of a score and a draw."""
    random = np.random.default_rng(seed)
    known = sorted(zip(reference, random.random(len(reference)), strict=True))
    last = len(known) - 1
    number = min(len(known), most_edges)
    edges = [known[i * last // max(1, number - 1)] for i in range(number)]
    ranks = []
    for score, (between_equals, within_bin) in zip(scores, random.random((len(scores), 2)), strict=True):
        pair = (score, between_equals)
        upper = [edge for edge in edges if edge > pair]
        lower = [edge for edge in edges if edge < pair]
        above = 1 + sum(other > upper[0] for other in known) if upper else 0
        below = 1 + sum(other < lower[-1] for other in known) if lower else 0
        ranks.append((above + within_bin * (len(known) + 1 - above - below)) / (len(known) + 1))
        known.append(pair)
    return np.array(ranks)


@each("most_edges", [2, 7, 1024])
@each("values", [2, 5, 10**6])
@each("samples", [1, 127, 128, 129, 700])
def test_as_defined(values: int, samples: int, most_edges: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.monitor._ranks._MOST_EDGES", most_edges)
    random = np.random.default_rng(values + samples)
    reference, scores = (random.integers(0, values, size).astype(np.float64) for size in (40, samples))
    assert np.allclose(
        Ranks(reference, random=np.random.default_rng(7)).update(scores),
        by_definition(reference, scores, 7, most_edges),
        atol=1e-12,
    )


def test_batches_do_not_matter() -> None:
    random = np.random.default_rng(0)
    reference, scores = random.integers(0, 9, 50).astype(float), random.integers(0, 9, 600).astype(float)
    whole = Ranks(reference, random=np.random.default_rng(0)).update(scores)
    ranks = Ranks(reference, random=np.random.default_rng(0))
    parts = [ranks.update(part) for part in np.split(scores, [1, 2, 300, 300, 599])]
    assert np.array_equal(np.concatenate(parts), whole)


@each(("reference", "most_edges"), [(5, 1024), (40, 6)])
@each("values", [3, 10**6])
def test_uniform_and_independent_though_reference_or_bins_are_few(
    reference: int, most_edges: int, values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over many references; ranks among the reference alone, or among bins of its quantiles, would be neither."""
    monkeypatch.setattr("offramp.monitor._ranks._MOST_EDGES", most_edges)
    random, ties = np.random.default_rng(1), np.random.default_rng(2)
    ranks = np.array(
        [
            Ranks(random.integers(0, values, reference).astype(float), random=ties).update(
                random.integers(0, values, 20).astype(float)
            )
            for _ in range(4000)
        ]
    )
    assert stats.kstest(ranks[:, 0], "uniform").pvalue > 0.001
    assert stats.kstest(ranks[:, 19], "uniform").pvalue > 0.001
    assert stats.kstest(ranks.ravel(), "uniform").pvalue > 0.001
    correlations = np.corrcoef(ranks.T)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(4000)
    # A mean of independent uniforms varies by 1/12 over their number, not by more.
    assert ranks.mean(1).var() == pytest.approx(1 / 12 / 20, rel=0.1)


def test_state_does_not_grow_with_the_stream() -> None:
    random = np.random.default_rng(0)
    ranks = Ranks(random.random(5000), random=random)
    before = len(pickle.dumps(ranks))
    ranks.update(random.random(20_000))
    assert len(pickle.dumps(ranks)) == before < 50_000


def test_they_stay_inside() -> None:
    ranks = Ranks(np.zeros(1), random=np.random.default_rng(0)).update(np.array([1e9, -1e9] * 500))
    assert 0 < ranks.min()
    assert ranks.max() < 1


def test_nothing_to_compare_with_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected reference samples .* got none; 1,000 or more are best"):
        Ranks(np.empty(0), random=np.random.default_rng(0))


def test_no_scores_have_no_ranks() -> None:
    assert Ranks(np.zeros(3), random=np.random.default_rng(0)).update(np.empty(0)).shape == (0,)
