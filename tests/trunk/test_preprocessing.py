import json

import numpy as np
import pytest
import torch
from torch import Tensor

from offramp.errors import UnknownNameError
from offramp.trunk import STEPS, Preprocessing, image_preprocessing

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


class TestSeeds:
    def test_reproducible_by_seed_alone(self) -> None:
        augment = image_preprocessing(mean=MEAN, std=STD).then("shift_and_flip", shift=2)
        first = augment(byte_images(32), seed=3)
        torch.manual_seed(123)
        torch.rand(7)
        state = torch.get_rng_state()
        assert torch.equal(augment(byte_images(32), seed=3), first)
        assert torch.equal(torch.get_rng_state(), state)  # and it leaves the global generator alone
        assert not torch.equal(augment(byte_images(32), seed=4), first)
        assert torch.equal(augment(byte_images(32)), augment(byte_images(32), seed=0))

    def test_steps_draw_one_after_the_other(self) -> None:
        images = torch.rand(32, 1, 5, 5, generator=torch.Generator().manual_seed(0))
        once = Preprocessing().then("shift_and_flip", shift=1)
        assert not torch.equal(once.then("shift_and_flip", shift=1)(images), once(once(images)))


class TestDescription:
    def test_json_brings_it_back(self) -> None:
        prepare = image_preprocessing(mean=MEAN, std=STD).then("shift_and_flip", shift=1)
        steps = json.loads(json.dumps(prepare.describe()))
        assert steps == prepare.describe()
        assert [name for name, _ in steps] == ["channels_first", "normalize", "shift_and_flip"]
        again = Preprocessing(tuple((name, parameters) for name, parameters in steps))
        assert torch.equal(again(byte_images(8), seed=5), prepare(byte_images(8), seed=5))

    def test_then_changes_nothing(self) -> None:
        prepare = image_preprocessing(mean=MEAN, std=STD)
        longer = prepare.then("shift_and_flip", shift=1)
        assert len(prepare.steps) == 2
        assert len(longer.steps) == 3

    def test_unknown_steps(self) -> None:
        with pytest.raises(UnknownNameError, match="did you mean 'normalize'"):
            Preprocessing().then("normalise")(byte_images(1))
        assert {"channels_first", "normalize", "shift_and_flip"} <= set(STEPS)
