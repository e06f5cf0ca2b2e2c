"""Values and gradients of the losses, against the equations written out sample by sample and exit by exit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest
import torch
from torch import Tensor

from offramp.functional import evidence, exit_distribution, gate_loss, gate_targets, weighted_loss
from offramp.functional._objective import (
    cross_entropies,
    full_loss,
    plain_loss,
    priced_losses,
    rescaled_loss,
)
from offramp.functional._statistics import log_probabilities
from tests.cases import each

W, N, L, K = 3, 6, 4, 5
COSTS = [0.2, 0.45, 0.8, 1.0]
COST_WEIGHTS = [0.05, 0.6, 3.0]


@dataclass(frozen=True)
class Problem:
    """Leaves with a gradient: the classifiers' logits and the gates' parameters; and labels."""

    logits: Tensor
    """`W x N x L x K`."""
    weight: Tensor
    """`W x (L-1) x 4`."""
    bias: Tensor
    """`W x (L-1)`."""
    labels: Tensor
    """`N`."""

    @property
    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.logits, self.weight, self.bias


def problem(num_samples: int = N, seed: int = 0) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    logits, weight, bias = 2 * draw(W, num_samples, L, K), 0.5 * draw(W, L - 1, 4), draw(W, L - 1) - 1
    labels = torch.randint(0, K, (num_samples,), generator=generator)
    return Problem(logits.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), labels)


def ours(given: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropies `W x N x L`, gate logits `W x N x (L-1)` and the exit distribution, by the library."""
    log_p = log_probabilities(given.logits)
    gate_logits = (evidence(log_p)[:, :, :-1] * given.weight[:, None]).sum(-1) + given.bias[:, None]
    scores = torch.cat([gate_logits.sigmoid(), torch.ones_like(gate_logits[..., :1])], dim=-1)
    return cross_entropies(log_p, given.labels), gate_logits, exit_distribution(scores)


# The same, written out: scalars, loops, and nothing of the library.


def cross_entropy_of(logits: Tensor, label: int) -> Tensor:
    return torch.log(torch.exp(logits).sum()) - logits[label]


