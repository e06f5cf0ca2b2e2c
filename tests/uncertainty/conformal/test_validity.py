"""What is claimed holds exactly: of n + 1 samples, each is left out once and predicted from the others.

If the samples are exchangeable, each is equally likely to be the one that is not known. So a claim of coverage holds
for every distribution if and only if, in every bag of n + 1 samples, at least (1 - alpha) of those that the claim is
about are covered when it is their turn. No draw, no tolerance.
"""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.uncertainty import ConformalVariant, class_thresholds, conformal_thresholds
from offramp.uncertainty.conformal.sharing import pooled
from tests.uncertainty.conformal.examples import generator

Bag = tuple[Tensor, Tensor, Tensor]
"""Scores where samples leave, their exits and labels."""

LEVELS = st.integers(3, 60)
"""Miscoverages in percent."""


@st.composite
def bags(draw: st.DrawFn) -> Bag:
    """Few samples, some exits rare, some hard, and ties."""
    count, num_exits, num_classes = draw(st.integers(2, 30)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rows = st.lists(st.tuples(st.integers(0, 9), st.integers(0, num_exits**2 - 1), st.integers(0, num_classes - 1)))
    scores, exits, labels = zip(*(draw(rows.filter(len)) * count)[:count], strict=True)
    rare = [math.isqrt(exit) for exit in exits]
    hard = draw(st.lists(st.integers(0, 9), min_size=num_exits, max_size=num_exits))
    made = [(score + 10 * hard[exit]) / 100 for score, exit in zip(scores, rare, strict=True)]
    return torch.tensor(made, dtype=torch.float64), torch.tensor(rare), torch.tensor(labels)


def covered(variant: ConformalVariant, bag: Bag, percent: int, minimum: int, *, by_class: bool = False) -> Tensor:
    """Whether each sample is covered by thresholds from all others."""
    scores, exits, labels = bag
    num_exits, num_classes = int(exits.max()) + 1, int(labels.max()) + 1
    found = []
    for row in range(len(exits)):
        others = torch.arange(len(exits)) != row
        at_exits = scores[others, None].expand(-1, num_exits)
        if by_class:
            thresholds = class_thresholds(
                variant,
                at_exits,
                exits[others],
                labels[others],
                num_classes=num_classes,
                miscoverage=percent / 100,
                minimum=minimum,
            )[exits[row], labels[row]]
        else:
            thresholds = conformal_thresholds(
                variant, at_exits, exits[others], miscoverage=percent / 100, minimum=minimum
            )[exits[row]]
        found.append(scores[row] <= thresholds)
    return torch.stack(found)


def enough(inside: Tensor, percent: int) -> bool:
    return Fraction(int(inside.sum()), max(1, len(inside))) >= Fraction(100 - percent, 100) or not len(inside)


exact = settings(deadline=None, max_examples=150)


class TestInEveryBag:
    @pytest.mark.parametrize("variant", ["general", "pooled"])
    @exact
    @given(bag=bags(), percent=LEVELS, minimum=st.integers(0, 8))
    def test_overall(self, variant: ConformalVariant, bag: Bag, percent: int, minimum: int) -> None:
        assert enough(covered(variant, bag, percent, minimum), percent)

    @exact
    @given(bag=bags(), percent=LEVELS, minimum=st.integers(0, 8))
    def test_pooled_at_each_exit_of_its_own_and_in_the_pool(self, bag: Bag, percent: int, minimum: int) -> None:
        _, exits, _ = bag
        inside = covered("pooled", bag, percent, minimum)
        counts = exits.bincount()
        pool = torch.zeros_like(exits, dtype=torch.bool)
        for exit in counts.nonzero().squeeze(1).tolist():
            # What a sample of this exit sees: the others' counts. All samples of a pool must see the same one.
            own = pooled((counts - torch.eye(len(counts), dtype=torch.long)[exit])[None], minimum)[0, exit]
            assert own[exit]
            if own.sum() == 1:
                assert enough(inside[exits == exit], percent)
            else:
                pool = own[exits]
                assert enough(inside[pool], percent)

    @exact
    @given(bag=bags(), percent=LEVELS)
    def test_strict_and_gated_at_exits_with_enough(self, bag: Bag, percent: int) -> None:
        _, exits, _ = bag
        strict, gated = covered("strict", bag, percent, 4), covered("gated", bag, percent, 4)
        for exit in range(int(exits.max()) + 1):
            at_exit = exits == exit
            if int(at_exit.sum()) > 1:
                assert enough(strict[at_exit], percent)
            if int(at_exit.sum()) > 4:
                assert enough(gated[at_exit], percent)

    @pytest.mark.parametrize("variant", ["general", "pooled"])
    @exact
    @given(bag=bags(), percent=LEVELS, minimum=st.integers(0, 8))
    def test_by_class_in_each_class(self, variant: ConformalVariant, bag: Bag, percent: int, minimum: int) -> None:
        inside = covered(variant, bag, percent, minimum, by_class=True)
        for label in range(int(bag[2].max()) + 1):
            assert enough(inside[bag[2] == label], percent)


class TestWhatIsNotClaimed:
    """Bags in which it fails: there is no proof to be found."""

    def test_gated_overall(self) -> None:
        # Ten easy samples at one exit, the eleventh alone and hard at another: the general threshold is too low for it.
        scores = torch.tensor([*range(10, 20), 90], dtype=torch.float64) / 100
        exits = torch.tensor([0] * 10 + [1])
        bag = scores, exits, torch.zeros_like(exits)
        assert covered("gated", bag, 10, 4).tolist() == [True] * 9 + [False, False]
        assert covered("pooled", bag, 10, 4).sum() >= 10

    def test_strict_at_an_exit_nobody_has_left_at(self) -> None:
        bag = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.0001]), torch.tensor([0, 0, 0, 0, 1]), torch.zeros(5).long()
        assert covered("strict", bag, 50, 0).tolist() == [True, True, True, True, False]
        assert covered("pooled", bag, 50, 0).all()

    def test_general_and_per_exit_at_an_exit(self) -> None:
        # Those who leave last are the hard ones.
        scores, exits = torch.tensor([0.1] * 9 + [0.8]), torch.tensor([0] * 9 + [1])
        for variant in ("general", "per_exit"):
            found = covered(variant, (scores, exits, torch.zeros_like(exits)), 20, 4)
            assert found[:9].all()
            assert not found[9]

    def test_gated_loses_the_share_that_leaves_at_rare_exits(self) -> None:
        # Ten exits that one in 200 takes, always hard; 19 in 20 take another, with scores uniform in [0, .5].
        alpha, rare, splits, num_samples = 0.1, 0.05, 300, 1000
        covering: dict[ConformalVariant, list[float]] = {"gated": [], "pooled": [], "general": []}
        for seed in range(splits):
            draw = torch.rand(num_samples, 2, dtype=torch.float64, generator=generator(seed))
            exits = torch.where(draw[:, 0] < rare, 1 + (200 * draw[:, 0]).long(), 0)
            scores = torch.where(exits > 0, 0.9 + draw[:, 1] / 10, draw[:, 1] / 2)[:, None].expand(-1, 11)
            for variant, found in covering.items():
                thresholds = conformal_thresholds(variant, scores, exits, miscoverage=alpha)
                easy = (thresholds[0] / 0.5).clamp(0, 1)
                hard = ((thresholds[1:] - 0.9) / 0.1).clamp(0, 1).mean()
                found.append(float((1 - rare) * easy + rare * hard))
        mean = {variant: sum(found) / splits for variant, found in covering.items()}
        # Of one exit with n samples r / (n + 1) is covered, r = ceil(.9 (n + 1)): .9 and half of 1/951 on average.
        assert mean["gated"] == pytest.approx((1 - rare) * (1 - alpha + 0.5 / 951), abs=0.002)
        assert mean["general"] == pytest.approx(1 - alpha, abs=0.002)
        assert 1 - alpha - 0.002 <= mean["pooled"] <= 1 - alpha + 0.004


def test_sets_are_not_nested_from_point_to_point() -> None:
    # A sample that a cheap point answers with {0} may be answered with {1} by a dear one: exits differ in opinion.
    cheap, dear = torch.tensor([[0.8, 0.15, 0.05]]), torch.tensor([[0.2, 0.75, 0.05]])
    threshold = torch.tensor([0.5])
    sets = [1 - probabilities <= threshold for probabilities in (cheap, dear)]
    assert (sets[1] & ~sets[0]).any()
    assert (sets[0] & ~sets[1]).any()
