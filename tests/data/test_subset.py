from pathlib import Path

import numpy as np
import pytest
import torch

from offramp.data import Dataset, Subset, open_data, sample
from offramp.data.dataset import StoredDataset
from offramp.data.labels import Labels
from offramp.errors import InputError
from offramp.features import Rows
from tests.data.examples import WRITERS


class Counted:
    """A dataset that remembers what was read."""

    def __init__(self, dataset: Dataset) -> None:
        self.name, self.classes, self.labelled = dataset.name, dataset.classes, dataset.labelled
        self.ranges: list[tuple[int, int]] = []
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, start: int, stop: int) -> Rows:
        self.ranges.append((start, stop))
        return self._dataset.read(start, stop)

    def keys(self, start: int, stop: int) -> list[str]:
        return self._dataset.keys(start, stop)


def numbers(count: int) -> Dataset:
    labels = Labels(np.arange(count) % 3, ("a", "b", "c"))
    tensor = torch.arange(count)

    def inputs(start: int, stop: int) -> dict[str, object]:
        words = [str(row) for row in range(start, stop)]
        return {"array": np.arange(start, stop), "tensor": tensor[start:stop], "words": words}

    return StoredDataset(inputs, labels, stem="numbers", content="c0ffee")


@pytest.mark.parametrize("rows", [[4, 0, 3], [0, 1, 2, 3, 4], [2], [4, 3, 2, 1, 0]])
@pytest.mark.parametrize("kind", WRITERS)
def test_rows_are_those_of_the_dataset(kind: str, rows: list[int], tmp_path: Path) -> None:
    data = open_data(WRITERS[kind](tmp_path))
    subset = Subset(data, rows)
    assert len(subset) == len(rows)
    assert (subset.classes, subset.labelled) == (data.classes, data.labelled)
    whole, found = data.read(0, 5), subset.read(0, len(rows))
    assert found.labels.tolist() == [int(whole.labels[row]) for row in rows]
    assert found.ids.tolist() == [int(whole.ids[row]) for row in rows]
    for image, row in zip(found.inputs, rows, strict=True):
        np.testing.assert_array_equal(image, whole.inputs[row])
    assert subset.read(1, 1).labels.tolist() == []
    assert subset.keys(0, len(rows)) == [data.keys(0, 5)[row] for row in rows]
    assert Subset(subset, [0]).keys(0, 1) == subset.keys(0, 1)


def test_structures_of_arrays_tensors_and_lists() -> None:
    inputs = Subset(numbers(10), [7, 2, 3, 9]).read(1, 4).inputs
    assert inputs["array"].tolist() == [2, 3, 9]
    assert inputs["tensor"].tolist() == [2, 3, 9]
    assert inputs["words"] == ["2", "3", "9"]


def test_consecutive_rows_are_read_together() -> None:
    data = Counted(numbers(100))
    Subset(data, [50, 10, 11, 12, 49, 13]).read(0, 6)
    assert data.ranges == [(10, 14), (49, 51)]


def test_the_name_says_which_rows() -> None:
    data = numbers(10)
    names = {data.name, *(Subset(data, rows).name for rows in ([1, 2], [2, 1], [1]))}
    assert len(names) == 4
    assert all(name.startswith("numbers-") for name in names)
    assert Subset(data, [1, 2]).name == Subset(numbers(10), np.array([1, 2])).name
    assert Subset(Subset(data, [5, 6, 7]), [2, 0]).read(0, 2).inputs["words"] == ["7", "5"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "one row number or more"),
        ([0.5], "got float64"),
        ([True, False], "got bool"),
        ([[1]], "shape"),
        ([-1, 2], "rows 0 to 9 of 'numbers-.*got -1 to 2"),
        ([10], "got 10 to 10"),
        ([1, 1], "at most once"),
    ],
)
def test_what_is_no_row_is_refused(rows: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Subset(numbers(10), rows)


def test_a_range_beyond_the_subset_is_refused() -> None:
    with pytest.raises(InputError, match="within 0 to 2"):
        Subset(numbers(10), [1, 2]).read(0, 3)
    with pytest.raises(InputError, match="within 0 to 2"):
        Subset(numbers(10), [1, 2]).keys(0, 3)


def test_a_sample_is_random_but_the_same_for_a_seed() -> None:
    data = numbers(1000)
    first, same, other = sample(data, 100, seed=0), sample(data, 100, seed=0), sample(data, 100, seed=1)
    rows = first.read(0, 100).inputs["array"]
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert first.name == same.name != other.name
    assert 400 < rows.mean() < 600
    assert len(sample(data, 1000, seed=0)) == 1000


@pytest.mark.parametrize("count", [0, 11])
def test_a_sample_of_more_than_there_is_is_refused(count: int) -> None:
    with pytest.raises(InputError, match="count from 1 to 10"):
        sample(numbers(10), count, seed=0)
