from collections import Counter

import numpy as np
import pytest

from offramp.errors import InputError
from offramp_bench.rivals.agreement import cascade_by_agreement
from tests.cases import each

COSTS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])


def by_hand(
    votes: list[int], tiers: tuple[tuple[int, ...], ...], threshold: float, *, pooled: bool
) -> tuple[int, float]:
    """Return the answer and cost of one sample, tier after tier."""
    spent = 0.0
    run: list[int] = []
    for tier in tiers:
        run = [*run, *tier] if pooled else list(tier)
        spent += sum(float(COSTS[member]) for member in tier)
        counts = Counter(votes[member] for member in run)
        most = max(counts.values())
        answer = next(votes[member] for member in reversed(run) if counts[votes[member]] == most)
        if most / len(run) >= threshold or tier == tiers[-1]:
            return answer, spent
    raise AssertionError


@each("classes", [2, 4])
@each("pooled", [False, True])
@each("tiers", [((0, 1), (2, 3), (4,)), ((0, 1, 2), (3,), (4,)), ((4, 2), (0,)), ((1,),)])
def test_by_hand(tiers: tuple[tuple[int, ...], ...], pooled: bool, classes: int) -> None:
    predictions = np.random.default_rng(0).integers(classes, size=(5, 60))
    thresholds = [0.0, 0.4, 0.5, 2 / 3, 0.9, 1.0, 1.5]
    sweep = cascade_by_agreement(predictions, COSTS, tiers, thresholds=thresholds, pooled=pooled)
    assert sweep.thresholds.tolist() == thresholds
    for row, threshold in enumerate(thresholds):
        for sample in range(60):
            votes = predictions[:, sample].tolist()
            result = sweep.answers[row, sample], sweep.costs[row, sample]
            assert result == by_hand(votes, tiers, threshold, pooled=pooled)


def test_the_sweep_goes_from_the_first_tier_to_the_last() -> None:
    predictions = np.random.default_rng(1).integers(3, size=(5, 100))
    sweep = cascade_by_agreement(predictions, COSTS, ((0, 1), (2, 3), (4,)))
    assert sweep.thresholds.tolist() == [0.5, 1.0, np.inf]
    assert (sweep.tiers[0] == 0).all()
    assert (sweep.tiers[-1] == 2).all()
    assert (sweep.costs[-1] == 31).all()
    assert (np.diff(sweep.costs, axis=0) >= 0).all()


def test_a_single_member_agrees_with_itself_unless_votes_are_pooled() -> None:
    predictions = np.array([[0], [1], [2], [3]])
    costs, tiers = np.array([1.0, 1.0, 1.0, 1.0]), ((0, 1), (2,), (3,))
    for pooled, tier in ((False, 1), (True, 2)):
        sweep = cascade_by_agreement(predictions, costs, tiers, thresholds=[1.0], pooled=pooled)
        assert sweep.tiers.tolist() == [[tier]]


def test_one_sample_one_member() -> None:
    sweep = cascade_by_agreement(np.array([[7]]), np.array([3.0]), ((0,),))
    assert (sweep.answers.tolist(), sweep.costs.tolist()) == ([[7]], [[3.0]])


@each("tiers", [(), ((),), ((0, 1), ()), ((0,), (0,)), ((0, 5),), ((-1,), (0,))])
def test_refuses_other_tiers(tiers: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(InputError):
        cascade_by_agreement(np.zeros((5, 2), dtype=np.int64), COSTS, tiers)


def test_refuses_costs_of_other_members() -> None:
    with pytest.raises(InputError):
        cascade_by_agreement(np.zeros((4, 2), dtype=np.int64), COSTS, ((0,),))
