"""Cuts through networks, by the modules that end there."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from offramp.backbone._cuts import LARGEST_SHARE, find_cuts, named_cuts
from offramp.backbone._liveness import Liveness
from offramp.errors import SplitRefusedError, UnknownNameError
from tests.backbone.examples import (
    TEXT_AXES,
    WIDTH,
    Block,
    Branching,
    Layered,
    Maps,
    Skipping,
    Words,
    images,
    liveness_of,
    texts,
    vectors,
)
from tests.cases import each

BLOCKS = [f"blocks.{index}" for index in range(4)]


class Repeating(nn.Module):
    """One block, run four times."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.block, self.head = nn.Linear(6, WIDTH), Block(), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.read(x)
        for _ in range(4):
            x = self.block(x)
        return self.head(x)


class Group(nn.Module):
    """Blocks inside a block."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(Block(), Block(), Block())

    def forward(self, x: Tensor) -> Any:
        return self.parts(x)


class Simple(nn.Module):
    """A block of another kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Any:
        return torch.relu(self.layer(x))


class Folding(Layered):
    """Samples folded into another axis from the first block to the last."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2 * WIDTH, 2 * WIDTH)
        self.read, self.head = nn.Linear(6, 2 * WIDTH), nn.Linear(2 * WIDTH, 3)

    def forward(self, x: Tensor) -> Any:
        x = self.read(x).view(-1, WIDTH)
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x.view(-1, 2 * WIDTH)))


def shares(liveness: Liveness, cuts: list[int]) -> list[float]:
    """Return the share of cost of each stage, the head last."""
    costs = [value.mul_adds for value in liveness.graph.values]
    ends = [0, *cuts, len(costs)]
    return [sum(costs[start:stop]) / sum(costs) for start, stop in pairwise(ends)]


class TestFound:
    @each("kind", [Layered, Branching, Skipping])
    def test_after_every_block(self, kind: Any) -> None:
        liveness = liveness_of(kind(), vectors())
        # The first block and what comes before it would cost 0.31 of the network.
        assert find_cuts(liveness) == named_cuts(liveness, ["read", *BLOCKS])

    def test_what_comes_before_the_first_block_belongs_to_its_stage(self) -> None:
        liveness = liveness_of(Layered(8), vectors())
        assert find_cuts(liveness) == named_cuts(liveness, [f"blocks.{index}" for index in range(8)])
        liveness = liveness_of(Maps(), images())
        assert find_cuts(liveness) == named_cuts(liveness, BLOCKS)

    def test_before_the_first_block_of_words(self) -> None:
        liveness = liveness_of(Words(8), texts(), TEXT_AXES)
        cuts = find_cuts(liveness)
        assert cuts == named_cuts(liveness, ["embed", *[f"blocks.{index}" for index in range(8)]])
        assert shares(liveness, cuts)[0] == 0

    def test_blocks_inside_blocks(self) -> None:
        network = nn.Sequential(nn.Linear(6, WIDTH), Group(), Group(), nn.Linear(WIDTH, 3))
        liveness = liveness_of(network, vectors())
        assert find_cuts(liveness) == named_cuts(liveness, [f"{g}.parts.{b}" for g in (1, 2) for b in range(3)])

    def test_a_block_of_another_kind_in_the_same_list(self) -> None:
        for place in (0, 3):
            network = Layered()
            network.blocks[place] = Simple()
            liveness = liveness_of(network, vectors())
            assert named_cuts(liveness, [BLOCKS[place]])[0] in find_cuts(liveness)

    def test_a_simpler_first_block_of_words(self) -> None:
        class Plain(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(WIDTH, WIDTH)

            def forward(self, x: Tensor, bias: Tensor) -> Any:
                return torch.relu(self.layer(x))

        network = Words(6)
        network.blocks[0] = Plain()
        liveness = liveness_of(network, texts(), TEXT_AXES)
        assert find_cuts(liveness)[:3] == named_cuts(liveness, ["embed", "blocks.0", "blocks.1"])

    def test_one_module_called_several_times(self) -> None:
        liveness = liveness_of(Repeating(), vectors())
        assert find_cuts(liveness) == named_cuts(liveness, ["read", "block", "block@1", "block@2", "block@3"])

    def test_sequences_are_blocks_by_what_is_in_them(self) -> None:
        def pair() -> nn.Module:
            return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())

        network = nn.Sequential(nn.Linear(6, WIDTH), *[pair() for _ in range(5)], nn.Linear(WIDTH, 3))
        liveness = liveness_of(network, vectors())
        assert find_cuts(liveness) == named_cuts(liveness, ["1", "2", "3", "4", "5"])

    def test_a_plain_stack_of_layers(self) -> None:
        layers: list[nn.Module] = [nn.Linear(6, WIDTH)]
        for _ in range(3):
            layers += [nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
        liveness = liveness_of(nn.Sequential(*layers, nn.Linear(WIDTH, 3)), vectors())
        # Before each layer with weights but the first: what is behind a layer without weights comes with it.
        assert find_cuts(liveness) == named_cuts(liveness, ["1", "3", "5", "6"])

    def test_two_layers_are_a_stage_and_a_head(self) -> None:
        liveness = liveness_of(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3)), vectors())
        assert find_cuts(liveness) == named_cuts(liveness, ["0"])

    def test_one_layer_cannot_be_cut(self) -> None:
        liveness = liveness_of(nn.Linear(6, 3), vectors())
        with pytest.raises(SplitRefusedError, match=r"no place to cut was found: .* name the modules .* by hand"):
            find_cuts(liveness)


class TestShares:
    def test_stages_that_cost_too_much_are_cut_further(self) -> None:
        class Heavy(Layered):
            def __init__(self) -> None:
                super().__init__()
                self.tail = nn.Sequential(*[nn.Linear(WIDTH if not i else 32, 32) for i in range(6)])
                self.head = nn.Linear(32, 3)

            def forward(self, x: Tensor) -> Any:
                x = self.read(x)
                for block in self.blocks:
                    x = block(x)
                return self.head(self.tail(x))

        liveness = liveness_of(Heavy(), vectors())
        cuts = find_cuts(liveness)
        assert set(named_cuts(liveness, BLOCKS)) < set(cuts)
        assert max(shares(liveness, cuts)) <= LARGEST_SHARE

    def test_a_few_large_blocks_are_cut_inside(self) -> None:
        liveness = liveness_of(Layered(2), vectors())
        cuts = find_cuts(liveness)
        assert cuts == named_cuts(liveness, ["read", "blocks.0.upper", "blocks.0", "blocks.1.upper", "blocks.1"])
        assert max(shares(liveness, cuts)) <= LARGEST_SHARE

    def test_a_single_operation_stays_whole(self) -> None:
        network = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 500), nn.Linear(500, 3))
        liveness = liveness_of(network, vectors())
        cuts = find_cuts(liveness)
        assert cuts == named_cuts(liveness, ["1", "2"])
        assert shares(liveness, cuts)[1] > LARGEST_SHARE


class TestSound:
    def test_not_where_samples_are_folded_into_another_axis(self) -> None:
        liveness = liveness_of(Folding(), vectors())
        cuts = find_cuts(liveness)
        assert named_cuts(liveness, ["last"])[0] in cuts
        names = [node.name for node in liveness.graph.nodes]
        assert not set(cuts) & set(range(names.index("view") + 1, names.index("view_1") + 1))

    def test_named_cuts_say_so(self) -> None:
        with pytest.raises(
            SplitRefusedError, match=r"cannot cut after 'blocks\.1': .* no axis of its own for the samp"
        ):
            named_cuts(liveness_of(Folding(), vectors()), ["blocks.1"])

    def test_not_behind_the_head(self) -> None:
        with pytest.raises(
            SplitRefusedError, match="cannot cut after 'head': nothing is left for the network's own head"
        ):
            named_cuts(liveness_of(Layered(), vectors()), ["head"])


class TestNamed:
    def test_in_the_order_of_the_network_and_once(self) -> None:
        liveness = liveness_of(Layered(), vectors())
        cuts = named_cuts(liveness, ["blocks.2", "read", "blocks.0", "blocks.0.lower", "blocks.2"])
        assert cuts == sorted(cuts)
        assert len(cuts) == 4
        assert [liveness.graph.nodes[cut - 1].name for cut in cuts] == ["read", "blocks_0_lower", "add", "add_2"]

    def test_calls_by_number(self) -> None:
        liveness = liveness_of(Repeating(), vectors())
        assert named_cuts(liveness, ["block@2"]) == find_cuts(liveness)[3:4]

    def test_unknown_names(self) -> None:
        liveness = liveness_of(Layered(), vectors())
        with pytest.raises(
            UnknownNameError, match=r"unknown module that the network calls 'block\.2'; did you mean 'bl"
        ):
            named_cuts(liveness, ["block.2"])
        with pytest.raises(UnknownNameError, match=r"'zebra'; Known: blocks\.0, .*head, read"):
            named_cuts(liveness, ["zebra"])
