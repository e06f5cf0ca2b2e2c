import math
from typing import cast, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.errors import InputError, UnknownNameError
from offramp.uncertainty import (
    ConformalVariant,
    conformal_scores,
    conformal_threshold,
    conformal_thresholds,
    coverage,
    mean_set_size,
    prediction_set,
)

# A shared machine may stall for longer than hypothesis' deadline.
quick = settings(deadline=None, max_examples=60)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def exits_and_labels(num_samples: int, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities `N x L x K`, the first exit's overconfident; labels; exits chosen by confidence, so a selection."""
    truth = 1.5 * torch.randn(num_samples, 5, dtype=torch.float64, generator=generator(seed))
    labels = torch.multinomial(truth.softmax(-1), 1, generator=generator(seed + 1)).squeeze(1)
    noise = torch.randn(num_samples, 3, 5, dtype=torch.float64, generator=generator(seed + 2))
    noisy = torch.tensor([2.5, 0.5, 0.1], dtype=torch.float64)
    probabilities = (truth[:, None] + noisy[:, None] * noise).softmax(-1)
    sure = probabilities.amax(-1) > torch.tensor([0.8, 0.6, 0.0])
    return probabilities.to(dtype), labels, sure.int().argmax(-1)


def exact_rank(n: int, percent: int) -> int:
    """ceil((n + 1) (1 - percent / 100)) in integers."""
    return -(-(n + 1) * (100 - percent) // 100)


class TestThreshold:
    @quick
    @given(n=st.integers(1, 300), percent=st.integers(1, 99))
    def test_is_the_order_statistic_of_the_corrected_level(self, n: int, percent: int) -> None:
        scores = torch.rand(n, dtype=torch.float64, generator=generator(n))
        found = conformal_threshold(scores, miscoverage=percent / 100).item()
        rank = exact_rank(n, percent)
        if rank > n:
            assert found == 1.0
        else:
            # Half a rank below, where the product with n cannot round past the rank.
            assert found == np.quantile(scores.numpy(), (rank - 0.5) / n, method="inverted_cdf")
            assert found == sorted(scores.tolist())[rank - 1]
            # numpy's "higher" at the level rank / n lands on the next order statistic: safe, but not tight.
            assert found <= np.quantile(scores.numpy(), rank / n, method="higher")

    @pytest.mark.parametrize(("n", "percent"), [(99, 29), (99, 57), (9, 70), (999, 5), (19, 5), (99, 1)])
    def test_decimals_mean_what_they_say(self, n: int, percent: int) -> None:
        # In binary, 100 * 0.29 is 28.999...96 and 100 * (1 - 0.29) is 71.0...01 or so: a rank too many.
        scores = torch.arange(1, n + 1, dtype=torch.float64) / n
        found = conformal_threshold(scores, miscoverage=percent / 100).item()
        assert round(found * n) == exact_rank(n, percent)

    def test_too_few_samples_give_every_class(self) -> None:
        scores = torch.full((18,), 0.2)
        assert conformal_threshold(scores, miscoverage=0.05).item() == 1.0
        assert conformal_threshold(torch.full((19,), 0.2), miscoverage=0.05).item() == pytest.approx(0.2)
        everything = prediction_set(
            torch.tensor([[1.0, 0.0, 0.0]]), conformal_threshold(scores, miscoverage=0.05)[None]
        )
        assert everything.all()

    @pytest.mark.parametrize(("n", "alpha"), [(19, 0.1), (50, 0.1), (33, 0.25)])
    def test_marginal_coverage_is_exact(self, n: int, alpha: float) -> None:
        # Uniform scores: the coverage of a threshold is the threshold. Its mean over splits is rank / (n + 1).
        splits = torch.rand(3000, n, dtype=torch.float64, generator=generator())
        covered = torch.stack([conformal_threshold(scores, miscoverage=alpha) for scores in splits])
        error = 4 * covered.std().item() / math.sqrt(len(covered))
        assert 1 - alpha - error <= covered.mean().item() <= 1 - alpha + 1 / (n + 1) + error
        assert covered.mean().item() == pytest.approx(math.ceil((n + 1) * (1 - alpha)) / (n + 1), abs=error)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
    def test_dtypes(self, dtype: torch.dtype) -> None:
        threshold = conformal_threshold(torch.full((30,), 0.3, dtype=dtype), miscoverage=0.1)
        assert threshold.dtype == torch.promote_types(dtype, torch.float32)
        assert threshold.item() == torch.tensor(0.3, dtype=dtype).item()

    @pytest.mark.parametrize("miscoverage", [0.0, 1.0, -0.1, 5.0, math.nan])
    def test_refuses_a_miscoverage_out_of_range(self, miscoverage: float) -> None:
        with pytest.raises(InputError, match="miscoverage between 0 and 1"):
            conformal_threshold(torch.tensor([0.5]), miscoverage=miscoverage)

    def test_refuses_what_are_no_scores(self) -> None:
        for empty in (torch.zeros(0), torch.zeros(3, 2)):
            with pytest.raises(InputError, match="at least one sample"):
                conformal_threshold(empty, miscoverage=0.1)
        for wrong in (1.5, -0.5, math.nan):
            with pytest.raises(InputError, match="not logits"):
                conformal_threshold(torch.tensor([0.5, wrong]), miscoverage=0.1)


class TestScores:
    def test_at_one_exit_and_at_all(self) -> None:
        probabilities, labels, _ = exits_and_labels(40, 0)
        at_all = conformal_scores(probabilities, labels)
        assert at_all.shape == (40, 3)
        for sample in range(40):
            for exit in range(3):
                assert at_all[sample, exit] == 1 - probabilities[sample, exit, labels[sample]]
        assert torch.equal(conformal_scores(probabilities[:, 1], labels.int()), at_all[:, 1])

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_dtypes(self, dtype: torch.dtype) -> None:
        probabilities, labels, _ = exits_and_labels(40, 0, dtype)
        found = conformal_scores(probabilities, labels)
        assert found.dtype == torch.promote_types(dtype, torch.float32)
        expected = conformal_scores(probabilities.double(), labels)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-7)

    @pytest.mark.parametrize("labels", [torch.tensor([-1, 0]), torch.tensor([0, 2]), torch.tensor([0]), torch.zeros(2)])
    def test_refuses_what_are_no_labels(self, labels: Tensor) -> None:
        with pytest.raises(InputError, match="labels"):
            conformal_scores(torch.full((2, 2), 0.5), labels)


class TestThresholds:
    def by_hand(self, variant: str, scores: Tensor, exits: Tensor, percent: int, minimum: int) -> list[float]:
        def smallest(values: list[float]) -> float:
            rank = exact_rank(len(values), percent)
            return sorted(values)[rank - 1] if rank <= len(values) else 1.0

        table, left_at = scores.tolist(), exits.tolist()
        general = smallest([row[exit] for row, exit in zip(table, left_at, strict=True)])
        found = []
        for exit in range(scores.shape[1]):
            own = [row[exit] for row, other in zip(table, left_at, strict=True) if other == exit]
            if variant == "general" or (variant == "gated" and len(own) < max(1, minimum)):
                found.append(general)
            elif variant == "per_exit":
                found.append(smallest([row[exit] for row in table]))
            else:
                found.append(smallest(own) if own else 0.0)
        return found

    @pytest.mark.parametrize("variant", get_args(ConformalVariant))
    @quick
    @given(st.integers(1, 120), st.integers(1, 5), st.integers(1, 99), st.integers(0, 40))
    def test_agrees_with_a_loop(
        self, variant: ConformalVariant, num_samples: int, num_exits: int, percent: int, minimum: int
    ) -> None:
        scores = torch.rand(num_samples, num_exits, dtype=torch.float64, generator=generator(num_samples))
        exits = (num_exits * torch.rand(num_samples, generator=generator(percent)) ** 2).long()
        found = conformal_thresholds(variant, scores, exits, miscoverage=percent / 100, minimum=minimum)
        assert found.tolist() == self.by_hand(variant, scores, exits, percent, minimum)

    def test_an_exit_nobody_uses(self) -> None:
        scores = torch.linspace(0, 0.99, 100)[:, None].repeat(1, 3)
        exits = torch.tensor([0, 2]).repeat(50)
        found = {v: conformal_thresholds(v, scores, exits, miscoverage=0.1) for v in get_args(ConformalVariant)}
        assert found["strict"][1] == 0
        assert found["gated"][1] == found["general"][1] > 0.8
        assert torch.equal(found["gated"][[0, 2]], found["strict"][[0, 2]])
        assert not prediction_set(torch.tensor([[0.6, 0.4]]), found["strict"][[1]]).any()
        no_minimum = conformal_thresholds("gated", scores, exits, miscoverage=0.1, minimum=0)
        assert torch.equal(no_minimum, found["gated"])

    def test_gated_falls_back_below_the_minimum_only(self) -> None:
        scores = torch.cat([torch.full((20, 2), 0.3), torch.full((200, 2), 0.6)])
        exits = torch.cat([torch.zeros(20), torch.ones(200)]).long()
        assert conformal_thresholds("gated", scores, exits, miscoverage=0.1)[0] == scores[0, 0]
        assert conformal_thresholds("gated", scores[1:], exits[1:], miscoverage=0.1)[0] == scores[-1, 0]

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
        for variant in ("general", "strict", "gated"):
            assert overall[variant] >= 1 - alpha - error
        assert overall["general"] <= 1 - alpha + 1 / 101 + error
        for variant in ("strict", "gated"):
            assert at_exits[variant].min().item() >= 1 - alpha - error_at_exit
        # What a variant does not claim it need not deliver: the overconfident exit falls short.
        assert at_exits["general"][0].item() < 0.7
        assert at_exits["per_exit"][0].item() < 0.75
        assert overall["per_exit"] < 1 - alpha - 2 * error

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
    @pytest.mark.parametrize("variant", get_args(ConformalVariant))
    def test_dtypes(self, variant: ConformalVariant, dtype: torch.dtype) -> None:
        scores = torch.rand(60, 2, generator=generator()).to(dtype)
        found = conformal_thresholds(variant, scores, torch.zeros(60, dtype=torch.int32), miscoverage=0.1)
        assert found.shape == (2,)
        assert found.dtype == torch.promote_types(dtype, torch.float32)

    def test_refuses(self) -> None:
        scores, exits = torch.full((4, 2), 0.5), torch.zeros(4, dtype=torch.long)
        for wrong in (torch.tensor([0, 0, 0, 2]), torch.tensor([0, 0, 0, -1]), torch.zeros(4)):
            with pytest.raises(InputError, match=r"exits in 0\.\.1"):
                conformal_thresholds("general", scores, wrong, miscoverage=0.1)
        for some, where in ((scores[:0], exits[:0]), (scores, exits[:3]), (scores[:, 0], exits)):
            with pytest.raises(InputError, match="'N x L'"):
                conformal_thresholds("gated", some, where, miscoverage=0.1)
        with pytest.raises(InputError, match="not logits"):
            conformal_thresholds("strict", 4 * scores, exits, miscoverage=0.1)
        with pytest.raises(InputError, match="miscoverage"):
            conformal_thresholds("strict", scores, exits, miscoverage=1.0)
        with pytest.raises(UnknownNameError, match="did you mean 'gated'"):
            conformal_thresholds(cast(ConformalVariant, "gate"), scores, exits, miscoverage=0.1)


class TestSets:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize("variant", ["general", "strict", "gated"])
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

    def test_coverage_and_size(self) -> None:
        sets = torch.tensor([[True, False, True], [False, False, False], [True, True, True], [False, True, False]])
        labels = torch.tensor([2, 0, 1, 0])
        assert coverage(sets, labels).item() == 0.5
        assert coverage(sets, labels.int()).item() == 0.5
        assert mean_set_size(sets).item() == 1.5

    def test_refuse(self) -> None:
        sets, labels = torch.ones(2, 3, dtype=torch.bool), torch.tensor([0, 3])
        with pytest.raises(InputError, match=r"labels in 0\.\.2"):
            coverage(sets, labels)
        with pytest.raises(InputError, match="2 integer labels"):
            coverage(sets, labels[:1])
        for wrong in (sets[:0], sets[0], sets.float()):
            with pytest.raises(InputError, match="boolean sets"):
                mean_set_size(wrong)
            with pytest.raises(InputError, match="boolean sets"):
                coverage(wrong, labels)
        for thresholds in (torch.tensor(0.5), torch.ones(3), torch.ones(2, 1)):
            with pytest.raises(InputError, match="by each sample's exit"):
                prediction_set(torch.full((2, 3), 1 / 3), thresholds)
