"""Properties of datasets in every format."""

import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from offramp.data import open_data, sample
from offramp.data._dataset import LARGEST, Dataset, StoredDataset, Subset, find_unfit
from offramp.data._labels import Labels
from offramp.errors import InputError
from offramp.features._source import Rows, take_part
from tests.cases import each
from tests.data.examples import NAMES, NUMBERS, TEXTS, WRITERS

of_every_format = each("write", WRITERS.values())
Writer = Callable[[Path], Path]


def plain(dataset: Dataset, start: int, stop: int) -> list[object]:
    inputs = dataset.read(start, stop).inputs
    return [row.tolist() if isinstance(row, np.ndarray) else row for row in inputs]


@of_every_format
def test_rows_are_what_was_written(tmp_path: Path, write: Writer) -> None:
    written = write(tmp_path)
    data = open_data(written)
    rows = data.read(0, 5)
    assert len(data) == 5
    assert rows.labels.dtype == rows.ids.dtype == np.int64
    if data.labelled:
        expected = sorted(NUMBERS) if written.is_dir() and (written / "cat").exists() else NUMBERS
        assert rows.labels.tolist() == expected
        assert data.classes == ("cat", "dog")
    else:
        assert rows.labels.tolist() == [-1] * 5
        assert data.classes == ()
    if isinstance(rows.inputs, list) and isinstance(rows.inputs[0], str):
        assert rows.inputs == TEXTS
    assert len(set(rows.ids.tolist())) == 5


@of_every_format
def test_a_range_is_a_piece_of_the_whole(tmp_path: Path, write: Writer) -> None:
    data = open_data(write(tmp_path))
    whole = data.read(0, 5)
    for start, stop in ((0, 1), (1, 4), (2, 5), (4, 5), (3, 3), (5, 5)):
        rows = data.read(start, stop)
        assert plain(data, start, stop) == plain(data, 0, 5)[start:stop]
        np.testing.assert_array_equal(rows.labels, whole.labels[start:stop])
        np.testing.assert_array_equal(rows.ids, whole.ids[start:stop])


@of_every_format
def test_a_range_beyond_the_data_is_refused(tmp_path: Path, write: Writer) -> None:
    data = open_data(write(tmp_path))
    for start, stop in ((-1, 2), (0, 6), (3, 2)):
        with pytest.raises(InputError, match="row range within 0 to 5"):
            data.read(start, stop)
        with pytest.raises(InputError, match="row range within 0 to 5"):
            data.keys(start, stop)


@of_every_format
def test_each_row_has_a_key(tmp_path: Path, write: Writer) -> None:
    written = write(tmp_path)
    data = open_data(written)
    keys = ["0", "1", "2", "3", "4"]
    if (written / "cat").exists():
        keys = ["cat/0.png", "cat/2.png", "cat/4.png", "dog/1.png", "dog/3.png"]
    assert data.keys(0, 5) == keys
    assert data.keys(2, 4) == data.keys(0, 5)[2:4]
    assert data.keys(5, 5) == []


def test_a_key_can_be_written_whatever_bytes_the_name_of_a_file_is() -> None:
    name = b"caf\xe9.png".decode(errors="surrogateescape")
    data = StoredDataset(lambda start, stop: [], Labels.missing(1), stem="pets", content="c0ffee", keys=[name])
    assert data.keys(0, 1) == ["caf\\udce9.png"]


@of_every_format
def test_a_part_reads_its_rows_under_their_numbers(tmp_path: Path, write: Writer) -> None:
    data = open_data(write(tmp_path))
    for whole in (data, Subset(data, [1, 2, 4])):
        for start, stop in ((0, 1), (1, 3), (0, len(whole)), (2, 2)):
            part = pickle.loads(pickle.dumps(take_part(whole, start, stop)))
            assert (len(part), part.name, part.classes, part.labelled) == (
                len(whole),
                whole.name,
                whole.classes,
                whole.labelled,
            )
            for rows in (part, take_part(part, start, stop)):
                assert plain(rows, start, stop) == plain(whole, start, stop)
                assert rows.read(start, stop).labels.tolist() == whole.read(start, stop).labels.tolist()
                assert rows.read(start, stop).ids.tolist() == whole.read(start, stop).ids.tolist()
                assert rows.keys(start, stop) == whole.keys(start, stop)


def test_a_part_beyond_the_data_is_refused() -> None:
    for data in (numbers(10), Subset(numbers(10), [1, 2])):
        with pytest.raises(InputError, match="within 0 to"):
            take_part(data, 1, 11)


@of_every_format
def test_what_read_gives_may_be_written_to(tmp_path: Path, write: Writer) -> None:
    written = write(tmp_path)
    data = open_data(written)
    rows = data.read(0, 2)
    rows.labels[:] = 7
    if isinstance(rows.inputs, np.ndarray):
        rows.inputs[:] = 7
    assert (data.read(0, 2).labels != 7).all()
    assert plain(data, 0, 2) != [[7, 7], [7, 7]]


