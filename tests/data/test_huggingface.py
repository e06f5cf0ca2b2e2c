import json
import socket
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pytest
from PIL import Image

from offramp.data import open_data
from offramp.data._dataset import Dataset
from offramp.data._formats import Selection
from offramp.data._huggingface import open_huggingface
from offramp.errors import InputError, UnknownNameError
from tests.cases import each


def saved(folder: Path, columns: dict[str, Any], features: dict[str, Any] | None = None) -> Path:
    kinds = None if features is None else datasets.Features(features)
    datasets.Dataset.from_dict(columns, features=kinds).save_to_disk(str(folder / "saved"))
    return folder / "saved"


def png(value: int) -> bytes:
    file = BytesIO()
    Image.new("L", (3, 2), value).save(file, "png")
    return file.getvalue()


def opened(columns: dict[str, Any], *, folder: Path = Path(), column: str | None = None) -> Dataset:
    """Open an Arrow table, whose types need not be features."""
    table = pyarrow.table(columns)
    return open_huggingface(datasets.Dataset(table), Selection(column=column), folder=folder)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refused)


def test_images_are_decoded_and_class_names_kept(tmp_path: Path) -> None:
    images = [Image.new("L", (3 + row, 2), row) for row in range(4)]
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["dog", "cat"])}
    data = open_data(saved(tmp_path, {"image": images, "label": [0, 1, 1, 0]}, features))
    rows = data.read(1, 4)
    assert data.classes == ("dog", "cat")
    assert [image.shape for image in rows.inputs] == [(2, 4, 3), (2, 5, 3), (2, 6, 3)]
    assert [int(image.max()) for image in rows.inputs] == [1, 2, 3]
    assert rows.labels.tolist() == [1, 1, 0]


def test_class_labels_follow_the_order_of_classes(tmp_path: Path) -> None:
    features = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["dog", "cat"])}
    path = saved(tmp_path, {"text": ["a", "b"], "label": [0, 1]}, features)
    assert open_data(path, classes=["cat", "dog"]).read(0, 2).labels.tolist() == [1, 0]
    with pytest.raises(UnknownNameError, match="unknown class 'dog'; did you mean 'dogs'"):
        open_data(path, classes=["cat", "dogs"])


def test_class_labels_of_minus_one_are_none(tmp_path: Path) -> None:
    features = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["dog", "cat"])}
    data = open_data(saved(tmp_path, {"text": ["a", "b"], "label": [-1, -1]}, features))
    assert not data.labelled
    assert data.classes == ("dog", "cat")


def test_labels_that_are_all_empty_are_none(tmp_path: Path) -> None:
    features = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["dog", "cat"])}
    data = open_data(saved(tmp_path, {"text": ["a", "b"], "label": [None, None]}, features))
    assert not data.labelled
    assert data.classes == ("dog", "cat")
    with pytest.raises(InputError, match="row 1 of column 'label' has no label"):
        open_data(saved(tmp_path / "some", {"text": ["a", "b"], "label": [0, None]}, features))


STRUCT = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}


@each("struct", [True, False])
def test_images_behind_paths_are_content_and_keys(tmp_path: Path, struct: bool) -> None:
    file = tmp_path / "cat.bmp"
    Image.new("L", (3, 2), 1).save(file)
    cell = {"bytes": None, "path": str(file)} if struct else str(file)
    path = saved(tmp_path, {"image": [cell]}, {"image": STRUCT if struct else datasets.Value("string")})
    data = open_data(path)
    assert data.keys(0, 1) == [str(file)]
    rows = data.read(0, 1)
    assert int(rows.inputs[0].max()) == 1
    Image.new("L", (3, 2), 2).save(file)
    other = open_data(path)
    assert other.name != data.name
    assert other.read(0, 1).ids != rows.ids


