"""The contract of every backbone, on one that is all corners and on the networks that come along."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import offramp
from offramp.backbone import Axes, CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.errors import BudgetError, InputError, OfframpError, SplitError, UnknownNameError
from offramp.features import ArraySource, extract
from offramp.pooling import Representation
from offramp.preprocessing import Preprocessing
from tests.backbone.examples import FirstToken
from tests.cases import each, refuses


class Mixing(nn.Module):
    """Padded positions are masked out; dropout would show if a backbone ever trained."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, hidden: dict[str, Tensor]) -> dict[str, Tensor]:
        shown = hidden["mask"][..., None]
        mean = (hidden["tokens"] * shown).sum(1, keepdim=True) / shown.sum(1, keepdim=True)
        tokens = self.dropout(torch.tanh(self.linear(hidden["tokens"] + mean))) + hidden["table"]
        return {**hidden, "tokens": tokens}


class TokenBackbone(Backbone):
    """Sequences of different lengths, a mask, and a table all samples share; a head in the middle."""

    def __init__(self) -> None:
        super().__init__("tokens", [Mixing() for _ in range(3)], {2: FirstToken(), 1: FirstToken()}, num_classes=3)

    def axes(self, depth: int) -> Any:
        return {"tokens": Axes(lengths=(1,)), "mask": Axes(lengths=(1,)), "table": Axes(batch=None)}

    def representation(self, hidden: Hidden, stage: int) -> Tensor:
        tokens: Tensor = hidden["tokens"]
        return tokens.transpose(1, 2)

    def sizes(self, inputs: Hidden) -> Tensor:
        mask: Tensor = inputs["mask"]
        return mask.sum(1)


def token_inputs(count: int, seed: int) -> Hidden:
    tokens = torch.randn(count, 2 + seed, 4, generator=torch.Generator().manual_seed(seed))
    return {"tokens": tokens, "mask": torch.ones(count, 2 + seed), "table": torch.arange(4.0)}


def image_inputs(count: int, seed: int) -> Hidden:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


Inputs = Callable[[int, int], Hidden]
CASES: dict[str, tuple[Callable[[], Backbone], Inputs]] = {
    "tokens": (TokenBackbone, token_inputs),
    "resnet-8": (lambda: CifarResNet(8, num_classes=3), image_inputs),
    "resnet-20": (lambda: CifarResNet(20), image_inputs),
}


def built(name: str) -> tuple[Backbone, Inputs]:
    torch.manual_seed(0)
    build, inputs = CASES[name]
    return build(), inputs


def states(backbone: Backbone, inputs: Hidden) -> list[Hidden]:
    """The hidden state at every depth, the inputs first."""
    found = [inputs]
    for stage in backbone.stages:
        found.append(stage(found[-1]))
    return found


def same(backbone: Backbone, found: Hidden, expected: Hidden, depth: int) -> None:
    """Compare what a stage leaves: everything that may be seen from here on."""
    assert backbone.batch_size(found, depth) == backbone.batch_size(expected, depth)
    if depth:
        stage = depth - 1
        seen, wanted = (backbone.representation(hidden, stage) for hidden in (found, expected))
        torch.testing.assert_close(numbers(seen), numbers(wanted), rtol=1e-4, atol=1e-4)


def numbers(representation: Representation) -> Tensor:
    return representation if isinstance(representation, Tensor) else representation.values


