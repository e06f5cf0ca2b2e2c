"""The paper's conformal variants against plain loops, and their claims on every bag of samples."""

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from offramp.uncertainty import prediction_set
from offramp.uncertainty._conformal import conformal_scores
from offramp_bench.conformal_variants import PaperVariant, variant_class_thresholds, variant_thresholds
from tests.cases import each
from tests.uncertainty.conformal_examples import (
    Bag,
    bags,
    enough,
    exact,
    exact_rank,
    exits_and_labels,
    generator,
    quick,
)


def by_hand(variant: str, scores: Tensor, exits: Tensor, percent: int, minimum: int) -> list[float]:
    def smallest(values: list[float]) -> float:
        rank = exact_rank(len(values), percent)
        return sorted(values)[rank - 1] if rank <= len(values) else 1.0

    table, left_at = scores.tolist(), exits.tolist()
    general = smallest([row[exit] for row, exit in zip(table, left_at, strict=True)])
    thresholds = []
    for exit in range(scores.shape[1]):
        own = [row[exit] for row, other in zip(table, left_at, strict=True) if other == exit]
        if variant == "gated" and len(own) < max(1, minimum):
            thresholds.append(general)
        elif variant == "per_exit":
            thresholds.append(smallest([row[exit] for row in table]))
        else:
            thresholds.append(smallest(own) if own else 0.0)
    return thresholds


def covered(variant: PaperVariant, bag: Bag, percent: int, minimum: int) -> Tensor:
    """Return a boolean per sample, true if thresholds from all others cover it."""
    scores, exits, _ = bag
    num_exits = int(exits.max()) + 1
    inside = []
    for row in range(len(exits)):
        others = torch.arange(len(exits)) != row
        at_exits = scores[others, None].expand(-1, num_exits)
        thresholds = variant_thresholds(variant, at_exits, exits[others], miscoverage=percent / 100, minimum=minimum)
        inside.append(scores[row] <= thresholds[exits[row]])
    return torch.stack(inside)


@each("variant", ["per_exit", "strict", "gated"])
@quick
@given(st.integers(1, 120), st.integers(1, 5), st.integers(1, 99), st.integers(0, 40))
def test_agrees_with_a_loop(
    variant: PaperVariant, num_samples: int, num_exits: int, percent: int, minimum: int
) -> None:
    scores = torch.rand(num_samples, num_exits, dtype=torch.float64, generator=generator(num_samples))
    exits = (num_exits * torch.rand(num_samples, generator=generator(percent)) ** 2).long()
    thresholds = variant_thresholds(variant, scores, exits, miscoverage=percent / 100, minimum=minimum)
    assert thresholds.tolist() == by_hand(variant, scores, exits, percent, minimum)


@each("variant", get_args(PaperVariant))
@each("num_classes", [2, 5])
def test_thresholds_are_those_of_each_class_by_itself(variant: PaperVariant, num_classes: int) -> None:
    probabilities, labels, exits = exits_and_labels(300, 5)
    scores, labels = conformal_scores(probabilities, labels), labels % num_classes
    thresholds = variant_class_thresholds(
        variant, scores, exits, labels, num_classes=num_classes, miscoverage=0.1, minimum=9
    )
    for label in range(num_classes):
        own = labels == label
        expected = variant_thresholds(variant, scores[own], exits[own], miscoverage=0.1, minimum=9)
        assert torch.equal(thresholds[:, label], expected)


def test_an_exit_nobody_uses() -> None:
    scores = torch.linspace(0, 0.99, 100)[:, None].repeat(1, 3)
    exits = torch.tensor([0, 2]).repeat(50)
    thresholds = {v: variant_thresholds(v, scores, exits, miscoverage=0.1) for v in get_args(PaperVariant)}
    assert thresholds["strict"][1] == 0
    assert thresholds["gated"][1] == thresholds["general"][1] > 0.8
    assert torch.equal(thresholds["gated"][[0, 2]], thresholds["strict"][[0, 2]])
    assert not prediction_set(torch.tensor([[0.6, 0.4]]), thresholds["strict"][[1]]).any()
    no_minimum = variant_thresholds("gated", scores, exits, miscoverage=0.1, minimum=0)
    assert torch.equal(no_minimum, thresholds["gated"])


