"""The contract holds for good trunks, and each way of breaking it is told by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from offramp.testing import check_trunk
from offramp.trunk import Axes, Hidden, Representation, Tokens, Trunk
from tests.trunk.examples import FirstToken


class Layer(nn.Module):
    """Tokens that look at the mean of the real ones, and a mask that rides along."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, hidden: dict[str, Tensor]) -> dict[str, Tensor]:
        shown = hidden["mask"][..., None]
        mean = (hidden["tokens"] * shown).sum(1, keepdim=True) / shown.sum(1, keepdim=True)
        return {"tokens": torch.tanh(self.linear(hidden["tokens"] + mean)), "mask": hidden["mask"]}


class Texts(Trunk):
    """A good trunk; the tests break it in one place each."""

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


def check(trunk: Trunk, **options: Any) -> None:
    check_trunk(trunk, batch(4, 5), batch(2, 7), **options)


def changed(layer: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Trunk:
    """The good trunk with something done after its second stage."""

    class Changed(Layer):
        def forward(self, hidden: dict[str, Tensor]) -> dict[str, Tensor]:
            return layer(super().forward(hidden))

    trunk = Texts()
    weights = trunk.stages[1].state_dict()
    trunk.stages[1] = Changed()
    trunk.stages[1].load_state_dict(weights)
    return trunk


def test_a_good_trunk() -> None:
    trunk = Texts()
    check(trunk)
    check(trunk, network=Texts())
    check_trunk(trunk, batch(4, 5))
    check_trunk(trunk, batch(2, 5), batch(1, 2), network=trunk, exact=False)


def test_stages_may_work_in_place() -> None:
    def shift(hidden: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden["mask"].mul_(1)
        hidden["tokens"].add_(1)
        return hidden

    trunk = changed(shift)
    inputs = batch(4, 5)
    check_trunk(trunk, inputs, network=trunk)
    assert torch.equal(inputs["tokens"], batch(4, 5)["tokens"])


def test_half_precision() -> None:
    trunk = Texts().bfloat16()
    inputs = {name: leaf.bfloat16() for name, leaf in batch(4, 5).items()}
    check_trunk(trunk, inputs, {name: leaf[1:3] for name, leaf in inputs.items()}, network=trunk)


class TestNetwork:
    def test_that_differs(self) -> None:
        trunk = Texts()
        with pytest.raises(AssertionError, match=r"stages differ from the network by \S+e-0[67]"):
            check(trunk, network=lambda inputs: trunk(inputs) + 1e-6)
        check(trunk, network=lambda inputs: trunk(inputs) + 1e-6, exact=False)
        with pytest.raises(AssertionError, match=r"stages put together: differs by 0\.001"):
            check(trunk, network=lambda inputs: trunk(inputs) + 1e-3, exact=False)

    def test_of_other_classes(self) -> None:
        trunk = Texts()
        with pytest.raises(AssertionError, match=r"stages put together: shape \(4, 3\), expected \(4, 2\)"):
            check(trunk, network=lambda inputs: trunk(inputs)[:, :2], exact=False)
        trunk.num_classes = 4
        with pytest.raises(AssertionError, match=r"logits of shape \(4, 3\)"):
            check(trunk)

    def test_of_other_costs(self) -> None:
        trunk = Texts()
        trunk.declared_mul_adds = {1: 1000}
        with pytest.raises(AssertionError, match="stages cost 1252, the network 252"):  # 5 tokens, 3 layers, a head
            check(trunk, network=trunk)
        check(trunk)  # nothing to compare with

    def test_that_is_wasteful(self) -> None:
        trunk = Texts()

        def network(inputs: Hidden) -> Tensor:
            logits: Tensor = (trunk(inputs) + trunk(inputs)) / 2
            return logits

        with pytest.raises(AssertionError, match="stages cost 252, the network 504"):
            check(trunk, network=network)


class TestSamples:
    def test_mixed_by_a_stage(self) -> None:
        trunk = changed(lambda hidden: {**hidden, "tokens": hidden["tokens"] - hidden["tokens"].mean(0)})
        with pytest.raises(AssertionError, match="selecting after 0 stages: differs by"):
            check(trunk)

    def test_mixed_by_the_head(self) -> None:
        class Ranking(FirstToken):
            def forward(self, hidden: dict[str, Tensor]) -> Tensor:
                logits = super().forward(hidden)
                return logits - logits.amax()

        trunk = Texts()
        trunk.heads["2"] = Ranking()
        with pytest.raises(AssertionError, match="after 0 stages: differs by"):
            check(trunk)

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

        trunk = Texts()
        trunk.stages[1] = Unmasked()
        with pytest.raises(AssertionError, match="joining two batches after 0 stages: differs by"):
            check(trunk)


class TestAxes:
    def broken(self, wrong: Any, *, at: int) -> Trunk:
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
