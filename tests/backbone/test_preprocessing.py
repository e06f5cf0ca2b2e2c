import json
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms

from offramp.backbone import STEPS, Preprocessing, image_preprocessing
from offramp.backbone.preprocessing import photo_preprocessing
from offramp.errors import InputError, UnknownNameError
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


class TestLists:
    """Images as people hold them, against one array of them, and against each by itself."""

    SIZES = ((40, 40), (57, 40), (40, 43), (64, 99))
    PHOTOS = photo_preprocessing(28, resized=32, mode="bicubic", mean=MEAN, std=STD)

    def photos(self, *sizes: tuple[int, int]) -> list[Any]:
        draw = np.random.default_rng(0)
        return [draw.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]

    @each("prepare", [PHOTOS, image_preprocessing(mean=MEAN, std=STD)])
    def test_of_one_size(self, prepare: Preprocessing) -> None:
        arrays = list(byte_images(3, 40))
        expected = prepare(byte_images(3, 40))
        images: list[Any] = [Image.fromarray(one) for one in arrays]
        for inputs in (arrays, images):
            assert torch.equal(prepare(inputs), expected)
        # Of both kinds they are prepared one by one, which rounds otherwise.
        torch.testing.assert_close(prepare([*arrays[:2], images[2]]), expected)

    @each("kind", [np.asarray, Image.fromarray])
    def test_of_several_sizes(self, kind: Any) -> None:
        photos = self.photos(*self.SIZES)
        found = self.PHOTOS([kind(photo) for photo in photos])
        assert found.shape == (4, 3, 28, 28)
        for photo, result in zip(photos, found, strict=True):
            assert torch.equal(result, self.PHOTOS(photo[None])[0])

    def test_of_several_sizes_against_the_usual_transforms(self) -> None:
        images = [Image.fromarray(photo) for photo in self.photos(*self.SIZES)]
        usual = transforms.Compose(
            [
                transforms.ToTensor(),
                transforms.Resize(32, transforms.InterpolationMode.BICUBIC),
                transforms.Lambda(lambda image: image.clamp(0, 1)),
                transforms.CenterCrop(28),
                transforms.Normalize(MEAN, STD),
            ]
        )
        expected = torch.stack([usual(image) for image in images])
        torch.testing.assert_close(self.PHOTOS(images), expected, rtol=1e-4, atol=1e-4)

    def test_each_draws_by_itself(self) -> None:
        augment = self.PHOTOS.then("shift_and_flip", shift=4)
        same = self.photos((40, 57))[0]
        found = augment([same] * 8 + self.photos((44, 40)), seed=3)
        assert len({tuple(one.flatten().tolist()) for one in found[:8]}) > 4
        assert torch.equal(augment([same] * 8 + self.photos((44, 40)), seed=3), found)

    @each(
        "prepare",
        [
            image_preprocessing(mean=MEAN, std=STD),
            Preprocessing(),
            Preprocessing().then("channels_first").then("resize", size=8, mode="bilinear"),
        ],
    )
    def test_several_sizes_that_stay_so(self, prepare: Preprocessing) -> None:
        with pytest.raises(InputError, match=r"not of one size after preprocessing \(shape .*photo_preprocessing does"):
            prepare(self.photos(*self.SIZES))

    @each("one", [byte_images(1)[0], Image.new("RGB", (6, 6)), "a text"])
    def test_a_single_one_is_no_batch(self, one: Any) -> None:
        with pytest.raises(InputError, match="the batch axis is missing; put it into a list"):
            self.PHOTOS(one)

    @each("more", ["a text", 3, None, np.zeros((6, 6, 3)), np.zeros((6, 6), np.uint8)])
    def test_of_several_kinds(self, more: Any) -> None:
        with pytest.raises(InputError, match="expected a list of images or of texts, got one of"):
            self.PHOTOS([byte_images(1)[0], more])

    @each("channels", [1, 2, 4])
    def test_other_channels(self, channels: int) -> None:
        grey = np.zeros((6, 6, channels), np.uint8)
        for inputs in ([grey, grey], [byte_images(1)[0], grey], [grey, byte_images(1)[0]], np.stack([grey])):
            with pytest.raises(InputError, match=f"expected images of 3 channels, got {channels}; convert"):
                image_preprocessing(mean=MEAN, std=STD)(inputs)
        with pytest.raises(InputError, match="expected images of 1 channels, got 3"):
            image_preprocessing(mean=(0.5,), std=(0.5,))([Image.new("L", (6, 6))])  # Pillow's are taken in colour

    def test_lists_of_numbers(self) -> None:
        prepare = image_preprocessing(mean=MEAN, std=STD)
        real = byte_images(2).astype(np.float32)
        assert torch.equal(prepare(list(real)), prepare(real))
        assert torch.equal(prepare(real.tolist()), prepare(real.astype(np.float64)))

    @each(
        ("inputs", "told"),
        [
            ([], "list"),
            ([np.zeros((6, 6), np.uint8)] * 2, "list"),
            ([np.zeros((6, 6), np.uint8), np.zeros((5, 6), np.uint8)], "list"),
            ([np.zeros((6, 6, 3)), np.zeros((5, 6, 3))], "list"),
            ([torch.zeros(6, 6, 3), torch.zeros(5, 6, 3)], "list"),
            (["a text", "another"], r"shape \(2,\)"),
            (np.full((1, 2, 2, 3), "a"), r"shape \(1, 2, 2, 3\)"),
            (np.zeros((6, 6, 6), np.uint8), r"shape \(6, 6, 6\)"),
            (torch.zeros(3), r"shape \(3,\)"),
            ({"images": 1}, "dict"),
            (None, "NoneType"),
        ],
    )
    def test_what_are_no_images(self, inputs: Any, told: str) -> None:
        with pytest.raises(
            InputError, match=f"expected images N x H x W x C, got {told}(; give a batch|: the channel axis is missing)"
        ):
            self.PHOTOS(inputs)

    @each(
        ("name", "parameters"),
        [
            ("normalize", {"scale": 1.0, "mean": [0.5], "std": [1.0]}),
            ("resize", {"size": 4, "mode": "bilinear"}),
            ("center_crop", {"size": 4}),
            ("shift_and_flip", {"shift": 1}),
        ],
    )
    @each("inputs", [np.zeros(3), torch.zeros(3), None, ["text"]])
    def test_steps_say_what_they_cannot_take(self, name: str, parameters: dict[str, Any], inputs: Any) -> None:
        with pytest.raises(InputError, match=f"step '{name}' cannot take (shape|NoneType)"):
            Preprocessing().then(name, **parameters)(inputs)


