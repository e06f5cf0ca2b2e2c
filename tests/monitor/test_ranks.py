"""Ranks against their definition, and their distribution against what makes the tests exact."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from offramp.errors import InputError
from offramp.monitor import Ranks


def by_definition(
    reference: npt.NDArray[np.float64], scores: npt.NDArray[np.float64], seed: int
) -> npt.NDArray[np.float64]:
    known, draws = list(reference), np.random.default_rng(seed).random(len(scores))
    ranks = []
    for score, draw in zip(scores, draws, strict=True):
        known.append(score)
        greater, equal = sum(one > score for one in known), sum(one == score for one in known)
        ranks.append((greater + draw * equal) / len(known))
    return np.array(ranks)


@pytest.mark.parametrize("values", [2, 5, 10**6])
@pytest.mark.parametrize("samples", [1, 127, 128, 129, 700])
def test_as_defined(values: int, samples: int) -> None:
    random = np.random.default_rng(values + samples)
    reference, scores = (random.integers(0, values, size).astype(np.float64) for size in (40, samples))
    assert np.allclose(
        Ranks(reference, random=np.random.default_rng(7)).update(scores),
        by_definition(reference, scores, 7),
        atol=1e-12,
    )


def test_batches_do_not_matter() -> None:
    random = np.random.default_rng(0)
    reference, scores = random.integers(0, 9, 50).astype(float), random.integers(0, 9, 600).astype(float)
    whole = Ranks(reference, random=np.random.default_rng(0)).update(scores)
    ranks = Ranks(reference, random=np.random.default_rng(0))
    parts = [ranks.update(part) for part in np.split(scores, [1, 2, 300, 300, 599])]
    assert np.array_equal(np.concatenate(parts), whole)


def test_uniform_and_independent_though_the_reference_is_small() -> None:
    """Over many references of five samples of three values; ranks among the reference alone would be neither."""
    random, ties = np.random.default_rng(1), np.random.default_rng(2)
    ranks = np.array(
        [
            Ranks(random.integers(0, 3, 5).astype(float), random=ties).update(random.integers(0, 3, 20).astype(float))
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


def test_they_stay_inside() -> None:
    ranks = Ranks(np.zeros(1), random=np.random.default_rng(0)).update(np.array([1e9, -1e9] * 500))
    assert 0 < ranks.min()
    assert ranks.max() < 1


def test_nothing_to_compare_with_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected reference samples .* got none; 1,000 or more are best"):
        Ranks(np.empty(0), random=np.random.default_rng(0))


def test_no_scores_have_no_ranks() -> None:
    assert Ranks(np.zeros(3), random=np.random.default_rng(0)).update(np.empty(0)).shape == (0,)
