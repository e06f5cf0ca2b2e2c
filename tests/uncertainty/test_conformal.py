import math
from typing import cast, get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from offramp.errors import InputError, UnknownNameError
from offramp.uncertainty import conformal_thresholds, prediction_set
from offramp.uncertainty._conformal import ConformalVariant, class_thresholds, conformal_scores, pool_exits
from tests.cases import each
from tests.uncertainty.conformal_examples import exact_rank, exits_and_labels, generator, quick


class TestScores:
    def test_at_one_exit_and_at_all(self) -> None:
        probabilities, labels, _ = exits_and_labels(40, 0)
        at_all = conformal_scores(probabilities, labels)
        assert at_all.shape == (40, 3)
        for sample in range(40):
            for exit in range(3):
                assert at_all[sample, exit] == 1 - probabilities[sample, exit, labels[sample]]
        assert torch.equal(conformal_scores(probabilities[:, 1], labels.int()), at_all[:, 1])

    @each("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_dtypes(self, dtype: torch.dtype) -> None:
        probabilities, labels, _ = exits_and_labels(40, 0, dtype)
        found = conformal_scores(probabilities, labels)
        assert found.dtype == torch.promote_types(dtype, torch.float32)
        expected = conformal_scores(probabilities.double(), labels)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-7)

    @each("labels", [torch.tensor([-1, 0]), torch.tensor([0, 2]), torch.tensor([0]), torch.zeros(2)])
    def test_refuses_what_are_no_labels(self, labels: Tensor) -> None:
        with pytest.raises(InputError, match="labels"):
            conformal_scores(torch.full((2, 2), 0.5), labels)


