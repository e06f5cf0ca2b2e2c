"""Captured graphs, the library that captured them, and refused networks."""

import re
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from offramp.backbone import Axes
from offramp.backbone._capture import Captured, Value, capture
from offramp.backbone._classifier import call_network, logits_of
from offramp.backbone._hidden import SAMPLES_FIRST, Hidden
from offramp.errors import InputError, OfframpError, SplitRefusedError
from tests.backbone.examples import TEXT_AXES, WIDTH, Block, Branching, Ending, Layered, Words, texts, vectors
from tests.cases import each, refuses


class Several(nn.Module):
    """Three arguments, one of them left at its default; optionally with control flow by the number of samples."""

    def __init__(self, branching: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)
        self.branching = branching

    def forward(self, left: Tensor, right: Tensor, again: bool = False, scale: float = 2.0, more: Any = None) -> Tensor:
        if self.branching and left.shape[0] < 1:
            left = left + 1
        x = self.linear(left) - scale * right
        if again:
            x = self.linear(x)
        if more is not None:
            x = x + more
        logits: Tensor = self.head(x)
        return logits


def captured(network: nn.Module, example: Hidden, axes: Any = SAMPLES_FIRST) -> Captured:
    torch.manual_seed(0)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return capture(network.eval(), example, axes)


def run(graph: Captured, inputs: Hidden) -> Tensor:
    """The class scores that the graph gives inputs."""
    logits: Tensor = logits_of(fx.Interpreter(graph.module).run(*pytree.tree_leaves(inputs)))
    return logits


def of(graph: Captured, part: str) -> Value:
    """Return the value of the only node whose name holds `part`."""
    (value,) = [value for node, value in zip(graph.nodes, graph.values, strict=True) if part in node.name]
    return value


class TestBy:
    def test_torch_fx_where_it_can(self) -> None:
        graph = captured(Layered(), vectors())
        assert graph.by == "torch.fx"
        assert {node.op for node in graph.nodes} == {"placeholder", "call_module", "call_function"}

    def test_torch_export_where_control_flow_depends_on_shapes(self) -> None:
        assert captured(Branching(), vectors()).by == "torch.export"

    @each("kind", [Layered, Branching])
    def test_the_graph_computes_what_the_network_computes(self, kind: Any) -> None:
        network = kind()
        graph = captured(network, vectors())
        for count in (1, 2, 7):
            inputs = vectors(count, seed=count)
            torch.testing.assert_close(run(graph, inputs), network(inputs))

    def test_lengths_stay_free(self) -> None:
        network = Words()
        graph = captured(network, texts(), TEXT_AXES)
        for length in (1, 3, 9):
            inputs = texts(2, length)
            torch.testing.assert_close(run(graph, inputs), network(**inputs)["logits"])

    def test_what_torch_fx_gets_wrong_at_other_sizes_goes_to_torch_export(self) -> None:
        class Counting(Layered):
            def forward(self, x: Tensor) -> Any:
                return super().forward(x) * len(x.expand(x.shape)) / x.shape[0]

        network = Counting()
        # len() of what torch.fx passes through is an error, not a number.
        assert captured(network, vectors()).by == "torch.export"


class TestInputs:
    @each("branching", [False, True])
    @each(
        "example",
        [
            (vectors(), vectors(seed=1)),
            [vectors(), vectors(seed=1)],
            {"left": vectors(), "right": vectors(seed=1)},
            {"right": vectors(seed=1), "left": vectors()},
            {"more": vectors(seed=2), "right": vectors(seed=1), "left": vectors()},
        ],
    )
    def test_arguments(self, example: Any, branching: bool) -> None:
        network = Several(branching)
        graph = captured(network, example)
        assert graph.by == ("torch.export" if branching else "torch.fx")
        assert len(graph.inputs) == len(example)
        torch.testing.assert_close(run(graph, example), call_network(network, example))
        if isinstance(example, dict):  # in the order of the leaves, not of the signature
            assert [node.name.removeprefix("inputs_") for node in graph.inputs] == list(example)

    @each("branching", [False, True])
    def test_a_default_that_steers(self, branching: bool) -> None:
        class Twice(Several):
            def forward(self, left: Tensor, right: Tensor, again: bool = True) -> Tensor:  # type: ignore[override]
                return super().forward(left, right, again)

        network = Twice(branching)
        example = (vectors(), vectors(seed=1))
        graph = captured(network, example)
        torch.testing.assert_close(run(graph, example), network(*example))
        assert not torch.allclose(network(*example), network(*example, again=False))

    def test_a_number_for_all_samples(self) -> None:
        class Scaled(Several):
            def forward(self, left: Tensor, scale: Tensor) -> Tensor:  # type: ignore[override]
                return super().forward(left, left, scale=scale)  # type: ignore[arg-type]

        network = Scaled()
        graph = captured(network, (vectors(), torch.tensor(0.5)), (SAMPLES_FIRST, Axes(batch=None)))
        torch.testing.assert_close(run(graph, (vectors(), torch.tensor(3.0))), network(vectors(), torch.tensor(3.0)))

    def test_samples_anywhere(self) -> None:
        class Turned(Layered):
            def forward(self, x: Tensor) -> Any:
                return super().forward(x.mT)

        network = Turned()
        graph = captured(network, vectors(2).mT, Axes(batch=1))
        assert of(graph, "x").shapes == ((6, 3), (6, 5))
        torch.testing.assert_close(run(graph, vectors(7).mT), network(vectors(7).mT))

    def test_lengths_must_agree(self) -> None:
        inputs = {"ids": texts(3, 5)["ids"], "mask": texts(3, 6)["mask"]}
        with refuses(InputError, got="[5, 6]"):
            captured(Words(), inputs, TEXT_AXES)

    def test_short_texts_are_lengthened_to_be_told_from_samples(self) -> None:
        graph = captured(Words(), texts(2, 1), TEXT_AXES)
        assert graph.batches == (3, 5, 3)
        assert graph.lengths == (4, 4, 3)