def test_arrays_and_lists(tmp_path: Path) -> None:
    grid = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    path = saved(
        tmp_path,
        {"grid": grid.tolist(), "tokens": [[1, 2], [3, 4]]},
        {"grid": datasets.Array2D((2, 3), "float32"), "tokens": datasets.Sequence(datasets.Value("int32"))},
    )
    inputs = open_data(path).read(0, 2).inputs
    np.testing.assert_array_equal(inputs["grid"], grid)
    assert inputs["tokens"].tolist() == [[1, 2], [3, 4]]
    assert open_data(path, column="tokens").read(1, 2).inputs.tolist() == [[3, 4]]


def test_a_saved_format_or_selection_does_not_matter(tmp_path: Path) -> None:
    data = datasets.Dataset.from_dict({"text": list("abcd"), "label": [0, 1, 2, 3]})
    data.with_format("numpy", columns=["label"]).select([3, 1]).save_to_disk(str(tmp_path / "saved"))
    rows = open_data(tmp_path / "saved").read(0, 2)
    assert rows.inputs == ["d", "b"]
    assert rows.labels.tolist() == [3, 1]


def test_splits_must_be_chosen(tmp_path: Path) -> None:
    parts = {name: datasets.Dataset.from_dict({"text": [name], "label": [0]}) for name in ("train", "test")}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(InputError, match="splits train, test; choose one: split='train'"):
        open_data(tmp_path / "both")
    with pytest.raises(UnknownNameError, match="did you mean 'train'"):
        open_data(tmp_path / "both", split="trian")
    train, test = (open_data(tmp_path / "both", split=split) for split in ("train", "test"))
    assert train.read(0, 1).inputs == ["train"]
    assert train.name.startswith("both-train-")
    assert train.read(0, 1).ids != test.read(0, 1).ids
    np.testing.assert_array_equal(open_data(tmp_path / "both" / "train").read(0, 1).ids, train.read(0, 1).ids)
    with pytest.raises(InputError, match="expected no split"):
        open_data(tmp_path / "both" / "train", split="train")


def test_tables_of_one_size_are_other_samples(tmp_path: Path) -> None:
    ids = []
    for value in (1, 2):
        path = saved(tmp_path / str(value), {"x": [value], "label": [0]})
        ids.append(int(open_data(path).read(0, 1).ids[0]))
    assert ids[0] != ids[1]


def test_what_the_library_leaves_in_the_folder_does_not_count(tmp_path: Path) -> None:
    path = saved(tmp_path, {"text": ["a"], "label": [0]})
    name = open_data(path).name
    datasets.load_from_disk(str(path)).map(lambda row: {"text": row["text"] * 2})
    assert list(path.glob("cache-*.arrow"))
    assert open_data(path).name == name


def test_broken_folders_are_named(tmp_path: Path) -> None:
    for name in ("state.json", "dataset_info.json", "data.arrow"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match="cannot be read as a saved dataset"):
        open_data(tmp_path)
    (tmp_path / "dataset_dict.json").write_text("[]")
    with pytest.raises(InputError, match="cannot be read as a saved dataset"):
        open_data(tmp_path)


def test_an_empty_dataset_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, {"text": []}, {"text": datasets.Value("string")})
    with pytest.raises(InputError, match="is empty"):
        open_data(path)


def test_an_image_at_an_address_is_not_fetched(tmp_path: Path) -> None:
    features = {"image": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}}
    path = saved(tmp_path, {"image": [{"bytes": None, "path": "https://example.org/cat.png"}]}, features)
    with pytest.raises(InputError, match=r"row 0 .*names the image 'https://.*there is no file"):
        open_data(path)


@each("kind", ["string", "large_string"])
def test_texts_are_a_list(kind: str) -> None:
    array = pyarrow.array(["a", "ä", "a"]).cast(kind)
    data = opened({"text": array, "label": array})
    assert data.read(0, 3).inputs == ["a", "ä", "a"]
    assert data.read(0, 3).labels.tolist() == [0, 1, 0]