class TestSets:
    @each("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @each("variant", ["general", "pooled"])
    def test_hold_the_samples_their_thresholds_came_from(self, variant: ConformalVariant, dtype: torch.dtype) -> None:
        # On the calibration split itself exactly rank of n samples conform, to the last bit of rounding.
        probabilities, labels, exits = exits_and_labels(500, 7, dtype)
        thresholds = conformal_thresholds(variant, conformal_scores(probabilities, labels), exits, miscoverage=0.1)
        sets = prediction_set(probabilities[torch.arange(500), exits], thresholds[exits])
        groups = [torch.arange(500)] if variant == "general" else [(exits == e).nonzero().squeeze(1) for e in range(3)]
        for group in groups:
            inside = int(sets[group, labels[group]].sum())
            rank = exact_rank(len(group), 10)
            # In half precision scores tie, and all that tie with the threshold are inside.
            assert inside == rank if dtype in (torch.float32, torch.float64) else inside >= rank

    @quick
    @given(st.lists(st.floats(-8, 8), min_size=2, max_size=6), st.floats(0, 1))
    def test_hold_the_prediction_where_the_threshold_allows(self, logits: list[float], threshold: float) -> None:
        probabilities = torch.tensor([logits], dtype=torch.float64).softmax(-1)
        tau = torch.tensor([threshold], dtype=torch.float64)
        found = prediction_set(probabilities, tau)
        best = probabilities.argmax()
        assert bool(found[0, best]) == bool(1 - probabilities[0, best] <= tau[0])
        assert found[0].any() == found[0, best]
        # Sets grow with the threshold, and hold the likelier classes first.
        assert not (found & ~prediction_set(probabilities, (tau + 0.1).clamp_max(1))).any()
        if found.any() and not found.all():
            assert probabilities[found].min() > probabilities[~found].max()

    def test_of_thresholds_by_class(self) -> None:
        probabilities = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
        thresholds = torch.tensor([[0.25, 0.75, 0.5], [0.5, 0.5, 1.0]])
        assert prediction_set(probabilities, thresholds).tolist() == [[False, True, False], [True, False, True]]
        same = torch.tensor([0.5, 0.75])
        assert torch.equal(
            prediction_set(probabilities, same), prediction_set(probabilities, same[:, None].expand(2, 3))
        )

    def test_by_class_hold_the_samples_their_thresholds_came_from(self) -> None:
        probabilities, labels, exits = exits_and_labels(500, 7, torch.float32)
        scores = conformal_scores(probabilities, labels)
        thresholds = class_thresholds("general", scores, exits, labels, num_classes=5, miscoverage=0.1)
        sets = prediction_set(probabilities[torch.arange(500), exits], thresholds[exits])
        for label in range(5):
            own = labels == label
            assert int(sets[own, label].sum()) == exact_rank(int(own.sum()), 10)

    def test_of_a_batch_of_one_and_of_none(self) -> None:
        assert prediction_set(torch.tensor([[0.9, 0.1]]), torch.tensor([0.2])).tolist() == [[True, False]]
        assert prediction_set(torch.zeros(0, 2), torch.zeros(0)).shape == (0, 2)

    def test_refuse(self) -> None:
        for thresholds in (torch.tensor(0.5), torch.ones(3), torch.ones(2, 1), torch.ones(3, 2)):
            with pytest.raises(InputError, match="by each sample's exit"):
                prediction_set(torch.full((2, 3), 1 / 3), thresholds)


def threshold(scores: Tensor, *, miscoverage: float) -> Tensor:
    """The one of all samples together."""
    exits = torch.zeros(len(scores), dtype=torch.long)
    return conformal_thresholds("general", scores[:, None], exits, miscoverage=miscoverage)[0]


class TestThreshold:
    @quick
    @given(n=st.integers(1, 300), percent=st.integers(1, 99))
    def test_is_the_order_statistic_of_the_corrected_level(self, n: int, percent: int) -> None:
        scores = torch.rand(n, dtype=torch.float64, generator=generator(n))
        found = threshold(scores, miscoverage=percent / 100).item()
        rank = exact_rank(n, percent)
        if rank > n:
            assert found == 1.0
        else:
            # Half a rank below, where the product with n cannot round past the rank.
            assert found == np.quantile(scores.numpy(), (rank - 0.5) / n, method="inverted_cdf")
            assert found == sorted(scores.tolist())[rank - 1]
            # numpy's "higher" at the level rank / n lands on the next order statistic: safe, but not tight.
            assert found <= np.quantile(scores.numpy(), rank / n, method="higher")

    @each(("n", "percent"), [(99, 29), (99, 57), (9, 70), (999, 5), (19, 5), (99, 1)])
    def test_decimals_mean_what_they_say(self, n: int, percent: int) -> None:
        # In binary, 100 * 0.29 is 28.999...96 and 100 * (1 - 0.29) is 71.0...01 or so: a rank too many.
        scores = torch.arange(1, n + 1, dtype=torch.float64) / n
        found = threshold(scores, miscoverage=percent / 100).item()
        assert round(found * n) == exact_rank(n, percent)

    def test_too_few_samples_give_every_class(self) -> None:
        scores = torch.full((18,), 0.2)
        assert threshold(scores, miscoverage=0.05).item() == 1.0
        assert threshold(torch.full((19,), 0.2), miscoverage=0.05).item() == pytest.approx(0.2)
        everything = prediction_set(torch.tensor([[1.0, 0.0, 0.0]]), threshold(scores, miscoverage=0.05)[None])
        assert everything.all()

    @each(("n", "alpha"), [(19, 0.1), (50, 0.1), (33, 0.25)])
    def test_marginal_coverage_is_exact(self, n: int, alpha: float) -> None:
        # Uniform scores: the coverage of a threshold is the threshold. Its mean over splits is rank / (n + 1).
        splits = torch.rand(3000, n, dtype=torch.float64, generator=generator())
        covered = torch.stack([threshold(scores, miscoverage=alpha) for scores in splits])
        error = 4 * covered.std().item() / math.sqrt(len(covered))
        assert 1 - alpha - error <= covered.mean().item() <= 1 - alpha + 1 / (n + 1) + error
        assert covered.mean().item() == pytest.approx(math.ceil((n + 1) * (1 - alpha)) / (n + 1), abs=error)

    @each("dtype", [torch.float16, torch.float32, torch.float64])
    def test_dtypes(self, dtype: torch.dtype) -> None:
        found = threshold(torch.full((30,), 0.3, dtype=dtype), miscoverage=0.1)
        assert found.dtype == torch.promote_types(dtype, torch.float32)
        assert found.item() == torch.tensor(0.3, dtype=dtype).item()

    @each("miscoverage", [0.0, 1.0, -0.1, 5.0, math.nan])
    def test_refuses_a_miscoverage_out_of_range(self, miscoverage: float) -> None:
        with pytest.raises(InputError, match="miscoverage between 0 and 1"):
            threshold(torch.tensor([0.5]), miscoverage=miscoverage)

    def test_refuses_what_are_no_scores(self) -> None:
        with pytest.raises(InputError, match="at least one sample"):
            threshold(torch.zeros(0), miscoverage=0.1)
        for wrong in (1.5, -0.5, math.nan):
            with pytest.raises(InputError, match="not logits"):
                threshold(torch.tensor([0.5, wrong]), miscoverage=0.1)


def pooled_by_hand(table: list[list[float]], left_at: list[int], minimum: int) -> list[list[float]]:
    """The scores that each exit's threshold comes from: one more sample leaves there, and the rarest exits join up."""
    found = []
    for exit in range(len(table[0])):
        count = {other: left_at.count(other) + (other == exit) for other in range(len(table[0]))}
        pool: list[int] = []
        for other in sorted(count, key=lambda one: (count[one], one)):
            size = sum(count[one] for one in pool)
            if count[other] <= minimum or 0 < size <= minimum:
                pool.append(other)
        sharing = pool if exit in pool else [exit]
        found.append([row[other] for row, other in zip(table, left_at, strict=True) if other in sharing])
    return found


class TestThresholds:
    def by_hand(self, variant: str, scores: Tensor, exits: Tensor, percent: int, minimum: int) -> list[float]:
        def smallest(values: list[float]) -> float:
            rank = exact_rank(len(values), percent)
            return sorted(values)[rank - 1] if rank <= len(values) else 1.0

        table, left_at = scores.tolist(), exits.tolist()
        if variant == "pooled":
            return [smallest(own) for own in pooled_by_hand(table, left_at, minimum)]
        general = smallest([row[exit] for row, exit in zip(table, left_at, strict=True)])
        return [general] * scores.shape[1]

    @each("variant", get_args(ConformalVariant))
    @quick
    @given(st.integers(1, 120), st.integers(1, 5), st.integers(1, 99), st.integers(0, 40))
    def test_agrees_with_a_loop(
        self, variant: ConformalVariant, num_samples: int, num_exits: int, percent: int, minimum: int
    ) -> None:
        scores = torch.rand(num_samples, num_exits, dtype=torch.float64, generator=generator(num_samples))
        exits = (num_exits * torch.rand(num_samples, generator=generator(percent)) ** 2).long()
        found = conformal_thresholds(variant, scores, exits, miscoverage=percent / 100, minimum=minimum)
        assert found.tolist() == self.by_hand(variant, scores, exits, percent, minimum)

    def test_coverage_that_each_variant_claims(self) -> None:
        # 400 splits of 100; the truth about each threshold from 40,000 fresh samples.
        alpha = 0.2
        probabilities, labels, exits = exits_and_labels(40_000, 100)
        fresh = conformal_scores(probabilities, labels)
        by_exit = [fresh[exits == exit, exit].sort().values for exit in range(3)]
        share = torch.tensor([len(scores) for scores in by_exit]) / len(fresh)
        covered: dict[str, list[Tensor]] = {variant: [] for variant in get_args(ConformalVariant)}
        probabilities, labels, exits = exits_and_labels(400 * 100, 200)
        splits = conformal_scores(probabilities, labels).view(400, 100, 3)
        for scores, left_at in zip(splits, exits.view(400, 100), strict=True):
            for variant, found in covered.items():
                thresholds = conformal_thresholds(
                    cast(ConformalVariant, variant), scores, left_at, miscoverage=alpha, minimum=5
                )
                pairs = zip(by_exit, thresholds, strict=True)
                found.append(torch.stack([torch.searchsorted(s, t, right=True) / len(s) for s, t in pairs]))
        at_exits = {variant: torch.stack(found).mean(0) for variant, found in covered.items()}
        overall = {variant: (found * share).sum().item() for variant, found in at_exits.items()}
        error, error_at_exit = 0.009, 0.018  # four standard errors of a mean over 400 splits
        assert min(overall.values()) >= 1 - alpha - error
        assert overall["general"] <= 1 - alpha + 1 / 101 + error
        assert at_exits["pooled"].min().item() >= 1 - alpha - error_at_exit
        # What a variant does not claim it need not deliver: the overconfident exit falls short.
        assert at_exits["general"][0].item() < 0.7

    @each("dtype", [torch.float16, torch.float32, torch.float64])
    @each("variant", get_args(ConformalVariant))
    def test_dtypes(self, variant: ConformalVariant, dtype: torch.dtype) -> None:
        scores = torch.rand(60, 2, generator=generator()).to(dtype)
        found = conformal_thresholds(variant, scores, torch.zeros(60, dtype=torch.int32), miscoverage=0.1)
        assert found.shape == (2,)
        assert found.dtype == torch.promote_types(dtype, torch.float32)

    def test_refuses(self) -> None:
        scores, exits = torch.full((4, 2), 0.5), torch.zeros(4, dtype=torch.long)
        for wrong in (torch.tensor([0, 0, 0, 2]), torch.tensor([0, 0, 0, -1]), torch.zeros(4)):
            with pytest.raises(InputError, match=r"exits in 0 to 1"):
                conformal_thresholds("general", scores, wrong, miscoverage=0.1)
        for some, where in ((scores[:0], exits[:0]), (scores, exits[:3]), (scores[:, 0], exits)):
            with pytest.raises(InputError, match="'N x L'"):
                conformal_thresholds("pooled", some, where, miscoverage=0.1)
        with pytest.raises(InputError, match="not logits"):
            conformal_thresholds("pooled", 4 * scores, exits, miscoverage=0.1)
        with pytest.raises(InputError, match="miscoverage"):
            conformal_thresholds("pooled", scores, exits, miscoverage=1.0)
        with pytest.raises(InputError, match="not logits"):
            conformal_thresholds("pooled", scores.masked_fill(exits[:, None] == 0, math.nan), exits, miscoverage=0.1)
        with pytest.raises(UnknownNameError, match="did you mean 'pooled'"):
            conformal_thresholds(cast(ConformalVariant, "pool"), scores, exits, miscoverage=0.1)

    @each("variant", get_args(ConformalVariant))
    @quick
    @given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 12), st.integers(1, 98))
    def test_grow_as_less_may_be_left_out(
        self, variant: ConformalVariant, num_samples: int, num_exits: int, minimum: int, percent: int
    ) -> None:
        # So sets are nested in the miscoverage, at one operating point.
        scores = torch.rand(num_samples, num_exits, dtype=torch.float64, generator=generator(num_samples))
        exits = torch.randint(num_exits, (num_samples,), generator=generator(percent))
        more, less = (
            conformal_thresholds(variant, scores, exits, miscoverage=allowed / 100, minimum=minimum)
            for allowed in (percent, percent + 1)
        )
        assert (less <= more).all()

    def test_one_exit_makes_all_alike_but_for_few(self) -> None:
        scores, exits = torch.rand(50, 1, generator=generator()), torch.zeros(50, dtype=torch.long)
        expected = threshold(scores[:, 0], miscoverage=0.1)
        for variant in get_args(ConformalVariant):
            assert conformal_thresholds(variant, scores, exits, miscoverage=0.1) == expected
        assert conformal_thresholds("pooled", scores[:1], exits[:1], miscoverage=0.1) == 1


