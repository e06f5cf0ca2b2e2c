import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from torch import Tensor

from offramp.functional import evidence
from offramp.functional._statistics import EVIDENCE_SIZE, log_probabilities
from tests.cases import each

quick = settings(deadline=None, max_examples=60)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_numpy(log_p: Tensor) -> Tensor:
    """The four statistics by sorting and by scipy, float64."""
    p = np.exp(log_p.double().numpy())
    p = p / p.sum(-1, keepdims=True)
    ranked = np.sort(p, axis=-1)[..., ::-1]
    squared = p**2 / (p**2).sum(-1, keepdims=True)
    columns = [ranked[..., 0], entropy(p, axis=-1), entropy(squared, axis=-1), ranked[..., 0] - ranked[..., 1]]
    return torch.from_numpy(np.stack([np.asarray(column) for column in columns], axis=-1))


class TestEvidence:
    @each("num_classes", [2, 3, 10, 1000])
    @each("scale", [0.01, 1.0, 6.0])
    def test_against_numpy(self, num_classes: int, scale: float) -> None:
        logits = scale * torch.randn(50, num_classes, dtype=torch.float64, generator=generator())
        log_p = logits.log_softmax(-1)
        torch.testing.assert_close(evidence(log_p), by_numpy(log_p), rtol=1e-9, atol=1e-12)

    @each("shape", [(7,), (5, 7), (3, 5, 7), (2, 3, 5, 7), (2, 2, 3, 5, 7)])
    def test_any_leading_axes(self, shape: tuple[int, ...]) -> None:
        log_p = torch.randn(shape, dtype=torch.float64, generator=generator()).log_softmax(-1)
        found = evidence(log_p)
        assert found.shape == (*shape[:-1], EVIDENCE_SIZE)
        torch.testing.assert_close(found, by_numpy(log_p))

    @each("num_classes", [2, 3, 10, 77, 1000])
    @each("dtype", [torch.float32, torch.float64])
    def test_knowing_nothing(self, num_classes: int, dtype: torch.dtype) -> None:
        found = evidence(log_probabilities(torch.zeros(4, num_classes, dtype=dtype)))
        doubt = math.log(num_classes)
        expected = torch.tensor([1 / num_classes, doubt, doubt, 0.0], dtype=dtype).expand(4, 4)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert (found[:, 3] == 0).all()

    @each("others", [1, 2, 9, 999])
    def test_two_classes_share_the_first_place(self, others: int) -> None:
        logits = torch.zeros(1, 2 + others)
        logits[0, [0, -1]] = 3.0
        log_p = log_probabilities(logits)
        assert evidence(log_p)[0, 3] == 0
        torch.testing.assert_close(evidence(log_p).double(), by_numpy(log_p), rtol=1e-5, atol=1e-6)

    @each("num_classes", [2, 10, 1000])
    @each("height", [30.0, 200.0, 1e4])
    def test_knowing_everything(self, num_classes: int, height: float) -> None:
        logits = torch.zeros(1, num_classes)
        logits[0, 1] = height
        found = evidence(log_probabilities(logits))
        torch.testing.assert_close(found, torch.tensor([[1.0, 0.0, 0.0, 1.0]]), rtol=0, atol=1e-5)

    @quick
    @given(
        logits=st.lists(st.floats(-40, 40, width=32), min_size=2, max_size=20),
        shift=st.floats(-100, 100, width=32),
    )
    def test_bounds_and_symmetries(self, logits: list[float], shift: float) -> None:
        scores = torch.tensor(logits, dtype=torch.float64)
        found = evidence(log_probabilities(scores))
        largest, doubt, sharpened, margin = found.tolist()
        assert 1 / len(logits) - 1e-9 <= largest <= 1 + 1e-9
        assert -1e-9 <= sharpened <= doubt + 1e-9 <= math.log(len(logits)) + 2e-9
        assert 0 <= margin <= largest
        order = torch.randperm(len(logits), generator=generator())
        torch.testing.assert_close(evidence(log_probabilities(scores[order] + shift)), found, rtol=1e-9, atol=1e-9)

    def test_half_precision_logits(self) -> None:
        logits = (5 * torch.randn(40, 1000, generator=generator())).half()
        found = evidence(log_probabilities(logits))
        assert found.dtype == torch.float32
        # The reference sees the rounded logits, so only what is lost afterwards counts.
        expected = by_numpy(logits.double().log_softmax(-1))
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)

    def test_gradient(self) -> None:
        # JEI-DNN-FULL sends gradients through here.
        logits = torch.randn(2, 3, 4, 5, dtype=torch.float64, generator=generator()).requires_grad_()
        assert torch.autograd.gradcheck(lambda x: evidence(log_probabilities(x)), logits)


class TestLogProbabilities:
    @each("shape", [(7,), (5, 7), (3, 5, 7), (2, 3, 5, 7)])
    @each("dtype", [torch.float32, torch.float64])
    def test_is_log_softmax(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        logits = 9 * torch.randn(shape, dtype=dtype, generator=generator())
        found = log_probabilities(logits)
        assert found.dtype == dtype
        torch.testing.assert_close(found, torch.log_softmax(logits, -1))

    @quick
    @given(data=st.data(), ndim=st.integers(1, 4))
    def test_any_strides(self, data: st.DataObject, ndim: int) -> None:
        stored = torch.randn([data.draw(st.integers(1, 4)) for _ in range(ndim)], generator=generator())
        logits = stored.permute(data.draw(st.permutations(range(ndim))))
        for axis in range(ndim):
            if data.draw(st.booleans()):
                logits = logits.repeat_interleave(2, axis).narrow(axis, 0, 2 * logits.shape[axis] - 1)
                logits = logits[(slice(None),) * axis + (slice(None, None, 2),)]
        torch.testing.assert_close(log_probabilities(logits), torch.log_softmax(logits, -1))
        expanded = logits.expand(3, *logits.shape)
        torch.testing.assert_close(log_probabilities(expanded), torch.log_softmax(expanded, -1))

    @each("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_widened_first(self, dtype: torch.dtype) -> None:
        logits = (20 * torch.randn(30, 1000, generator=generator())).to(dtype)
        found = log_probabilities(logits)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, torch.log_softmax(logits.float(), -1))

    def test_gradient(self) -> None:
        logits = torch.randn(2, 3, 4, 5, dtype=torch.float64, generator=generator()).requires_grad_()
        assert torch.autograd.gradcheck(log_probabilities, logits)