@each(
    "cells",
    [
        [png(1), png(2)],
        [{"bytes": png(1), "path": None}, {"bytes": png(2), "path": "b.png"}],
        [{"bytes": png(1), "path": None}, {"bytes": None, "path": "b.png"}],
        ["a.png", "b.png"],
    ],
)
def test_images_are_decoded(cells: list[Any], tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(1))
    (tmp_path / "b.png").write_bytes(png(2))
    for column in ("image", "picture"):
        data = opened({column: cells}, folder=tmp_path, column=None if column == "image" else column)
        assert [(image.shape, int(image[0, 0, 0])) for image in data.read(0, 2).inputs] == [
            ((2, 3, 3), 1),
            ((2, 3, 3), 2),
        ]
        assert data.keys(0, 2) == (cells if cells[0] == "a.png" else ["0", "1"])


@each(
    ("cells", "message"),
    [
        ([png(1), b"broken"], "row 1 of column 'image' cannot be decoded"),
        ([png(1), None], "got one in row 1 of column 'image'"),
        (["a.png", None], "row 1 of column 'image' has neither"),
        (["a.png", ""], "row 1 of column 'image' has neither"),
        (["a.png", "none.png"], "row 1 of column 'image' names the image 'none.png'"),
        (["a.png", "base64" * 1000], r"row 1 of column 'image' names the image '[base64]{100}\.\.\.'"),
        ([{"bytes": png(1), "path": "none.png"}, {"bytes": None, "path": None}], "row 1 .*neither bytes nor a path"),
        ([{"bytes": png(1), "path": None}, {"bytes": None, "path": "none.png"}], "row 1 .* names the image"),
    ],
)
def test_broken_images_are_named(cells: list[Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(1))
    with pytest.raises(InputError, match=message):
        opened({"image": cells}, folder=tmp_path).read(0, 2)


def test_numbers_are_one_matrix() -> None:
    matrix = opened({"a": pyarrow.array([1, 2], "int8"), "b": [0.5, 1.5], "c": [True, False]}).read(0, 2).inputs
    assert matrix.dtype == np.float32
    assert matrix.tolist() == [[1, 0.5, 1], [2, 1.5, 0]]


@each(
    ("kind", "dtype"),
    [
        (pyarrow.list_(pyarrow.int64()), np.int64),
        (pyarrow.list_(pyarrow.float64()), np.float32),
        (pyarrow.list_(pyarrow.float32(), 3), np.float32),
        (pyarrow.large_list(pyarrow.uint8()), np.uint8),
    ],
)
def test_lists_are_arrays(kind: Any, dtype: type) -> None:
    array = pyarrow.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], kind)
    inputs = opened({"values": array}).read(1, 3).inputs
    assert inputs.dtype == dtype
    assert inputs.tolist() == [[4, 5, 6], [7, 8, 9]]


@each(
    ("columns", "message"),
    [
        ({"a": [[1, 2], [3]]}, r"one length in column 'a' from row 0 on, got \[1, 2\]"),
        ({"a": [[1, None]]}, "empty cells in the lists"),
        ({"a": [1, None]}, "no empty cells, got one in row 1 of column 'a'"),
        ({"a": [1.0, float("nan")]}, "row 1 of column 'a': .*, got nan"),
        ({"b": [1, 2], "a": [-1e39, 2.0]}, r"row 0 of column 'a': .*, got -1e\+39"),
        ({"a": [[1.0, 2.0], [3.0, float("nan")]]}, "row 1 of column 'a': .*, got nan"),
        ({"a": [[[1.0], [1e39]]], "b": [[1]]}, r"row 0 of column 'a': .*, got 1e\+39"),
        ({"a": [["x"]]}, "expected numbers in column 'a'"),
        ({"a": [1], "b": ["x"]}, r"got a \(int64\), b \(string\); name the column"),
        ({"a": [1], "b": [[1]]}, "name the column"),
        ({"a": [1], "label": [0.5]}, "integers or texts in column 'label', got double"),
    ],
)
def test_what_is_no_input_is_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        opened(columns).read(0, len(next(iter(columns.values()))))