class TestOutputs:
    @each(
        "end",
        [
            lambda x: {"hidden": x + 1, "logits": x},
            lambda x: OrderedDict(logits=x, hidden=x + 1),
            lambda x: (x, x + 1),
            lambda x: [x, None],
            lambda x: ((x, x + 1), x + 2),
            lambda x: ({"logits": x}, x + 2),
        ],
    )
    def test_scores_among_them(self, end: Any) -> None:
        network = Ending(end)
        graph = captured(network, vectors())
        assert graph.by == "torch.fx"
        torch.testing.assert_close(run(graph, vectors()), logits_of(network(vectors())))
        assert graph.logits.target == "head"

    def test_by_torch_export(self) -> None:
        class Naming(Branching):
            def forward(self, x: Tensor) -> Any:
                return {"hidden": x, "logits": super().forward(x)}

        graph = captured(Naming(), vectors())
        assert graph.by == "torch.export"
        assert of(graph, graph.logits.name).shapes == ((3, 3), (5, 3))

    @each("outputs", ["scores", {"scores": torch.ones(2, 2)}, (), None])
    def test_no_scores(self, outputs: Any) -> None:
        with pytest.raises(SplitRefusedError, match=f"'logits', got {type(outputs).__name__}; wrap it in a module"):
            logits_of(outputs)


