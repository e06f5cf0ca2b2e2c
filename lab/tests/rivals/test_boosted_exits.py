import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.exits._exit_set import all_logits
from offramp_bench.rivals.boosted_exits import BoostedExits
from tests.cases import each

WIDTHS = (6, 5, 4, 7)
STAGES = (0, 2, 3)
K, W = 3, 4


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(count: int) -> Tensor:
    return torch.randn(count, sum(WIDTHS), dtype=torch.float64, generator=generator())


def make_exits(stacked: int = W, seed: int = 1) -> BoostedExits:
    """Make exits whose cost weights all differ."""
    exits = BoostedExits(WIDTHS, STAGES, K, stacked=stacked).double()
    with torch.no_grad():
        for index, parameter in enumerate(exits.parameters()):
            draw = generator(seed + 10 * index)
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=draw))
    return exits


def own_answers(exits: BoostedExits, rows: Tensor, point: int) -> list[Tensor]:
    """Return f of each exit."""
    parts = {0: rows[:, :6], 2: rows[:, 11:15], 3: rows[:, 15:22]}
    return [
        F.linear(parts[stage], exits.weights[str(stage)][:, point], exits.biases[str(stage)][:, point])
        for stage in STAGES
    ]


class TestAnswers:
    def test_each_adds_to_half_of_the_one_before(self) -> None:
        exits, rows = make_exits(), features(7)
        for point in range(W):
            first, second, third = own_answers(exits, rows, point)
            expected = [first, second + first / 2, third + second / 2 + first / 4]
            for actual, answer in zip(exits(rows), expected, strict=True):
                torch.testing.assert_close(actual[point], answer)

    def test_each_sample_at_its_own_point(self) -> None:
        exits, rows = make_exits(), features(9)
        point = torch.randint(0, W, (9,), generator=generator(3))
        assert len(set(point.tolist())) > 2
        state = exits.initial_state(9)
        for stage, expected in zip(STAGES, exits(rows), strict=True):
            answer, state = exits.step(stage, rows[:, exits.columns(stage)], state, point)
            torch.testing.assert_close(answer, expected[point, torch.arange(9)])

    def test_the_networks_own_head_answers_alone(self) -> None:
        exits = BoostedExits(WIDTHS, (0, 1, 2), K).double()
        own = torch.randn(5, K, dtype=torch.float64, generator=generator(1))
        assert torch.equal(all_logits(exits, features(5), {3: own})[0, :, 3], own)


class TestGradients:
    @each("exit", range(3))
    def test_an_answer_teaches_its_own_exit_alone(self, exit: int) -> None:
        exits = make_exits()
        exits(features(7))[exit].square().sum().backward()
        for place, stage in enumerate(STAGES):
            for parameter in exits.parameters_of(stage):
                assert (parameter.grad is not None and bool(parameter.grad.any())) == (place == exit)

    def test_as_if_the_answer_before_were_a_constant(self) -> None:
        exits, rows = make_exits(stacked=1), features(7)
        labels = torch.arange(7) % K
        before = exits(rows)[0][0].detach()
        weight = exits.weights["2"]
        (actual,) = torch.autograd.grad(F.cross_entropy(exits(rows)[1][0], labels), [weight])
        logits = F.linear(rows[:, 11:15], weight[:, 0], exits.biases["2"][:, 0]) + before / 2
        (expected,) = torch.autograd.grad(F.cross_entropy(logits, labels), [weight])
        torch.testing.assert_close(actual, expected)


class TestPoints:
    def test_stack_and_take(self) -> None:
        exits = make_exits()
        expected = exits(features(3))
        for point in range(W):
            taken = exits.take(point)
            assert type(taken) is BoostedExits
            for actual, row in zip(taken.stack(2)(features(3)), expected, strict=True):
                torch.testing.assert_close(actual[1], row[point])

    def test_copy_points(self) -> None:
        exits, other = make_exits(), make_exits(seed=2)
        mine, theirs = exits(features(3)), other(features(3))
        exits.copy_points(other, torch.tensor([True, False, False, True]))
        for actual, before, copied in zip(exits(features(3)), mine, theirs, strict=True):
            for point in range(W):
                assert torch.equal(actual[point], (copied if point in (0, 3) else before)[point])


def test_costs_by_hand() -> None:
    exits = make_exits()
    assert [exits.mul_adds(stage) for stage in STAGES] == [(7 * K, 0), (5 * K + K, 0), (8 * K + K, 0)]
    assert exits.carries_state
