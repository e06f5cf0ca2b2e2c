from typing import Any

import numpy as np
import torch

from offramp.errors import InputError
from offramp.features import ArraySource
from offramp.features._source import Rows
from offramp.report._answers import Sample
from offramp.report._inputs import as_image, as_text, look_up
from tests.cases import each, refuses

LABELS = np.array([0, 1, 2])
SAMPLES = [Sample(2, 2, 0, 0, 0.9), Sample(0, 0, 0, 1, 0.8)]
COLOURS = np.arange(3 * 48 * 60 * 3, dtype=np.uint32).reshape(3, 48, 60, 3).astype(np.uint8)


class ListSource:
    """Inputs in a list, images of different sizes."""

    name = "list"

    def __init__(self, inputs: list[Any]) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def read(self, start: int, stop: int) -> Rows:
        return Rows(self.inputs[start:stop], LABELS[start:stop], LABELS[start:stop])


def test_bytes_are_colours_as_they_stand() -> None:
    shown = look_up(ArraySource(COLOURS, LABELS, name="a"), SAMPLES)
    assert shown is not None
    assert np.array_equal(shown[0], COLOURS[2])
    assert np.array_equal(shown[1], COLOURS[0])
    listed = look_up(ListSource([COLOURS[0], COLOURS[1, :, :50], COLOURS[2]]), SAMPLES)
    assert listed is not None
    assert np.array_equal(listed[0], COLOURS[2])


@each("kind", [np.asarray, torch.tensor])
@each("shape", [(48, 48), (1, 48, 48), (3, 48, 48), (48, 48, 3), (4, 48, 48)])
def test_other_numbers_are_stretched(kind: Any, shape: tuple[int, ...]) -> None:
    numbers = np.linspace(-2, 5, int(np.prod(shape))).reshape(shape)
    image = as_image(kind(numbers))
    assert image is not None
    assert image.shape == (48, 48, 3)
    assert image.dtype == np.uint8
    assert image.min() == 0
    assert image.max() == 255 or shape[0] == 4  # the fourth channel is left out


def test_strange_numbers_do_no_harm() -> None:
    image = np.array([[np.nan, np.inf], [-1e308, 1e308]])
    shown = as_image(image)
    assert shown is not None
    assert {int(shown[-1, 0, 0]), int(shown[-1, -1, 0])} == {0, 255}
    flat = as_image(np.full((8, 8), 3.0))
    assert flat is not None
    assert (flat == 128).all()


@each("value", [None, 3, np.zeros(4), np.zeros((2, 3, 4, 5)), np.zeros((5, 6, 7)), "text", {}])
def test_what_is_no_image_is_none(value: Any) -> None:
    assert as_image(value) is None


def test_thumbnails_are_small_and_averaged() -> None:
    large = np.zeros((1000, 500, 3), dtype=np.uint8)
    large[:, 250:] = 200
    shown = as_image(large)
    assert shown is not None
    assert max(shown.shape) <= 96
    assert (shown[0, 0, 0], shown[0, -1, 0]) == (0, 200)
    thin = as_image(np.zeros((400, 1, 3), dtype=np.uint8))
    assert thin is not None
    assert thin.shape == (80, 1, 3)


def test_texts_are_texts() -> None:
    assert look_up(ArraySource(np.array(["a", "b", "c"]), LABELS, name="a"), SAMPLES) == ["c", "a"]
    assert look_up(ArraySource(np.array(["a", "b", "c"], dtype=object), LABELS, name="a"), SAMPLES) == ["c", "a"]
    assert look_up(ListSource(["a", "b", "c"]), SAMPLES) == ["c", "a"]
    assert as_text(b"bytes") is None


def test_other_inputs_are_not_shown() -> None:
    assert look_up(ArraySource({"tokens": np.zeros((3, 5))}, LABELS, name="a"), SAMPLES) is None
    assert look_up(ArraySource(np.zeros((3, 5)), LABELS, name="a"), SAMPLES) is None


def test_another_source_is_noticed() -> None:
    with refuses(InputError, problem="row 2 of 'a'", expected="class 2", got="0"):
        look_up(ArraySource(COLOURS, LABELS[::-1].copy(), name="a"), SAMPLES)
