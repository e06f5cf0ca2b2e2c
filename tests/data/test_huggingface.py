import socket
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from offramp.data import open_data
from offramp.errors import InputError, UnknownNameError


def saved(folder: Path, columns: dict[str, Any], features: dict[str, Any] | None = None) -> Path:
    kinds = None if features is None else datasets.Features(features)
    datasets.Dataset.from_dict(columns, features=kinds).save_to_disk(str(folder / "saved"))
    return folder / "saved"


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
    with pytest.raises(InputError, match=r"row 1 of .* has no label"):
        open_data(saved(tmp_path / "some", {"text": ["a", "b"], "label": [0, None]}, features))


STRUCT = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}


@pytest.mark.parametrize("struct", [True, False])
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
    with pytest.raises(InputError, match="does not list splits"):
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
