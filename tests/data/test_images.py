import warnings
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from offramp.data import open_data
from offramp.data._images import ImageFiles, check_files, decode_image, is_image_name
from offramp.errors import InputError, UnknownNameError
from tests.cases import each

GRAY = np.array([[0, 100], [200, 255], [1, 2]], np.uint8)
COLOUR = np.stack([GRAY, GRAY[::-1], GRAY // 2], 2)


def encoded(image: Image.Image, kind: str = "png", **options: object) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decoded(content: bytes) -> npt.NDArray[np.uint8]:
    return decode_image(content, place="it")


@each(
    ("image", "expected"),
    [
        (Image.fromarray(COLOUR), COLOUR),
        (Image.fromarray(GRAY), np.stack([GRAY] * 3, 2)),
        (Image.fromarray(GRAY > 50), np.stack([(GRAY > 50) * 255] * 3, 2)),
        (Image.fromarray(np.dstack([COLOUR, GRAY])), COLOUR),
        (Image.fromarray(np.dstack([GRAY, 255 - GRAY])), np.stack([GRAY] * 3, 2)),
        (Image.fromarray(GRAY.astype(np.uint16) * 256 + 77), np.stack([GRAY] * 3, 2)),
    ],
)
def test_modes_become_rgb(image: Image.Image, expected: npt.NDArray[np.uint8]) -> None:
    array = decoded(encoded(image))
    assert array.dtype == np.uint8
    assert array.flags.writeable
    np.testing.assert_array_equal(array, expected)


@each("transparency", [{}, {"transparency": 0}, {"transparency": b"\x00\x80"}])
def test_palettes_become_their_colours(transparency: dict[str, object]) -> None:
    image = Image.fromarray(np.array([[0, 1]], np.uint8))
    image.putpalette([10, 20, 30, 40, 50, 60])
    assert decoded(encoded(image, "png", **transparency)).tolist() == [[[10, 20, 30], [40, 50, 60]]]


@each("big_endian", [False, True])
def test_16_bits_in_tiff_of_either_byte_order(big_endian: bool) -> None:
    values = GRAY.astype(np.uint16) * 256 + 5
    image = Image.fromarray(values)
    if big_endian:
        image = Image.frombytes("I;16B", (2, 3), values.astype(">u2").tobytes())
    np.testing.assert_array_equal(decoded(encoded(image, "tiff"))[:, :, 1], GRAY)


def test_cmyk_becomes_rgb() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    array = decoded(encoded(image, "jpeg", quality=95))
    assert np.abs(array.astype(int) - [255, 0, 0]).max() < 12


@each(("kind", "lossy"), [("bmp", 0), ("gif", 0), ("png", 0), ("tiff", 0), ("webp", 12), ("jpeg", 12)])
def test_kinds_of_files(kind: str, lossy: int, tmp_path: Path) -> None:
    image = Image.new("RGB", (9, 7), (200, 40, 90))
    (tmp_path / "a").write_bytes(encoded(image, kind))
    array = decode_image(tmp_path / "a", place="a")
    assert array.shape == (7, 9, 3)
    assert np.abs(array.astype(int) - [200, 40, 90]).max() <= lossy


@each("kind", ["png", "tiff", "webp"])
@each(("orientation", "quarters"), [(1, 0), (3, 2), (6, -1), (8, 1)])
def test_orientation_is_respected(kind: str, orientation: int, quarters: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, object] = {"lossless": True} if kind == "webp" else {}
    array = decoded(encoded(Image.fromarray(COLOUR), kind, exif=exif, **options))
    np.testing.assert_array_equal(array, np.rot90(COLOUR, quarters))


def test_the_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (2, 2), colour) for colour in ("red", "blue")]
    animated = encoded(frames[0], "gif", save_all=True, append_images=frames[1:])
    assert decoded(animated)[0, 0].tolist() == [255, 0, 0]


@each(
    "content",
    [
        b"",
        b"no image",
        encoded(Image.fromarray(COLOUR))[:60],
        b"\x89PNG\r\n\x1a\n" + b"\xff" * 40,
        b"%!PS-Adobe-3.0 EPSF",
    ],
)
def test_broken_images_are_named(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it cannot be decoded as an image"):
        decoded(content)
    (tmp_path / "broken.png").write_bytes(content)
    with pytest.raises(InputError, match="my file"):
        decode_image(tmp_path / "broken.png", place="my file")


@each("limit", [30, 13])
@each("action", ["error", "ignore"])
def test_bombs_are_refused(limit: int, action: Literal["error", "ignore"], monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(Image.new("RGB", (6, 6)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)  # just above it Pillow warns, above twice it raises
    with warnings.catch_warnings(action=action), pytest.raises(InputError, match="pixels"):
        decoded(content)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert decoded(content).shape == (6, 6, 3)


def test_real_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="8 or 16 bits"):
        decoded(encoded(Image.fromarray(np.ones((2, 2), np.float32)), "tiff"))
    with pytest.raises(InputError, match="8 or 16 bits"):
        decoded(encoded(Image.fromarray(np.full((2, 2), 70000, np.int32)), "tiff"))


@each("name", ["a.png", "A.JPG", "x/y.jpeg", "a.webp", "a.bmp", "a.gif", "a.tif", "a.b.TIFF"])
def test_images_by_name(name: str) -> None:
    assert is_image_name(name)


@each("name", ["a.txt", "png", "a.png.txt", ".png", ".a.png", "x/._a.png", ""])
def test_no_images_by_name(name: str) -> None:
    assert not is_image_name(name)


def test_only_the_rows_asked_for_are_decoded(tmp_path: Path) -> None:
    Image.new("L", (3, 2), 5).save(tmp_path / "good.png")
    files = ImageFiles(tmp_path, ["none.png", "good.png", "none.png"])
    assert [int(image.max()) for image in files(1, 2)] == [5]


def test_files_that_a_table_names_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    assert list(check_files([("row 0", "a.png")], tmp_path)) == ["a.png"]
    for name in ("none.png", "", "x" * 5000, "a\0.png"):
        with pytest.raises(InputError, match=r"row 3 names the image .*but there is no file"):
            list(check_files([("row 0", "a.png"), ("row 3", name)], tmp_path))


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


@each("name", ["__MACOSX", ".ipynb_checkpoints", "@eaDir", "__pycache__", "$RECYCLE.BIN"])
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


@each("name", [None, "notes.txt", "cat/notes.txt"])
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


def test_members_are_followed_but_not_round(tmp_path: Path) -> None:
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


def test_paths_come_in_ascending_order(tmp_path: Path) -> None:
    save(tmp_path / "pets", "a/2.png", "a/10.png", "a-b/1.png", "a.b/1.png", "ab/a/1.png", "ab/a-1.png", "ab/a.png")
    data = open_data(tmp_path / "pets")
    assert data.keys(0, len(data)) == sorted(data.keys(0, len(data)))
    assert len(data) == 7
