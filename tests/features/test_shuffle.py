import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from offramp.features.shuffle import fillings


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 12), st.integers(0, 20))
def test_every_row_is_dealt_once_in_full_batches(lengths: list[int], batch_size: int, spare: int) -> None:
    """Plays the turns on a real buffer of row numbers."""
    room = min(batch_size + max(lengths) + spare, sum(lengths))
    starts = np.cumsum([0, *lengths[:-1]])
    buffer = np.full(room, -1)
    dealt: list[int] = []
    turns = list(
        fillings(np.array(lengths), room=room, batch_size=batch_size, generator=torch.Generator().manual_seed(0))
    )
    for turn in turns:
        chunks = [np.arange(starts[chunk], starts[chunk] + lengths[chunk]) for chunk in turn.chunks]
        rows = np.concatenate([buffer[turn.kept].copy(), *chunks])
        assert sorted(turn.slots) == list(range(len(rows)))
        buffer[turn.slots] = rows
        assert turn is turns[-1] or (turn.dealt > 0 and turn.dealt % batch_size == 0)
        dealt += buffer[: turn.dealt].tolist()
    assert sorted(dealt) == list(range(sum(lengths)))


def test_rows_of_a_turn_are_mixed() -> None:
    generator = torch.Generator().manual_seed(0)
    (turn,) = fillings(np.array([500, 500]), room=1000, batch_size=10, generator=generator)
    assert abs(np.corrcoef(np.arange(1000), turn.slots)[0, 1]) < 0.15
