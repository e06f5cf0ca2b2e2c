"""The pieces of L2W-DEN: weights, shares, and the gradient through a virtual step."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from offramp.exits import LinearExits
from offramp.features._batch import Batch
from offramp_bench.rivals.weighing import exit_losses, leave_by_shares, meta_loss, sample_weights, weighing_network
from tests.methods.examples import WIDTHS, clusters

RATE = 0.5


def batch(count: int, seed: int) -> Batch:
    return next(clusters(count, seed=seed, dtype=torch.float64).in_order(batch_size=count))


def make_exits() -> LinearExits:
    torch.manual_seed(0)
    return LinearExits(WIDTHS, (0, 1), 3).double()


def network() -> nn.Module:
    torch.manual_seed(1)
    return weighing_network(2).double()


class TestWeights:
    def test_the_network_is_the_published_one(self) -> None:
        sizes = [tuple(parameter.shape) for parameter in weighing_network(26).parameters()]
        assert sizes == [(500, 26), (500,), (26, 500), (26,)]
        assert weighing_network(3)(100 * torch.randn(50, 3)).abs().max() <= 1

    def test_are_of_mean_one_over_the_whole_matrix(self) -> None:
        losses = torch.rand(7, 2, dtype=torch.float64)
        weights = sample_weights(network(), losses)
        raw = network()(losses)
        torch.testing.assert_close(weights, 1 + 0.3 * (raw - raw.sum() / 14))
        assert weights.mean().item() == pytest.approx(1)
        assert (weights.mean(0) - 1).abs().max() > 1e-3  # not exit by exit

    def test_no_gradient_passes_through_the_losses(self) -> None:
        losses = torch.rand(7, 2, dtype=torch.float64, requires_grad=True)
        (actual,) = torch.autograd.grad(sample_weights(network(), losses).square().sum(), [losses], allow_unused=True)
        assert actual is None


class TestShares:
    def test_are_geometric_and_the_last_takes_the_rest(self) -> None:
        # r = 3/4 over 4 exits: 1, 0.75, 0.5625, 0.4219 of 2.7344, of 100 samples 36.57, 27.43, 20.57 and the rest.
        draw = torch.rand(100, 4, generator=torch.Generator().manual_seed(0))
        assert leave_by_shares(draw).bincount().tolist() == [36, 27, 20, 17]

    def test_whole_numbers_are_not_rounded_down(self) -> None:
        draw = torch.rand(175, 3, generator=torch.Generator().manual_seed(0))
        assert leave_by_shares(draw, ratio=0.5).bincount().tolist() == [100, 50, 25]

    def test_by_walking(self) -> None:
        confidence = torch.rand(50, 3, generator=torch.Generator().manual_seed(1))
        waiting, expected = list(range(50)), [2] * 50
        for exit, count in ((0, int(50 / (1 + 0.75 + 0.5625))), (1, int(50 * 0.75 / (1 + 0.75 + 0.5625)))):
            waiting.sort(key=lambda sample: -float(confidence[sample, exit]))
            for sample in waiting[:count]:
                expected[sample] = exit
            waiting = waiting[count:]
        assert leave_by_shares(confidence).tolist() == expected

    def test_of_one_sample_and_one_exit(self) -> None:
        assert leave_by_shares(torch.rand(1, 5)).tolist() == [4]
        assert leave_by_shares(torch.rand(3, 1)).tolist() == [0, 0, 0]


def by_hand(exits: LinearExits, weigher: nn.Module, train_batch: Batch, meta_batch: Batch) -> float:
    """Return the loss after a real step, on a copy of the exits, with every quantity written out."""
    stepped_exits = deepcopy(exits)
    losses = []
    for stage, start in ((0, 0), (1, 4)):
        weight, bias = stepped_exits.weights[str(stage)], stepped_exits.biases[str(stage)]
        inputs = train_batch.features[:, start : start + WIDTHS[stage]]
        losses.append(F.cross_entropy(inputs @ weight[:, 0].T + bias[:, 0], train_batch.labels, reduction="none"))
    matrix = torch.stack(losses, 1)
    raw = weigher(matrix.detach())
    weights = (1 + 0.3 * (raw - raw.mean())).detach()
    optimizer = torch.optim.SGD(stepped_exits.parameters(), lr=RATE)
    torch.autograd.backward((weights * matrix).sum() / len(train_batch.labels))
    optimizer.step()
    with torch.no_grad():
        answers = [answer[0] for answer in stepped_exits(meta_batch.features)] + [meta_batch.own_logits[2]]
        p = torch.stack([answer.softmax(1) for answer in answers], 1)
        exits_taken = leave_by_shares(p.amax(2))
        rows = torch.arange(len(meta_batch.labels))
        return float(-p[rows, exits_taken, meta_batch.labels].log().mean())


class TestMetaLoss:
    def test_is_the_loss_after_the_step(self) -> None:
        exits, weigher, train_batch, meta_batch = make_exits(), network(), batch(20, 0), batch(24, 1)
        actual = meta_loss(exits, weigher, train_batch, meta_batch, rate=RATE)
        assert actual.item() == pytest.approx(by_hand(exits, weigher, train_batch, meta_batch), rel=1e-9)

    def test_the_exits_stay_as_they_are(self) -> None:
        exits, before = make_exits(), make_exits().state_dict()
        meta_loss(exits, network(), batch(20, 0), batch(24, 1), rate=RATE)
        assert all(torch.equal(value, before[key]) for key, value in exits.state_dict().items())

    def test_its_gradient_is_that_of_finite_differences(self) -> None:
        exits, weigher, train_batch, meta_batch = make_exits(), network(), batch(20, 0), batch(24, 1)
        last = [module for module in weigher.modules() if isinstance(module, nn.Linear)][-1]
        learned: list[Tensor] = [last.weight, last.bias]
        actual = torch.autograd.grad(meta_loss(exits, weigher, train_batch, meta_batch, rate=RATE), learned)
        for parameter, gradient in zip(learned, actual, strict=True):
            for index in [(0,) * parameter.ndim, (1,) * parameter.ndim]:
                ends = []
                for change in (1e-4, -1e-4):
                    parameter.data[index] += change
                    ends.append(by_hand(exits, weigher, train_batch, meta_batch))
                    parameter.data[index] -= change
                difference = (ends[0] - ends[1]) / 2e-4
                assert difference != 0
                assert gradient[index].item() == pytest.approx(difference, rel=1e-4)

    def test_a_step_of_nothing_teaches_nothing(self) -> None:
        weigher = network()
        loss = meta_loss(make_exits(), weigher, batch(20, 0), batch(24, 1), rate=0.0)
        assert all(not gradient.any() for gradient in torch.autograd.grad(loss, list(weigher.parameters())))


def test_losses_are_those_of_the_trained_exits() -> None:
    exits, train_batch = make_exits(), batch(20, 0)
    actual = exit_losses(exits, train_batch)
    for exit, answer in enumerate(exits(train_batch.features)):
        torch.testing.assert_close(actual[:, exit], F.cross_entropy(answer[0], train_batch.labels, reduction="none"))
