from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from PIL import Image

from offramp.data.arrow import ArrowInputs, label_values
from offramp.errors import InputError


def png(value: int) -> bytes:
    file = BytesIO()
    Image.new("L", (3, 2), value).save(file, "png")
    return file.getvalue()


def inputs(columns: dict[str, Any], *, folder: Path = Path(), chosen: bool = False) -> Any:
    table = pyarrow.table(columns)
    return ArrowInputs(table.slice(0, 1), folder=folder, chosen=chosen)(table, 10)


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_texts_are_a_list(kind: str) -> None:
    array = pyarrow.array(["a", "ä", "a"])
    array = array.dictionary_encode() if kind == "dictionary" else array.cast(kind)
    assert inputs({"text": array}) == ["a", "ä", "a"]
    assert label_values(pyarrow.chunked_array([array]), place="it") == ["a", "ä", "a"]


@pytest.mark.parametrize(
    "cells",
    [
        [png(1), png(2)],
        [{"bytes": png(1), "path": None}, {"bytes": png(2), "path": "b.png"}],
        [{"bytes": png(1), "path": None}, {"bytes": None, "path": "b.png"}],
        ["a.png", "b.png"],
    ],
    ids=["bytes", "structs", "structs with paths", "paths"],
)
def test_images_are_decoded(cells: list[Any], tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(1))
    (tmp_path / "b.png").write_bytes(png(2))
    for name, chosen in (("image", False), ("picture", True)):
        found = inputs({name: cells}, folder=tmp_path, chosen=chosen)
        assert [(image.shape, int(image[0, 0, 0])) for image in found] == [((2, 3, 3), 1), ((2, 3, 3), 2)]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([png(1), b"broken"], "row 11 of column 'image' cannot be decoded"),
        ([png(1), None], "no empty cells in column 'image'"),
        ([{"bytes": png(1), "path": None}, {"bytes": None, "path": None}], "row 11 .*neither bytes nor a path"),
        (["https://example.org/a.png"], "row 10 .*No such file"),
    ],
)
def test_broken_images_are_named(cells: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        inputs({"image": cells})


def test_numbers_are_one_matrix() -> None:
    matrix = inputs({"a": pyarrow.array([1, 2], "int8"), "b": [0.5, 1.5], "c": [True, False]})
    assert matrix.dtype == np.float32
    assert matrix.tolist() == [[1, 0.5, 1], [2, 1.5, 0]]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (pyarrow.list_(pyarrow.int64()), np.int64),
        (pyarrow.list_(pyarrow.float64()), np.float32),
        (pyarrow.list_(pyarrow.float16(), 3), np.float32),
        (pyarrow.large_list(pyarrow.uint8()), np.uint8),
    ],
)
def test_lists_are_arrays(kind: Any, dtype: type) -> None:
    cells = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    if pyarrow.types.is_float16(kind.value_type):
        cells = [np.array(row, np.float16) for row in cells]  # type: ignore[misc]
    array = pyarrow.array(cells, kind)
    found = inputs({"values": array.slice(1)})
    assert found.dtype == dtype
    assert found.tolist() == [[4, 5, 6], [7, 8, 9]]


def test_nested_and_several_lists() -> None:
    images = np.arange(12).reshape(2, 3, 2)
    found = inputs({"pixels": images.tolist(), "mask": [[1], [0]]})
    np.testing.assert_array_equal(found["pixels"], images)
    assert found["mask"].tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [[1, 2], [3]]}, r"one length in column 'a' from row 10 on, got \[1, 2\]"),
        ({"a": [[1, None]]}, "empty cells in the lists"),
        ({"a": [1, None]}, "no empty cells in column 'a' from row 10 on, got one 1 rows further"),
        ({"a": [1.0, float("nan")]}, "number in row 11 of column 'a', got nan"),
        ({"b": [1, 2], "a": [-1e39, 2.0]}, r"number in row 10 of column 'a', got -1e\+39"),
        ({"a": [[1.0, 2.0], [3.0, float("nan")]]}, "number in row 11 of column 'a', got nan"),
        ({"a": [[1.0, float("-inf")]]}, "number in row 10 of column 'a', got -inf"),
        ({"a": [[[1.0], [1e39]]], "b": [[1]]}, r"number in row 10 of column 'a', got 1e\+39"),
        ({"a": [["x"]]}, "expected numbers in column 'a'"),
        ({"a": [1], "b": ["x"]}, r"got a \(int64\), b \(string\); name the column"),
        ({"a": [1], "b": [[1]]}, "name the column"),
    ],
)
def test_what_is_no_input_is_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        inputs(columns)


def test_labels_are_integers_or_texts() -> None:
    assert label_values(pyarrow.chunked_array([[1], [0]]), place="it").tolist() == [1, 0]
    assert label_values(pyarrow.chunked_array([[True, False]]), place="it").tolist() == [True, False]
    with pytest.raises(InputError, match="integers or texts in it, got double"):
        label_values(pyarrow.chunked_array([[0.5]]), place="it")
    assert label_values(pyarrow.chunked_array([[1, None], [0]]), place="it") == [1, None, 0]
    assert label_values(pyarrow.chunked_array([[None, None]]), place="it") == [None, None]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["a.png", None], "row 11 of column 'image' has neither"),
        (["a.png", ""], "row 11 of column 'image' has neither"),
        (["a.png", "none.png"], "row 11 of column 'image' names the image 'none.png'"),
        (["a.png", "base64" * 1000], r"row 11 of column 'image' names the image '[base64]{100}\.\.\.'"),
        ([{"bytes": png(1), "path": "none.png"}, {"bytes": None, "path": None}], "row 11 .*neither bytes nor a path"),
        ([{"bytes": png(1)}, {"bytes": None}], "row 11 .*neither bytes nor a path"),
        ([{"bytes": png(1), "path": None}, {"bytes": None, "path": "none.png"}], "row 11 .* names the image"),
    ],
)
def test_files_that_are_not_there_are_named(cells: list[Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(1))
    table = pyarrow.concat_tables([pyarrow.table({"image": [cell]}) for cell in cells], promote_options="default")
    make = ArrowInputs(table.slice(0, 1), folder=tmp_path, chosen=False)
    assert make.may_name_files
    with pytest.raises(InputError, match=message):
        make.files([(10, table)])


def test_files_are_the_images_without_bytes(tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(png(2))
    table = pyarrow.table({"image": [{"bytes": png(1), "path": "a.png"}, {"bytes": None, "path": "b.png"}]})
    make = ArrowInputs(table.slice(0, 1), folder=tmp_path, chosen=False)
    names, sizes = make.files([(0, table), (2, table.slice(1))])
    assert (list(names), sizes) == (["b.png"] * 2, [len(png(2))] * 2)
    assert not ArrowInputs(pyarrow.table({"image": [png(1)]}), folder=tmp_path, chosen=False).may_name_files
    assert not ArrowInputs(pyarrow.table({"text": ["a.png"]}), folder=tmp_path, chosen=True).may_name_files
