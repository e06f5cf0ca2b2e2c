"""Hashes of the content of rows: the same rows in other types have the same, other rows have others."""

import hashlib
import subprocess
import sys
from typing import Any

import numpy as np
import torch
from PIL import Image

from offramp.errors import InputError
from offramp.preprocessing._row_hashes import hash_rows
from tests.cases import each, refuses

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), np.uint8)


def closed_form(header: str, content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(header.encode() + content, digest_size=8).digest(), "big") // 2


def test_the_hash_is_blake2b_of_type_shape_and_bytes() -> None:
    rows = np.array([[1, 2], [3, 4]], np.int64)
    assert hash_rows(rows).tolist() == [closed_form(" int64 (2,);", row.tobytes()) for row in rows]
    assert hash_rows(["müde", ""]).tolist() == [closed_form("text 5;", "müde".encode()), closed_form("text 0;", b"")]
    assert hash_rows(rows).dtype == np.int64
    assert (hash_rows(np.arange(1000)) >= 0).all()


def test_ids_are_the_same_in_another_process() -> None:
    code = "from offramp.preprocessing._row_hashes import hash_rows; print(hash_rows(['purrs'])[0])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert hash_rows(["purrs"])[0] == int(printed)


@each(
    "same",
    [
        [np.arange(6.0), torch.arange(6, dtype=torch.float64), np.arange(6).astype(">f8"), np.arange(12.0)[::2] / 2],
        [["a", "b"], np.array(["a", "b"]), np.array(["a", "b"], dtype=object)],
        [IMAGES, list(IMAGES), torch.from_numpy(IMAGES), [Image.fromarray(image) for image in IMAGES]],
        [IMAGES, np.asfortranarray(IMAGES), IMAGES[::-1][::-1]],
        [{"x": np.arange(3), "y": np.ones((3, 2))}, {"y": torch.ones(3, 2, dtype=torch.float64), "x": np.arange(3)}],
        [[{"x": np.arange(2), "y": "a"}], [{"y": "a", "x": torch.arange(2)}]],
        [torch.zeros(3, 2, dtype=torch.bfloat16), torch.zeros(2, 3, dtype=torch.bfloat16).T],
    ],
)
def test_the_same_rows_in_other_hands(same: list[Any]) -> None:
    first, *others = (hash_rows(inputs) for inputs in same)
    assert len(first)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_whatever_differs_makes_another_id() -> None:
    rows: list[Any] = [
        np.zeros((1, 2), np.float32),
        np.zeros((1, 2), np.float64),
        np.zeros((1, 2), np.int32),
        np.zeros((1, 3), np.float32),
        np.zeros((1, 2, 1), np.float32),
        np.zeros((1, 0), np.float32),
        np.full((1, 2), np.nan, np.float32),
        -np.zeros((1, 2), np.float32),
        torch.zeros(1, 4, dtype=torch.bfloat16),
        [""],
        ["a"],
        ["a "],
        ["0"],
        np.array([b"a"]),
        {"a": np.zeros(1)},
        {"b": np.zeros(1)},
        (np.zeros(1), np.zeros(1)),
        {"a": np.array(["bc"]), "d": np.array([""])},
        {"a": np.array(["b"]), "d": np.array(["c"])},
        list(IMAGES[:1]),
        list(IMAGES[:1].transpose(0, 2, 1, 3)),
    ]
    ids = np.concatenate([hash_rows(inputs) for inputs in rows])
    assert len(ids) == len(np.unique(ids)) == len(rows)


@each("inputs", [[], np.zeros((0, 4)), {"a": np.zeros(0)}, np.array([], dtype=object)])
def test_no_rows_have_no_ids(inputs: Any) -> None:
    assert hash_rows(inputs).tolist() == []


def test_arrays_of_different_lengths_are_refused() -> None:
    with refuses(InputError, expected="as many rows in every array"):
        hash_rows({"a": np.zeros(2), "b": np.zeros(3)})
