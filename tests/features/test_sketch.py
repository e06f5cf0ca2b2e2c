"""Bottom-k sketches against sets of all ids."""

import numpy as np

from offramp.features import IdSketch
from offramp.features.sketch import MOST_RANKS
from tests.cases import each


@each("count", [1, 1_000, MOST_RANKS - 1, MOST_RANKS, 200_000])
def test_what_a_sketch_says_is_true(count: int) -> None:
    draw = np.random.default_rng(count)
    ids = draw.integers(-(2**63), 2**63 - 1, count)
    sketch = IdSketch.of(np.array_split(np.concatenate([ids, ids[: count // 2]]), 5))
    asked = np.concatenate([ids[:3_000], draw.integers(-(2**63), 2**63 - 1, 3_000)])
    truth, tells = np.isin(asked, ids), sketch.can_tell(asked)
    np.testing.assert_array_equal(sketch.contains(asked)[tells], truth[tells])
    assert not sketch.contains(asked)[~tells].any()
    assert sketch.is_complete == (count < MOST_RANKS)
    assert len(sketch.ranks) == min(count, MOST_RANKS)
    assert (np.diff(sketch.ranks) > 0).all()
    assert sketch.ranks[0] >= 0
    if sketch.is_complete:
        assert tells.all()
    else:
        share = MOST_RANKS / count
        assert abs(tells.mean() - share) < 5 * np.sqrt(max(share * (1 - share), 1e-9) / len(asked)) + 0.02


def test_no_ids() -> None:
    empty = IdSketch.of([])
    assert empty.is_complete
    assert not empty.contains(np.arange(5)).any()
    assert empty.can_tell(np.arange(5)).all()
