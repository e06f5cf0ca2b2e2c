import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from offramp.errors import InputError
from offramp.uncertainty import (
    ConformalVariant,
    class_thresholds,
    conformal_scores,
    conformal_thresholds,
    prediction_set,
)
from tests.cases import each
from tests.uncertainty.conformal.examples import exact_rank, exits_and_labels, quick


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
