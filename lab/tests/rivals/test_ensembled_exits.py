import pytest
import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.exits import LinearExits
from offramp.exits._averaging import Averaging
from offramp.exits._exit_set import all_logits
from offramp_bench.rivals.ensembled_exits import EnsembledExits
from tests.cases import each

WIDTHS = (6, 5, 4)
STAGES = (0, 1, 2)
K = 3


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(count: int) -> Tensor:
    return torch.randn(count, sum(WIDTHS), dtype=torch.float64, generator=generator())


def make_exits(*, seed: int = 1) -> EnsembledExits:
    exits = EnsembledExits(LinearExits(WIDTHS, STAGES, K)).double()
    with torch.no_grad():
        for index, parameter in enumerate(exits.parameters()):
            draw = generator(seed + 10 * index)
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=draw))
    return exits


class TestFormula:
    def test_by_hand(self) -> None:
        exits, rows = make_exits(), features(7)
        alone = [answer[0].softmax(-1) for answer in exits.exits(rows)]
        for place, actual in enumerate(exits(rows)):
            for sample in range(7):
                for label in range(K):
                    terms = [exits.weight[place, j].exp() * alone[j][sample, label].log() for j in range(place + 1)]
                    expected = sum(terms) / (place + 1) + exits.bias[place, label]
                    torch.testing.assert_close(actual[0, sample, label], expected)

    def test_two_experts_multiply(self) -> None:
        # With all weights at e^w = 2 and two exits, the mean is a product of both answers.
        exits, rows = EnsembledExits(LinearExits(WIDTHS, (0, 1), K)).double(), features(7)
        with torch.no_grad():
            exits.weight.fill_(torch.tensor(2.0).log())
        first, second = (answer[0].softmax(-1) for answer in exits.exits(rows))
        product = first * second
        torch.testing.assert_close(exits(rows)[1][0].softmax(-1), product / product.sum(1, keepdim=True))

    def test_begins_near_the_geometric_mean(self) -> None:
        torch.manual_seed(0)
        exits, rows = EnsembledExits(LinearExits((4,) * 40, tuple(range(40)), K)), torch.randn(7, 160)
        assert not exits.bias.any()
        assert exits.weight.std().item() == pytest.approx(0.01, rel=0.1)
        alone = torch.stack([answer[0].log_softmax(-1) for answer in exits.exits(rows)])
        torch.testing.assert_close(exits(rows)[-1][0], alone.mean(0), rtol=0.02, atol=0.02)

    def test_weights_of_later_exits_play_no_part(self) -> None:
        exits, rows = make_exits(), features(7)
        sum(answer.sum() for answer in exits(rows)).backward()
        assert exits.weight.grad is not None
        assert torch.equal(exits.weight.grad != 0, torch.ones(3, 3, dtype=torch.bool).tril())

    def test_the_networks_own_heads_answer_alone(self) -> None:
        inner = LinearExits(WIDTHS, (0,), K).double()
        inner.averaging = Averaging((1, 2), torch.tensor([0.0, 0.5]), torch.ones(2))
        own = {stage: torch.randn(5, K, dtype=torch.float64, generator=generator(stage)) for stage in (1, 2)}
        expected = inner.averaging(own)
        actual = all_logits(EnsembledExits(inner).double(), features(5), own)[0]
        for stage, answer in expected.items():
            torch.testing.assert_close(actual[:, stage], answer)


class TestState:
    def test_it_is_the_answers_so_far(self) -> None:
        exits, rows = make_exits(), features(4)
        state = exits.initial_state(4)
        for place, stage in enumerate(STAGES):
            _, state = exits.step(stage, rows[:, exits.columns(stage)], state, None)
            assert len(state[1]) == place + 1
            torch.testing.assert_close(state[1][place], exits.members(rows)[0, :, place])


class TestPoints:
    @each("points", [[False], [True], [False, True]])
    def test_copied_whole_or_not_at_all(self, points: list[bool]) -> None:
        exits, other = make_exits(), make_exits(seed=2)
        expected = (other if any(points) else exits)(features(7))
        exits.copy_points(other, torch.tensor(points))
        for actual, answer in zip(exits(features(7)), expected, strict=True):
            assert torch.equal(actual, answer)

    def test_all_share_it(self) -> None:
        exits = make_exits()
        assert exits.take(0, 3) is exits

    def test_refuses_exits_that_cost_weights_have_of_their_own(self) -> None:
        with pytest.raises(InputError, match=r"got 4 sets; choose one with exits\.take"):
            EnsembledExits(LinearExits(WIDTHS, STAGES, K, stacked=4))


def test_costs_by_hand() -> None:
    # Carrying is a linear layer and a softmax; answering is one product per exit so far, and a bias.
    exits = make_exits()
    assert [exits.mul_adds(stage) for stage in STAGES] == [
        (7 * K + 3 * K, K + K),
        (6 * K + 3 * K, 2 * K + K),
        (5 * K + 3 * K, 3 * K + K),
    ]
