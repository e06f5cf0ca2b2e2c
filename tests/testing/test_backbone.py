"""The contract holds for good backbones, and each way of breaking it is told by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from offramp.backbone import Axes
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.pooling import Representation, Tokens
from offramp.testing import check_backbone
from tests.backbone.examples import FirstToken


class Layer(nn.Module):
    """Tokens that look at the mean of the real ones, and a mask that rides along."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, hidden: dict[str, Tensor]) -> dict[str, Tensor]:
        shown = hidden["mask"][..., None]
        mean = (hidden["tokens"] * shown).sum(1, keepdim=True) / shown.sum(1, keepdim=True)
        return {"tokens": torch.tanh(self.linear(hidden["tokens"] + mean)), "mask": hidden["mask"]}


class Texts(Backbone):
    """A good backbone; the tests break it in one place each."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__("texts", [Layer(), Layer(), Layer()], {2: FirstToken()}, num_classes=3)

    def axes(self, depth: int) -> Any:
        return Axes(lengths=(1,))

    def representation(self, hidden: Hidden, stage: int) -> Representation:
        return Tokens(hidden["tokens"], mask=hidden["mask"])

    def sizes(self, inputs: Hidden) -> Tensor:
        sizes: Tensor = inputs["mask"].sum(1)
        return sizes


def batch(count: int, length: int) -> dict[str, Tensor]:
    tokens = torch.randn(count, length, 4, generator=torch.Generator().manual_seed(length))
    mask = torch.ones(count, length)
    mask[0, length - 1 :] = 0
    return {"tokens": tokens, "mask": mask}


def check(backbone: Backbone, **options: Any) -> None:
    check_backbone(backbone, batch(4, 5), batch(2, 7), **options)


def changed(layer: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Backbone:
    """The good backbone with something done after its second stage."""

    class Changed(Layer):
        def forward(self, hidden: dict[str, Tensor]) -> dict[str, Tensor]:
            return layer(super().forward(hidden))

    backbone = Texts()
    weights = backbone.stages[1].state_dict()
    backbone.stages[1] = Changed()
    backbone.stages[1].load_state_dict(weights)
    return backbone


def test_a_good_backbone() -> None:
    backbone = Texts()
    check(backbone)
    check(backbone, network=Texts())
    check_backbone(backbone, batch(4, 5))
    check_backbone(backbone, batch(2, 5), batch(1, 2), network=backbone, exact=False)


def test_stages_may_work_in_place() -> None:
    def shift(hidden: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden["mask"].mul_(1)
        hidden["tokens"].add_(1)
        return hidden

    backbone = changed(shift)
    inputs = batch(4, 5)
    check_backbone(backbone, inputs, network=backbone)
    assert torch.equal(inputs["tokens"], batch(4, 5)["tokens"])


def test_half_precision() -> None:
    backbone = Texts().bfloat16()
    inputs = {name: leaf.bfloat16() for name, leaf in batch(4, 5).items()}
    check_backbone(backbone, inputs, {name: leaf[1:3] for name, leaf in inputs.items()}, network=backbone)


class TestNetwork:
    def test_that_differs(self) -> None:
        backbone = Texts()
        with pytest.raises(AssertionError, match=r"stages differ from the network by \S+e-0[67]"):
            check(backbone, network=lambda inputs: backbone(inputs) + 1e-6)
        check(backbone, network=lambda inputs: backbone(inputs) + 1e-6, exact=False)
        with pytest.raises(AssertionError, match=r"stages put together: differs by 0\.001"):
            check(backbone, network=lambda inputs: backbone(inputs) + 1e-3, exact=False)

    def test_of_other_classes(self) -> None:
        backbone = Texts()
        with pytest.raises(AssertionError, match=r"stages put together: shape \(4, 3\), expected \(4, 2\)"):
            check(backbone, network=lambda inputs: backbone(inputs)[:, :2], exact=False)
        backbone.num_classes = 4
        with pytest.raises(AssertionError, match=r"logits of shape \(4, 3\)"):
            check(backbone)

    def test_of_other_costs(self) -> None:
        backbone = Texts()
        backbone.declared_mul_adds = {1: 1000}
        with pytest.raises(AssertionError, match="stages cost 1252, the network 252"):  # 5 tokens, 3 layers, a head
            check(backbone, network=backbone)
        check(backbone)  # nothing to compare with

    def test_that_is_wasteful(self) -> None:
        backbone = Texts()

        def network(inputs: Hidden) -> Tensor:
            logits: Tensor = (backbone(inputs) + backbone(inputs)) / 2
            return logits

        with pytest.raises(AssertionError, match="stages cost 252, the network 504"):
            check(backbone, network=network)


class TestSamples:
    def test_mixed_by_a_stage(self) -> None:
        backbone = changed(lambda hidden: {**hidden, "tokens": hidden["tokens"] - hidden["tokens"].mean(0)})
        with pytest.raises(AssertionError, match="selecting after 0 stages: differs by"):
            check(backbone)

    def test_mixed_by_the_head(self) -> None:
        class Ranking(FirstToken):
            def forward(self, hidden: dict[str, Tensor]) -> Tensor:
                logits = super().forward(hidden)
                return logits - logits.amax()

        backbone = Texts()
        backbone.heads["2"] = Ranking()
        with pytest.raises(AssertionError, match="after 0 stages: differs by"):
            check(backbone)

    def test_mixed_where_exits_look(self) -> None:
        class Looking(Texts):
            def representation(self, hidden: Hidden, stage: int) -> Representation:
                shift = hidden["tokens"].mean(0, keepdim=True) if stage == 1 else 0
                return Tokens(hidden["tokens"] + shift, mask=hidden["mask"])

        with pytest.raises(AssertionError, match="features after 2 stages: differs by"):
            check(Looking())

    def test_lost_where_exits_look(self) -> None:
        class Looking(Texts):
            def representation(self, hidden: Hidden, stage: int) -> Representation:
                return Tokens(hidden["tokens"][:3], mask=hidden["mask"][:3])

        with pytest.raises(AssertionError, match="3 features after 1 stages"):
            check(Looking())

    def test_padding_that_is_seen(self) -> None:
        class Unmasked(Layer):
            def forward(self, hidden: dict[str, Tensor]) -> dict[str, Tensor]:
                return {**hidden, "tokens": hidden["tokens"] + self.linear(hidden["tokens"]).mean(1, keepdim=True)}

        backbone = Texts()
        backbone.stages[1] = Unmasked()
        with pytest.raises(AssertionError, match="joining two batches after 0 stages: differs by"):
            check(backbone)


class TestAxes:
    def broken(self, wrong: Any, *, at: int) -> Backbone:
        class Broken(Texts):
            def axes(self, depth: int) -> Any:
                return wrong if depth == at else Axes(lengths=(1,))

        return Broken()

    def test_samples_elsewhere(self) -> None:
        with pytest.raises(AssertionError, match="batch size 5 after 1 stages"):
            check(self.broken(Axes(batch=1), at=1))

    def test_samples_nowhere_in_a_leaf(self) -> None:
        axes = {"tokens": Axes(lengths=(1,)), "mask": Axes(batch=None)}
        with pytest.raises(AssertionError, match="selecting after 2 stages"):
            check(self.broken(axes, at=2))

    def test_no_lengths(self) -> None:
        with pytest.raises(
            AssertionError, match="joining two batches after 2 stages: expected batches of samples of one size"
        ):
            check(self.broken(Axes(), at=2))

    def test_wrong_padding(self) -> None:
        axes = {"tokens": Axes(lengths=(1,)), "mask": Axes(lengths=(1,), pad=1)}
        with pytest.raises(AssertionError, match="joining two batches after 1 stages: differs by"):
            check(self.broken(axes, at=1))
