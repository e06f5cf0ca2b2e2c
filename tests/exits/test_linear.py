import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.exits import LinearExits
from offramp.exits._gate import Gates
from offramp.exits._linear import CumulativeLinearExits
from tests.cases import each

WIDTHS = (6, 5, 4, 7)
STAGES = (0, 2, 3)
K, W = 3, 4
both = each("kind", [LinearExits, CumulativeLinearExits])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(count: int) -> Tensor:
    return torch.randn(count, sum(WIDTHS), dtype=torch.float64, generator=generator())


def made(kind: type[LinearExits], stacked: int = W, seed: int = 1) -> LinearExits:
    """Exits whose cost weights all differ."""
    exits = kind(WIDTHS, STAGES, K, stacked=stacked).double()
    with torch.no_grad():
        for index, parameter in enumerate(exits.parameters()):
            draw = generator(seed + 10 * index)
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=draw))
    return exits


def read_by_hand(kind: type[LinearExits], rows: Tensor, stage: int) -> Tensor:
    """Return the features that the exit after `stage` reads; no exit reads stage 1, which has none of its own."""
    parts = {0: rows[:, :6], 2: rows[:, 11:15], 3: rows[:, 15:22]}
    if kind is LinearExits:
        return parts[stage]
    return torch.cat([part for earlier, part in parts.items() if earlier <= stage], dim=1)


class TestAnswers:
    @both
    def test_are_linear_layers(self, kind: type[LinearExits]) -> None:
        exits, rows = made(kind), features(7)
        for stage, found in zip(STAGES, exits(rows), strict=True):
            assert found.shape == (W, 7, K)
            for w in range(W):
                weight, bias = exits.weights[str(stage)][:, w], exits.biases[str(stage)][:, w]
                torch.testing.assert_close(found[w], F.linear(read_by_hand(kind, rows, stage), weight, bias))

    @both
    def test_each_sample_at_its_own_point(self, kind: type[LinearExits]) -> None:
        exits, rows = made(kind), features(9)
        point = torch.randint(0, W, (9,), generator=generator(3))
        assert len(set(point.tolist())) > 2
        state = exits.initial_state(9)
        for stage, expected in zip(STAGES, exits(rows), strict=True):
            answer, state = exits.step(stage, rows[:, exits.columns(stage)], state, point)
            for sample in range(9):
                torch.testing.assert_close(answer[sample], expected[point[sample], sample])

    @both
    def test_gradients_stay_with_their_cost_weight(self, kind: type[LinearExits]) -> None:
        exits, rows = made(kind), features(7)
        sum(answer[2].square().sum() for answer in exits(rows)).backward()
        for weight in exits.weights.values():
            assert weight.grad is not None
            assert weight.grad[:, 2].any()
            assert not weight.grad[:, [0, 1, 3]].any()


class TestStacking:
    @both
    def test_stack_repeats(self, kind: type[LinearExits]) -> None:
        alone = made(kind, stacked=1)
        stacked = alone.stack(5)
        assert type(stacked) is kind
        assert stacked.stacked == 5
        for found, expected in zip(stacked(features(3)), alone(features(3)), strict=True):
            assert found.shape == (5, 3, K)
            for w in range(5):
                torch.testing.assert_close(found[w], expected[0])

    @both
    def test_take_picks(self, kind: type[LinearExits]) -> None:
        exits = made(kind)
        expected = exits(features(3))
        for w in range(W):
            taken = exits.take(w)
            assert type(taken) is kind
            assert taken.stacked == 1
            for found, row in zip(taken(features(3)), expected, strict=True):
                torch.testing.assert_close(found[0], row[w])

    @both
    def test_they_are_copies(self, kind: type[LinearExits]) -> None:
        exits = made(kind, stacked=1)
        before = [answer.detach().clone() for answer in exits(features(3))]
        for copy in (exits.stack(2), exits.take(0)):
            assert all(parameter.requires_grad for parameter in copy.parameters())
            with torch.no_grad():
                for parameter in copy.parameters():
                    parameter.zero_()
        for found, expected in zip(exits(features(3)), before, strict=True):
            assert torch.equal(found, expected)

    @both
    @each("points", [[True, False, False, True], [False] * 4, [True] * 4])
    def test_copy_points(self, kind: type[LinearExits], points: list[bool]) -> None:
        exits, other = made(kind), made(kind, seed=2)
        mine, theirs = exits(features(3)), other(features(3))
        exits.copy_points(other, torch.tensor(points))
        for found, kept, taken in zip(exits(features(3)), mine, theirs, strict=True):
            for w in range(W):
                assert torch.equal(found[w], taken[w] if points[w] else kept[w])
        for found, expected in zip(other(features(3)), theirs, strict=True):
            assert torch.equal(found, expected)


class TestParameters:
    @both
    def test_by_exit(self, kind: type[LinearExits]) -> None:
        exits = made(kind)
        listed = [id(parameter) for stage in STAGES for parameter in exits.parameters_of(stage)]
        assert sorted(listed) == sorted(map(id, exits.parameters()))
        for stage, answer in zip(STAGES, exits(features(7)), strict=True):
            # An answer depends on the parameters of its exit and on those alone.
            for parameter in exits.parameters():
                (gradient,) = torch.autograd.grad(answer.sum(), [parameter], retain_graph=True, allow_unused=True)
                owned = any(parameter is own for own in exits.parameters_of(stage))
                assert (gradient is not None) == owned


class TestStart:
    @both
    def test_as_a_linear_layer_and_alike_for_every_cost_weight(self, kind: type[LinearExits]) -> None:
        torch.manual_seed(0)
        exits = kind((400, 100), (0, 1), 50, stacked=3)
        for stage, reads in ((0, 400), (1, 100 if kind is LinearExits else 500)):
            weight, bias = exits.weights[str(stage)], exits.biases[str(stage)]
            assert weight.shape == (50, 3, reads)
            assert torch.equal(weight[:, 0], weight[:, 1])
            assert torch.equal(bias[:, 0], bias[:, 2])
            # torch.nn.Linear: uniform within 1 / sqrt(fan-in), so of that standard deviation over sqrt(3).
            bound = reads**-0.5
            assert weight.abs().max() <= bound
            assert bias.abs().max() <= bound
            assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.03)
            assert bias.std().item() == pytest.approx(bound / 3**0.5, rel=0.3)


class TestSizes:
    @each(
        ("num_exits", "width", "num_classes", "im", "total"),
        [(7, 256, 10, 2570, 15_450), (14, 384, 100, 38_500, 500_565)],
    )
    def test_the_papers(self, num_exits: int, width: int, num_classes: int, im: int, total: int) -> None:
        # T2T-ViT-7 on CIFAR-10 and T2T-ViT-14 on CIFAR-100, gates included.
        exits = LinearExits((width,) * num_exits, tuple(range(num_exits - 1)), num_classes)
        gates = Gates(num_exits)
        trained = [parameter for module in (exits, gates) for parameter in module.parameters()]
        assert all(parameter.requires_grad for parameter in trained)
        assert sum(parameter.numel() for parameter in trained) == total
        assert {exits.mul_adds(stage) for stage in exits.stages} == {(0, im)}

    def test_cumulative_exits_grow(self) -> None:
        exits = CumulativeLinearExits(WIDTHS, STAGES, K)
        assert [exits.mul_adds(stage) for stage in STAGES] == [(0, 7 * K), (0, 11 * K), (0, 18 * K)]
        assert exits.carries_state
        assert not LinearExits.carries_state
