"""Images as networks are trained on them: upright, RGB, 8 bits a channel."""

import os
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from offramp.data.unpacking import VARIABLE, allowed_bytes, check_unpacked
from offramp.errors import InputError, MissingExtraError

try:
    from PIL import Image, ImageOps
except ImportError as error:
    raise MissingExtraError("reading images needs Pillow; pip install 'offramp[images]'") from error

__all__ = ["decode_image"]

PIXEL_BYTES = 10
"""Memory that a pixel takes while it is decoded: 4 bytes of Pillow's, and 3 twice until it is an array."""

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # Pillow knows more; some of those run other programs


def decode_image(content: Path | bytes, *, place: str) -> npt.NDArray[np.uint8]:
    """Decode one image.

    It is turned as its EXIF orientation says. Of an animation the first frame is taken; transparency is dropped, not
    blended; 16 bits a channel become 8 by their high byte.

    Args:
        content: A file, or its bytes.
        place: What to call it in messages.

    Returns:
        `H x W x 3` RGB.

    Example:
        >>> png = BytesIO()
        >>> Image.new("L", (3, 2), 7).save(png, "png")
        >>> decode_image(png.getvalue(), place="a gray image").shape
        (2, 3, 3)
    """
    _let_pillow_decode()
    try:
        with Image.open(BytesIO(content) if isinstance(content, bytes) else content, formats=FORMATS) as image:
            _check_size(image)
            ImageOps.exif_transpose(image, in_place=True)
            return np.array(_rgb(image))
    except Exception as error:  # Pillow's decoders raise whatever they stumble over
        raise InputError(f"{place} cannot be decoded as an image: {error}; replace it or leave it out") from error


def _let_pillow_decode() -> None:
    """Raise Pillow's own limit to ours, where that was asked for."""
    if VARIABLE in os.environ and Image.MAX_IMAGE_PIXELS is not None:
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, allowed_bytes() // PIXEL_BYTES)


def _check_size(image: Image.Image) -> None:
    # The header has been read by now, but no pixel. Pillow itself only warns up to twice its limit.
    pixels = f"an image of {image.width} x {image.height} pixels"
    check_unpacked(PIXEL_BYTES * image.width * image.height, place=pixels)
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise InputError(
            f"{image.width} x {image.height} pixels are more than the {limit} that PIL.Image.MAX_IMAGE_PIXELS allows"
        )


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        return _high_byte(image).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA").convert("RGB")  # straight to RGB, Pillow warns
    return image if image.mode == "RGB" else image.convert("RGB")


def _high_byte(image: Image.Image) -> Image.Image:
    # Pillow would clip values above 255, which turns 16-bit images white.
    values = np.asarray(image)
    if values.dtype.kind == "f" or values.min() < 0 or values.max() > 0xFFFF:
        raise InputError(f"expected 8 or 16 bits a channel, got {values.min()} to {values.max()} (mode {image.mode})")
    return Image.fromarray((values.astype(np.uint32) >> 8).astype(np.uint8))