def gate_logit_of(logits: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    p = torch.exp(logits) / torch.exp(logits).sum()
    sharpened = p**2 / (p**2).sum()
    ranked = torch.sort(p, descending=True).values
    statistics = (ranked[0], -(p * p.log()).sum(), -(sharpened * sharpened.log()).sum(), ranked[0] - ranked[1])
    return bias + (weight * torch.stack(statistics)).sum()


@dataclass(frozen=True)
class Terms:
    """Everything about one sample, a list entry an exit."""

    losses: list[Tensor]
    gates: list[Tensor]
    probabilities: list[Tensor]


def terms(given: Problem, w: int, sample: int) -> Terms:
    logits = given.logits[w, sample]
    losses = [cross_entropy_of(logits[exit], int(given.labels[sample])) for exit in range(L)]
    gates = [
        1 / (1 + torch.exp(-gate_logit_of(logits[exit], given.weight[w, exit], given.bias[w, exit])))
        for exit in range(L - 1)
    ]
    left = torch.ones((), dtype=torch.float64)
    probabilities = []
    for gate in [*gates, torch.ones((), dtype=torch.float64)]:
        if left <= 0:
            probabilities.append(torch.zeros((), dtype=torch.float64))
        else:
            probabilities.append(gate if gate < left else left)
        left = left - gate
    return Terms(losses, gates, probabilities)


def plain_by_hand(given: Problem, w: int) -> Tensor:
    count = given.logits.shape[1]
    return sum((loss for i in range(count) for loss in terms(given, w, i).losses), torch.tensor(0.0)) / count


def weighted_by_hand(given: Problem, w: int) -> Tensor:
    total, count = torch.zeros((), dtype=torch.float64), given.logits.shape[1]
    for i in range(count):
        of = terms(given, w, i)
        for exit in range(L):
            total = total + of.probabilities[exit].item() * of.losses[exit]
    return total / count


def rescaled_by_hand(given: Problem, w: int) -> Tensor:
    weighted = weighted_by_hand(given, w)
    return plain_by_hand(given, w).item() / weighted.item() * weighted


def full_by_hand(given: Problem, w: int) -> Tensor:
    total, count = torch.zeros((), dtype=torch.float64), given.logits.shape[1]
    for i in range(count):
        of = terms(given, w, i)
        for exit in range(L):
            total = total + of.probabilities[exit] * (of.losses[exit] + COST_WEIGHTS[w] * COSTS[exit])
    return total / count


def plain(given: Problem) -> Tensor:
    return plain_loss(ours(given)[0])


def weighted(given: Problem) -> Tensor:
    losses, _, probability = ours(given)
    return weighted_loss(losses, probability)


def rescaled(given: Problem) -> Tensor:
    losses, _, probability = ours(given)
    return rescaled_loss(losses, probability)


def full(given: Problem) -> Tensor:
    losses, _, probability = ours(given)
    weights = torch.tensor(COST_WEIGHTS, dtype=torch.float64)
    return full_loss(priced_losses(losses, torch.tensor(COSTS, dtype=torch.float64), weights), probability)


Ours = Callable[[Problem], Tensor]
ByHand = Callable[[Problem, int], Tensor]
PAIRS: list[tuple[Ours, ByHand]] = [
    (plain, plain_by_hand),
    (weighted, weighted_by_hand),
    (rescaled, rescaled_by_hand),
    (full, full_by_hand),
]
every_loss = each("loss", [plain, weighted, rescaled, full])


def gradients(value: Tensor, given: Problem) -> tuple[Tensor, ...]:
    """Gradients of the sum over cost weights; zeros where nothing flows."""
    found = torch.autograd.grad(value.sum(), given.leaves, allow_unused=True)
    return tuple(
        torch.zeros_like(leaf) if gradient is None else gradient
        for gradient, leaf in zip(cast(tuple[Tensor | None, ...], found), given.leaves, strict=True)
    )


class TestCrossEntropies:
    @each("leading", [(), (2,), (2, 3)])
    def test_entry_by_entry(self, leading: tuple[int, ...]) -> None:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(*leading, N, L, K, dtype=torch.float64, generator=generator)
        labels = torch.randint(0, K, (N,), generator=generator)
        found = cross_entropies(log_probabilities(logits), labels).reshape(-1, N, L)
        for w, table in enumerate(logits.reshape(-1, N, L, K)):
            for i in range(N):
                for exit in range(L):
                    expected = cross_entropy_of(table[i, exit], int(labels[i])).item()
                    assert found[w, i, exit].item() == pytest.approx(expected)
        assert cross_entropies(log_probabilities(logits), labels).shape == (*leading, N, L)


class TestAgainstTheEquations:
    def test_the_problem_has_all_cases(self) -> None:
        # Gates that take their score, gates that take the rest, and gates nobody reaches.
        given = problem()
        _, gate_logits, probability = ours(given)
        scores = gate_logits.sigmoid()
        assert (probability[..., :-1] == scores).any()
        assert ((probability[..., :-1] > 0) & (probability[..., :-1] < scores)).any()
        assert (probability == 0).any()

    @each(("loss", "by_hand"), PAIRS)
    @each("seed", range(3))
    def test_value_and_gradients(self, loss: Ours, by_hand: ByHand, seed: int) -> None:
        given = problem(seed=seed)
        found = loss(given)
        expected = torch.stack([by_hand(given, w) for w in range(W)])
        torch.testing.assert_close(found, expected)
        for gradient, reference in zip(gradients(found, given), gradients(expected, given), strict=True):
            torch.testing.assert_close(gradient, reference, rtol=1e-7, atol=1e-10)

    @each("kind", ["exit_subsequent", "exit_if_min"])
    def test_gate_loss(self, kind: str) -> None:
        given = problem()
        losses, gate_logits, _ = ours(given)
        costs, weights = torch.tensor(COSTS).double(), torch.tensor(COST_WEIGHTS).double()
        priced = priced_losses(losses, costs, weights)
        positive = torch.rand(W, L - 1, dtype=torch.float64, generator=torch.Generator().manual_seed(4)) * 5
        subsequent = kind == "exit_subsequent"
        targets = gate_targets(priced, kind="exit_subsequent" if subsequent else "exit_if_min")
        found = gate_loss(gate_logits, targets, positive)

        expected = []
        for w in range(W):
            total = torch.zeros((), dtype=torch.float64)
            for i in range(N):
                of = terms(given, w, i)
                prices = [loss.item() + COST_WEIGHTS[w] * cost for loss, cost in zip(of.losses, COSTS, strict=True)]
                cheapest = prices.index(min(prices))
                for gate in range(L - 1):
                    unbeaten = all(prices[gate] < later for later in prices[gate + 1 :])
                    opens = gate >= cheapest and (subsequent or gate == cheapest or unbeaten)
                    score = of.gates[gate]
                    total = total - (positive[w, gate] * score.log() if opens else (1 - score).log())
            expected.append(total / N)
        torch.testing.assert_close(found, torch.stack(expected))
        for gradient, reference in zip(gradients(found, given), gradients(torch.stack(expected), given), strict=True):
            torch.testing.assert_close(gradient, reference, rtol=1e-7, atol=1e-10)


class TestWhatFlowsWhere:
    def test_only_the_full_loss_reaches_the_gates(self) -> None:
        given = problem()
        for loss in (plain, weighted, rescaled):
            _, weight, bias = gradients(loss(given), given)
            assert not weight.any()
            assert not bias.any()
        _, weight, bias = gradients(full(given), given)
        assert weight.any()
        assert bias.any()

    def test_rescaled_has_the_value_of_plain_and_the_direction_of_weighted(self) -> None:
        given = problem()
        torch.testing.assert_close(rescaled(given), plain(given))
        ratio = (plain(given) / weighted(given)).detach()
        assert (ratio > 1.5).all()
        expected = ratio[:, None, None, None] * gradients(weighted(given), given)[0]
        torch.testing.assert_close(gradients(rescaled(given), given)[0], expected)

    def test_the_released_ratio_cancels_the_weights(self) -> None:
        # Not holding the ratio constant: value and gradient are those of plain, whatever the gates say.
        given = problem()
        losses, _, probability = ours(given)
        product = (probability.detach() * losses).sum((1, 2))
        released = losses.sum((1, 2)) / product * product / N
        torch.testing.assert_close(released, plain(given))
        found, expected = gradients(released, given)[0], gradients(plain(given), given)[0]
        torch.testing.assert_close(found, expected)
        assert (gradients(weighted(given), given)[0] - expected).abs().max() > 0.01

    def test_rescaled_with_nothing_left_to_learn(self) -> None:
        found = rescaled_loss(torch.zeros(1, 2, 3), torch.full((1, 2, 3), 1 / 3))
        assert found.tolist() == [0.0]


class TestManyCostWeights:
    @every_loss
    def test_at_once_is_one_by_one(self, loss: Ours) -> None:
        given = problem()
        at_once = loss(given)
        found = gradients(at_once, given)
        for w in range(W):
            logits, weight, bias = (leaf.detach()[w : w + 1].clone().requires_grad_() for leaf in given.leaves)
            alone = Problem(logits, weight, bias, given.labels)
            value = loss(alone) if loss is not full else self.full_at(alone, w)
            assert value.shape == (1,)
            torch.testing.assert_close(value[0], at_once[w])
            for gradient, reference in zip(gradients(value, alone), found, strict=True):
                torch.testing.assert_close(gradient[0], reference[w])

    @staticmethod
    def full_at(given: Problem, w: int) -> Tensor:
        losses, _, probability = ours(given)
        costs = torch.tensor(COSTS, dtype=torch.float64)
        return full_loss(priced_losses(losses, costs, torch.tensor([COST_WEIGHTS[w]]).double()), probability)

    def test_gate_loss_at_once_is_one_by_one(self) -> None:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(W, N, L - 1, dtype=torch.float64, generator=generator)
        targets = torch.rand(W, N, L - 1, generator=generator) < 0.4
        positive = torch.rand(W, L - 1, dtype=torch.float64, generator=generator)
        at_once = gate_loss(logits, targets, positive)
        for w in range(W):
            rows = slice(w, w + 1)
            torch.testing.assert_close(gate_loss(logits[rows], targets[rows], positive[rows])[0], at_once[w])

    @every_loss
    def test_order_of_the_batch_does_not_matter(self, loss: Ours) -> None:
        given = problem(num_samples=17)
        order = torch.randperm(17, generator=torch.Generator().manual_seed(1))
        shuffled = Problem(
            given.logits.detach()[:, order].requires_grad_(), given.weight, given.bias, given.labels[order]
        )
        torch.testing.assert_close(loss(shuffled), loss(given))
        expected = gradients(loss(given), given)
        found = gradients(loss(shuffled), shuffled)
        torch.testing.assert_close(found[0], expected[0][:, order])
        torch.testing.assert_close(found[1:], expected[1:])
