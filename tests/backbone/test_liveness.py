"""Values that cross a cut, values that are recomputed, and their batch axes."""

from typing import Any

import torch
from torch import Tensor, fx, nn

from offramp.backbone import Axes
from offramp.backbone._liveness import Liveness
from tests.backbone.examples import (
    TEXT_AXES,
    WIDTH,
    Block,
    Branching,
    Layered,
    Skipping,
    Words,
    liveness_of,
    texts,
    vectors,
)
from tests.cases import each


def names(nodes: Any) -> set[str]:
    return {node.name for node in nodes}


def node(liveness: Liveness, name: str) -> fx.Node:
    return next(node for node in liveness.graph.nodes if node.name == name)


def before(liveness: Liveness, name: str) -> int:
    """The position of a cut before a node."""
    return liveness.index[node(liveness, name)]


def rest(liveness: Liveness, position: int) -> set[str]:
    """Return the values that all nodes from a position on need from before it."""
    return names(liveness.carried_for(liveness.graph.nodes[position:]))


class Function(nn.Module):
    """Any function of the inputs and a layer, then a head."""

    def __init__(self, function: Any, width: int = WIDTH) -> None:
        super().__init__()
        self.layer = nn.Linear(6, WIDTH)
        self.norm = nn.BatchNorm1d(6, affine=False)
        self.head = nn.Linear(width, 3)
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("table", torch.arange(6.0))
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.head(self.function(self, x))


class TestCarried:
    def test_one_stream(self) -> None:
        liveness = liveness_of(Layered(), vectors())
        for block, stream in enumerate(["read", "add", "add_1", "add_2"]):
            position = before(liveness, f"blocks_{block}_upper")
            assert rest(liveness, position) == {stream}
            assert names(liveness.crossing[position]) == {stream}
        inside = before(liveness, "blocks_1_lower")
        assert rest(liveness, inside) == {"relu_1", "add"}
        assert names(liveness.crossing[0]) == set()
        assert names(liveness.crossing[-1]) == {"head"}

    def test_a_skip_over_several_blocks(self) -> None:
        liveness = liveness_of(Skipping(), vectors())
        for block, stream in enumerate(["add", "add_1", "add_2"], start=1):
            position = before(liveness, f"blocks_{block}_upper")
            assert rest(liveness, position) == {stream, "read"}
            assert names(liveness.crossing[position]) == {stream, "read"}
        assert rest(liveness, before(liveness, "head")) == {"add_4"}

    @each("kind", [Layered, Branching])
    def test_weights_are_fetched_again(self, kind: Any) -> None:
        liveness = liveness_of(kind(), vectors())
        weights = [one for one in liveness.graph.nodes if one.op == "get_attr"]
        assert bool(weights) == (kind is Branching)  # torch.fx keeps them inside the modules
        for position in range(len(liveness.graph.nodes)):
            for carried in (liveness.crossing[position], liveness.carried_for(liveness.graph.nodes[position:])):
                assert carried.isdisjoint(weights)
        assert liveness.light.isdisjoint(weights)

    def test_a_parameter_of_the_network_itself(self) -> None:
        liveness = liveness_of(Function(lambda self, x: torch.relu(self.layer(x)) * self.scale), vectors())
        assert node(liveness, "scale") not in liveness.light
        assert rest(liveness, before(liveness, "relu")) == {"layer"}
        assert rest(liveness, before(liveness, "mul")) == {"relu"}

    def test_sizes_are_read_off(self) -> None:
        def function(self: Any, x: Tensor) -> Tensor:
            rows = x.size(0)
            shape = x.size()
            hidden = torch.relu(self.layer(x))
            return hidden.view(rows, -1) + hidden.view(shape[0], WIDTH)

        liveness = liveness_of(Function(function), vectors())
        numbers = names(one for one in liveness.graph.nodes if liveness.is_number(one))
        assert numbers == {"size", "size_1", "getitem"}
        assert rest(liveness, before(liveness, "view")) == {"relu"}
        for crossing in liveness.crossing:
            assert names(crossing).isdisjoint(numbers)

    def test_several_tensors_at_once_are_no_number(self) -> None:
        def function(self: Any, x: Tensor) -> Tensor:
            halves = self.layer(x).chunk(2, dim=1)
            return torch.cat([halves[1], halves[0]], dim=1)

        liveness = liveness_of(Function(function), vectors())
        assert not liveness.is_number(node(liveness, "chunk"))
        assert rest(liveness, before(liveness, "getitem")) == {"chunk"}


