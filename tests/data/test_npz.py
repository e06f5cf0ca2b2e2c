import zipfile
from pathlib import Path

import numpy as np
import pytest

from offramp.data import open_data
from offramp.errors import InputError, UnknownNameError
from tests.cases import each


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "arrays.npz"


@each("label", ["y", "labels", "label"])
@each("save", [np.savez, np.savez_compressed])
def test_one_other_array_is_the_inputs(path: Path, label: str, save: object) -> None:
    assert callable(save)
    images = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    save(path, images=images, **{label: np.array([0, 2, 1, 0])})
    rows = open_data(path).read(1, 3)
    np.testing.assert_array_equal(rows.inputs, images[1:3])
    assert rows.inputs.dtype == np.uint8
    assert rows.labels.tolist() == [2, 1]


def test_several_are_a_dictionary(path: Path) -> None:
    np.savez(path, ids=np.arange(6).reshape(3, 2), words=np.array(["a", "bc", "d"]), y=[0, 1, 0])
    inputs = open_data(path).read(1, 3).inputs
    assert inputs["ids"].tolist() == [[2, 3], [4, 5]]
    assert inputs["words"] == ["bc", "d"]
    assert open_data(path, column="words").read(0, 1).inputs == ["a"]


def test_labels_may_be_elsewhere_or_nowhere(path: Path) -> None:
    np.savez(path, x=np.eye(2), kind=np.array(["b", "a"]))
    data = open_data(path, label="kind")
    assert data.read(0, 2).labels.tolist() == [1, 0]
    assert data.classes == ("a", "b")
    np.savez(path, x=np.eye(2))
    assert not open_data(path).labelled


@each(
    ("arrays", "message"),
    [
        ({"x": np.array([{}, None], object), "y": np.zeros(2, int)}, "cannot be read"),
        ({"x": np.zeros(2), "y": np.array(["a", None], object)}, "cannot be read"),
        ({"x": np.zeros(3), "y": np.zeros(2, int)}, r"one row per sample in .*x \(3,\), y \(2,\)"),
        ({"x": np.float64(3)}, "one row per sample"),
        ({"y": np.zeros(2, int)}, "array of inputs"),
        ({"x": np.zeros(2), "y": np.zeros(2, int), "labels": np.zeros(2, int)}, "one array of labels"),
        ({"x": np.zeros(2), "y": np.zeros(2)}, "integers or names, got 0.0 at row 0"),
        ({"x": np.zeros(2), "y": np.eye(2, dtype=int)}, "one label per row"),
        ({"x": np.array(["2020"], "datetime64[Y]"), "y": [0]}, "datetime64"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, int)}, "is empty"),
        ({"x": np.zeros(2), "y": np.array([0, -1])}, "got -1 at row 1"),
        ({"x": np.zeros(2), "y": np.array(["a", ""])}, "row 1 of .* has no label"),
        ({"x": np.array([[0, 1], [0, np.nan]])}, "row 1 of 'x' of .*, got nan"),
        ({"x": np.array([0, np.inf], np.float16)}, "row 1 of 'x' of .*, got inf"),
        ({"x": np.zeros(2), "z": np.array([-1e39, 0])}, r"row 0 of 'z' of .*, got -1e\+39"),
    ],
)
def test_what_is_no_data_is_refused(path: Path, arrays: dict[str, object], message: str) -> None:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        open_data(path)


def test_unknown_arrays_suggest_the_nearest(path: Path) -> None:
    np.savez(path, images=np.eye(2))
    for option in ("label", "column"):
        with pytest.raises(UnknownNameError, match="did you mean 'images'"):
            open_data(path, **{option: "image"})


def test_what_is_not_read_may_be_anything(path: Path) -> None:
    np.savez(path, x=np.eye(2), notes=np.array([np.nan, 1.0]))
    assert open_data(path, column="x").read(0, 1).inputs.tolist() == [[1, 0]]


@each(("label", "option"), [("y", None), ("labels", None), ("kind", "kind")])
def test_the_labels_are_no_inputs(path: Path, label: str, option: str | None) -> None:
    np.savez(path, x=np.eye(2), **{label: np.array([0, 1])})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"array of inputs, got '{label}', that of the labels"):
        open_data(path, column=label, label=option or "label")


def test_labels_that_are_all_empty_are_none(path: Path) -> None:
    np.savez(path, x=np.eye(2), y=np.array(["", ""]))
    assert not open_data(path).labelled


@each("cut", [0, 10, 100, -30])
def test_broken_files_are_named(path: Path, cut: int) -> None:
    np.savez_compressed(path, x=np.arange(1000), y=np.zeros(1000, int))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputError, match=r"arrays\.npz is not a valid"):
        open_data(path)


def test_a_flipped_byte_is_noticed(path: Path) -> None:
    np.savez(path, x=np.arange(1000), y=np.zeros(1000, int))
    content = bytearray(path.read_bytes())
    content[3000] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match="CRC"):
        open_data(path)


@each("content", [b"not an array", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8'}", b"\x93NUMPY\x01\x00v\x00"])
def test_members_that_are_no_arrays_are_refused(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(InputError, match="arrays"):
        open_data(path)


def test_an_array_larger_than_memory_is_refused(path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n")
    with pytest.raises(InputError, match="cannot be read"):
        open_data(path)


def test_bombs_are_refused_before_they_go_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(path, x=np.zeros(1_000_000))
    assert len(open_data(path)) == 1_000_000
    monkeypatch.setenv("OFFRAMP_MAX_BYTES", "1000000")
    with pytest.raises(InputError, match=r"got 8,000,\d+ or more.*set .*OFFRAMP_MAX_BYTES="):
        open_data(path)
