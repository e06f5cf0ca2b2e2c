"""The contract of a backbone."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone import POOLINGS, Backbone, Hidden
from offramp.cost import count_backbone, count_mul_adds
from offramp.errors import OfframpError

__all__ = ["check_backbone"]

TOLERANCE = 1e-5
"""Of the largest number that is compared: how far rounding may take two runs at different batch sizes."""


@torch.no_grad()
def check_backbone(
    backbone: Backbone,
    inputs: Hidden,
    others: Hidden | None = None,
    *,
    network: Callable[[Hidden], Tensor] | None = None,
    exact: bool = True,
) -> None:
    """Hold a backbone to its contract; raise an AssertionError that says what does not hold.

    * The stages put together are the network: bit for bit, or within rounding.
    * Stages and head cost what the network costs.
    * After any stage, picking samples and going on gives what going on and picking gives.
    * After any stage, joining two batches and going on gives what running them apart gives, whatever their lengths.
    * Every stage shows exits features that are a sample's own.

    Args:
        backbone: The backbone.
        inputs: A batch of at least two samples, as the backbone takes them.
        others: A second batch, of another length where samples have one; `inputs` themselves if left out.
        network: The network that was taken apart: inputs to logits; nothing is compared with it if left out.
        exact: Whether it must be equal bit for bit.

    Example:
        >>> from offramp.backbone import CifarResNet
        >>> backbone = CifarResNet(8)
        >>> check_backbone(backbone, torch.randn(3, 3, 32, 32), network=backbone)
    """
    others = inputs if others is None else others
    states = [_states(backbone, batch) for batch in (inputs, others)]
    answers = [backbone.own_logits(batch[-1], backbone.num_exits - 1) for batch in states]
    count = backbone.batch_size(inputs, 0)
    assert answers[0].shape == (count, backbone.num_classes), f"logits of shape {tuple(answers[0].shape)}"
    if network is not None:
        _check_network(backbone, inputs, network, exact)
    keep = torch.arange(count).flip(0)[::2].contiguous()
    pooling = POOLINGS.get("auto")
    for depth in range(backbone.num_exits + 1):
        one, other = states[0][depth], states[1][depth]
        assert backbone.batch_size(one, depth) == count, (
            f"batch size {backbone.batch_size(one, depth)} after {depth} stages"
        )
        for what, change, hidden, expected in (
            ("selecting", partial(backbone.select, keep=keep), one, answers[0][keep]),
            ("joining two batches", backbone.concatenate, [one, other], torch.cat(answers)),
        ):
            try:
                found = _finish(backbone, change(hidden, depth=depth), depth)
            except (IndexError, OfframpError, RuntimeError) as error:
                raise AssertionError(f"{what} after {depth} stages: {error}") from error
            _close(found, expected, f"{what} after {depth} stages")
        if depth:
            features = pooling(backbone.representation(one, depth - 1))
            alone = pooling(backbone.representation(backbone.select(one, keep, depth), depth - 1))
            assert features.shape[0] == count, f"{features.shape[0]} features after {depth} stages"
            _close(alone, features[keep], f"features after {depth} stages")
            joined = pooling(backbone.representation(backbone.concatenate([one, other], depth), depth - 1))
            _close(joined[:count], features, f"features after {depth} stages, in a larger batch")


def _states(backbone: Backbone, inputs: Hidden) -> list[Hidden]:
    """The hidden states at every depth; each stage gets a copy, as it may work in place."""
    states = [inputs]
    for stage in backbone.stages:
        copied = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, states[-1])
        states.append(stage(copied))
    return states


def _finish(backbone: Backbone, hidden: Hidden, depth: int) -> Tensor:
    for stage in list(backbone.stages)[depth:]:
        hidden = stage(hidden)
    return backbone.own_logits(hidden, backbone.num_exits - 1)


def _check_network(backbone: Backbone, inputs: Hidden, network: Callable[[Hidden], Tensor], exact: bool) -> None:
    whole = network(inputs)
    composed = backbone(inputs)  # without the copies above, which may lie otherwise in memory and so round otherwise
    if exact:
        assert torch.equal(composed, whole), f"stages differ from the network by {(composed - whole).abs().max():.3g}"
    else:
        _close(composed, whole, "stages put together")
    one = backbone.select(inputs, backbone.sizes(inputs).argmax()[None], 0)  # the largest: nothing of it is padding
    costs = count_backbone(backbone, one, POOLINGS.get("auto"))
    size = float(backbone.sizes(one)[0])
    counted = sum(float(coefficient) * size**power for power, coefficient in enumerate(costs.full))
    expected = count_mul_adds(network, one)[0]
    assert abs(counted - expected) <= 1e-6 * expected, f"stages cost {counted:.0f}, the network {expected}"


def _close(found: Tensor, expected: Tensor, what: str) -> None:
    assert found.shape == expected.shape, f"{what}: shape {tuple(found.shape)}, expected {tuple(expected.shape)}"
    distance = float((found - expected).abs().max()) if found.numel() else 0.0
    tolerance = max(TOLERANCE, 4 * torch.finfo(expected.dtype).eps)  # the latter in half precision
    allowed = tolerance * max(1.0, float(expected.abs().max()) if expected.numel() else 0.0)
    assert distance <= allowed, f"{what}: differs by {distance:.3g}, at most {allowed:.3g} is rounding"
