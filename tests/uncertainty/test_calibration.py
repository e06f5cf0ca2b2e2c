import math
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.errors import InputError
from offramp.uncertainty import calibration_error
from offramp.uncertainty._calibration import calibration_floor
from tests.cases import each

# A shared machine may stall for longer than hypothesis' deadline.
quick = settings(deadline=None, max_examples=60)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def calibrated(num_samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    uniform = torch.rand(2, num_samples, dtype=torch.float64, generator=generator(seed))
    confidence = 0.2 + 0.8 * uniform[0]
    return confidence, uniform[1] < confidence


def error_by_loop(confidence: npt.NDArray[np.float64], correct: npt.NDArray[np.bool_], bins: int) -> float:
    share = np.array([correct[confidence == value].mean() for value in confidence])
    order = np.argsort(confidence)
    total = 0.0
    for b in range(bins):
        members = order[len(order) * b // bins : len(order) * (b + 1) // bins]
        if len(members):
            total += len(members) / len(order) * abs(share[members].mean() - confidence[members].mean())
    return total


# Few values, so that ties are common.
samples = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.35, 0.5, 0.7, 0.95, 1.0]), st.booleans()), min_size=1)


class TestError:
    @each("num_samples", [1, 2, 14, 15, 16, 97, 1000])
    @each("bins", [1, 4, 15])
    def test_agrees_with_a_loop(self, num_samples: int, bins: int) -> None:
        confidence, correct = calibrated(num_samples)
        expected = error_by_loop(confidence.numpy(), correct.numpy(), bins)
        assert calibration_error(confidence, correct, bins=bins).item() == pytest.approx(expected, abs=1e-12)

    @quick
    @given(samples, st.integers(1, 20))
    def test_agrees_with_a_loop_where_confidences_tie(self, pairs: list[tuple[float, bool]], bins: int) -> None:
        confidence, correct = map(list, zip(*pairs, strict=True))
        found = calibration_error(torch.tensor(confidence, dtype=torch.float64), torch.tensor(correct), bins=bins)
        assert found.item() == pytest.approx(error_by_loop(np.array(confidence), np.array(correct), bins), abs=1e-12)

    @quick
    @given(samples, st.integers(1, 20), st.randoms(use_true_random=False))
    def test_order_never_matters(self, pairs: list[tuple[float, bool]], bins: int, random: Random) -> None:
        shuffled = random.sample(pairs, len(pairs))
        errors = [
            calibration_error(torch.tensor([p for p, _ in one]), torch.tensor([c for _, c in one]), bins=bins)
            for one in (pairs, shuffled)
        ]
        assert torch.equal(errors[0], errors[1])

    @quick
    @given(samples, st.integers(1, 20))
    def test_lies_between_one_bin_and_a_bin_for_each(self, pairs: list[tuple[float, bool]], bins: int) -> None:
        confidence = torch.tensor([p for p, _ in pairs], dtype=torch.float64)
        correct = torch.tensor([c for _, c in pairs])
        found = calibration_error(confidence, correct, bins=bins).item()
        gap = correct.double() - confidence
        assert gap.mean().abs().item() - 1e-12 <= found <= gap.abs().mean().item() + 1e-12

    def test_one_sample(self) -> None:
        assert calibration_error(torch.tensor([0.75]), torch.tensor([True])).item() == 0.25
        assert calibration_error(torch.tensor([0.75]), torch.tensor([False])).item() == 0.75

    def test_constant_confidence_reads_its_distance_from_accuracy(self) -> None:
        # Split by sample order, these ties would read as far as .9 in the bins of wrong answers.
        confidence, correct = torch.full((100,), 0.9, dtype=torch.float64), torch.arange(100) < 60
        assert calibration_error(confidence, correct).item() == pytest.approx(0.3)

    def test_known_miscalibration(self) -> None:
        confidence, correct = calibrated(200_000)
        assert calibration_error(confidence, correct).item() < 0.006
        assert calibration_error((confidence - 0.1).clamp_min(0), correct).item() == pytest.approx(0.1, abs=0.006)

    @each("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_dtypes(self, dtype: torch.dtype) -> None:
        confidence, correct = calibrated(50)
        confidence = confidence.to(dtype)
        for answers in (correct, correct.int(), correct.float()):
            found = calibration_error(confidence, answers)
            assert found.dtype == torch.promote_types(dtype, torch.float32)
            assert found.item() == pytest.approx(calibration_error(confidence.double(), correct).item(), abs=1e-6)

    def test_refuses(self) -> None:
        with pytest.raises(InputError, match="at least one sample"):
            calibration_error(torch.zeros(0), torch.zeros(0))
        with pytest.raises(InputError, match="one operating point at a time"):
            calibration_error(torch.zeros(2, 3), torch.zeros(2, 3))
        with pytest.raises(InputError, match="3 booleans"):
            calibration_error(torch.zeros(3), torch.zeros(2))
        with pytest.raises(InputError, match="predictions == labels"):
            calibration_error(torch.zeros(3), torch.tensor([0, 1, 2]))
        with pytest.raises(InputError, match=r"in \[0, 1\]"):
            calibration_error(torch.tensor([math.nan]), torch.tensor([True]))
        with pytest.raises(InputError, match="not logits or percentages"):
            calibration_error(torch.tensor([95.0]), torch.tensor([True]))
        with pytest.raises(InputError, match="bins of at least 1, got 0"):
            calibration_error(torch.tensor([0.5]), torch.tensor([True]), bins=0)


class TestFloor:
    def test_closed_form_of_one_bin(self) -> None:
        # The error is |B/N - p| with B binomial: its median is that of a half normal.
        p, num_samples = 0.8, 2000
        floor = calibration_floor(torch.full((num_samples,), p), bins=1, draws=2000, generator=generator())
        expected = 0.67449 * math.sqrt(p * (1 - p) / num_samples)
        assert floor.item() == pytest.approx(expected, rel=0.08)

    def test_is_what_calibrated_samples_read(self) -> None:
        confidence, _ = calibrated(400)
        floor = calibration_floor(confidence, generator=generator())
        uniform = torch.rand(301, 400, dtype=torch.float64, generator=generator(5))
        read = [error_by_loop(confidence.numpy(), (row < confidence).numpy(), 15) for row in uniform]
        assert floor.item() == pytest.approx(float(np.median(read)), rel=0.06)

    def test_shrinks_with_the_square_root_of_n(self) -> None:
        floors = [calibration_floor(calibrated(n)[0], generator=generator()).item() for n in (500, 8000)]
        assert floors[0] / floors[1] == pytest.approx(4, rel=0.15)

    def test_certain_predictions_have_none(self) -> None:
        assert calibration_floor(torch.tensor([0.0, 1.0, 1.0]), generator=generator()).item() == 0

    def test_repeats_with_the_seed_and_leaves_the_global_one_alone(self) -> None:
        confidence, _ = calibrated(50)
        before = torch.get_rng_state()
        first, second, other = (calibration_floor(confidence, generator=generator(seed)) for seed in (0, 0, 1))
        assert torch.equal(first, second)
        assert not torch.equal(first, other)
        assert torch.equal(torch.get_rng_state(), before)

    def test_refuses(self) -> None:
        with pytest.raises(InputError, match="at least one sample"):
            calibration_floor(torch.zeros(0), generator=generator())
        with pytest.raises(InputError, match="draws of at least 1"):
            calibration_floor(torch.zeros(1), draws=0, generator=generator())