class TestClassThresholds:
    @each("variant", get_args(ConformalVariant))
    @each("num_classes", [2, 5])
    def test_are_those_of_each_class_by_itself(self, variant: ConformalVariant, num_classes: int) -> None:
        probabilities, labels, exits = exits_and_labels(300, 5)
        scores, labels = conformal_scores(probabilities, labels), labels % num_classes
        found = class_thresholds(variant, scores, exits, labels, num_classes=num_classes, miscoverage=0.1, minimum=9)
        for label in range(num_classes):
            own = labels == label
            expected = conformal_thresholds(variant, scores[own], exits[own], miscoverage=0.1, minimum=9)
            assert torch.equal(found[:, label], expected)

    def test_a_class_never_seen_is_in_every_set(self) -> None:
        scores, exits = torch.full((40, 2), 0.1), torch.tensor([0, 1]).repeat(20)
        labels = torch.zeros(40, dtype=torch.long)
        for variant in get_args(ConformalVariant):
            found = class_thresholds(variant, scores, exits, labels, num_classes=3, miscoverage=0.1)
            assert found.shape == (2, 3)
            assert torch.equal(found[:, 0], scores[0])
            assert (found[:, 1:] == 1).all()

    def test_refuses_labels_of_other_classes(self) -> None:
        scores, exits = torch.full((4, 2), 0.5), torch.zeros(4, dtype=torch.long)
        for labels in (torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1]), torch.zeros(4)):
            with pytest.raises(InputError, match="labels"):
                class_thresholds("general", scores, exits, labels, num_classes=3, miscoverage=0.1)


