"""No trained exits: a cascade whose members all answer by themselves."""

import pytest
import torch

from offramp.errors import InputError
from offramp.exits._exit_set import all_logits
from offramp.exits._none import NoExits


def test_only_the_own_heads_answer() -> None:
    exits = NoExits((3, 3), (), 3)
    own = {0: torch.randn(4, 3), 1: torch.randn(4, 3)}
    found = all_logits(exits, torch.zeros(4, 6), own)
    assert found.shape == (1, 4, 2, 3)
    assert torch.equal(found[0, :, 0], own[0])
    assert torch.equal(found[0, :, 1], own[1])
    assert exits.take(0) is exits
    assert exits.mul_adds(0) == (0, 0)


def test_a_stage_without_a_head_is_refused() -> None:
    with pytest.raises(InputError):
        NoExits((3, 3), (0,), 3)
    with pytest.raises(InputError):
        all_logits(NoExits((3, 3), (), 3), torch.zeros(4, 6), {1: torch.zeros(4, 3)})
    with pytest.raises(InputError):
        NoExits((3, 3), (), 3).step(0, torch.zeros(1, 3), (), None)