def test_a_class_never_seen() -> None:
    scores, exits = torch.full((40, 2), 0.1), torch.tensor([0, 1]).repeat(20)
    labels = torch.zeros(40, dtype=torch.long)
    for variant in get_args(PaperVariant):
        thresholds = variant_class_thresholds(variant, scores, exits, labels, num_classes=3, miscoverage=0.1)
        assert torch.equal(thresholds[:, 0], scores[0])
        assert (thresholds[:, 1:] == (0 if variant == "strict" else 1)).all()


class TestClaims:
    @exact
    @given(bag=bags(), percent=st.integers(3, 60))
    def test_strict_and_gated_at_exits_with_enough(self, bag: Bag, percent: int) -> None:
        _, exits, _ = bag
        strict, gated = covered("strict", bag, percent, 4), covered("gated", bag, percent, 4)
        for exit in range(int(exits.max()) + 1):
            at_exit = exits == exit
            if int(at_exit.sum()) > 1:
                assert enough(strict[at_exit], percent)
            if int(at_exit.sum()) > 4:
                assert enough(gated[at_exit], percent)

    def test_gated_does_not_hold_overall(self) -> None:
        # Ten easy samples at one exit, the eleventh alone and hard at another: the general threshold is too low for it.
        scores = torch.tensor([*range(10, 20), 90], dtype=torch.float64) / 100
        exits = torch.tensor([0] * 10 + [1])
        bag = scores, exits, torch.zeros_like(exits)
        assert covered("gated", bag, 10, 4).tolist() == [True] * 9 + [False, False]
        assert covered("pooled", bag, 10, 4).sum() >= 10

    def test_strict_does_not_hold_at_an_exit_nobody_has_left_at(self) -> None:
        bag = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.0001]), torch.tensor([0, 0, 0, 0, 1]), torch.zeros(5).long()
        assert covered("strict", bag, 50, 0).tolist() == [True, True, True, True, False]
        assert covered("pooled", bag, 50, 0).all()

    def test_per_exit_does_not_hold_at_an_exit(self) -> None:
        # The samples that leave last are hard.
        scores, exits = torch.tensor([0.1] * 9 + [0.8]), torch.tensor([0] * 9 + [1])
        inside = covered("per_exit", (scores, exits, torch.zeros_like(exits)), 20, 4)
        assert inside[:9].all()
        assert not inside[9]

    def test_gated_loses_the_share_that_leaves_at_rare_exits(self) -> None:
        # Ten exits that one in 200 takes, always hard; 19 in 20 take another, with scores uniform in [0, 0.5].
        alpha, rare, splits, num_samples = 0.1, 0.05, 300, 1000
        covering: dict[PaperVariant, list[float]] = {"gated": [], "pooled": [], "general": []}
        for seed in range(splits):
            draw = torch.rand(num_samples, 2, dtype=torch.float64, generator=generator(seed))
            exits = torch.where(draw[:, 0] < rare, 1 + (200 * draw[:, 0]).long(), 0)
            scores = torch.where(exits > 0, 0.9 + draw[:, 1] / 10, draw[:, 1] / 2)[:, None].expand(-1, 11)
            for variant, shares in covering.items():
                thresholds = variant_thresholds(variant, scores, exits, miscoverage=alpha)
                easy = (thresholds[0] / 0.5).clamp(0, 1)
                hard = ((thresholds[1:] - 0.9) / 0.1).clamp(0, 1).mean()
                shares.append(float((1 - rare) * easy + rare * hard))
        mean = {variant: sum(shares) / splits for variant, shares in covering.items()}
        # Of one exit with n samples r / (n + 1) is covered, r = ceil(0.9 (n + 1)): 0.9 and half of 1/951 on average.
        assert mean["gated"] == pytest.approx((1 - rare) * (1 - alpha + 0.5 / 951), abs=0.002)
        assert mean["general"] == pytest.approx(1 - alpha, abs=0.002)
        assert 1 - alpha - 0.002 <= mean["pooled"] <= 1 - alpha + 0.004
