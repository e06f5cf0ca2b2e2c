import csv
import gzip
from pathlib import Path

import pytest

from offramp.data.delimited import read_cells
from offramp.errors import InputError


def cells(folder: Path, name: str, content: str | bytes) -> list[list[str]]:
    content = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    found = read_cells(folder / name)
    assert len(found.lines) == len(found.rows)
    return [found.header, *found.rows]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(
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
    assert read_cells(tmp_path / "a.csv").lines == [3, 4]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "a,b\n1,2\n1,2,3\n", "expected 2 cells in line 3 of .*, got 3"),
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


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"text\n" * 1000, mtime=0)[:-12], gzip.compress(b"a", mtime=0)[:10] + b"x" * 20],
)
def test_broken_gzip_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.txt.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.txt\.gz cannot be read"):
        read_cells(tmp_path / "a.txt.gz")


def test_long_cells_are_read_and_the_limit_is_left_alone(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    assert len(cells(tmp_path, "a.csv", "a\n" + "x" * 200_000)[1][0]) == 200_000
    assert csv.field_size_limit() == limit
