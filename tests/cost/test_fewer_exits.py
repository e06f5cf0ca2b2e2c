"""Few exits, evenly spread."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from offramp.backbone import Cascade, CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.cost import keep_exits
from offramp.errors import InputError
from tests.cases import each

IMAGE = torch.zeros(1, 3, 32, 32)


def test_exits_stand_at_equal_shares_of_the_cost() -> None:
    # Stages of 1, 1, 2, 4 and 8 parts: halves are at the end of the fourth.
    widths = [4, 4, 4, 8, 8, 16]
    stages = [nn.Linear(narrow, wide, bias=False) for narrow, wide in pairwise(widths)]
    backbone = Backbone("growing", stages, {4: nn.Linear(16, 3)}, num_classes=3)
    inputs = torch.zeros(1, 4)
    coarse = keep_exits(backbone, inputs, exits=2)
    assert [len(list(stage.modules())) for stage in coarse.stages] == [5, 1]
    assert torch.equal(coarse(inputs), backbone(inputs))


@each(("exits", "expected"), [(1, 1), (3, 3), (9, 9), (100, 9)])
def test_no_more_than_asked(exits: int, expected: int) -> None:
    assert keep_exits(CifarResNet(20), IMAGE, exits=exits).num_exits == expected


def test_each_network_of_a_cascade_has_its_own() -> None:
    coarse = keep_exits(cascade(CifarResNet(8), CifarResNet(20)), IMAGE, exits=2)
    assert isinstance(coarse, Cascade)
    assert [member.num_exits for member in coarse.members] == [2, 2]
    assert coarse.own_heads == (1, 3)


def test_none_is_too_few() -> None:
    with pytest.raises(InputError, match="at least one exit per network, got 0"):
        keep_exits(CifarResNet(8), IMAGE, exits=0)
