import pytest
import torch
from fvcore.nn import FlopCountAnalysis
from torch import Tensor, nn

from offramp.backbone import Axes, CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.cost import Costs, count_backbone
from offramp.cost._mul_adds import BackboneMulAdds, count_mul_adds, price
from offramp.cost._table import CostTable
from offramp.exits import LadderExits, LinearExits
from offramp.exits._linear import CumulativeLinearExits
from offramp.policy._gates import GatePolicy
from offramp.pooling import Pooling, Tokens
from offramp.pooling._pooling import POOLINGS, GridPooling, MeanPooling
from tests.cases import each


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

    def test_layer_norms_where_asked(self) -> None:
        network = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3), nn.ReLU(), nn.LayerNorm((2, 3)))
        given = torch.zeros(5, 2, 4)
        assert count_mul_adds(network, given)[0] == 5 * 2 * 12
        assert count_mul_adds(network, given, layer_norms=True)[0] == 5 * 5 * 2 * 4 + 5 * 2 * 12 + 5 * 5 * 2 * 3
        assert count_mul_adds(nn.BatchNorm1d(2).eval(), given, layer_norms=True)[0] == 0

    def test_layer_norms_against_fvcore(self) -> None:
        network = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3), nn.LayerNorm(3))
        given = torch.zeros(5, 2, 4)
        analysis = FlopCountAnalysis(network, given)
        assert count_mul_adds(network, given, layer_norms=True)[0] == analysis.total()

    def test_returns_what_the_call_returned(self) -> None:
        layer = nn.Linear(3, 4)
        given = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(count_mul_adds(layer, given)[1], layer(given))


class TestCountBackbone:
    @each(("layers", "published"), [(20, 40.55e6), (56, 125.49e6)])
    def test_closed_form(self, layers: int, published: float) -> None:
        found = count_backbone(CifarResNet(layers), torch.zeros(2, 3, 32, 32), MeanPooling())
        stages, head = closed_form(layers)
        assert found.stage.tolist() == [stages]
        assert found.head.tolist() == [[0] * (len(stages) - 1) + [head]]
        assert found.full.tolist() == [sum(stages) + head]
        assert found.stage.sum() + found.head.sum() == pytest.approx(published, rel=2e-4)

    @each("layers", [20, 56])
    def test_against_fvcore(self, layers: int) -> None:
        backbone = CifarResNet(layers)
        analysis = FlopCountAnalysis(backbone, torch.zeros(1, 3, 32, 32))
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        found = count_backbone(backbone, torch.zeros(1, 3, 32, 32), MeanPooling())
        operators = analysis.by_operator()
        assert (found.stage.sum() + found.head.sum()).item() == operators["conv"] + operators["linear"]
        by_module = analysis.by_module_and_operator()
        for index, mul_adds in enumerate(found.stage[0].tolist()):
            assert mul_adds == by_module[f"stages.{index}"]["conv"]
        assert found.head[0, -1] == by_module[f"heads.{backbone.num_exits - 1}"]["linear"]

    @each("batch", [1, 3])
    def test_is_of_one_sample(self, batch: int) -> None:
        found = count_backbone(CifarResNet(8, num_classes=100), torch.zeros(batch, 3, 32, 32), GridPooling())
        stages, head = closed_form(8, num_classes=100)
        assert found.stage.tolist() == [stages]
        assert found.head[0, -1] == head
        assert found.pooling.tolist() == [[16 * 32 * 32, 32 * 16 * 16, 64 * 8 * 8]]

    def test_heads_in_the_middle(self) -> None:
        class Cascade(Backbone):
            def representation(self, hidden: Hidden, stage: int) -> Tensor:
                assert isinstance(hidden, Tensor)
                return hidden

        backbone = Cascade("cascade", [nn.Linear(3, 3) for _ in range(3)], {0: nn.Linear(3, 2), 2: nn.Linear(3, 2)}, 2)
        found = count_backbone(backbone, torch.zeros(4, 3), MeanPooling())
        assert found.stage.tolist() == [[9, 9, 9]]
        assert found.head.tolist() == [[6, 0, 6]]
        assert found.pooling.tolist() == [[0, 0, 0]]
        assert found.full.tolist() == [33]

    def test_the_full_network_may_be_a_part(self) -> None:
        class LastTwo(Backbone):
            @property
            def full_stages(self) -> range:
                return range(1, 3)

        backbone = LastTwo("two", [nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 6)], {2: nn.Linear(6, 2)}, 2)
        found = count_backbone(backbone, torch.zeros(4, 3), MeanPooling())
        assert found.stage.tolist() == [[12, 20, 30]]
        assert found.full.tolist() == [20 + 30 + 12]


