import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms

from offramp.errors import InputError
from offramp.preprocessing import Preprocessing, photo_preprocessing
from offramp.preprocessing._images import image_preprocessing
from tests.cases import each

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def byte_images(count: int, side: int = 6) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def moved(image: Tensor, down: int, right: int, mirrored: bool) -> Tensor:
    """One image, pixel by pixel: mirrored, then seen through a window moved by (down, right)."""
    _, height, width = image.shape
    result = torch.zeros_like(image)
    for row in range(height):
        for column in range(width):
            source = (row + down, (width - 1 - column if mirrored else column) + right)
            if 0 <= source[0] < height and 0 <= source[1] < width:
                result[:, row, column] = image[:, source[0], source[1]]
    return result


class TestImages:
    def test_numbers(self) -> None:
        images = byte_images(3)
        prepared = image_preprocessing(mean=MEAN, std=STD)(images)
        assert prepared.dtype == torch.float32
        assert prepared.shape == (3, 3, 6, 6)
        for channel in range(3):
            expected = (images[..., channel] / 255 - MEAN[channel]) / STD[channel]
            np.testing.assert_allclose(prepared[:, channel].numpy(), expected, rtol=1e-5, atol=1e-6)

    def test_other_scales(self) -> None:
        prepared = image_preprocessing(mean=(127,) * 3, std=(128,) * 3, scale=1.0)(byte_images(1))
        np.testing.assert_allclose(prepared[0, 1].numpy(), (byte_images(1)[0, ..., 1] - 127.0) / 128, atol=1e-6)

    def test_tensors_and_arrays_alike(self) -> None:
        prepare = image_preprocessing(mean=MEAN, std=STD)
        assert torch.equal(prepare(byte_images(2)), prepare(torch.from_numpy(byte_images(2))))

    def test_arrays_nobody_may_write_to(self) -> None:
        # Memory maps are such arrays, and what Pillow hands out. torch warns of them, once a process unless told.
        prepare = image_preprocessing(mean=MEAN, std=STD)
        images = byte_images(2)
        expected = prepare(images.copy())
        images.setflags(write=False)
        torch.set_warn_always(True)
        try:
            assert torch.equal(prepare(images), expected)
        finally:
            torch.set_warn_always(False)


class TestShiftAndFlip:
    def test_each_image_moves_by_itself_and_every_way(self) -> None:
        # Whatever is drawn, and in whichever order: each result is one of the 18 slow ones, all about as often.
        images = torch.arange(1, 28, dtype=torch.float32).view(1, 3, 3, 3)
        ways = [(down, right, mirror) for down in (-1, 0, 1) for right in (-1, 0, 1) for mirror in (False, True)]
        candidates = {tuple(moved(images[0], *way).flatten().tolist()): way for way in ways}
        assert len(candidates) == 18
        found = Preprocessing().then("shift_and_flip", shift=1)(images.expand(1800, -1, -1, -1))
        counts = dict.fromkeys(ways, 0)
        for image in found:
            counts[candidates[tuple(image.flatten().tolist())]] += 1
        assert min(counts.values()) > 100 - 5 * 10
        assert max(counts.values()) < 100 + 5 * 10

    def test_wide_images(self) -> None:
        images = torch.rand(20, 2, 4, 7, generator=torch.Generator().manual_seed(0))
        found = Preprocessing().then("shift_and_flip", shift=2)(images)
        assert found.shape == images.shape
        for image, result in zip(images, found, strict=True):
            ways = (
                moved(image, down, right, mirror)
                for down in range(-2, 3)
                for right in range(-2, 3)
                for mirror in (False, True)
            )
            assert sum(torch.equal(result, way) for way in ways) == 1

    def test_no_shift_still_mirrors(self) -> None:
        images = torch.rand(64, 1, 2, 3, generator=torch.Generator().manual_seed(0))
        found = Preprocessing().then("shift_and_flip", shift=0)(images)
        mirrored = torch.tensor([not torch.equal(*pair) for pair in zip(images, found, strict=True)])
        assert 10 < mirrored.sum() < 54
        assert torch.equal(found[mirrored], images[mirrored].flip(-1))

    def test_bytes(self) -> None:
        images = torch.from_numpy(byte_images(4)).permute(0, 3, 1, 2)
        assert Preprocessing().then("shift_and_flip", shift=2)(images).dtype == torch.uint8


