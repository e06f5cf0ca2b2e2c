"""Lines of text as rows of cells: CSV, TSV and plain text."""

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from typing import BinaryIO, TextIO, cast

from offramp.data.location import Location, opened
from offramp.data.unpacking import allowed_bytes, check_unpacked
from offramp.errors import InputError

__all__ = ["Cells", "read_cells"]

CHARACTER_BYTES, CELL_BYTES, ROW_BYTES = 5, 30, 150
"""Memory that a table takes while it is read, about: the csv module holds 4 bytes a character, then come the cells."""

BLOCK_BYTES = 1 << 20
"""Unpacked at a time to see how much there is."""

LONGEST_CELL = 2**31 - 1  # the most that fits a C long everywhere; Python stops at 131072, too few for a long document


@dataclass(frozen=True)
class Cells:
    """A table of texts.

    Example:
        >>> Cells(["label", "text"], [["0", "purrs"], ["1", "barks"]], [2, 3]).column("text")
        ['purrs', 'barks']
    """

    header: list[str]
    """Names of the columns."""
    rows: list[list[str]]
    """One cell a column each."""
    lines: list[int]
    """Where each row ends in the file, from 1."""

    def column(self, name: str) -> list[str]:
        """The cells of one column."""
        place = self.header.index(name)
        return [row[place] for row in self.rows]


def read_cells(path: Location) -> Cells:
    r"""Read a text file, gzipped where its name ends with `.gz`.

    `.csv` has a header and the usual quotes. `.tsv` has a header and no quotes; where that names two columns, the
    second may contain tabs. `.txt` is one text a line, a column called `text`. Empty lines at the end do not count.

    Args:
        path: The file, in UTF-8.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "pets.tsv").write_text('label\ttext\n0\ta "quote\n')
        ...     cells = read_cells(Path(folder, "pets.tsv"))
        >>> cells.header, cells.rows, cells.lines
        (['label', 'text'], [['0', 'a "quote']], [2])
    """
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    try:
        with _opened(path, newline="" if kind == "csv" else "\n") as file:
            records = list(RECORDS[kind](file))
    except (OSError, EOFError, zlib.error, UnicodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as {kind.upper()} in UTF-8: {error}; write it anew") from error
    while records and not records[-1][1]:
        records.pop()
    if not records:
        raise InputError(f"{path} is empty; give at least one row")
    if kind == "txt":
        return Cells(["text"], [cells or [""] for _, cells in records], [line for line, _ in records])
    header = [name.strip() for name in records[0][1]]
    for line, cells in records[1:]:
        if len(cells) != len(header):
            raise InputError(
                f"expected {len(header)} cells in line {line} of {path}, as the header has, got {len(cells)}; "
                "a cell that contains the separator needs quotes, which only CSV has"
            )
    return Cells(header, [cells for _, cells in records[1:]], [line for line, _ in records[1:]])


@contextmanager
def _opened(path: Location, newline: str) -> Iterator[TextIO]:
    packed = path.name.lower().endswith(".gz")
    limit = csv.field_size_limit(LONGEST_CELL)
    try:
        with opened(path) as stream:
            content = _unpacked(path, stream.read()) if packed else stream
            with TextIOWrapper(content, encoding="utf-8-sig", newline=newline) as file:
                yield file
    finally:
        csv.field_size_limit(limit)


def _unpacked(path: Location, packed: bytes) -> BinaryIO:
    """Return what reads a gzipped table, once it is known to fit into the memory allowed."""
    enough, needed = 16 * allowed_bytes(len(packed)), 0  # so that most of the time the message tells all of it
    with gzip.GzipFile(fileobj=BytesIO(packed)) as file:
        while needed <= enough and (block := file.read(BLOCK_BYTES)):
            rows = block.count(b"\n")
            cells = rows + block.count(b",") + block.count(b"\t")
            needed += CHARACTER_BYTES * len(block) + CELL_BYTES * cells + ROW_BYTES * rows
    check_unpacked(needed, packed=len(packed), place=str(path))
    return cast(BinaryIO, gzip.GzipFile(fileobj=BytesIO(packed)))


def _csv(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(file, strict=True)  # strict: a quote left open would swallow the rest of the file
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise csv.Error(f"line {reader.line_num}: {error}") from error


def _tsv(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    most = -1
    for number, texts in _txt(file):
        cells = texts[0].split("\t", most) if texts else []
        if number == 1 and len(cells) == 2:
            most = 1
        yield number, cells


def _txt(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(file, 1):
        text = line.removesuffix("\n").removesuffix("\r")
        yield number, [text] if text else []


RECORDS = {"csv": _csv, "tsv": _tsv, "txt": _txt}
"""How each kind of file gives its line numbers and cells; an empty line has no cells."""
