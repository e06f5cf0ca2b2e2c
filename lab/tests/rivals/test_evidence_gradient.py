import torch
from torch import Tensor

from offramp.functional import evidence
from offramp.functional._statistics import log_probabilities
from offramp_bench.rivals.evidence_gradient import differentiable_evidence
from tests.cases import each


def logits(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@each("shape", [(3, 5, 4, 7), (1, 5, 4, 2), (2, 1, 1, 10), (5, 4, 3)])
def test_statistics_and_their_gradients(shape: tuple[int, ...]) -> None:
    inputs = logits(*shape).requires_grad_()
    weights = logits(*shape[:-1], 4, seed=1)
    actual, expected = differentiable_evidence(log_probabilities(inputs)), evidence(log_probabilities(inputs))
    assert torch.equal(actual, expected)
    gradients = [torch.autograd.grad((weights * outputs).sum(), [inputs])[0] for outputs in (actual, expected)]
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0.01


@each("statistic", range(4))
def test_by_finite_differences(statistic: int) -> None:
    inputs = logits(2, 3, 2, 5, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda values: differentiable_evidence(log_probabilities(values))[..., statistic], (inputs,)
    )


def test_answers_that_are_certain() -> None:
    # The other probabilities vanish in single precision.
    inputs = torch.tensor([[[200.0, 0.0, -50.0]]], requires_grad=True)
    (actual,) = torch.autograd.grad(differentiable_evidence(log_probabilities(inputs)).sum(), [inputs])
    torch.testing.assert_close(actual, torch.zeros(1, 1, 3))