class TestResize:
    @each("mode", ["bilinear", "bicubic"])
    @each(("height", "width", "size"), [(24, 24, 8), (20, 31, 8), (31, 20, 12), (9, 14, 16)])
    def test_against_pillow(self, height: int, width: int, size: int, mode: str) -> None:
        images = 255 * torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))
        found = Preprocessing().then("resize", size=size, mode=mode)(images)
        shorter = min(height, width)
        shape = (size * height // shorter, size * width // shorter)
        assert found.shape == (2, 3, *shape)
        for image, result in zip(images.flatten(0, 1), found.flatten(0, 1), strict=True):
            expected = Image.fromarray(image.numpy()).resize(shape[::-1], getattr(Image.Resampling, mode.upper()))
            np.testing.assert_allclose(result.numpy(), np.asarray(expected), atol=2e-3)

    def test_bytes_become_numbers_of_the_same_range(self) -> None:
        images = torch.full((1, 3, 8, 8), 200, dtype=torch.uint8)
        found = Preprocessing().then("resize", size=4, mode="bilinear")(images)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, torch.full((1, 3, 4, 4), 200.0))

    def test_the_size_it_has_already(self) -> None:
        images = torch.rand(2, 3, 6, 9)
        assert torch.equal(Preprocessing().then("resize", size=6, mode="bilinear")(images), images)


class TestCenterCrop:
    @each(("height", "width"), [(8, 8), (9, 12), (7, 11), (4, 5), (4, 4)])
    def test_against_torchvision(self, height: int, width: int) -> None:
        images = torch.arange(2 * height * width).view(2, 1, height, width)
        found = Preprocessing().then("center_crop", size=4)(images)
        assert torch.equal(found, transforms.CenterCrop(4)(images))

    def test_refuses_smaller_images(self) -> None:
        with pytest.raises(InputError, match="at least 4 x 4 pixels to crop, got 3 x 9"):
            Preprocessing().then("center_crop", size=4)(torch.zeros(1, 3, 3, 9))


class TestPhotos:
    @each("mode", ["bilinear", "bicubic"])
    @each(("height", "width"), [(40, 40), (40, 57), (64, 43)])
    def test_against_the_usual_transforms(self, height: int, width: int, mode: str) -> None:
        photos = np.random.default_rng(0).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
        found = photo_preprocessing(28, resized=32, mode=mode, mean=MEAN, std=STD)(photos)
        usual = transforms.Compose(
            [
                transforms.ToTensor(),
                transforms.Resize(32, transforms.InterpolationMode(mode)),
                transforms.Lambda(lambda image: image.clamp(0, 1)),  # as for images of bytes
                transforms.CenterCrop(28),
                transforms.Normalize(MEAN, STD),
            ]
        )
        assert found.shape == (2, 3, 28, 28)
        for photo, result in zip(photos, found, strict=True):
            torch.testing.assert_close(result, usual(photo), rtol=1e-4, atol=1e-4)

    def test_is_described_by_its_steps(self) -> None:
        steps = photo_preprocessing(28, resized=32, mode="bilinear", mean=MEAN, std=STD).describe()
        assert [name for name, _ in steps] == ["channels_first", "resize", "center_crop", "normalize"]
        assert json.loads(json.dumps(steps)) == steps


def test_numbers_from_0_to_1_are_not_taken_for_bytes() -> None:
    prepare = image_preprocessing(mean=MEAN, std=STD)
    with pytest.raises(
        InputError, match=r"expected images of bytes, 0 to 255, .* got numbers up to 0\.9; give the bytes"
    ):
        prepare(np.full((2, 4, 4, 3), 0.9, np.float32))
    assert torch.isfinite(prepare(np.zeros((2, 4, 4, 3), np.float32))).all()  # black is black
    assert torch.isfinite(prepare(np.full((2, 4, 4, 3), 200, np.float32))).all()
    assert torch.isfinite(image_preprocessing(mean=MEAN, std=STD, scale=1)(np.ones((2, 4, 4, 3), np.float32))).all()
