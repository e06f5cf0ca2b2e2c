import hashlib
import json
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from offramp.errors import InputError, UnknownNameError
from offramp.preprocessing import STEPS, Preprocessing, photo_preprocessing
from offramp.preprocessing._images import image_preprocessing
from offramp.preprocessing._preprocessing import Attachment
from tests.cases import each, refuses

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def byte_images(count: int, side: int = 6) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


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
        with refuses(InputError, got="shape", hint="photo_preprocessing"):
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
        with pytest.raises(InputError, match="expected images of 1 channel, got 4"):
            image_preprocessing(mean=(0.5,), std=(0.5,))(np.zeros((1, 6, 6, 4), np.uint8))

    def test_colours_for_a_network_of_one_channel(self) -> None:
        prepare = image_preprocessing(mean=(0.0,), std=(1.0,), scale=1.0)
        colours = Image.fromarray(byte_images(1)[0])
        gray = np.asarray(colours.convert("L"))
        assert (prepare([colours])[0, 0] - torch.tensor(gray)).abs().max() <= 1  # Pillow cuts fractions its own way
        assert torch.equal(prepare([Image.fromarray(gray)]), prepare(gray[None, :, :, None]))  # gray stays as it is
        every = np.repeat(np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1), 3, axis=3)
        assert torch.equal(prepare(every).flatten(), torch.arange(256.0))
        assert torch.allclose(prepare(every.astype(np.float64)), prepare(every))

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


CONTENT = bytes(range(256)) * 40


def test_is_known_by_its_hash() -> None:
    one = Attachment(CONTENT)
    assert one.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert one.describe() == {"sha256": one.sha256}
    assert json.loads(json.dumps(one.describe())) == one.describe()


def test_equal_content_is_the_same_file() -> None:
    assert Attachment(CONTENT) == Attachment(bytes(CONTENT))
    assert hash(Attachment(CONTENT)) == hash(Attachment(bytes(CONTENT)))
    assert Attachment(CONTENT) != Attachment(CONTENT[1:])


def test_is_not_shown_whole_and_does_not_change() -> None:
    one = Attachment(CONTENT)
    assert len(repr(one)) < 100
    with pytest.raises(FrozenInstanceError):
        one.content = b"other"  # type: ignore[misc]


def test_a_preprocessing_names_it_by_its_hash_and_hands_it_over() -> None:
    files = [Attachment(b"one"), Attachment(b"two")]
    steps = Preprocessing().then("tokenize", tokenizer=files[0], longest=8, pad=0).then("channels_first")
    steps = steps.then("tokenize", tokenizer=files[1], longest=8, pad=0)
    assert steps.attachments() == files
    described = steps.describe()
    assert json.loads(json.dumps(described)) == described
    assert described[0] == ["tokenize", {"tokenizer": {"sha256": files[0].sha256}, "longest": 8, "pad": 0}]
    assert Preprocessing().then("channels_first").attachments() == []


def test_long_images_pass_without_steps() -> None:
    images = np.zeros((2, 10, 30, 3), np.uint8)
    assert Preprocessing()(images).shape == images.shape