class Mixing(nn.Module):
    """Self-attention written out, on what comes with a mask."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, hidden: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        tokens, mask = hidden
        queries, keys, values = self.qkv(self.norm(tokens)).chunk(3, -1)
        shares = (queries @ keys.mT).masked_fill(~mask[:, None], -1e9).softmax(-1)
        return tokens + self.proj(shares @ values), mask


class Embedding(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(50, width)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.table(ids), ids > 0


class FirstToken(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 3)

    def forward(self, hidden: tuple[Tensor, Tensor]) -> Tensor:
        logits: Tensor = self.linear(hidden[0][:, 0])
        return logits


class TinyText(Backbone):
    """Token ids `N x T`, 0 for none; two layers of attention. Exits look through a layer of their own."""

    width = 6

    def __init__(self) -> None:
        width = self.width
        stages = [nn.Sequential(Embedding(width), Mixing(width)), Mixing(width)]
        super().__init__("tiny-text", stages, {1: FirstToken(width)}, 3)
        self.seen_through = nn.Linear(width, 4)

    def axes(self, depth: int) -> Axes:
        return Axes(lengths=(1,))

    def sizes(self, inputs: Hidden) -> Tensor:
        return torch.as_tensor((inputs > 0).sum(1))

    def representation(self, hidden: Hidden, stage: int) -> Tokens:
        return Tokens(self.seen_through(hidden[0]), mask=hidden[1])


def ids(*lengths: int) -> Tensor:
    """Texts of these lengths."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long() * 7


class TestSamplesThatDiffer:
    @each("layer_norms", [False, True])
    @each("example", [ids(5), ids(30), ids(3, 9, 1)])
    def test_coefficients_against_the_closed_form(self, example: Tensor, layer_norms: bool) -> None:
        found = count_backbone(TinyText(), example, POOLINGS.get("auto"), layer_norms=layer_norms)
        width, normed = TinyText.width, 5 * TinyText.width if layer_norms else 0
        assert found.stage.tolist() == [[0, 0], [4 * width**2 + normed] * 2, [2 * width] * 2]
        # The layer exits look through, and two rounds over its 4 numbers a token.
        assert found.pooling.tolist() == [[0, 0], [4 * width + 2 * 4] * 2, [0, 0]]
        assert found.head.tolist() == [[0, 3 * width], [0, 0], [0, 0]]
        assert found.full.tolist() == [3 * width, 2 * (4 * width**2 + normed), 2 * 2 * width]

    @each("pooling", [POOLINGS.get(name) for name in ("first", "mean", "auto")])
    @each("length", [1, 11, 16, 257])
    def test_they_give_what_a_run_at_another_length_counts(self, pooling: Pooling, length: int) -> None:
        backbone, given = TinyText(), ids(length)
        counted = count_backbone(backbone, ids(5, 3), pooling, layer_norms=True)
        powers = torch.tensor([1, length, length**2], dtype=torch.float64)
        hidden = given
        for index, stage in enumerate(backbone.stages):
            mul_adds, hidden = count_mul_adds(stage, hidden, layer_norms=True)
            assert powers @ counted.stage[:, index] == mul_adds
            looking, seen = count_mul_adds(backbone.representation, hidden, index, layer_norms=True)
            assert powers @ counted.pooling[:, index] == looking + pooling.mul_adds(seen)
        assert powers @ counted.head[:, 1] == count_mul_adds(backbone.own_logits, hidden, 1, layer_norms=True)[0]
        assert powers @ counted.full == count_mul_adds(backbone, given, layer_norms=True)[0]

    @each("length", [2, 40])
    def test_against_fvcore(self, length: int) -> None:
        backbone = TinyText()
        analysis = FlopCountAnalysis(backbone, ids(length))
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        counted = count_backbone(backbone, ids(5), MeanPooling(), layer_norms=True)
        assert torch.tensor([1, length, length**2], dtype=torch.float64) @ counted.full == analysis.total()

    def test_prices_by_size(self) -> None:
        backbone = TinyText()
        counted = count_backbone(backbone, ids(5), POOLINGS.get("auto"))
        exits = LinearExits((12, 12), (0,), 3)
        sizes = torch.tensor([2, 9])
        found = price(counted, exits, decision=33).of(sizes)
        for sample, size in enumerate(sizes.tolist()):
            stage = 4 * 36 * size + 12 * size**2
            # What an exit reads has one width, whatever the sample: it answers and decides at one price.
            spent = stage + 32 * size + 13 * 3 + 33
            assert found.cumulative_costs()[sample].tolist() == [spent, spent + stage + 18]
            assert found.full[sample] == 2 * stage + 18

    def test_samples_that_do_not_differ_have_one_table(self) -> None:
        counted = count_backbone(CifarResNet(8), torch.zeros(1, 3, 32, 32), MeanPooling())
        assert counted.stage.shape == (1, 3)
        assert len(price(counted, LinearExits((16, 32, 64), (0, 1), 10), decision=1).tables) == 1