class TestPoolExits:
    def test_the_rare_share_and_the_others_do_not(self) -> None:
        found = pool_exits(torch.tensor([[15, 300, 8, 40]]), 20)[0]
        assert found.int().tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]

    def test_the_least_used_of_the_others_joins_too_few(self) -> None:
        # 3 + 8 samples and the one to be predicted are not 21: exit 3 joins, and has no threshold of its own.
        found = pool_exits(torch.tensor([[3, 300, 8, 40]]), 20)[0]
        assert found.int().tolist() == [[1, 0, 1, 1], [0, 1, 0, 0], [1, 0, 1, 1], [1, 0, 1, 1]]

    def test_an_exit_nobody_left_at(self) -> None:
        # Nobody is rare until the one to be predicted leaves there.
        found = pool_exits(torch.tensor([[0, 300, 40]]), 20)[0]
        assert found.int().tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 1]]

    def test_on_the_brink(self) -> None:
        # With one more sample exit 0 has 21 and is not rare; for a sample of exit 1 it has 20 and is.
        found = pool_exits(torch.tensor([[20, 5, 17, 300]]), 20)[0]
        assert found.int().tolist() == [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]]

    @each("counts", [[0], [1], [500]])
    def test_one_exit(self, counts: list[int]) -> None:
        assert pool_exits(torch.tensor([counts]), 20).all()

    def test_no_minimum_leaves_each_exit_alone(self) -> None:
        assert torch.equal(pool_exits(torch.tensor([[0, 1, 50]]), 0)[0], torch.eye(3, dtype=torch.bool))

    @quick
    @given(st.lists(st.lists(st.integers(0, 60), min_size=4, max_size=4), min_size=1, max_size=5), st.integers(0, 30))
    def test_groups_do_not_meddle(self, counts: list[list[int]], minimum: int) -> None:
        together = pool_exits(torch.tensor(counts), minimum)
        for row, own in zip(counts, together, strict=True):
            assert torch.equal(pool_exits(torch.tensor([row]), minimum)[0], own)
            assert own.diagonal().all()
            for exit in range(4):
                behind = torch.tensor(row)[own[exit]].sum()
                assert behind >= min(minimum, sum(row))
