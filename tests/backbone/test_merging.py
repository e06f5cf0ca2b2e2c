"""Merged stages are the same network with fewer exits."""

from typing import Any

import pytest
import torch
from torch import nn

import offramp
from offramp.backbone import Cascade, CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone._making import build
from offramp.backbone._merging import merge
from offramp.backbone.adapters._callable import callable_model
from offramp.cost import count_backbone
from offramp.errors import InputError
from offramp.pooling import POOLINGS
from offramp.testing import check_backbone
from tests.cases import each, refuses

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def network(layers: int = 20) -> CifarResNet:
    torch.manual_seed(layers)
    return CifarResNet(layers)


def test_the_same_network_with_fewer_exits() -> None:
    whole = network()
    coarse = merge(whole, (0, 4, 8))
    assert coarse.num_exits == 3
    assert torch.equal(coarse(IMAGES), whole(IMAGES))
    with torch.no_grad():
        hidden = whole.stages[0](IMAGES)
        for stage in range(1, 5):
            hidden = whole.stages[stage](hidden)
        found = coarse.stages[1](coarse.stages[0](IMAGES))
    torch.testing.assert_close(coarse.representation(found, 1), whole.representation(hidden, 4), atol=0, rtol=0)
    check_backbone(coarse, IMAGES)


def test_costs_add_up() -> None:
    whole, pooling = network(), POOLINGS.get("mean")
    one, other = count_backbone(whole, IMAGES, pooling), count_backbone(merge(whole, (0, 4, 8)), IMAGES, pooling)
    stage = one.stage[0]
    torch.testing.assert_close(other.stage[0], torch.stack([stage[0], stage[1:5].sum(), stage[5:].sum()]))
    assert torch.equal(one.full, other.full)


def test_the_networks_of_a_cascade_are_merged_each_by_itself() -> None:
    both = cascade(network(8), network(20))
    coarse = merge(both, (2, 5, 11))
    assert isinstance(coarse, Cascade)
    assert [member.num_exits for member in coarse.members] == [1, 2]
    assert coarse.own_heads == (0, 2)
    assert torch.equal(coarse(IMAGES), both(IMAGES))
    check_backbone(coarse, IMAGES)


def test_texts_keep_their_lengths_and_masks() -> None:
    import transformers

    from offramp.backbone.adapters.transformers import text_backbone

    library: Any = transformers
    sizes = dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64)
    torch.manual_seed(0)
    whole = text_backbone(
        library.BertForSequenceClassification(library.BertConfig(**sizes, vocab_size=50, num_labels=3)).eval()
    )
    ids = torch.randint(1, 50, (3, 7))
    mask = (torch.arange(7) < torch.tensor([[7], [4], [2]])).long()
    inputs = whole.prepare({"input_ids": ids * mask, "attention_mask": mask})
    coarse = merge(whole, (0, 2, 4))
    assert coarse.varies_in_size
    assert coarse.sizes(inputs).tolist() == [7, 4, 2]
    hidden = coarse.stages[0](inputs)
    short = coarse.trim(coarse.select(hidden, torch.tensor([1, 2]), 1), 1)
    with torch.no_grad():
        for stage in list(coarse.stages)[1:]:
            short = stage(short)
        torch.testing.assert_close(coarse.own_logits(short, 2), whole(inputs)[1:], atol=1e-5, rtol=1e-5)
    check_backbone(coarse, inputs)


def test_nothing_to_merge() -> None:
    whole = network(8)
    assert merge(whole, (0, 1, 2)) is whole


@each("ends", [(), (0, 4), (4, 0, 8), (-1, 8), (0, 9), (8, 8)])
def test_ends_that_are_none(ends: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="expected ascending ends of stages"):
        merge(network(), ends)


def test_heads_on_the_way_must_stay() -> None:
    with refuses(InputError, expected="[2, 11]"):
        merge(cascade(network(8), network(20)), (5, 11))


def test_declared_costs_add_up() -> None:
    stages = [nn.Linear(4, 4) for _ in range(3)]
    backbone = Backbone("declared", stages, {2: nn.Linear(4, 3)}, num_classes=3)
    backbone.declared_mul_adds = {0: 5.0, 1: 7.0}
    assert merge(backbone, (1, 2)).declared_mul_adds == {0: 12.0}


def test_made_again_by_name() -> None:
    whole = network()
    coarse = merge(whole, (2, 8))
    assert coarse.factory is not None
    again = build(coarse.factory)
    again.load_state_dict(coarse.state_dict())
    assert again.fingerprint() == coarse.fingerprint() != whole.fingerprint()
    assert torch.equal(again(IMAGES), coarse(IMAGES))


def test_a_function_has_one_stage() -> None:
    member = callable_model(lambda inputs: inputs.flatten(1)[:, :10], 10, name="first-ten", mul_adds=10)
    coarse = merge(offramp.cascade(member, network(8)), (0, 3))
    assert coarse.num_exits == 2


def test_names_of_classes_stay() -> None:
    backbone = CifarResNet(20)
    backbone.classes = tuple("jihgfedcba")
    assert merge(backbone, (2, 8)).classes == backbone.classes
