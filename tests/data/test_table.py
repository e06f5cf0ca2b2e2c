import csv
import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from offramp.data import _records, open_data
from offramp.data._records import open_records
from offramp.errors import InputError, UnknownNameError
from offramp.features._source import take_part
from tests.cases import each


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def test_text_is_taken_before_all_else(path: Path) -> None:
    path.write_text("image,text,label,score\nx.png,one,1,0.5\ny.png,,0,0.5\n")
    data = open_data(path)
    assert data.read(0, 2).inputs == ["one", ""]
    assert data.read(0, 2).labels.tolist() == [1, 0]
    assert data.classes == ()


def test_a_named_column_is_texts(path: Path) -> None:
    path.write_text("text,review,kind\none,1,b\ntwo,2,a\n")
    data = open_data(path, column="review", label="kind")
    assert data.read(0, 2).inputs == ["1", "2"]
    assert data.classes == ("a", "b")
    other = open_data(path, label="kind")
    assert other.name != data.name
    assert (other.read(0, 2).ids != data.read(0, 2).ids).all()  # of the inputs, and no other column


@each("option", ["label", "column"])
def test_an_unknown_column_suggests_the_nearest(path: Path, option: str) -> None:
    path.write_text("text,kind\none,b\n")
    with pytest.raises(UnknownNameError, match="unknown column 'kinds'; did you mean 'kind'"):
        open_data(path, **{option: "kinds"})


@pytest.mark.parametrize("column", ["image", "file"])
def test_images_lie_beside_the_table(tmp_path: Path, path: Path, column: str) -> None:
    (tmp_path / "pictures").mkdir()
    for value in (7, 8):
        Image.new("L", (value, 2), value).save(tmp_path / "pictures" / f"{value}.png")
    path.write_text(f"{column},label\npictures/8.png,b\npictures/7.png,a\n")
    data = open_data(path, column=None if column == "image" else column)
    rows = data.read(0, 2)
    assert [image.shape for image in rows.inputs] == [(2, 8, 3), (2, 7, 3)]
    assert int(rows.inputs[0].max()) == 8
    Image.new("L", (8, 2), 9).save(tmp_path / "pictures" / "8.png")  # the same table, but other samples
    assert (open_data(path, column=column).read(0, 2).ids != rows.ids).tolist() == [True, False]


