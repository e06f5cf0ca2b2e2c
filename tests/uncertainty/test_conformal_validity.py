"""Exact checks of the coverage claims: of n + 1 samples, each is left out once and predicted from the others.

If the samples are exchangeable, each is equally likely to be the new one. So a claim of coverage holds for every
distribution if and only if, in every bag of n + 1 samples, a share of at least 1 - alpha of those that the claim is
about are covered when they are left out. No random draw and no tolerance is needed.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from offramp.uncertainty import conformal_thresholds
from offramp.uncertainty._conformal import ConformalVariant, class_thresholds, pool_exits
from tests.uncertainty.conformal_examples import Bag, bags, enough, exact

LEVELS = st.integers(3, 60)
"""Miscoverages in percent."""


def covered(variant: ConformalVariant, bag: Bag, percent: int, minimum: int, *, by_class: bool = False) -> Tensor:
    """Return a boolean per sample, true if thresholds from all others cover it."""
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
            own = pool_exits((counts - torch.eye(len(counts), dtype=torch.long)[exit])[None], minimum)[0, exit]
            assert own[exit]
            if own.sum() == 1:
                assert enough(inside[exits == exit], percent)
            else:
                pool = own[exits]
                assert enough(inside[pool], percent)

    @pytest.mark.parametrize("variant", ["general", "pooled"])
    @exact
    @given(bag=bags(), percent=LEVELS, minimum=st.integers(0, 8))
    def test_by_class_in_each_class(self, variant: ConformalVariant, bag: Bag, percent: int, minimum: int) -> None:
        inside = covered(variant, bag, percent, minimum, by_class=True)
        for label in range(int(bag[2].max()) + 1):
            assert enough(inside[bag[2] == label], percent)


def test_general_does_not_hold_at_an_exit() -> None:
    # Those who leave last are the hard ones.
    scores, exits = torch.tensor([0.1] * 9 + [0.8]), torch.tensor([0] * 9 + [1])
    inside = covered("general", (scores, exits, torch.zeros_like(exits)), 20, 4)
    assert inside[:9].all()
    assert not inside[9]


def test_sets_are_not_nested_from_point_to_point() -> None:
    # A sample that a cheap point answers with {0} may be answered with {1} by a dear one: exits differ in opinion.
    cheap, dear = torch.tensor([[0.8, 0.15, 0.05]]), torch.tensor([[0.2, 0.75, 0.05]])
    threshold = torch.tensor([0.5])
    sets = [1 - probabilities <= threshold for probabilities in (cheap, dear)]
    assert (sets[1] & ~sets[0]).any()
    assert (sets[0] & ~sets[1]).any()
