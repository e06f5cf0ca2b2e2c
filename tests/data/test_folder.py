from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from offramp.data import open_data
from offramp.errors import InputError, UnknownNameError


def save(root: Path, *names: str) -> None:
    for value, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3), (value, value, value)).save(path)


def values(root: Path, **options: object) -> list[int]:
    data = open_data(root, **options)  # type: ignore[arg-type]
    return [int(image[0, 0, 0]) for image in data.read(0, len(data)).inputs]


def test_classes_are_the_sorted_sub_folders(tmp_path: Path) -> None:
    save(tmp_path, "dog/b.png", "dog/a.png", "cat/deep/deeper/c.png", "cat/B.png", "Ape/x.PNG")
    data = open_data(tmp_path)
    assert data.classes == ("Ape", "cat", "dog")
    assert values(tmp_path) == [4, 3, 2, 1, 0]
    assert data.read(0, 5).labels.tolist() == [0, 1, 1, 2, 2]
    assert data.read(1, 2).inputs[0].shape == (3, 4, 3)


def test_numbers_as_names_are_in_the_order_of_texts(tmp_path: Path) -> None:
    save(tmp_path, "2/a.png", "10/a.png")
    data = open_data(tmp_path)
    assert data.classes == ("10", "2")
    assert data.read(0, 2).labels.tolist() == [0, 1]


def test_hidden_and_other_files_are_passed_over(tmp_path: Path) -> None:
    save(tmp_path, "cat/a.png", "cat/.b.png", ".cache/c.png")
    (tmp_path / "cat" / "notes.txt").write_text("hello")
    (tmp_path / "notes.md").write_text("hello")
    (tmp_path / "empty").mkdir()
    data = open_data(tmp_path)
    assert len(data) == 1
    assert data.classes == ("cat", "empty")


@pytest.mark.parametrize("name", ["__MACOSX", ".ipynb_checkpoints", "@eaDir", "__pycache__", "$RECYCLE.BIN"])
def test_what_systems_leave_behind_is_no_class(tmp_path: Path, name: str) -> None:
    save(tmp_path, "cat/a.png", f"cat/{name}/a.png", f"{name}/cat/a.png")
    data = open_data(tmp_path, classes=["cat"])
    assert data.classes == open_data(tmp_path).classes == ("cat",)
    assert values(tmp_path) == [0]
    save(tmp_path / "split", "train/cat/a.png", "test/cat/a.png", f"{name}/a.png")
    with pytest.raises(InputError, match="splits test, train; choose one"):
        open_data(tmp_path / "split")


def test_rows_are_called_by_their_paths(tmp_path: Path) -> None:
    save(tmp_path, "train/dog/a.png", "train/cat/deep/b.png")
    assert open_data(tmp_path, split="train").keys(0, 2) == ["cat/deep/b.png", "dog/a.png"]
    save(tmp_path / "flat", "b.png", "a.png")
    assert open_data(tmp_path / "flat").keys(1, 2) == ["b.png"]


def test_images_straight_inside_are_unlabelled(tmp_path: Path) -> None:
    save(tmp_path, "b.png", "a.png")
    data = open_data(tmp_path, classes=["cat"])
    assert not data.labelled
    assert values(tmp_path) == [1, 0]
    assert data.read(0, 2).labels.tolist() == [-1, -1]
    assert data.classes == ("cat",)


def test_folders_and_images_side_by_side_are_refused(tmp_path: Path) -> None:
    save(tmp_path, "cat/a.png", "b.png")
    with pytest.raises(InputError, match="got both"):
        open_data(tmp_path)


def test_classes_are_checked(tmp_path: Path) -> None:
    save(tmp_path, "cat/a.png", "dogs/b.png")
    with pytest.raises(UnknownNameError, match="unknown class 'dogs'; did you mean 'dog'"):
        open_data(tmp_path, classes=["dog", "cat"])
    data = open_data(tmp_path, classes=["dogs", "bird", "cat"])
    assert data.read(0, 2).labels.tolist() == [2, 0]


@pytest.mark.parametrize("name", [None, "notes.txt", "cat/notes.txt"])
def test_no_images_is_an_error(tmp_path: Path, name: str | None) -> None:
    if name:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("hello")
    with pytest.raises(InputError, match="expected images in"):
        open_data(tmp_path)


def test_a_broken_image_is_named_when_read(tmp_path: Path) -> None:
    save(tmp_path, "cat/a.png", "cat/b.png")
    (tmp_path / "cat" / "b.png").write_bytes(b"broken")
    data = open_data(tmp_path)
    assert len(data.read(0, 1).inputs) == 1
    with pytest.raises(InputError, match=r"cat/b\.png cannot be decoded"):
        data.read(0, 2)


def test_splits_must_be_chosen(tmp_path: Path) -> None:
    save(tmp_path, "train/cat/a.png", "train/dog/b.png", "test/cat/c.png")
    with pytest.raises(InputError, match="splits test, train; choose one: split='test'"):
        open_data(tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean 'train'"):
        open_data(tmp_path, split="trian")
    data = open_data(tmp_path, split="train")
    assert data.classes == ("cat", "dog")
    assert data.name.startswith(f"{tmp_path.name}-train-")
    np.testing.assert_array_equal(data.read(0, 2).ids, open_data(tmp_path / "train").read(0, 2).ids)
    assert len(open_data(tmp_path, classes=["test", "train"])) == 3  # said to be classes


def test_splits_may_have_capitals(tmp_path: Path) -> None:
    save(tmp_path, "Train/cat/a.png", "Test/cat/c.png")
    with pytest.raises(InputError, match="splits Test, Train; choose one: split='Test'"):
        open_data(tmp_path)


def test_a_column_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "cat/a.png")
    with pytest.raises(InputError, match="expected no column"):
        open_data(tmp_path, column="image")


def test_links_are_followed_but_not_round(tmp_path: Path) -> None:
    save(tmp_path, "real/a.png")
    root = tmp_path / "root"
    (root / "dog").mkdir(parents=True)
    (root / "cat").symlink_to(tmp_path / "real")
    (root / "dog" / "round").symlink_to(root)
    data = open_data(root)
    assert data.classes == ("cat", "dog")
    assert len(data) == 1


def test_other_images_of_the_same_size_are_other_samples(tmp_path: Path) -> None:
    for split, value in (("one", 1), ("two", 2)):
        (tmp_path / split / "cat").mkdir(parents=True)
        Image.new("RGB", (4, 3), (value, 0, 0)).save(tmp_path / split / "cat" / "0.bmp")
    one, two = (open_data(tmp_path / split).read(0, 1) for split in ("one", "two"))
    assert one.ids[0] != two.ids[0]
