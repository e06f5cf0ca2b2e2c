"""The contract of a backbone."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.cost import count_backbone
from offramp.cost._mul_adds import count_mul_adds
from offramp.errors import OfframpError
from offramp.pooling import POOLINGS

__all__ = ["check_backbone"]

TOLERANCE = 1e-5
"""Maximum difference, relative to the largest number, between runs at different batch sizes."""


@torch.no_grad()
def check_backbone(
    backbone: Backbone,
    inputs: Hidden,
    others: Hidden | None = None,
    *,
    network: Callable[[Hidden], Tensor] | None = None,
    exact: bool = True,
) -> None:
    """Check that a backbone keeps its contract; raise an AssertionError that names the violation.

    * The stages put together compute what the network computes, bit for bit or within rounding.
    * Stages and head together cost what the network costs.
    * After any stage, selecting samples does not change their predictions.
    * After any stage, joining two batches of any lengths does not change their predictions.
    * The features of a sample do not depend on the other samples of its batch.

    Args:
        backbone: The backbone.
        inputs: A batch of at least two samples, as the backbone takes them.
        others: A second batch, of another length if samples have one; `inputs` by default.
        network: The network that was split, inputs to logits; no comparison by default.
        exact: Require equality with the network bit for bit.

    Example:
        >>> from offramp.backbone import CifarResNet
        >>> backbone = CifarResNet(8)
        >>> check_backbone(backbone, torch.randn(3, 3, 32, 32), network=backbone)
    """
    others = inputs if others is None else others
    states = [_states(backbone, batch) for batch in (inputs, others)]
    logits = [backbone.own_logits(batch[-1], backbone.num_exits - 1) for batch in states]
    count = backbone.batch_size(inputs, 0)
    assert logits[0].shape == (count, backbone.num_classes), f"logits of shape {tuple(logits[0].shape)}"
    if network is not None:
        _check_network(backbone, inputs, network, exact)
    keep = torch.arange(count).flip(0)[::2].contiguous()
    pooling = POOLINGS.get("auto")
    for depth in range(backbone.num_exits + 1):
        hidden, other = states[0][depth], states[1][depth]
        assert backbone.batch_size(hidden, depth) == count, (
            f"batch size {backbone.batch_size(hidden, depth)} after {depth} stages"
        )
        for action, change, states_before, expected in (
            ("selecting", partial(backbone.select, keep=keep), hidden, logits[0][keep]),
            ("joining two batches", backbone.concatenate, [hidden, other], torch.cat(logits)),
        ):
            try:
                actual = _finish(backbone, change(states_before, depth=depth), depth)
            except (IndexError, OfframpError, RuntimeError) as error:
                raise AssertionError(f"{action} after {depth} stages: {error}") from error
            _assert_close(actual, expected, f"{action} after {depth} stages")
        if depth:
            features = pooling(backbone.representation(hidden, depth - 1))
            selected = pooling(backbone.representation(backbone.select(hidden, keep, depth), depth - 1))
            assert features.shape[0] == count, f"{features.shape[0]} features after {depth} stages"
            _assert_close(selected, features[keep], f"features after {depth} stages")
            joined = pooling(backbone.representation(backbone.concatenate([hidden, other], depth), depth - 1))
            _assert_close(joined[:count], features, f"features after {depth} stages, in a larger batch")


def _states(backbone: Backbone, inputs: Hidden) -> list[Hidden]:
    """Return the hidden states at every depth; each stage gets a copy, as it may work in place."""
    states = [inputs]
    for stage in backbone.stages:
        copy = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, states[-1])
        states.append(stage(copy))
    return states


def _finish(backbone: Backbone, hidden: Hidden, depth: int) -> Tensor:
    """Run the stages from `depth` on and return the logits."""
    for stage in list(backbone.stages)[depth:]:
        hidden = stage(hidden)
    return backbone.own_logits(hidden, backbone.num_exits - 1)


def _check_network(backbone: Backbone, inputs: Hidden, network: Callable[[Hidden], Tensor], exact: bool) -> None:
    """Compare outputs and cost with the network's."""
    expected = network(inputs)
    composed = backbone(inputs)  # no copies: another memory layout may round differently
    if exact:
        assert torch.equal(composed, expected), (
            f"stages differ from the network by {(composed - expected).abs().max():.3g}"
        )
    else:
        _assert_close(composed, expected, "stages put together")
    sample = backbone.select(inputs, backbone.sizes(inputs).argmax()[None], 0)  # the largest, without padding
    costs = count_backbone(backbone, sample, POOLINGS.get("auto"))
    size = float(backbone.sizes(sample)[0])
    counted = sum(float(coefficient) * size**power for power, coefficient in enumerate(costs.full))
    network_cost = count_mul_adds(network, sample)[0]
    assert abs(counted - network_cost) <= 1e-6 * network_cost, f"stages cost {counted:.0f}, the network {network_cost}"


def _assert_close(actual: Tensor, expected: Tensor, subject: str) -> None:
    """Require equality within rounding."""
    assert actual.shape == expected.shape, f"{subject}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    distance = float((actual - expected).abs().max()) if actual.numel() else 0.0
    tolerance = max(TOLERANCE, 4 * torch.finfo(expected.dtype).eps)  # the latter in half precision
    allowed = tolerance * max(1.0, float(expected.abs().max()) if expected.numel() else 0.0)
    assert distance <= allowed, f"{subject}: differs by {distance:.3g}, at most {allowed:.3g} is rounding"