class TestFollowedBy:
    def test_is_one_after_the_other(self) -> None:
        first = Preprocessing().then("channels_first").then("resize", size=4, mode="bilinear")
        second = Preprocessing(image_preprocessing(mean=MEAN, std=STD).steps[1:])
        both = first.followed_by(second)
        assert both.steps == (*first.steps, *second.steps)
        assert torch.equal(both(byte_images(2)), second(first(byte_images(2))))

    def test_nothing_changes_nothing(self) -> None:
        prepare = image_preprocessing(mean=MEAN, std=STD)
        assert Preprocessing().followed_by(prepare) == prepare == prepare.followed_by(Preprocessing())


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


class TestCheck:
    def test_what_is_made_here_passes(self) -> None:
        Preprocessing().check()
        image_preprocessing(mean=MEAN, std=STD).then("shift_and_flip", shift=0).check()
        photo_preprocessing(224, resized=256, mode="bicubic", mean=MEAN, std=STD, squash=True).check()

    @each(
        ("name", "parameters"),
        [
            ("channels_first", {"order": 1}),
            ("center_crop", {}),
            ("center_crop", {"size": 0}),
            ("center_crop", {"size": -3}),
            ("center_crop", {"size": 10**9}),
            ("center_crop", {"size": 10**400}),
            ("center_crop", {"size": 3.0}),
            ("center_crop", {"size": True}),
            ("center_crop", {"size": "8"}),
            ("center_crop", {"size": [8]}),
            ("center_crop", {"size": None}),
            ("shift_and_flip", {"shift": 257}),
            ("shift_and_flip", {"shift": -1}),
            ("resize", {"size": 8}),
            ("resize", {"size": 8, "mode": "nearest"}),
            ("resize", {"size": 8, "mode": ["bilinear"]}),
            ("resize", {"size": 8, "mode": "bilinear", "squash": 1}),
            ("resize", {"size": 8, "mode": "bilinear", "generator": 1}),
            ("normalize", {"scale": 1.0, "mean": [0.5]}),
            ("normalize", {"scale": "1", "mean": [0.5], "std": [1]}),
            ("normalize", {"scale": 10**400, "mean": [0.5], "std": [1]}),
            ("normalize", {"scale": float("nan"), "mean": [0.5], "std": [1]}),
            ("normalize", {"scale": 1.0, "mean": [], "std": []}),
            ("normalize", {"scale": 1.0, "mean": [0.5, 0.5], "std": [1]}),
            ("normalize", {"scale": 1.0, "mean": [0.5], "std": [0]}),
            ("normalize", {"scale": 1.0, "mean": [[0.5]], "std": [1]}),
            ("normalize", {"scale": 1.0, "mean": 0.5, "std": [1]}),
            ("normalize", {"scale": 1.0, "mean": {"0": 0.5}, "std": [1]}),
            ("normalize", {"scale": 1.0, "mean": [0.5] * 5000, "std": [1] * 5000}),
        ],
    )
    def test_parameters_that_a_step_does_not_take(self, name: str, parameters: dict[str, object]) -> None:
        with pytest.raises(InputError, match=f"step '{name}'") as caught:
            Preprocessing(((name, parameters),)).check()
        assert len(str(caught.value)) < 300

    def test_steps_that_are_not_there_or_too_many(self) -> None:
        with pytest.raises(UnknownNameError, match="did you mean 'resize'"):
            Preprocessing().then("resise").check()
        with pytest.raises(InputError, match="at most 64 steps"):
            Preprocessing((("channels_first", {}),) * 65).check()


def test_numbers_from_0_to_1_are_not_taken_for_bytes() -> None:
    prepare = image_preprocessing(mean=MEAN, std=STD)
    with pytest.raises(
        InputError, match=r"expected images of bytes, 0 to 255, .* got numbers up to 0\.9; give the bytes"
    ):
        prepare(np.full((2, 4, 4, 3), 0.9, np.float32))
    assert torch.isfinite(prepare(np.zeros((2, 4, 4, 3), np.float32))).all()  # black is black
    assert torch.isfinite(prepare(np.full((2, 4, 4, 3), 200, np.float32))).all()
    assert torch.isfinite(image_preprocessing(mean=MEAN, std=STD, scale=1)(np.ones((2, 4, 4, 3), np.float32))).all()