@of_every_format
def test_the_name_can_be_a_folder_and_follows_the_content(tmp_path: Path, write: Writer) -> None:
    written = write(tmp_path)
    data = open_data(written)
    assert re.fullmatch(r"pets-[0-9a-f]{16}", data.name)
    for place in ("elsewhere", "moved"):
        (tmp_path / place).mkdir()
    copy = tmp_path / "elsewhere" / written.name
    renamed = tmp_path / "moved" / written.name.replace("pets", "other pets")
    for target in (copy, renamed):
        if written.is_dir():
            shutil.copytree(written, target)
        else:
            shutil.copy(written, target)
    if written.suffix not in (".parquet", ".jsonl"):  # those that `datasets` keeps a copy of are named by their path
        assert open_data(copy).name == data.name
    assert open_data(renamed).name.startswith("other-pets-")
    for target in (copy, renamed):
        np.testing.assert_array_equal(open_data(target).read(0, 5).ids, data.read(0, 5).ids)


@of_every_format
def test_another_order_of_classes_is_another_name_for_the_same_samples(tmp_path: Path, write: Writer) -> None:
    written = write(tmp_path)
    data, other = open_data(written), open_data(written, classes=["dog", "bird", "cat"])
    assert other.classes == ("dog", "bird", "cat")
    np.testing.assert_array_equal(other.read(0, 5).ids, data.read(0, 5).ids)
    if data.labelled:
        assert other.name != data.name
        named = [data.classes[label] for label in data.read(0, 5).labels]
        assert [other.classes[label] for label in other.read(0, 5).labels] == named
        assert sorted(named) == sorted(NAMES)


READ_ELSEWHERE = """
import pickle, sys
from pathlib import Path
found = {}
for path in sorted(Path(sys.argv[1]).glob("*.pickled")):
    data = pickle.loads(path.read_bytes())
    rows = data.read(1, 5)
    found[path.stem] = (data.name, data.classes, data.labelled, data.keys(0, 5), rows.labels.tolist(),
        rows.ids.tolist(), [row.tolist() if hasattr(row, "tolist") else row for row in rows.inputs])
Path(sys.argv[1], "found").write_bytes(pickle.dumps(found))
"""


def test_another_process_in_another_folder_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {}
    for name, write in WRITERS.items():
        (tmp_path / name).mkdir()
        path = write(tmp_path / name)
        monkeypatch.chdir(tmp_path / name)
        data = open_data(path.name)
        data.read(0, 1)  # what is kept of it must not come along
        (tmp_path / f"{name}.pickled").write_bytes(pickle.dumps(data))
        rows = data.read(1, 5)
        expected[name] = (
            data.name,
            data.classes,
            data.labelled,
            data.keys(0, 5),
            rows.labels.tolist(),
            rows.ids.tolist(),
            plain(data, 1, 5),
        )
    subprocess.run([sys.executable, "-c", READ_ELSEWHERE, str(tmp_path)], check=True, cwd=os.sep)
    assert pickle.loads((tmp_path / "found").read_bytes()) == expected


@each("name", ["folder", "parquet", "huggingface"])
def test_what_lies_on_disk_stays_there(tmp_path: Path, name: str) -> None:
    data = open_data(WRITERS[name](tmp_path))
    data.read(0, 5)
    pickled = pickle.dumps(data)
    assert not any(text.encode() in pickled for text in TEXTS)
    assert b"PNG" not in pickled


def test_files_that_vanish_are_named_and_may_come_back(tmp_path: Path) -> None:
    path = WRITERS["folder"](tmp_path)
    data = open_data(path)
    expected = plain(data, 0, 5)
    data = pickle.loads(pickle.dumps(data))
    path.rename(tmp_path / "gone")
    with pytest.raises(InputError, match=re.escape(str(path))):
        data.read(0, 5)
    (tmp_path / "gone").rename(path)
    assert plain(data, 0, 5) == expected


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


@each("rows", [[4, 0, 3], [0, 1, 2, 3, 4], [2], [4, 3, 2, 1, 0]])
@each("kind", WRITERS)
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


@each(
    ("rows", "message"),
    [
        ([], "at least one row number"),
        ([0.5], "got float64"),
        ([True, False], "got bool"),
        ([[1]], "shape"),
        ([-1, 2], "rows 0 to 9 of 'numbers-.*got 2 from -1 to 2"),
        ([10], "got 1 from 10 to 10"),
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


@each("count", [0, 11])
def test_a_sample_of_more_than_there_is_is_refused(count: int) -> None:
    with pytest.raises(InputError, match="count from 1 to 10"):
        sample(numbers(10), count, seed=0)


@each("dtype", [np.float16, np.float32, np.float64])
@each("value", [np.nan, np.inf, -np.inf])
def test_the_first_that_is_not_finite_is_found(dtype: type, value: float) -> None:
    values: npt.NDArray[Any] = np.zeros((3, 2, 2), dtype)
    assert find_unfit(values) is None
    values[1, 0, 1] = values[2, 0, 0] = value
    assert find_unfit(values) == (1, 0, 1)


def test_the_range_is_that_of_single_precision() -> None:
    assert find_unfit(np.array([LARGEST, -LARGEST])) is None
    assert find_unfit(np.array([0, np.nextafter(LARGEST, np.inf)])) == (1,)
    assert find_unfit(np.array([0, 0, -1e300])) == (2,)


@each("values", [np.array([1, 2]), np.array(["a"]), np.array([True]), np.zeros((0, 3))])
def test_what_has_no_fractions_fits(values: npt.NDArray[Any]) -> None:
    assert find_unfit(values) is None