class TestContract:
    @each("name", CASES)
    def test_stages_composed_are_the_network(self, name: str) -> None:
        backbone, inputs = built(name)
        given = inputs(4, 0)
        last = states(backbone, given)[-1]
        logits = backbone(given)
        assert logits.shape == (4, backbone.num_classes)
        assert torch.equal(logits, backbone.own_logits(last, backbone.num_exits - 1))
        assert len(backbone.stages) == backbone.num_exits
        assert backbone.own_heads[-1] == backbone.num_exits - 1
        assert list(backbone.own_heads) == sorted(backbone.own_heads)

    @each("name", CASES)
    def test_choosing_samples_commutes_with_running(self, name: str) -> None:
        backbone, inputs = built(name)
        given = inputs(5, 1)
        keep = torch.tensor([3, 0, 4])
        whole = states(backbone, given)
        for start in range(backbone.num_exits):
            hidden = backbone.select(whole[start], keep, start)
            for depth in range(start, min(start + 2, backbone.num_exits)):
                hidden = backbone.stages[depth](hidden)
                same(backbone, hidden, backbone.select(whole[depth + 1], keep, depth + 1), depth + 1)

    @each("name", CASES)
    def test_batches_joined_are_batches_run_together(self, name: str) -> None:
        backbone, inputs = built(name)
        first, second = states(backbone, inputs(2, 0)), states(backbone, inputs(3, 3))
        together = backbone.concatenate([first[0], second[0]], 0)
        assert backbone.batch_size(together, 0) == 5
        for depth in range(backbone.num_exits):
            # Run on from a join at any depth: the answers are those of the batches alone.
            hidden = backbone.concatenate([first[depth], second[depth]], depth)
            for stage in list(backbone.stages)[depth:]:
                hidden = stage(hidden)
            found = backbone.own_logits(hidden, backbone.num_exits - 1)
            expected = torch.cat([backbone.own_logits(part[-1], backbone.num_exits - 1) for part in (first, second)])
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)

    @each("name", CASES)
    def test_stays_in_evaluation_mode(self, name: str) -> None:
        backbone, inputs = built(name)
        given = inputs(3, 0)
        before, buffers = backbone(given), {name: buffer.clone() for name, buffer in backbone.named_buffers()}
        assert backbone.train() is backbone
        nn.Sequential(backbone).train()
        assert not any(module.training for module in backbone.modules())
        assert torch.equal(backbone(given), before)
        assert all(torch.equal(buffer, buffers[name]) for name, buffer in backbone.named_buffers())

    @each("name", CASES)
    def test_takes_no_gradient(self, name: str) -> None:
        backbone, inputs = built(name)
        assert list(backbone.parameters())
        assert not any(parameter.requires_grad for parameter in backbone.parameters())
        assert not backbone(inputs(2, 0)).requires_grad

    @each("name", CASES)
    def test_sizes_one_a_sample(self, name: str) -> None:
        backbone, inputs = built(name)
        assert backbone.sizes(inputs(3, 4)).tolist() == (
            [6, 6, 6] if isinstance(backbone, TokenBackbone) else [1, 1, 1]
        )

    @each("name", CASES)
    def test_fingerprint_is_that_of_the_weights(self, name: str) -> None:
        backbone, _ = built(name)
        twin = CASES[name][0]()
        assert twin.fingerprint() != backbone.fingerprint()
        twin.load_state_dict(backbone.state_dict())
        assert twin.fingerprint() == backbone.fingerprint()
        assert twin.to(memory_format=torch.contiguous_format).fingerprint() == backbone.fingerprint()  # type: ignore[call-overload]
        assert len(backbone.fingerprint()) == 64

    @each("name", CASES)
    def test_fingerprint_sees_every_weight_and_buffer(self, name: str) -> None:
        backbone, _ = built(name)
        seen = {backbone.fingerprint()}
        tensors = list(backbone.state_dict().values())
        for tensor in tensors[:: max(1, len(tensors) // 25)] + tensors[-1:]:
            last = tensor.flatten()[-1].item()
            tensor[(-1,) * tensor.ndim] += 1e-6 + 1e-6 * abs(last) if tensor.is_floating_point() else 1
            seen.add(backbone.fingerprint())
        expected = 1 + len(tensors[:: max(1, len(tensors) // 25)]) + 1
        assert len(seen) == expected


class TestBackbone:
    def test_the_last_stage_needs_a_head(self) -> None:
        class Headless(TokenBackbone):
            def __init__(self) -> None:
                Backbone.__init__(self, "headless", [Mixing(), Mixing()], {0: FirstToken()}, num_classes=3)

        with refuses(InputError, problem="'headless'", got="[0]"):
            Headless()

    def test_own_heads_by_stage(self) -> None:
        backbone = TokenBackbone()
        assert backbone.own_heads == (1, 2)
        hidden = states(backbone, token_inputs(2, 0))
        head = backbone.heads["1"]
        assert torch.equal(backbone.own_logits(hidden[2], 1), head(hidden[2]))

    def test_fingerprint_tells_architectures_apart(self) -> None:
        # The same weights, of another network.
        class Renamed(TokenBackbone):
            def __init__(self) -> None:
                Backbone.__init__(
                    self, "renamed", [Mixing() for _ in range(3)], {2: FirstToken(), 1: FirstToken()}, num_classes=3
                )

        backbone, renamed = TokenBackbone(), Renamed()
        renamed.load_state_dict(backbone.state_dict())
        assert renamed.fingerprint() != backbone.fingerprint()

    def test_fingerprint_in_half_precision(self) -> None:
        backbone = TokenBackbone()
        assert backbone.fingerprint() != backbone.bfloat16().fingerprint()


class TestExplaining:
    """Errors of a stage describe the inputs."""

    @each("kind", [RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError])
    def test_an_error_of_a_stage(self, kind: type[Exception]) -> None:
        inputs = {"tokens": torch.zeros(2, 3), "mask": np.zeros((2, 5), np.int64), "other": "text"}
        with pytest.raises(InputError) as caught, TokenBackbone().explain_errors(inputs):
            raise kind("sizes 3 and 4")
        told = str(caught.value)
        assert told.startswith("'tokens' cannot take these inputs (")
        for part in (
            "float32 of shape (2, 3)",
            "int64 of shape (2, 5)",
            "str",
            "sizes 3 and 4",
            "backbone.preprocessing",
        ):
            assert part in told
        assert isinstance(caught.value.__cause__, kind)

    @each("kind", [InputError, UnknownNameError, SplitError, BudgetError])
    def test_errors_of_offramp_are_left_alone(self, kind: type[OfframpError]) -> None:
        mine = kind("as it is")
        with pytest.raises(kind) as caught, TokenBackbone().explain_errors(torch.zeros(1)):
            raise mine
        assert caught.value is mine
        assert mine.__cause__ is None

    @each("kind", [KeyboardInterrupt, MemoryError, AssertionError, OSError])
    def test_what_is_not_about_inputs_is_left_alone(self, kind: type[BaseException]) -> None:
        with pytest.raises(kind), TokenBackbone().explain_errors(torch.zeros(1)):
            raise kind

    def test_nothing_wrong_nothing_told(self) -> None:
        with TokenBackbone().explain_errors(torch.zeros(1)):
            pass

    def test_long_stories_are_cut(self) -> None:
        with pytest.raises(InputError) as caught, TokenBackbone().explain_errors([torch.zeros(1)] * 1000):
            raise RuntimeError("x" * 10_000)
        assert len(str(caught.value)) < 800


WRONG: dict[str, Any] = {
    "channels last": torch.zeros(4, 32, 32, 3),
    "one channel": torch.zeros(4, 1, 32, 32),
    "no batch": torch.zeros(3, 32, 32),
    "vectors": torch.zeros(4, 10),
    "one number each": torch.zeros(4),
    "whole numbers": torch.zeros(4, 3, 32, 32, dtype=torch.long),
    "texts": np.array(["one", "two", "three", "four"]),
}


@pytest.fixture(scope="module")
def network() -> offramp.EarlyExitModel:
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    images, labels = draw.normal(size=(60, 3, 32, 32)).astype(np.float32), draw.integers(0, 3, 60)
    quick = replace(offramp.DEFAULT, cost_weights=(1.0,), warmup_epochs=1, epochs=1)
    data = (images[:30], labels[:30]), (images[30:], labels[30:])
    return offramp.fit(CifarResNet(8, num_classes=3), *data, settings=quick, anyway=True, progress=False).at(cost=2)


class TestWrongInputs:
    @each("name", WRONG)
    def test_to_predict_from(self, network: offramp.EarlyExitModel, name: str) -> None:
        with pytest.raises(
            InputError, match=r"'cifar-resnet-8'(: expected a (tensor|batch of 4 axes)| cannot take these inputs)"
        ):
            network.predict(WRONG[name])

    @each("name", WRONG)
    def test_to_extract_from(self, name: str, tmp_path: Path) -> None:
        source = ArraySource(WRONG[name], np.zeros(len(WRONG[name]), np.int64), name="wrong")
        with pytest.raises(
            InputError, match=r"'cifar-resnet-8'(: expected a (tensor|batch of 4 axes)| cannot take these inputs)"
        ):
            extract(CifarResNet(8, num_classes=3), source, tmp_path, progress=False)

    def test_preparation_tells_first(self, network: offramp.EarlyExitModel) -> None:
        prepared = replace(network, preprocessing=Preprocessing().then("channels_first"))
        with pytest.raises(InputError, match="expected images N x H x W x C"):
            prepared.predict(torch.zeros(4, 10))

    def test_right_ones_have_answers(self, network: offramp.EarlyExitModel) -> None:
        assert network.predict(torch.zeros(4, 3, 32, 32)).labels.shape == (4,)
        assert network.predict(torch.zeros(0, 3, 32, 32)).labels.shape == (0,)