class TestComputedAgain:
    def test_a_mask_is_not_carried_but_what_it_comes_from(self) -> None:
        liveness = liveness_of(Words(), texts(), TEXT_AXES)
        mask = {"zeros_like", "eq", "masked_fill"}
        assert mask <= names(liveness.light)
        assert "getitem" in names(liveness.light)  # the mask as each block reshapes it
        for block, stream in enumerate(["embed", "add_1", "add_3", "add_5"]):
            position = before(liveness, f"blocks_{block}_query")
            assert rest(liveness, position) == {stream, "mask"}
            assert names(liveness.crossing[position]) == {stream}  # inputs are not counted

    def test_what_needs_no_weights(self) -> None:
        liveness = liveness_of(Function(lambda self, x: self.layer(torch.relu(x + self.table))), vectors())
        assert names(liveness.light) == {"table", "add", "relu"}
        assert rest(liveness, before(liveness, "layer")) == {"x"}

    def test_statistics_are_weights(self) -> None:
        liveness = liveness_of(Function(lambda self, x: self.layer(torch.relu(self.norm(x)))), vectors())
        assert not liveness.light
        assert rest(liveness, before(liveness, "layer")) == {"relu"}

    def test_matrix_products_are_work(self) -> None:
        liveness = liveness_of(Function(lambda self, x: self.layer((x[:, :, None] @ x[:, None]).mean(2))), vectors())
        assert names(liveness.light) == {"getitem", "getitem_1"}
        assert rest(liveness, before(liveness, "layer")) == {"mean"}

    @each("change", [nn.ReLU(inplace=True), torch.relu_, lambda x: nn.functional.relu(x, inplace=True)])
    def test_changes_in_place_are_repeated_on_what_was_computed_not_on_what_was_given(self, change: Any) -> None:
        class Changing(Function):
            def __init__(self, function: Any) -> None:
                super().__init__(function)
                self.change = change

        computed = liveness_of(Changing(lambda self, x: self.layer(self.change(x + 1))), vectors())
        assert len(computed.light) == 2
        assert rest(computed, before(computed, "layer")) == {"x"}
        for view in (lambda x: x, lambda x: x.view(-1, 6)):
            given = liveness_of(Changing(lambda self, x, view=view: self.layer(self.change(view(x)))), vectors())
            (source,) = given.carried_for(given.graph.nodes[before(given, "layer") :])
            assert source.op != "placeholder"

    def test_in_the_order_of_the_network(self) -> None:
        liveness = liveness_of(Words(), texts(), TEXT_AXES)
        nodes = liveness.graph.nodes[before(liveness, "blocks_1_query") :]
        assert [one.name for one in liveness.repeated_for(nodes)] == ["zeros_like", "eq", "masked_fill"]

    def test_modules_without_weights(self) -> None:
        class Rectified(Layered):
            def __init__(self) -> None:
                super().__init__()
                self.relu = nn.ReLU()

            def forward(self, x: Tensor) -> Any:
                shown = self.relu(x)
                return super().forward(x) + super().forward(shown) * 0

        liveness = liveness_of(Rectified(), vectors())
        assert names(liveness.light) == {"relu"}


class TestAxes:
    @each(
        ("function", "name", "expected"),
        [
            (lambda self, x: self.layer(x), "layer", Axes()),
            (lambda self, x: self.layer(x).mT.mT, "getattr_1", Axes(batch=1)),
            (lambda self, x: self.layer(x)[None, None].permute(0, 3, 2, 1)[0, ..., 0].mT, "permute", Axes(batch=2)),
            (lambda self, x: self.layer(x)[None].repeat(3, 1, 1).mean(0), "repeat", Axes(batch=1)),
            (lambda self, x: self.layer(x + self.table), "table", Axes(batch=None)),
            (lambda self, x: self.layer(x).view(-1, 4).view(-1, 8), "view", None),
            (lambda self, x: self.layer(x).flatten().view(-1, 8), "flatten", None),
            (lambda self, x: self.layer(x).chunk(2, dim=1)[0].repeat(1, 2), "chunk", None),
        ],
    )
    def test_samples(self, function: Any, name: str, expected: Axes | None) -> None:
        liveness = liveness_of(Function(function), vectors())
        assert liveness.axes(node(liveness, name)) == expected

    def test_lengths_and_padding(self) -> None:
        liveness = liveness_of(Words(), texts(), TEXT_AXES)
        assert liveness.axes(node(liveness, "embed")) == Axes(lengths=(1,))
        assert liveness.axes(node(liveness, "ids"), 7.0) == Axes(lengths=(1,), pad=7.0)
        assert liveness.axes(node(liveness, "softmax")) == Axes(lengths=(1, 2))
        assert liveness.axes(liveness.graph.logits) == Axes()

    def test_a_length_that_is_not_the_inputs_own(self) -> None:
        class Longer(Words):
            def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
                return super().forward(torch.cat([ids[:, :1], ids], 1), torch.cat([mask[:, :1], mask], 1))

        liveness = liveness_of(Longer(), texts(), TEXT_AXES)
        assert liveness.axes(node(liveness, "embed")) is None

    def test_two_axes_that_grow_with_the_samples(self) -> None:
        liveness = liveness_of(Function(lambda self, x: self.layer(x) + (x @ x.mT).sum() * 0), vectors())
        assert liveness.axes(node(liveness, "matmul")) is None


def test_positions_and_values() -> None:
    liveness = liveness_of(nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 3)), torch.randn(3, WIDTH))
    assert len(liveness.crossing) == len(liveness.graph.nodes) + 1
    for position, one in enumerate(liveness.graph.nodes):
        assert liveness.index[one] == position
        assert liveness.value(one) is liveness.graph.values[position]
