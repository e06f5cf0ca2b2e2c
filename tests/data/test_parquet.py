from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from offramp.data import open_data
from offramp.errors import InputError, UnknownNameError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.parquet"


def test_only_the_row_groups_asked_for_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pyarrow.table({"a": range(100), "b": range(100, 200), "label": [0, 1] * 50})
    parquet.write_table(table, path, row_group_size=10)
    data = open_data(path)
    groups: list[int] = []
    read = parquet.ParquetFile.read_row_group

    def counted(file: Any, group: int, **options: Any) -> Any:
        groups.append(group)
        return read(file, group, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counted)
    rows = [data.read(start, start + 4) for start in range(35, 55, 4)]
    assert groups == [3, 4, 5]
    together = np.concatenate([row.inputs for row in rows])
    np.testing.assert_array_equal(together, np.stack([np.arange(35, 55), np.arange(135, 155)], 1))
    assert np.concatenate([row.labels for row in rows]).tolist() == [1, 0] * 10


def test_columns_are_chosen_as_in_tables(path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": ["a"], "petal.length": [[1, 2]], "kind": ["x"]}), path)
    assert open_data(path, label="kind").read(0, 1).inputs == ["a"]
    assert open_data(path, column="petal.length").read(0, 1).inputs.tolist() == [[1, 2]]
    with pytest.raises(UnknownNameError, match="did you mean 'text'"):
        open_data(path, column="texts")


def test_class_names_that_hugging_face_left(path: Path) -> None:
    features = datasets.Features({"x": datasets.Value("int64"), "label": datasets.ClassLabel(names=["b", "a"])})
    datasets.Dataset.from_dict({"x": [1, 2], "label": [0, 1]}, features=features).to_parquet(str(path))
    data = open_data(path)
    assert data.classes == ("b", "a")
    assert data.read(0, 2).labels.tolist() == [0, 1]
    assert open_data(path, classes=["a", "b"]).read(0, 2).labels.tolist() == [1, 0]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 no table PAR1"])
def test_broken_files_are_named(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"table\.parquet cannot be read as Parquet"):
        open_data(path)


def test_a_file_that_breaks_later_is_named(path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": [str(row) for row in range(1000)]}), path)
    data = open_data(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        open_data(path)
    assert data.read(0, 1).inputs == ["0"]  # the row group is kept


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": pyarrow.array([], "string")}, "is empty"),
        ({"label": [1]}, "column of inputs beside"),
        ({"text": ["a"], "label": [-1]}, "got -1 at row 0"),
        ({"text": ["a"], "label": pyarrow.array([None], "int64")}, "no empty cells in column 'label'"),
        ({"text": ["a"], "label": [0.5]}, "integers or texts"),
    ],
)
def test_what_is_wrong_is_named(path: Path, columns: dict[str, Any], message: str) -> None:
    parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(InputError, match=message):
        open_data(path)


def write_shard(folder: Path, name: str, **columns: Any) -> None:
    parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")


def test_splits_of_shards_must_be_chosen(tmp_path: Path) -> None:
    write_shard(tmp_path, "test-00000-of-00001", text=["t"], label=[0])
    write_shard(tmp_path, "train-00000-of-00002", text=["a"], label=[0])
    write_shard(tmp_path, "train-00001-of-00002", text=["b", "c"], label=[1, 0])
    with pytest.raises(InputError, match="splits test, train; choose one: split='test'"):
        open_data(tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean 'train'"):
        open_data(tmp_path, split="trains")
    data = open_data(tmp_path, split="train")
    assert data.read(0, 3).inputs == ["a", "b", "c"]
    assert data.name.startswith(f"{tmp_path.name}-train-")


def test_shards_must_agree(tmp_path: Path) -> None:
    write_shard(tmp_path, "a", text=["a"], label=[0])
    write_shard(tmp_path, "b", text=[1], label=[0])
    with pytest.raises(InputError, match=r"expected 'text' in .*b\.parquet as string, .*got int64"):
        open_data(tmp_path)
    write_shard(tmp_path, "b", label=[0])
    with pytest.raises(InputError, match="no such column"):
        open_data(tmp_path)
    write_shard(tmp_path, "b", extra=[1], label=[1], text=["b"])
    assert open_data(tmp_path).read(0, 2).labels.tolist() == [0, 1]


def test_an_empty_shard_does_no_harm(tmp_path: Path) -> None:
    write_shard(tmp_path, "a", text=pyarrow.array([], "string"))
    write_shard(tmp_path, "b", text=["b"])
    assert open_data(tmp_path).read(0, 1).inputs == ["b"]
