from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from offramp.data import open_data
from offramp.errors import InputError, UnknownNameError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.parquet"


def noted_groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that are read from now on, as they are."""
    groups: list[int] = []
    read = parquet.ParquetFile.read_row_group

    def counted(file: Any, group: int, **options: Any) -> Any:
        groups.append(group)
        return read(file, group, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counted)
    return groups


def test_only_the_row_groups_asked_for_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pyarrow.table({"a": range(100), "b": range(100, 200), "label": [0, 1] * 50})
    parquet.write_table(table, path, row_group_size=10)
    data = open_data(path)
    groups = noted_groups(monkeypatch)
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


def test_class_labels_of_minus_one_are_none(path: Path) -> None:
    features = datasets.Features({"x": datasets.Value("int64"), "label": datasets.ClassLabel(names=["b", "a"])})
    datasets.Dataset.from_dict({"x": [1, 2], "label": [-1, -1]}, features=features).to_parquet(str(path))
    data = open_data(path)
    assert not data.labelled
    assert data.classes == ("b", "a")


@pytest.mark.parametrize("kind", ["int64", "string", "double", "null"])
def test_labels_that_are_all_empty_are_none(path: Path, kind: str) -> None:
    parquet.write_table(pyarrow.table({"text": ["a", "b"], "label": pyarrow.array([None, None], kind)}), path)
    assert not open_data(path).labelled


@pytest.mark.parametrize("column", ["image", "file"])
@pytest.mark.parametrize("struct", [True, False])
@pytest.mark.parametrize("folder", [True, False])
def test_images_behind_paths_are_content_and_keys(tmp_path: Path, column: str, struct: bool, folder: bool) -> None:
    (tmp_path / "pictures").mkdir()
    names = ["pictures/b.bmp", "pictures/a.bmp"]

    def draw(value: int) -> None:
        Image.new("L", (3, 2), value).save(tmp_path / "pictures" / "a.bmp")  # of one size, whatever the value

    draw(1)
    Image.new("L", (3, 2), 5).save(tmp_path / "pictures" / "b.bmp")
    cells = [{"bytes": None, "path": name} for name in names] if struct else names
    parquet.write_table(pyarrow.table({column: cells, "label": [0, 1]}), tmp_path / "a.parquet", row_group_size=1)
    path = tmp_path if folder else tmp_path / "a.parquet"
    data = open_data(path, column=column)
    assert data.keys(0, 2) == names
    rows = data.read(0, 2)
    assert [int(image.max()) for image in rows.inputs] == [5, 1]
    draw(2)
    other = open_data(path, column=column)
    assert other.name != data.name
    assert (other.read(0, 2).ids != rows.ids).tolist() == [False, True]
    (tmp_path / "pictures" / "a.bmp").unlink()
    with pytest.raises(InputError, match=r"row 1 of column .* names the image 'pictures/a\.bmp'"):
        open_data(path, column=column)


def test_images_in_the_file_are_not_read_to_look_for_paths(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [Image.new("L", (3, 2), value) for value in range(4)]
    features = datasets.Features({"image": datasets.Image()})
    datasets.Dataset.from_dict({"image": images}, features=features).to_parquet(str(path), batch_size=1)
    groups = noted_groups(monkeypatch)
    data = open_data(path)
    assert groups == [0]  # the first row, to see what the column is
    assert data.keys(0, 4) == ["0", "1", "2", "3"]
    assert [int(image.max()) for image in data.read(0, 4).inputs] == [0, 1, 2, 3]


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
        ({"text": ["a", "b"], "label": pyarrow.array([1, None], "int64")}, "row 1 of .* has no label"),
        ({"text": ["a", "b"], "label": ["", "x"]}, "row 0 of .* has no label"),
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


@pytest.mark.parametrize("inside", [".", "data"])
@pytest.mark.parametrize(
    ("test", "train"),
    [
        ("test", ["train"]),
        ("test", ["train-0", "train-1"]),
        ("test", ["train-00000-of-00002", "train-00001-of-00002"]),
        ("test-00000-of-00001-0123456789abcdef", ["train-00000-of-00001-0123456789abcdef"]),
    ],
)
def test_files_called_like_splits_are_splits(tmp_path: Path, inside: str, test: str, train: list[str]) -> None:
    (tmp_path / inside).mkdir(exist_ok=True)
    write_shard(tmp_path / inside, test, text=["t"], label=[0])
    for name in train:
        write_shard(tmp_path / inside, name, text=[name], label=[0])
    with pytest.raises(InputError, match="splits test, train; choose one: split='test'"):
        open_data(tmp_path)
    with pytest.raises(UnknownNameError, match="unknown split 'validation'; Known: test, train"):
        open_data(tmp_path, split="validation")
    data = open_data(tmp_path, split="train")
    assert data.read(0, len(train)).inputs == train
    assert len(data) == len(train)
    assert data.name.startswith(f"{tmp_path.name}-train-")
    assert open_data(tmp_path, split="test").read(0, 1).inputs == ["t"]
    (tmp_path / inside / f"{test}.parquet").unlink()
    assert open_data(tmp_path).read(0, len(train)).inputs == train


def test_a_split_beside_other_files_must_be_chosen(tmp_path: Path) -> None:
    write_shard(tmp_path, "more", text=["m"])
    with pytest.raises(InputError, match="expected no split"):
        open_data(tmp_path, split="train")
    write_shard(tmp_path, "train", text=["a"])
    with pytest.raises(InputError, match="splits train; choose one: split='train'"):
        open_data(tmp_path)
    assert open_data(tmp_path, split="train").read(0, 1).inputs == ["a"]


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
