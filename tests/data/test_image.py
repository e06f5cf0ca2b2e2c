import warnings
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from offramp.data.image import decode_image
from offramp.errors import InputError

GRAY = np.array([[0, 100], [200, 255], [1, 2]], np.uint8)
COLOUR = np.stack([GRAY, GRAY[::-1], GRAY // 2], 2)


def encoded(image: Image.Image, kind: str = "png", **options: object) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decoded(content: bytes) -> npt.NDArray[np.uint8]:
    return decode_image(content, place="it")


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.fromarray(COLOUR), COLOUR),
        (Image.fromarray(GRAY), np.stack([GRAY] * 3, 2)),
        (Image.fromarray(GRAY > 50), np.stack([(GRAY > 50) * 255] * 3, 2)),
        (Image.fromarray(np.dstack([COLOUR, GRAY])), COLOUR),
        (Image.fromarray(np.dstack([GRAY, 255 - GRAY])), np.stack([GRAY] * 3, 2)),
        (Image.fromarray(GRAY.astype(np.uint16) * 256 + 77), np.stack([GRAY] * 3, 2)),
    ],
    ids=["RGB", "L", "1", "RGBA", "LA", "I;16"],
)
def test_modes_become_rgb(image: Image.Image, expected: npt.NDArray[np.uint8]) -> None:
    array = decoded(encoded(image))
    assert array.dtype == np.uint8
    assert array.flags.writeable
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("transparency", [{}, {"transparency": 0}, {"transparency": b"\x00\x80"}])
def test_palettes_become_their_colours(transparency: dict[str, object]) -> None:
    image = Image.fromarray(np.array([[0, 1]], np.uint8))
    image.putpalette([10, 20, 30, 40, 50, 60])
    assert decoded(encoded(image, "png", **transparency)).tolist() == [[[10, 20, 30], [40, 50, 60]]]


@pytest.mark.parametrize("big_endian", [False, True])
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


@pytest.mark.parametrize(
    ("kind", "lossy"), [("bmp", 0), ("gif", 0), ("png", 0), ("tiff", 0), ("webp", 12), ("jpeg", 12)]
)
def test_kinds_of_files(kind: str, lossy: int, tmp_path: Path) -> None:
    image = Image.new("RGB", (9, 7), (200, 40, 90))
    (tmp_path / "a").write_bytes(encoded(image, kind))
    array = decode_image(tmp_path / "a", place="a")
    assert array.shape == (7, 9, 3)
    assert np.abs(array.astype(int) - [200, 40, 90]).max() <= lossy


@pytest.mark.parametrize("kind", ["png", "tiff", "webp"])
@pytest.mark.parametrize(("orientation", "quarters"), [(1, 0), (3, 2), (6, -1), (8, 1)])
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("limit", [30, 13])
@pytest.mark.parametrize("action", ["error", "ignore"])
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
