import torch
import torch.nn.functional as F
from torch import Tensor

from offramp_bench.rivals.cascaded_exits import CascadedExits
from tests.cases import each

WIDTHS = (6, 5, 4, 7)
STAGES = (0, 2, 3)
K, W = 3, 4
PARTS = {0: slice(0, 6), 2: slice(11, 15), 3: slice(15, 22)}


def features(count: int) -> Tensor:
    return torch.randn(count, sum(WIDTHS), dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def make_exits(stacked: int = W) -> CascadedExits:
    """Make exits whose cost weights all differ."""
    exits = CascadedExits(WIDTHS, STAGES, K, stacked=stacked).double()
    with torch.no_grad():
        for index, parameter in enumerate(exits.parameters()):
            draw = torch.Generator().manual_seed(10 * index)
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=draw))
    return exits


def by_hand(exits: CascadedExits, rows: Tensor, point: int) -> list[Tensor]:
    """Return logits from concatenated features and normalised previous logits."""
    answers: list[Tensor] = []
    for stage in STAGES:
        inputs = rows[:, PARTS[stage]]
        if answers:
            before = answers[-1]
            spread = before.var(1, correction=0, keepdim=True)
            inputs = torch.cat([inputs, (before - before.mean(1, keepdim=True)) / (spread + 1e-5).sqrt()], dim=1)
        answers.append(F.linear(inputs, exits.weights[str(stage)][:, point], exits.biases[str(stage)][:, point]))
    return answers


def test_each_reads_the_answer_before() -> None:
    exits, rows = make_exits(), features(7)
    for point in range(W):
        for actual, expected in zip(exits(rows), by_hand(exits, rows, point), strict=True):
            torch.testing.assert_close(actual[point], expected)


@each("count", [1, 9])
def test_each_sample_at_its_own_point(count: int) -> None:
    exits, rows = make_exits(), features(count)
    point = torch.randint(0, W, (count,), generator=torch.Generator().manual_seed(3))
    state = exits.initial_state(count)
    for stage, expected in zip(STAGES, exits(rows), strict=True):
        answer, state = exits.step(stage, rows[:, exits.columns(stage)], state, point)
        torch.testing.assert_close(answer, expected[point, torch.arange(count)])


@each("exit", range(3))
def test_an_answer_teaches_its_own_exit_alone(exit: int) -> None:
    exits = make_exits()
    exits(features(7))[exit].square().sum().backward()
    for place, stage in enumerate(STAGES):
        for parameter in exits.parameters_of(stage):
            assert (parameter.grad is not None and bool(parameter.grad.any())) == (place == exit)


def test_stack_and_take() -> None:
    exits = make_exits()
    expected = exits(features(3))
    for point in range(W):
        taken = exits.take(point)
        assert type(taken) is CascadedExits
        for actual, row in zip(taken.stack(2)(features(3)), expected, strict=True):
            torch.testing.assert_close(actual[1], row[point])


def test_costs_by_hand() -> None:
    exits = make_exits()
    expected = [(7 * K, 0), ((4 + K + 1) * K + 5 * K, 0), ((7 + K + 1) * K + 5 * K, 0)]
    assert [exits.mul_adds(stage) for stage in STAGES] == expected
    assert exits.carries_state


def test_one_early_exit_is_linear() -> None:
    exits = CascadedExits((4, 6), (0,), 2)
    rows = torch.randn(5, 10)
    expected = F.linear(rows[:, :4], exits.weights["0"][:, 0], exits.biases["0"][:, 0])
    torch.testing.assert_close(exits(rows)[0][0], expected)