def backbone_costs(stage: list[float], pooling: list[float], head: list[float]) -> BackboneMulAdds:
    rows = ([stage], [pooling], [head], [sum(stage) + head[-1]])
    return BackboneMulAdds(*(torch.tensor(row, dtype=torch.float64) for row in rows))


def only(costs: Costs) -> CostTable:
    """The one table of a network whose samples do not differ in size."""
    (table,) = costs.tables
    return table


class TestAttention:
    def test_a_transformer_block_against_the_closed_form(self) -> None:
        tokens, width, ratio = 9, 16, 3
        block = torch.nn.TransformerEncoderLayer(width, 4, ratio * width, dropout=0.0, batch_first=True).eval()
        counted, _ = count_mul_adds(block, torch.zeros(1, tokens, width))
        assert counted == 4 * tokens * width**2 + 2 * tokens * width**2 * ratio + 2 * tokens**2 * width
        assert torch.backends.mha.get_fastpath_enabled()


class TestPrice:
    def test_pieces_of_linear_exits(self) -> None:
        costs = backbone_costs([100, 200, 300], [6, 7, 8], [0, 0, 50])
        table = only(price(costs, LinearExits((4, 5, 6), (0, 1), 3), decision=33))
        assert table.stage.tolist() == [100, 200, 300]
        assert table.carry.tolist() == [6, 7, 0]
        assert table.answer.tolist() == [5 * 3, 6 * 3, 50]
        assert table.decide.tolist() == [33, 33, 0]
        assert table.full == 650
        assert not table.carries_state
        assert table.cumulative_costs([1, 2]).tolist() == [100, 300 + 7 + 18 + 33, 600 + 7 + 18 + 33 + 50]

    def test_pieces_of_exits_with_a_state(self) -> None:
        costs = backbone_costs([100, 200, 300], [6, 7, 8], [0, 0, 50])
        cumulative = only(price(costs, CumulativeLinearExits((4, 5, 6), (0, 1), 3), decision=33))
        assert cumulative.carries_state
        assert cumulative.answer.tolist() == [5 * 3, 10 * 3, 50]
        ladder = only(price(costs, LadderExits((4, 5, 6), (0, 1), 3, width=2), decision=33))
        assert ladder.carries_state
        carrying = [4 * 2 + 2 * 2 * 2 + 2 * 2 + 5 * 2, 5 * 2 + 2 * 2 * 2 + 2 * 2 + 5 * 2]
        assert ladder.carry.tolist() == [carrying[0] + 6, carrying[1] + 7, 0]
        # Exit 0 is skipped, but its rung is climbed.
        skipped = ladder.cumulative_costs([1, 2])
        assert skipped[0] == 100 + carrying[0] + 6
        assert skipped[1] == 300 + sum(carrying) + 13 + 3 * 3 + 33

    def test_own_heads_where_there_is_no_exit(self) -> None:
        costs = backbone_costs([100, 200, 300], [6, 7, 8], [0, 40, 50])
        table = only(price(costs, LinearExits((4, 5, 6), (0,), 3), decision=1))
        assert table.answer.tolist() == [15, 40, 50]
        assert table.carry.tolist() == [6, 0, 0]
        # A trained last exit stands in for the network's own head; the full network keeps its own.
        table = only(price(costs, LinearExits((4, 5, 6), (0, 1, 2), 3), decision=1))
        assert table.answer.tolist() == [15, 18, 21]
        assert table.full == 650

    @each(
        ("num_exits", "width", "num_classes", "classifier", "gate"),
        [(7, 256, 10, 2570, 96), (14, 384, 100, 38_500, 906)],
    )
    def test_the_papers_increments(
        self, num_exits: int, width: int, num_classes: int, classifier: int, gate: int
    ) -> None:
        # The rows between "base" and "JEI-DNN" of its two Mul-Add tables.
        exits = LinearExits((width,) * num_exits, tuple(range(num_exits - 1)), num_classes)
        base = backbone_costs([1e8] * num_exits, [0] * num_exits, [0] * num_exits)
        table = only(price(base, exits, decision=GatePolicy().mul_adds(num_classes)))
        added = table.cumulative_costs() - base.stage[0].cumsum(0)
        assert added.tolist() == [(exit + 1) * (classifier + gate) for exit in range(num_exits - 1)] + [
            (num_exits - 1) * (classifier + gate)
        ]
