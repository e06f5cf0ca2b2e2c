"""Backends by name: every one answers as torch by itself does."""

import pytest
import torch
from torch import nn

from offramp.backbone._backbone import Backbone
from offramp.errors import UnknownNameError
from offramp.exits import LinearExits
from offramp.pooling import POOLINGS
from offramp.runtime import BACKENDS
from offramp.runtime._eager import EagerBackend
from tests.cases import each

POOLING = POOLINGS.get("auto")


def network() -> tuple[Backbone, LinearExits]:
    torch.manual_seed(0)
    stages = [nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU())]
    return Backbone("two", stages, {1: nn.Linear(8, 3)}, num_classes=3), LinearExits((8, 8), (0,), 3)


@each("name", list(BACKENDS))
def test_answers_as_torch_by_itself(name: str) -> None:
    backbone, exits = network()
    inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    plain, backend = EagerBackend(backbone, POOLING, exits), BACKENDS.get(name)(backbone, POOLING, exits, inputs)
    tolerance = 0.1 if name == "int8" else 0.03
    expected, found, state = inputs, inputs, ((), ())
    with torch.inference_mode():
        for index in range(2):
            expected, found = plain.stage(index, expected), backend.stage(index, found)
            right, _ = plain.exit(index, expected, state, None, answer=True, carry=False)
            logits, _ = backend.exit(index, found, state, None, answer=True, carry=False)
            assert right is not None
            assert logits is not None
            assert logits.dtype == torch.float32
            torch.testing.assert_close(logits, right, atol=tolerance, rtol=tolerance)


def test_precision() -> None:
    backbone, exits = network()
    inputs = torch.zeros(1, 4)
    assert BACKENDS.get("bfloat16")(backbone, POOLING, exits, None).stage(0, inputs).dtype == torch.bfloat16
    assert BACKENDS.get("eager")(backbone, POOLING, exits, None).stage(0, inputs).dtype == torch.float32


def test_unknown_names_suggest_the_near_ones() -> None:
    with pytest.raises(UnknownNameError, match="bfloat16"):
        BACKENDS.get("bfloat")
