import pytest
import torch
from fvcore.nn import FlopCountAnalysis
from torch import Tensor, nn

from offramp.cost import TrunkMulAdds, count_mul_adds, count_trunk, price
from offramp.exits import CumulativeLinearExits, LadderExits, LinearExits
from offramp.policy import GatePolicy
from offramp.trunk import CifarResNet, GridPooling, Hidden, MeanPooling, Trunk


def closed_form(layers: int, num_classes: int = 10) -> tuple[list[int], int]:
    """3 x 3 kernels at every position: Mul-Adds of each block (the stem in the first), and of the classifier."""
    stages, channels = [], 16
    for group, (width, side) in enumerate(((16, 32), (32, 16), (64, 8))):
        for block in range((layers - 2) // 6):
            first = 9 * channels * width * side * side
            second = 9 * width * width * side * side
            stem = 9 * 3 * 16 * 32 * 32 if group == block == 0 else 0
            stages.append(stem + first + second)
            channels = width
    return stages, 64 * num_classes


class TestCountMulAdds:
    def test_products_and_convolutions(self) -> None:
        assert count_mul_adds(nn.Linear(3, 4), torch.zeros(5, 3))[0] == 5 * 12
        assert count_mul_adds(torch.matmul, torch.zeros(2, 3, 4), torch.zeros(2, 4, 5))[0] == 2 * 3 * 4 * 5
        assert count_mul_adds(nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.zeros(1, 3, 8, 8))[0] == 9 * 3 * 8 * 16
        # A kernel a channel.
        assert count_mul_adds(nn.Conv2d(8, 8, 3, padding=1, groups=8), torch.zeros(1, 8, 4, 4))[0] == 9 * 8 * 16

    def test_nothing_else(self) -> None:
        assert count_mul_adds(nn.Sequential(nn.ReLU(), nn.LayerNorm(4), nn.Softmax(1)), torch.zeros(5, 4))[0] == 0

    def test_returns_what_the_call_returned(self) -> None:
        layer = nn.Linear(3, 4)
        given = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(count_mul_adds(layer, given)[1], layer(given))


class TestCountTrunk:
    @pytest.mark.parametrize(("layers", "published"), [(20, 40.55e6), (56, 125.49e6)])
    def test_closed_form(self, layers: int, published: float) -> None:
        found = count_trunk(CifarResNet(layers), torch.zeros(2, 3, 32, 32), MeanPooling())
        stages, head = closed_form(layers)
        assert found.stage.tolist() == stages
        assert found.head.tolist() == [0] * (len(stages) - 1) + [head]
        assert found.stage.sum() + found.head.sum() == pytest.approx(published, rel=2e-4)

    @pytest.mark.parametrize("layers", [20, 56])
    def test_against_fvcore(self, layers: int) -> None:
        trunk = CifarResNet(layers)
        analysis = FlopCountAnalysis(trunk, torch.zeros(1, 3, 32, 32))
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        found = count_trunk(trunk, torch.zeros(1, 3, 32, 32), MeanPooling())
        operators = analysis.by_operator()
        assert (found.stage.sum() + found.head.sum()).item() == operators["conv"] + operators["linear"]
        by_module = analysis.by_module_and_operator()
        for index, mul_adds in enumerate(found.stage.tolist()):
            assert mul_adds == by_module[f"stages.{index}"]["conv"]
        assert found.head[-1] == by_module[f"heads.{trunk.num_exits - 1}"]["linear"]

    @pytest.mark.parametrize("batch", [1, 3])
    def test_is_of_one_sample(self, batch: int) -> None:
        found = count_trunk(CifarResNet(8, num_classes=100), torch.zeros(batch, 3, 32, 32), GridPooling())
        stages, head = closed_form(8, num_classes=100)
        assert found.stage.tolist() == stages
        assert found.head[-1] == head
        assert found.pooling.tolist() == [16 * 32 * 32, 32 * 16 * 16, 64 * 8 * 8]

    def test_heads_in_the_middle(self) -> None:
        class Chain(Trunk):
            def representation(self, hidden: Hidden, stage: int) -> Tensor:
                assert isinstance(hidden, Tensor)
                return hidden

        trunk = Chain("chain", [nn.Linear(3, 3) for _ in range(3)], {0: nn.Linear(3, 2), 2: nn.Linear(3, 2)}, 2)
        found = count_trunk(trunk, torch.zeros(4, 3), MeanPooling())
        assert found.stage.tolist() == [9, 9, 9]
        assert found.head.tolist() == [6, 0, 6]
        assert found.pooling.tolist() == [0, 0, 0]


def trunk_costs(stage: list[float], pooling: list[float], head: list[float]) -> TrunkMulAdds:
    return TrunkMulAdds(*(torch.tensor(column, dtype=torch.float64) for column in (stage, pooling, head)))


class TestAttention:
    def test_a_transformer_block_against_the_closed_form(self) -> None:
        tokens, width, ratio = 9, 16, 3
        block = torch.nn.TransformerEncoderLayer(width, 4, ratio * width, dropout=0.0, batch_first=True).eval()
        counted, _ = count_mul_adds(block, torch.zeros(1, tokens, width))
        assert counted == 4 * tokens * width**2 + 2 * tokens * width**2 * ratio + 2 * tokens**2 * width
        assert torch.backends.mha.get_fastpath_enabled()


class TestPrice:
    def test_pieces_of_linear_exits(self) -> None:
        costs = trunk_costs([100, 200, 300], [6, 7, 8], [0, 0, 50])
        table = price(costs, LinearExits((4, 5, 6), (0, 1), 3), decision=33)
        assert table.stage.tolist() == [100, 200, 300]
        assert table.carry.tolist() == [6, 7, 0]
        assert table.answer.tolist() == [5 * 3, 6 * 3, 50]
        assert table.decide.tolist() == [33, 33, 0]
        assert table.bare == 650
        assert not table.carries_state
        assert table.cumulative_costs([1, 2]).tolist() == [100, 300 + 7 + 18 + 33, 600 + 7 + 18 + 33 + 50]

    def test_pieces_of_exits_with_a_state(self) -> None:
        costs = trunk_costs([100, 200, 300], [6, 7, 8], [0, 0, 50])
        cumulative = price(costs, CumulativeLinearExits((4, 5, 6), (0, 1), 3), decision=33)
        assert cumulative.carries_state
        assert cumulative.answer.tolist() == [5 * 3, 10 * 3, 50]
        ladder = price(costs, LadderExits((4, 5, 6), (0, 1), 3, width=2), decision=33)
        assert ladder.carries_state
        carrying = [4 * 2 + 2 * 2 * 2 + 2 * 2 + 5 * 2, 5 * 2 + 2 * 2 * 2 + 2 * 2 + 5 * 2]
        assert ladder.carry.tolist() == [carrying[0] + 6, carrying[1] + 7, 0]
        # Exit 0 is skipped, but its rung is climbed.
        skipped = ladder.cumulative_costs([1, 2])
        assert skipped[0] == 100 + carrying[0] + 6
        assert skipped[1] == 300 + sum(carrying) + 13 + 3 * 3 + 33

    def test_own_heads_where_there_is_no_exit(self) -> None:
        costs = trunk_costs([100, 200, 300], [6, 7, 8], [0, 40, 50])
        table = price(costs, LinearExits((4, 5, 6), (0,), 3), decision=1)
        assert table.answer.tolist() == [15, 40, 50]
        assert table.carry.tolist() == [6, 0, 0]
        # A trained last exit stands in for the network's own head; the bare network keeps its own.
        table = price(costs, LinearExits((4, 5, 6), (0, 1, 2), 3), decision=1)
        assert table.answer.tolist() == [15, 18, 21]
        assert table.bare == 650

    @pytest.mark.parametrize(
        ("num_exits", "width", "num_classes", "classifier", "gate"),
        [(7, 256, 10, 2570, 96), (14, 384, 100, 38_500, 906)],
    )
    def test_the_papers_increments(
        self, num_exits: int, width: int, num_classes: int, classifier: int, gate: int
    ) -> None:
        # The rows between "base" and "JEI-DNN" of its two Mul-Add tables.
        bank = LinearExits((width,) * num_exits, tuple(range(num_exits - 1)), num_classes)
        base = trunk_costs([1e8] * num_exits, [0] * num_exits, [0] * num_exits)
        table = price(base, bank, decision=GatePolicy().mul_adds(num_classes))
        added = table.cumulative_costs() - base.stage.cumsum(0)
        assert added.tolist() == [(exit + 1) * (classifier + gate) for exit in range(num_exits - 1)] + [
            (num_exits - 1) * (classifier + gate)
        ]
