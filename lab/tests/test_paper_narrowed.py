import torch

from offramp.features._batch import MemorySource
from offramp_bench.paper.contestants import EXITS, PARTS, is_tried
from offramp_bench.paper.narrowed import NarrowedSource
from offramp_bench.paper.tasks import TASKS

NUMBERS = torch.arange(30.0).reshape(3, 10)


def source() -> MemorySource:
    """Two stages of 6 and 4 numbers."""
    labels, ids = torch.tensor([0, 1, 0]), torch.tensor([5, 6, 7])
    return MemorySource(NUMBERS, {1: torch.zeros(3, 2)}, labels, (6, 4), ids=ids)


def test_the_first_numbers_of_each_stage_are_seen() -> None:
    narrow = NarrowedSource(source(), (2, 3))
    (batch,) = narrow.in_order(batch_size=8)
    assert batch.features.tolist() == NUMBERS[:, [0, 1, 6, 7, 8]].tolist()
    assert narrow.widths == (2, 3)
    assert narrow.ids().tolist() == [5, 6, 7]
    (shuffled,) = narrow.shuffled(batch_size=8, seed=0, epoch=0)
    assert shuffled.features[shuffled.ids.argsort()].tolist() == batch.features.tolist()


def test_parts_of_the_default_are_changed_on_some_tasks_only() -> None:
    assert all(is_tried(TASKS["cifar10"], name) for name in PARTS)
    assert not any(is_tried(TASKS["svhn"], name) for name in PARTS)
    assert not is_tried(TASKS["clinc150"], "ladder, one view")  # there is but one
    assert {name for name in EXITS if is_tried(TASKS["cifar10-cascade"], name)} == {"ladder", "ends"}
