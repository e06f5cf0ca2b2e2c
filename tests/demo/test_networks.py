"""Both networks are cut after each block, hold the contract of backbones, and are made by their registered names."""

import torch

from offramp.backbone._making import BACKBONES, build
from offramp.cost._mul_adds import count_mul_adds
from offramp.demo._networks import DigitsCnn, DigitsTransformer, as_backbone
from offramp.pooling import Tokens
from offramp.testing import check_backbone
from tests.cases import each

IMAGES = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1


@each(("network", "blocks"), [(DigitsTransformer(), 6), (DigitsCnn(), 2)])
def test_networks_are_cut_after_each_block(network: DigitsTransformer | DigitsCnn, blocks: int) -> None:
    backbone = as_backbone(network)
    assert backbone.num_exits == len(network.blocks) == blocks
    check_backbone(backbone, IMAGES, IMAGES[:2], network=network)


def test_exits_see_the_class_token_and_a_square_of_patches() -> None:
    backbone = as_backbone(DigitsTransformer())
    seen = backbone.representation(backbone.stages[0](IMAGES), 0)
    assert isinstance(seen, Tokens)
    assert (tuple(seen.values.shape), seen.prefix) == ((5, 17, 64), 1)


def test_the_cheap_network_is_cheap() -> None:
    small, large = (count_mul_adds(network.eval(), IMAGES[:1])[0] for network in (DigitsCnn(), DigitsTransformer()))
    # By hand: 2 convolutions of 3 x 3 on 4 x 4 pixels, and the head.
    assert small == 16 * 9 * 32 + 16 * 9 * 32 * 32 + 512 * 10
    assert small < 0.05 * large


@each("network", [DigitsTransformer(), DigitsCnn()])
def test_networks_are_made_by_their_names(network: DigitsTransformer | DigitsCnn) -> None:
    backbone = as_backbone(network)
    assert backbone.factory is not None
    assert backbone.factory.name in BACKBONES, "pyproject's entry points are not installed: pip install -e ."
    made = build(backbone.factory)
    made.load_state_dict(backbone.state_dict())
    assert made.fingerprint() == backbone.fingerprint()
    assert (made.preprocessing, made.factory) == (backbone.preprocessing, backbone.factory)
