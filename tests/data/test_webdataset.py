import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp.data import open_data, tar_inputs
from offramp.errors import InputError, UnknownNameError
from tests.data.examples import add_member, png


def write(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            add_member(archive, name, content)
    return path


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), **options)
    return file.getvalue()


def test_images_with_numbers_as_classes(tmp_path: Path) -> None:
    path = write(
        tmp_path / "pets.tar",
        {
            "a.JPG": b"?",
            "a.cls": b"2\n",
            "b.cls": b"0",
            "b.png": png(2, 7),
            "b.txt": b"a caption",
            "notes": b"",
            ".b": b"",
        },
    )
    data = open_data(path)
    rows = data.read(1, 2)
    assert (len(data), data.classes, data.keys(0, 2)) == (2, (), ["a", "b"])
    assert rows.labels.tolist() == [0]
    assert [image.shape for image in rows.inputs] == [(2, 3, 3)]
    with pytest.raises(InputError, match=r"'a' in .*pets\.tar cannot be decoded as an image"):
        data.read(0, 1)


def test_arrays_of_one_shape(tmp_path: Path) -> None:
    arrays = np.arange(12.0).reshape(3, 2, 2)
    members = {f"{row}.npy": npy(array) for row, array in enumerate(arrays)}
    data = open_data(write(tmp_path / "a.tar", members))
    found = data.read(1, 3).inputs
    np.testing.assert_array_equal(found, arrays[1:])
    assert found.dtype == np.float32
    assert data.read(2, 2).inputs.shape == (0, 2, 2)
    assert not data.labelled


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            npy(np.zeros(3)),
            r"expected float32 of shape \(2,\) in '1' in .*a\.tar, as in row 0, got float32 of shape \(3,\)",
        ),
        (npy([1, 2]), "got int64 of shape"),
        (npy([0.0, np.nan]), r"finite .* in '1' in .*a\.tar, got nan"),
        (npy(["a", "b"]), "expected numbers in '1'"),
        (npy(np.array([{}]), allow_pickle=True), "'1' in .* cannot be read as .npy"),
        (npy([0.0, 1.0])[:-1], "'1' in .* cannot be read as .npy"),
        (b"", "'1' in .* cannot be read as .npy"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    data = open_data(write(tmp_path / "a.tar", {"0.npy": npy([0.0, 1.0]), "1.npy": content}))
    assert data.read(0, 1).inputs.tolist() == [[0.0, 1.0]]
    with pytest.raises(InputError, match=message):
        data.read(0, 2)


def test_labels_from_fields_and_by_other_names(tmp_path: Path) -> None:
    members = {}
    for row, (name, number) in enumerate((("dog", 1), ("cat", 0), ("dog", 1))):
        members[f"{row}.txt"] = b"text"
        members[f"{row}.json"] = json.dumps({"species": name, "label": number}).encode()
        members[f"{row}.age"] = str(row).encode()
    path = write(tmp_path / "a.tar", members)
    numbers, names, ages = open_data(path), open_data(path, label="species"), open_data(path, label="age")
    assert (numbers.read(0, 3).labels.tolist(), numbers.classes) == ([1, 0, 1], ())
    assert (names.read(0, 3).labels.tolist(), names.classes) == ([1, 0, 1], ("cat", "dog"))
    assert ages.read(0, 3).labels.tolist() == [0, 1, 2]
    ordered = open_data(path, label="species", classes=["dog", "cat"])
    assert ordered.read(0, 3).labels.tolist() == [0, 1, 0]
    with pytest.raises(InputError, match=r"expected labels in \.breed, or in that field of \.json, found none"):
        open_data(path, label="breed")
    with pytest.raises(UnknownNameError, match="cat"):
        open_data(path, label="species", classes=["dog", "cow"])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.txt": b"", "a.cls": b"1", "b.txt": b""}, r"'b' in .*a\.tar has no label; leave the label out everywhere"),
        ({"a.txt": b"", "a.cls": b"1.5"}, r"expected labels as whole numbers or names, got '1\.5' at 'a' in"),
        ({"a.txt": b"", "a.cls": b"\xff"}, r"a\.cls in .*a\.tar is no text in UTF-8"),
        ({"a.txt": b"", "a.json": b"{"}, r"a\.json in .*a\.tar cannot be read as JSON"),
        ({"a.txt": b"", "a.json": b'{"label": 1.5}'}, r"'label' of a\.json in .* as an integer or a name, got 1\.5"),
        ({"a.txt": b"", "a.json": b'{"label": true}'}, "as an integer or a name, got True"),
        ({"a.txt": b"", "b.cls": b"1"}, r"'b' in .*a\.tar has no \.txt; add it, or leave the sample out"),
        ({"a.png": b"", "b.txt": b"1"}, r"'b' in .*a\.tar has no image"),
        (
            {"a.png": b"", "a.mask.png": b""},
            r"one image a sample, got one more of 'a' in .*: a\.mask\.png; .*'mask\.png'",
        ),
        ({"a.mp4": b"", "a.cls": b"1"}, r"expected samples with an image, \.npy or \.txt in .*, got \.cls, \.mp4"),
        ({"notes": b""}, "is empty"),
        ({}, "is empty"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, members: dict[str, bytes], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_data(write(tmp_path / "a.tar", members))


def test_labels_that_are_no_object_or_empty_are_none(tmp_path: Path) -> None:
    members = {"a.txt": b"", "a.json": b"[]", "b.txt": b"", "b.json": b'{"label": null}', "c.txt": b"", "c.cls": b" "}
    assert not open_data(write(tmp_path / "a.tar", members)).labelled


def test_the_ending_of_the_inputs_may_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", {"a.left.png": png(2, 1), "a.right.png": png(3, 2), "a.txt": b"text"})
    right, text = open_data(path, column="right.png"), open_data(path, column="txt")
    assert right.read(0, 1).inputs[0].shape == (3, 3, 3)
    assert text.read(0, 1).inputs == ["text"]
    assert right.name != text.name
    with pytest.raises(UnknownNameError, match=r"left\.png"):
        open_data(path, column="lift.png")


def test_members_of_a_sample_need_not_be_together(tmp_path: Path) -> None:
    members = {"b.txt": b"B", "a.txt": b"A", "x/a.txt": b"XA", "a.cls": b"1", "x/a.cls": b"2", "b.cls": b"0"}
    data = open_data(write(tmp_path / "a.tar", members))
    assert data.read(0, 3).inputs == ["B", "A", "XA"]
    assert data.read(0, 3).labels.tolist() == [0, 1, 2]
    assert data.keys(0, 3) == ["b", "a", "x/a"]


@pytest.mark.parametrize(("gap", "fetched"), [(0, 1), (0, 1 << 20), (1 << 20, 1), (1 << 20, 1 << 20), (600, 3000)])
def test_rows_are_the_same_however_many_are_fetched_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: int, fetched: int
) -> None:
    texts = [f"text {row}" * (row % 5) for row in range(40)]
    names = []
    for shard in range(4):
        rows = range(10 * shard, 10 * shard + 10) if shard != 2 else range(0)  # an empty one between others
        members = {f"{row}.{ending}": texts[row].encode() for row in rows for ending in ("txt", "note")}
        names.append(write(tmp_path / f"part-{shard}.tar", members).name)
    kept = texts[:20] + texts[30:]
    monkeypatch.setattr(tar_inputs, "GAP_BYTES", gap)
    monkeypatch.setattr(tar_inputs, "FETCHED_BYTES", fetched)
    data = open_data(tmp_path)
    assert data.read(0, 30).inputs == kept
    for start, stop in ((5, 25), (10, 20), (19, 21), (20, 30), (29, 30), (7, 7)):
        assert data.read(start, stop).inputs == kept[start:stop]


def test_neighbours_are_fetched_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_data(write(tmp_path / "a.tar", {f"{row}.txt": b"text" for row in range(100)}))
    asked = []

    def read_range(file: Path, start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return file.read_bytes()[start:stop]

    monkeypatch.setattr(tar_inputs, "read_range", read_range)
    assert data.read(10, 90).inputs == ["text"] * 80
    assert len(asked) == 1


def test_a_pattern_names_shards(tmp_path: Path) -> None:
    for shard in range(12):
        write(tmp_path / f"pets-{shard:03}.tar", {f"{shard}.txt": str(shard).encode()})
    data = open_data(str(tmp_path / "pets-{008..010}.tar"))
    assert data.read(0, 3).inputs == ["8", "9", "10"]
    with pytest.raises(InputError, match=r"pets-012\.tar cannot be read: No such file"):
        open_data(str(tmp_path / "pets-{010..012}.tar"))
    with pytest.raises(InputError, match="found nothing at"):
        open_data(str(tmp_path / "pets-{010..012}.csv"))
    with pytest.raises(InputError, match="expected no split"):
        open_data(str(tmp_path / "pets-{008..010}.tar"), split="train")


def test_a_file_may_be_called_like_a_pattern(tmp_path: Path) -> None:
    path = write(tmp_path / "pets-{0..1}.tar", {"a.txt": b"one"})
    assert open_data(path).read(0, 1).inputs == ["one"]


def test_splits_of_a_folder(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write(tmp_path / f"pets-{name}-0.tar", {"a.txt": name.encode()})
    assert open_data(tmp_path, split="test").read(0, 1).inputs == ["test"]
    with pytest.raises(InputError, match="holds the splits test, train"):
        open_data(tmp_path)


def test_a_shard_that_was_cut_since_it_was_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", {f"{row}.txt": b"x" * 1000 for row in range(4)})
    data, whole = open_data(path), path.read_bytes()
    path.write_bytes(whole[:2000])
    assert data.read(0, 1).inputs == ["x" * 1000]
    with pytest.raises(InputError, match=r"of .*a\.tar, got .*it was cut short since it was opened; put it back"):
        data.read(0, 4)
    path.write_bytes(whole)
    assert data.read(0, 4).inputs == ["x" * 1000] * 4