def test_image_rows_are_called_by_their_paths_and_others_by_their_number(tmp_path: Path, path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for name in "ab":
        Image.new("L", (2, 2)).save(tmp_path / "pictures" / f"{name}.png")
    path.write_text("image,text,label\npictures/b.png,one,1\npictures/a.png,two,0\npictures/b.png,three,0\n")
    assert open_data(path, column="image").keys(1, 3) == ["pictures/a.png", "pictures/b.png"]
    assert open_data(path).keys(1, 3) == ["1", "2"]


def test_the_labels_are_no_inputs(path: Path) -> None:
    path.write_text("text,label\none,0\n")
    with pytest.raises(InputError, match="got 'label', that of the labels"):
        open_data(path, column="label")


def test_a_label_column_that_is_empty_everywhere_is_none(path: Path) -> None:
    path.write_text("text,label\none,\ntwo, \n")
    data = open_data(path, classes=["cat", "dog"])
    assert not data.labelled
    assert data.read(0, 2).labels.tolist() == [-1, -1]
    assert data.classes == ("cat", "dog")


def test_a_missing_image_is_named_at_once(path: Path) -> None:
    path.write_text("image\nnone.png\n")
    with pytest.raises(InputError, match=r"line 2 of .*table\.csv names the image 'none\.png'"):
        open_data(path)


def test_other_columns_are_numbers(path: Path) -> None:
    path.write_text("width,label,height\n1,0,-2.5\n1e3,1, 0.1 \n")
    inputs = open_data(path).read(0, 2).inputs
    assert inputs.dtype == np.float32
    np.testing.assert_array_equal(inputs, np.array([[1, -2.5], [1000, 0.1]], np.float32))


@each("cell", ["", "nan", "inf", "1e39", "x", "1,5"])
def test_the_first_cell_that_is_no_number_is_named(path: Path, cell: str) -> None:
    path.write_text(f'a,b,label\n1,2,0\n3,"{cell}",1\nx,x,0\n')
    with pytest.raises(InputError, match=f"number in column 'b', line 3 of .*got '{cell}'"):
        open_data(path)


def test_a_nameless_column_of_row_numbers_is_refused(path: Path) -> None:
    path.write_text(",a,label\n0,2,0\n")
    with pytest.raises(InputError, match=r"column 1 of .* has no name"):
        open_data(path)
    path.write_text(",text,label\n0,two,0\n")
    assert open_data(path).read(0, 1).inputs == ["two"]


@each(
    ("content", "message"),
    [
        ("label\n0\n", "column of inputs beside 'label'"),
        ("a,a,label\n1,2,0\n", "got 'a' twice"),
        ("text,label\none,0\ntwo,-1\n", "got -1 at line 3 of"),
        ("text,label\none,0\ntwo,\n", "line 3 of .* has no label"),
    ],
)
def test_what_is_wrong_is_named(path: Path, content: str, message: str) -> None:
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        open_data(path)


def test_labels_out_of_range_of_the_classes(path: Path) -> None:
    path.write_text("text,label\none,0\ntwo,2\n")
    with pytest.raises(InputError, match="got 2 at line 3"):
        open_data(path, classes=["a", "b"])
    path.write_text("text,label\none,a\ntwo,c\n")
    with pytest.raises(UnknownNameError, match="unknown class 'c'"):
        open_data(path, classes=["a", "b"])


def test_without_labels(path: Path) -> None:
    path.write_text("text\none\ntwo\n")
    data = open_data(path)
    assert not data.labelled
    assert data.read(0, 2).labels.tolist() == [-1, -1]


def cells(folder: Path, name: str, content: str | bytes) -> list[list[str]]:
    content = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    found = open_records(folder / name)
    return [found.header, *(row for _, row in found.read(0, len(found)))]


@each("packed", ["", ".gz"])
@each(
    ("name", "content", "expected"),
    [
        ("a.csv", 'a, b \n1,"x, ""y""\nz"\n', [["a", "b"], ["1", 'x, "y"\nz']]),
        ("a.csv", "\ufeffa,b\r\n1,2\r\n\r\n\r\n", [["a", "b"], ["1", "2"]]),
        ("a.csv", 'a\nx\n""\n', [["a"], ["x"], [""]]),
        ("a.csv", "a,b\n,\n", [["a", "b"], ["", ""]]),
        ("a.tsv", "label\ttext\n0\t\"it's\n1\ta\tb\n", [["label", "text"], ["0", "\"it's"], ["1", "a\tb"]]),
        ("a.tsv", "a\tb\tc\r\n1\t\t3\r\n", [["a", "b", "c"], ["1", "", "3"]]),
        ("a.tsv", "a\tb\n1\tx\u2028y\x0bz\rw\n", [["a", "b"], ["1", "x\u2028y\x0bz\rw"]]),
        ("a.txt", "\ufeffone\r\n\nthree, „ä“\n\n\n", [["text"], ["one"], [""], ["three, „ä“"]]),
    ],
)
def test_cells_are_what_was_written(
    tmp_path: Path, packed: str, name: str, content: str, expected: list[list[str]]
) -> None:
    assert cells(tmp_path, name + packed, content) == expected


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a\n"x\ny"\nz\n')
    assert [line for line, _ in open_records(tmp_path / "a.csv").read(0, 2)] == [3, 4]


@each(
    ("name", "content", "message"),
    [
        ("a.csv", "a,b\n1,2\n1,2,3\n", "line 3 of .*: expected 2 cells, .*, got 3"),
        ("a.csv", "a,b\n1\n", "line 2 of .*, got 1"),
        ("a.csv", "a,b\n\n1,2\n", "line 2 of .*, got 0"),
        ("a.tsv", "a\tb\n1\n", "line 2 of .*, got 1"),
        ("a.tsv", "a\tb\tc\n1\t2\t3\t4\n", "line 2 of .*, got 4"),
        ("a.csv", 'a,b\n1,"open\n2,3\n', "cannot be read as CSV in UTF-8: line"),
        ("a.csv", "a,b\n1,ä\n".encode("latin-1"), "UTF-8"),
        ("a.txt", "text".encode("utf-16"), "UTF-8"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        cells(tmp_path, name, content)


@each(
    "content",
    [b"no gzip", gzip.compress(b"text\n" * 1000, mtime=0)[:-12], gzip.compress(b"a", mtime=0)[:10] + b"x" * 20],
)
def test_broken_gzip_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.txt.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.txt\.gz cannot be read"):
        open_records(tmp_path / "a.txt.gz")


def test_long_cells_are_read_and_the_limit_is_left_alone(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    assert len(cells(tmp_path, "a.csv", "a\n" + "x" * 200_000)[1][0]) == 200_000
    assert csv.field_size_limit() == limit


LONG = {
    "a.csv": ["a,b", *(f'{row},"x\n{row}, ä"' if row % 3 else f"{row},\u2028" for row in range(500))],
    "a.tsv": ["a\tb", *(f'{row}\t"\t{row}' for row in range(500))],
    "a.txt": ["" if row % 7 == 3 else f"\ufeff{row} ä" for row in range(500)],
}
"""500 rows each, with line breaks, separators, empty lines and byte order marks within."""


@each("packed", ["", ".gz"])
@each("name", list(LONG))
@each("end", ["\n", "\r\n"])
@each("most", [2**14, 8, 2])
def test_any_rows_are_those_of_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: str, name: str, end: str, most: int
) -> None:
    monkeypatch.setattr(_records, "INDEX_EVERY", 4)
    monkeypatch.setattr(_records, "MOST_ENTRIES", most)  # the index gets sparser
    content = ("\ufeff" + end.join(LONG[name])).encode()
    path = tmp_path / (name + packed)
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    records = open_records(path)
    assert len(records) == 500
    assert len(records.places) <= most + 2
    whole = records.read(0, 500)
    assert [line for line, _ in whole] == sorted({line for line, _ in whole})
    for start, stop in ((0, 1), (3, 4), (4, 4), (7, 130), (8, 9), (499, 500), (500, 500), (0, 500)):
        assert records.read(start, stop) == whole[start:stop]
        if start < stop:
            part = pickle.loads(pickle.dumps(records.part(start, stop)))
            assert part.read(start, stop) == whole[start:stop]
            assert part.part(stop - 1, stop).read(stop - 1, stop) == whole[stop - 1 : stop]
            assert len(part) == 500


def test_lines_of_old_macs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'a,b\r1,"x\ry"\r2,z\r')
    records = open_records(tmp_path / "a.csv")
    assert [cells for _, cells in records.read(0, 2)] == [["1", "x\ry"], ["2", "z"]]
    assert records.read(1, 2)[0][1] == ["2", "z"]


def test_a_file_that_has_changed_is_named(path: Path) -> None:
    path.write_text("text\none\ntwo\n")
    data = open_data(path)
    path.write_text("text\none\n")
    with pytest.raises(InputError, match=r"table\.csv has changed since it was opened; open it again"):
        data.read(0, 2)
    path.write_text("text\nonextwo\n")  # as long as before
    with pytest.raises(InputError, match="has changed"):
        data.read(0, 2)


def test_what_travels_to_a_worker_does_not_grow_with_the_table(tmp_path: Path) -> None:
    sizes = []
    for rows in (1_000, 20_000):
        path = tmp_path / f"{rows}.csv"
        path.write_text("text,label\n" + "".join(f"text {row},{'ab'[row % 2]}\n" for row in range(rows)))
        data = open_data(path)
        part = pickle.dumps(take_part(data, 500, 600))
        rows_read = pickle.loads(part).read(510, 590)
        assert rows_read.inputs == [f"text {row}" for row in range(510, 590)]
        assert rows_read.labels.tolist() == [row % 2 for row in range(510, 590)]
        assert rows_read.ids.tolist() == data.read(510, 590).ids.tolist()
        sizes.append(len(part))
    assert max(sizes) < 3_000
    assert sizes[1] - sizes[0] < 100
