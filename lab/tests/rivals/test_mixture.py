"""The loss of the mixture, compared with the recursion of the papers."""

from itertools import product

import pytest
import torch
from torch import Tensor

from offramp_bench.rivals.mixture import branching_loss

W, N, L, K = 3, 5, 4, 3
RELATIVE = torch.tensor([0.2, 0.5, 0.6, 1.0], dtype=torch.float64)
PRICES = torch.tensor([0.0, 0.5, 4.0], dtype=torch.float64)


def draw_example(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return probabilities `W x N x L x K`, gate logits `W x N x (L-1)` and labels."""
    draw = torch.Generator().manual_seed(seed)
    p = torch.randn(W, N, L, K, dtype=torch.float64, generator=draw).softmax(-1)
    return p, torch.randn(W, N, L - 1, dtype=torch.float64, generator=draw), torch.arange(N) % K


def cross_entropies(p: Tensor, labels: Tensor) -> Tensor:
    """Return cross-entropies `W x N x L`."""
    return -p[:, torch.arange(N), :, labels].permute(1, 0, 2).log()


def by_recursion(p: Tensor, gate_logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the loss as the papers write it, on whole answers, from the last exit backwards."""
    h = gate_logits.sigmoid()
    answer, cost = p[..., -1, :], RELATIVE[-1].expand(W, N)
    for exit in reversed(range(L - 1)):
        here = h[..., exit]
        answer = here[..., None] * p[..., exit, :] + (1 - here[..., None]) * answer
        cost = here * RELATIVE[exit] + (1 - here) * cost
    likelihood = answer.gather(-1, labels.expand(W, N)[..., None]).squeeze(-1)
    return (PRICES[:, None] * cost - likelihood.log()).mean(1)


def test_is_the_recursion() -> None:
    p, gate_logits, labels = draw_example()
    actual = branching_loss(cross_entropies(p, labels), gate_logits, RELATIVE, PRICES)
    torch.testing.assert_close(actual, by_recursion(p, gate_logits, labels))


def test_is_the_sum_over_all_ways_to_go() -> None:
    p, gate_logits, labels = draw_example(1)
    h = gate_logits.sigmoid()
    for w, n in product(range(W), range(N)):
        likelihood, cost = 0.0, 0.0
        for opened in product((False, True), repeat=L - 1):  # every gate open or shut
            chance = 1.0
            for exit, is_open in enumerate(opened):
                chance *= float(h[w, n, exit] if is_open else 1 - h[w, n, exit])
            left = opened.index(True) if any(opened) else L - 1
            likelihood += chance * float(p[w, n, left, labels[n]])
            cost += chance * float(RELATIVE[left])
        losses = cross_entropies(p, labels)[w : w + 1, n : n + 1]
        actual = branching_loss(losses, gate_logits[w : w + 1, n : n + 1], RELATIVE, PRICES[w : w + 1])
        expected = float(PRICES[w]) * cost - torch.tensor(likelihood).log().item()
        assert actual.item() == pytest.approx(expected)


def test_gradients_are_those_of_the_recursion() -> None:
    p, gate_logits, labels = draw_example(2)
    for leaf in (p, gate_logits):
        leaf.requires_grad_()
    actual = torch.autograd.grad(
        branching_loss(cross_entropies(p, labels), gate_logits, RELATIVE, PRICES).sum(), [p, gate_logits]
    )
    expected = torch.autograd.grad(by_recursion(p, gate_logits, labels).sum(), [p, gate_logits])
    for gradient, target in zip(actual, expected, strict=True):
        torch.testing.assert_close(gradient, target)


def test_gates_that_are_sure_pick_one_exit() -> None:
    losses = torch.tensor([[[1.0, 2.0, 4.0, 8.0]]])
    for exit in range(L):
        gates = torch.full((1, 1, L - 1), -1e4)
        gates[..., exit:] = 1e4
        actual = branching_loss(losses, gates, RELATIVE.float(), torch.tensor([2.0]))
        assert actual.item() == pytest.approx(2**exit + 2 * float(RELATIVE[exit]))


def test_shared_classifiers_serve_all_cost_weights() -> None:
    p, gate_logits, labels = draw_example(3)
    losses = cross_entropies(p, labels)[:1]
    actual = branching_loss(losses, gate_logits, RELATIVE, PRICES)
    torch.testing.assert_close(actual, branching_loss(losses.expand(W, N, L), gate_logits, RELATIVE, PRICES))
