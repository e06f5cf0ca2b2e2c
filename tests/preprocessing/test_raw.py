"""Lists as people hold them, against arrays stacked by hand."""

from collections import UserDict
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from offramp.errors import InputError
from offramp.preprocessing._raw import check_texts, differ_in_size, plain_containers, raw_batch, to_sliceable
from tests.cases import each


def photo(height: int = 4, width: int = 5, channels: int = 3, *, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


class TestBatches:
    def test_arrays_of_one_size(self) -> None:
        photos = [photo(seed=seed) for seed in range(3)]
        found = raw_batch(photos)
        assert found.dtype == np.uint8
        assert np.array_equal(found, np.stack(photos))

    def test_images_of_pillow(self) -> None:
        photos = [photo(seed=seed) for seed in range(3)]
        assert np.array_equal(raw_batch([Image.fromarray(one) for one in photos]), np.stack(photos))
        mixed: list[Any] = [photos[0], Image.fromarray(photos[1])]
        assert np.array_equal(raw_batch(mixed), np.stack(photos[:2]))

    @each("mode", ["L", "1", "P", "RGBA", "CMYK"])
    def test_other_modes_become_colours(self, mode: str) -> None:
        image = Image.fromarray(photo()).convert(mode)
        assert np.array_equal(raw_batch([image])[0], np.asarray(image.convert("RGB")))

    def test_texts(self) -> None:
        texts = ["one", "", "three\N{SNOWMAN}" * 100]
        found = raw_batch(texts)
        assert found.dtype == object  # not as wide as the longest of them
        assert found.tolist() == texts

    @each(
        "inputs",
        [
            [],
            [None, 2],
            np.zeros((2, 4, 5, 3), np.uint8),
            np.zeros((2, 28, 28), np.uint8),  # a batch of bytes without channels, not one image
            np.zeros((4, 5, 3)),
            np.array(["one", "two"]),
            torch.zeros(4, 5, 3, dtype=torch.uint8),
            (torch.zeros(2), torch.zeros(2)),
            ("one", 2),
            None,
        ],
    )
    def test_whatever_else_stays_as_it_came(self, inputs: Any) -> None:
        assert raw_batch(inputs) is inputs

    @each("one", ["a text", photo(), photo(channels=1), Image.new("RGB", (4, 5))])
    def test_a_single_one_is_no_batch(self, one: Any) -> None:
        with pytest.raises(InputError, match=r"the batch axis is missing; put it into a list: \[(text|image)\]"):
            raw_batch(one)

    @each("data", [b"a text", bytearray(4)])
    def test_bytes(self, data: Any) -> None:
        with pytest.raises(InputError, match=r"got bytes; decode them: \[data.decode\(\)\]"):
            raw_batch(data)

    @each(
        ("inputs", "kinds"),
        [
            (["text", photo()], "ndarray, str"),
            (["text", 3], "int, str"),
            ([photo(), None], "NoneType, ndarray"),
            ([Image.new("L", (2, 2)), "text", 0.5], "Image, float, str"),
            ([photo(), photo().astype(np.float32)], "ndarray"),
        ],
    )
    def test_of_several_kinds(self, inputs: Any, kinds: str) -> None:
        with pytest.raises(InputError, match=f"a list of images or of texts, got one of {kinds}$"):
            raw_batch(inputs)


class TestContainers:
    @each(
        ("inputs", "expected"),
        [
            ([1, 2], np.array([1, 2])),
            ([[1.0], [2.0]], np.array([[1.0], [2.0]])),
            ([(1, 2), (3, 4)], np.array([[1, 2], [3, 4]])),
            ([[True], [False]], np.array([[True], [False]])),
        ],
    )
    def test_nested_lists_of_numbers(self, inputs: Any, expected: Any) -> None:
        for found in (plain_containers(inputs), raw_batch(inputs), to_sliceable(inputs)):
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected)

    def test_mappings(self) -> None:
        class Encoding(UserDict[str, Any]):
            pass

        tensor = torch.ones(2, 3)
        for make in (Encoding, MappingProxyType, dict):
            found = plain_containers(make({"ids": [[1, 2], [3, 4]], "mask": tensor, "more": make({"list": [1]})}))
            assert type(found) is dict
            assert type(found["more"]) is dict
            assert found["mask"] is tensor
            assert found["ids"].tolist() == [[1, 2], [3, 4]]

    def test_tuples_of_texts(self) -> None:
        assert plain_containers(("one", "two")) == ["one", "two"]
        assert raw_batch(("one", "two")).tolist() == to_sliceable(("one", "two")).tolist() == ["one", "two"]
        pair = (["one"], [2])
        assert plain_containers(pair) is pair

    @each("inputs", [[[1, 2], [3]], {"input_ids": [[1, 2], [3]]}, [[1], 2]])
    def test_several_lengths(self, inputs: Any) -> None:
        with pytest.raises(InputError, match=r'call the tokenizer with return_tensors="pt", padding=True'):
            plain_containers(inputs)


class TestSizes:
    @each(
        ("inputs", "differ"),
        [
            ([photo(4, 5), photo(4, 5)], False),
            ([photo(4, 5), photo(5, 4)], True),
            ([photo(4, 5), photo(4, 5, 1)], True),
            ([Image.new("RGB", (4, 5)), Image.new("L", (4, 5))], False),
            ([Image.new("RGB", (4, 5)), Image.new("RGB", (5, 4))], True),
            ([photo()], False),
            ([], False),
            (["a", "text"], False),
            ([photo(4, 5), "text"], False),
            (np.zeros((2, 4, 5, 3), np.uint8), False),
        ],
    )
    def test_of_images_alone(self, inputs: Any, differ: bool) -> None:
        assert differ_in_size(inputs) == differ


class TestTexts:
    @each(
        "inputs",
        [["one", "two"], np.array(["one", "two"]), np.array(["one", "two"], dtype=object), [np.str_("one"), "two"]],
    )
    def test_however_they_are_held(self, inputs: Any) -> None:
        assert check_texts(inputs) == ["one", "two"]
        assert check_texts(inputs[:0]) == []

    @each(
        ("inputs", "told"),
        [
            ("one", "str"),
            (("one",), "tuple"),
            ([b"one"], "list"),
            (["one", None], "list"),
            (np.array([["one"]]), r"shape \(1, 1\)"),
            (np.array("one"), r"shape \(\)"),
            (np.zeros(3), r"shape \(3,\)"),
            (torch.zeros(2, 3), r"shape \(2, 3\)"),
            ({"text": ["one"]}, "dict"),
            (None, "NoneType"),
        ],
    )
    def test_nothing_else(self, inputs: Any, told: str) -> None:
        with pytest.raises(InputError, match=f"expected a list of texts, got {told}$"):
            check_texts(inputs)