class TestInPython:
    def test_rows_are_those_of_the_dataset(self) -> None:
        data = datasets.Dataset.from_dict({"text": list("abcd"), "kind": ["x", "y", "y", "x"]})
        chosen = open_data(data.with_format("torch").select([3, 1]), label="kind")
        assert chosen.read(0, 2).inputs == ["d", "b"]
        assert (chosen.classes, chosen.read(0, 2).labels.tolist()) == (("x", "y"), [0, 1])
        names = [open_data(part).name for part in (data, data.select([0]), data.map(lambda row: {"text": "e"}))]
        assert len({*names}) == 3
        assert open_data(datasets.Dataset.from_dict(data.to_dict())).name == names[0]

    @each("kind", ["dict", "iterable", "number", "transform"])
    def test_others_are_refused(self, kind: str) -> None:
        data = datasets.Dataset.from_dict({"text": ["a"]})
        others = {
            "dict": datasets.DatasetDict({"train": data}),
            "iterable": data.to_iterable_dataset(),
            "number": 5,
            "transform": data.with_transform(lambda row: row),
        }
        with pytest.raises(
            InputError, match="set_transform" if kind == "transform" else r"give one split: data\['train'"
        ):
            open_data(others[kind])


class TestFiles:
    def test_a_pattern_is_all_its_files(self, tmp_path: Path) -> None:
        for part in range(2):
            data = datasets.Dataset.from_dict({"text": [f"{part}a", f"{part}b"], "label": [0, 1]})
            data.to_parquet(tmp_path / f"train-{part}.parquet")
            data.to_csv(tmp_path / f"train-{part}.csv", index=False)
        for suffix in ("parquet", "csv"):
            data = open_data(f"{tmp_path}/train-*.{suffix}")
            assert data.read(0, 4).inputs == ["0a", "0b", "1a", "1b"]
            assert data.read(0, 4).labels.tolist() == [0, 1, 0, 1]

    def test_class_names_of_parquet_and_characters_of_patterns(self, tmp_path: Path) -> None:
        features = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["dog", "cat"])}
        data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, datasets.Features(features))
        data.to_parquet(tmp_path / "my.pets[1].parquet")
        found = open_data(tmp_path / "my.pets[1].parquet")
        assert found.classes == ("dog", "cat")
        assert found.name.startswith("my.pets-1-")

    @each(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
    def test_addresses(self, tmp_path: Path, suffix: str, separator: str) -> None:
        (tmp_path / f"pets.{suffix}").write_text(f"text{separator}label\npurrs{separator}cat\n")
        data = open_data(f"file://{tmp_path}/pets.{suffix}")
        assert data.read(0, 1).inputs == ["purrs"]
        assert data.name.startswith("pets-")
        for address in (f"file://{tmp_path}/none.csv", f"file://{tmp_path}", "nowhere://pets.csv"):
            with pytest.raises(InputError, match=rf"{address}|expected files that end with"):
                open_data(address)

    def test_json_names_images_beside_it(self, tmp_path: Path) -> None:
        (tmp_path / "a.png").write_bytes(png(7))
        (tmp_path / "pets.jsonl").write_text(json.dumps({"image": "a.png", "label": "cat"}) + "\n")
        data = open_data(tmp_path / "pets.jsonl")
        assert int(data.read(0, 1).inputs[0].max()) == 7
        assert data.keys(0, 1) == ["a.png"]

    def test_webdataset(self, tmp_path: Path) -> None:
        with tarfile.open(tmp_path / "pets.tar", "w") as archive:
            for row in range(3):
                for name, content in ((f"{row}.png", png(row)), (f"{row}.cls", str(row % 2).encode())):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    archive.addfile(member, BytesIO(content))
        rows = open_data(tmp_path / "pets.tar", column="png", label="cls").read(0, 3)
        assert [int(image.max()) for image in rows.inputs] == [0, 1, 2]
        assert rows.labels.tolist() == [0, 1, 0]

    @each("name", ["a.parquet", "a.jsonl", "a.arrow"])
    def test_broken_files_are_named(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"broken")
        with pytest.raises(InputError, match=rf"{name} cannot be read by datasets"):
            open_data(tmp_path / name)