class TestValues:
    @each("kind", [Layered, Branching])
    def test_shapes_and_costs(self, kind: Any) -> None:
        graph = captured(kind(), vectors())
        assert graph.batches == (3, 5)
        assert len(set(graph.lengths)) == 1
        (inputs,) = graph.inputs
        assert of(graph, inputs.name) == Value(((3, 6), (5, 6)), (), real=True, mul_adds=0, own=False)
        assert of(graph, graph.logits.name) == Value(((3, 3), (5, 3)), (), real=True, mul_adds=3 * WIDTH * 3, own=True)
        assert sum(value.mul_adds for value in graph.values) == 3 * (6 * WIDTH + 8 * WIDTH * WIDTH + WIDTH * 3)

    def test_whole_numbers_lengths_and_sizes(self) -> None:
        class Sized(Words):
            def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
                return super().forward(ids.view(ids.size(0), ids.size(1)), mask)

        graph = captured(Sized(), texts(2, 6), TEXT_AXES)
        assert graph.by == "torch.fx"
        values = {node.name: value for node, value in zip(graph.nodes, graph.values, strict=True)}
        assert values["ids"].shapes == ((3, 6), (5, 6), (3, 5))
        assert not values["ids"].real
        assert values["embed"].real
        assert (values["size"].results, values["size_1"].results) == ((3, 5, 3), (6, 6, 5))
        assert values["size"].shapes is None

    @each("kind", [Layered, Branching])
    def test_every_node_knows_whom_it_belongs_to(self, kind: Any) -> None:
        graph = captured(kind(), vectors())
        working = [stack for stack, value in zip(graph.stacks, graph.values, strict=True) if value.mul_adds]
        paths = [[call.path for call in stack] for stack in working]
        assert paths[0] == ["read"]
        assert paths[3:5] == [["blocks.1", "blocks.1.upper"], ["blocks.1", "blocks.1.lower"]]
        assert paths[-1] == ["head"]
        assert [call.kind for call in working[3]] == ["Block", "Linear"]

    @each("branching", [False, True])
    def test_calls_of_one_module_are_told_apart(self, branching: bool) -> None:
        class Shared(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.block, self.head = Block(), nn.Linear(WIDTH, 3)

            def forward(self, x: Tensor) -> Any:
                if branching and x.shape[0] < 1:
                    x = x + 1
                return self.head(self.block(self.block(self.block(x))))

        graph = captured(Shared(), torch.randn(3, WIDTH))
        assert graph.by == ("torch.export" if branching else "torch.fx")
        calls = list(dict.fromkeys(stack[0].path for stack in graph.stacks if stack))
        assert calls == ["block", "block@1", "block@2", "head"]


class Alone(nn.Module):
    """A function as a network."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.linear(x))


class TestRefusals:
    @each(
        "network",
        [
            Ending(nn.Sigmoid()),
            Ending(torch.sigmoid),
            Ending(lambda x: x.sigmoid()),
            Alone(lambda x: torch.sigmoid(x) if x.shape[0] else x),
        ],
    )
    def test_several_labels_a_sample(self, network: nn.Module) -> None:
        with pytest.raises(SplitRefusedError, match="ends in a sigmoid, as in multi-label"):
            captured(network, vectors())

    def test_a_sigmoid_inside_is_nothing_special(self) -> None:
        captured(nn.Sequential(nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 3)), vectors())

    def test_probabilities(self) -> None:
        with refuses(SplitRefusedError, got="probabilities", hint="softmax"):
            captured(Ending(nn.Softmax(1)), vectors())
        captured(Ending(nn.LogSoftmax(1)), vectors())  # as good as logits

    def test_one_output(self) -> None:
        with pytest.raises(SplitRefusedError, match="single output: a regression"):
            captured(Layered(classes=1), vectors())
        captured(Layered(classes=2), vectors())

    def test_labels_of_tokens(self) -> None:
        with refuses(SplitRefusedError, got="shape (5, 7, 3): one label per token"):
            captured(Layered(), torch.randn(4, 7, 6))

    @each(
        ("end", "message"),
        [
            (lambda x: x[:, 0], r"N x K, one row per sample, got shape \(5,\)"),
            (lambda x: x[:, :, None, None], r"got shape \(5, 3, 1, 1\)"),
            (lambda x: x.argmax(1), "as a tensor of floats"),
            (lambda x: "cat", "'logits', got str"),
        ],
    )
    def test_other_outputs(self, end: Any, message: str) -> None:
        with pytest.raises(SplitRefusedError, match=message):
            captured(Ending(end), vectors())

    @each(
        "end",
        [
            lambda x: (x - x.mean(0)) / x.std(0),
            lambda x: x - x.amax(),
            lambda x: x + x.flip(0),
            lambda x: x / len(x.detach()),
        ],
    )
    def test_answers_that_depend_on_the_other_samples(self, end: Any) -> None:
        with pytest.raises(SplitRefusedError, match="output of Ending for a sample depends on the others in its batch"):
            captured(Ending(end), vectors())

    def test_what_nobody_can_capture(self) -> None:
        class Deciding(Layered):
            def forward(self, x: Tensor) -> Any:
                return super().forward(x + 1 if float(x.sum()) > 1e6 else x)

        with pytest.raises(SplitRefusedError) as refused:
            captured(Deciding(), vectors())
        message = str(refused.value)
        assert re.search(r"neither torch\.fx nor torch\.export can capture Deciding: torch\.fx: \w+: .+; ", message)
        assert "torch.export: " in message
        assert message.endswith("give the stages by hand: offramp.Backbone(name, stages, heads, num_classes)")
        assert "\n" not in message
        assert isinstance(refused.value, OfframpError)
        assert isinstance(refused.value, ValueError)


class TestChanges:
    """Nodes after an in-place change read its result, so that recomputing repeats the change."""

    def test_later_readers_see_the_change_earlier_ones_do_not(self) -> None:
        class Changing(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head = nn.Linear(6, 3)

            def forward(self, x: Tensor) -> Any:
                y = x + 1
                before = y * 2
                y.mul_(3)
                y.add_(1)
                return self.head(y + before)

        network = Changing()
        graph = captured(network, vectors())
        assert graph.by == "torch.fx"
        sources = {node.name: [source.name for source in node.all_input_nodes] for node in graph.nodes}
        assert sources["mul"] == ["add"]
        assert sources["mul_"] == ["add"]
        assert sources["add_"] == ["mul_"]
        assert sources["add_1"] == ["add_", "mul"]
        torch.testing.assert_close(run(graph, vectors()), network(vectors()))
