"""A source without some samples has all others, once each, however it is read."""

import numpy as np
import pytest
import torch

from offramp.errors import InputError
from offramp.features import MemorySource
from offramp.features.without import WithoutIds


def source(ids: list[int]) -> MemorySource:
    rows = torch.arange(len(ids))
    own = {1: torch.stack([rows, -rows], 1).float()}
    return MemorySource(
        rows[:, None].repeat(1, 3).float(), own, rows % 2, (1, 2), ids=torch.tensor(ids), sizes=rows.float() + 1
    )


def test_all_others_are_read_once() -> None:
    whole = source([5, 6, 7, 5, 8, 9, 9])
    rest = WithoutIds(whole, np.array([9, 5, 1]))
    rows = [1, 2, 4]
    assert rest.num_samples == 3
    assert rest.ids().tolist() == [6, 7, 8]
    assert rest.sizes().tolist() == [2.0, 3.0, 5.0]
    assert (rest.widths, rest.own_heads, rest.num_classes) == (whole.widths, whole.own_heads, whole.num_classes)
    for batch_size in (1, 2, 10):
        batches = list(rest.in_order(batch_size=batch_size))
        assert torch.cat([batch.features[:, 0] for batch in batches]).tolist() == rows
        assert torch.cat([batch.own_logits[1][:, 1] for batch in batches]).tolist() == [-row for row in rows]
        assert all(len(batch.labels) for batch in batches)
        mixed = [batch.ids for batch in rest.shuffled(batch_size=batch_size, seed=1, epoch=0)]
        assert sorted(torch.cat(mixed).tolist()) == [6, 7, 8]


def test_nothing_left_is_refused() -> None:
    with pytest.raises(InputError, match="leave some in"):
        WithoutIds(source([5, 5]), np.array([5]))
