"""Rows of CSV, TSV and plain text files, found through a sparse index of their places in the file."""

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO, final

import numpy as np

from offramp.data._files import allowed_bytes, check_unpacked, file_size
from offramp.errors import InputError
from offramp.features._ids import Ids

__all__ = ["Records", "open_records"]

INDEX_EVERY = 64
"""Rows between two entries of the index of a short file: about what is read while a file is opened."""

MOST_ENTRIES = 2**14
"""Largest number of entries: 256 KiB. A file of a million rows has an entry every 64 rows, and a longer one fewer, so
that the index stays small; up to that many rows are skipped at the start of a read."""

CHARACTER_BYTES, CELL_BYTES, ROW_BYTES = 5, 30, 150
"""Approximate memory of a table while it is read: 4 bytes per character in the csv module, and the cells."""

BLOCK_BYTES = 1 << 20  # unpacked at a time
LONGEST_CELL = 2**31 - 1  # the largest C long everywhere; Python's default, 131072, is too little for long documents
BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}".encode()
LONE_RETURN = re.compile(rb"(?<=\r)(?!\n)")


@final
@dataclass(frozen=True, eq=False)
class Records:
    """The rows of a text file, read from it on demand. Pickled, it is the file's name and the index."""

    path: Path
    """The file."""
    header: list[str]
    """Names of the columns."""
    num_rows: int
    """Number of rows, without the header."""
    first: int
    """First row that can be read: 0, or that of a part."""
    every: int
    """Rows between two entries of the index."""
    places: Ids
    """First byte of row `first`, `first + every`, ...; the last entry is the end of the rows."""
    lines: Ids
    """Lines of the file before each of these rows."""
    size: int
    """Bytes of the file when it was opened."""
    unpacked: bytes | None = None
    """The content from the first to the last entry, if the file is packed."""
    cursor: list[tuple[int, int, int]] = field(default_factory=list)
    """The row after the last one read, its first byte and the lines before it: the next read often begins there."""

    def __len__(self) -> int:
        return self.num_rows

    def read(self, start: int, stop: int) -> list[tuple[int, list[str]]]:
        """Return rows `start` to `stop - 1`: the line of the file in which each ends, from 1, and its cells."""
        entry = (start - self.first) // self.every
        row, place, before = self.first + entry * self.every, int(self.places[entry]), int(self.lines[entry])
        if self.cursor and row < self.cursor[0][0] <= start:
            row, place, before = self.cursor[0]
        kind = _kind(self.path)
        origin = 0 if self.unpacked is None else int(self.places[0])
        rows = []
        with _explain(self.path, kind), self._open(place - origin) as stream:
            records = _READERS[kind](stream, before, len(self.header) == 2)
            for line, end, cells in islice(records, start - row, stop - row):
                rows.append((line, cells or [""]))
                following = origin + end, line
        if len(rows) < stop - start or any(len(cells) != len(self.header) for _, cells in rows):
            raise self._changed()
        if rows:
            self.cursor[:] = [(stop, *following)]
        return rows

    def place(self, row: int) -> str:
        """Describe a row in messages."""
        return f"line {self.read(row, row + 1)[0][0]} of {self.path}"

    def part(self, start: int, stop: int) -> "Records":
        """Return the same rows with as much of the index as reading rows `start` to `stop - 1` needs."""
        first, last = (start - self.first) // self.every, -(-(stop - self.first) // self.every)
        places = self.places[first : last + 1].copy()
        unpacked = self.unpacked
        if unpacked is not None:
            begin = int(self.places[0])
            unpacked = unpacked[int(places[0]) - begin : int(places[-1]) - begin]
        return replace(
            self,
            first=self.first + first * self.every,
            places=places,
            lines=self.lines[first : last + 1].copy(),
            unpacked=unpacked,
            cursor=[],
        )

    @contextmanager
    def _open(self, place: int) -> Iterator[BinaryIO]:
        if self.unpacked is not None:
            stream: BinaryIO = BytesIO(self.unpacked)
            stream.seek(place)
            yield stream
            return
        if file_size(self.path) not in (self.size, None):
            raise self._changed()
        with open(self.path, "rb") as file:
            file.seek(place)
            yield file

    def _changed(self) -> InputError:
        return InputError(f"{self.path} has changed since it was opened", hint="open it again")


def open_records(path: Path) -> Records:
    r"""Index a text file, gzipped if its name ends with `.gz`; refuse rows with other cells than the header has.

    `.csv` has a header and the usual quotes. `.tsv` has a header and no quotes; of two columns, the second may contain
    tabs. `.txt` has one text per line, a column called `text`. Empty lines at the end are ignored. A packed file is
    unpacked in memory, any other is read again when rows are.

    Args:
        path: The file, in UTF-8.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "pets.tsv").write_text('label\ttext\n0\ta "quote\n')
        ...     records = open_records(Path(folder, "pets.tsv"))
        ...     print(records.header, records.read(0, 1))
        ['label', 'text'] [(2, ['0', 'a "quote'])]
    """
    kind = _kind(path)
    every, num_rows = INDEX_EVERY, 0
    places: list[int] = []
    lines: list[int] = []
    with _explain(path, kind):
        size = path.stat().st_size
        unpacked = _unpack(path, path.read_bytes()) if path.name.lower().endswith(".gz") else None
        with open(path, "rb") if unpacked is None else BytesIO(unpacked) as stream:
            header, line, end = ["text"], 0, 0
            if kind != "txt":
                line, end, header = next(_drop_empty_end(_READERS[kind](stream, 0, False)), (0, 0, []))
                header = [name.strip() for name in header]
            stream.seek(end)
            for last_line, stop, cells in _drop_empty_end(_READERS[kind](stream, line, len(header) == 2)):
                if kind != "txt" and len(cells) != len(header):
                    raise InputError(
                        f"line {last_line} of {path}",
                        expected=f"{len(header)} cells, as in the header",
                        got=str(len(cells)),
                        hint="put cells that contain the separator in quotes, which only CSV has",
                    )
                if num_rows % every == 0:
                    places.append(end)
                    lines.append(line)
                if len(places) > MOST_ENTRIES:
                    places, lines, every = places[::2], lines[::2], 2 * every
                num_rows += 1
                line, end = last_line, stop
    if not end:
        raise InputError(f"{path} is empty", hint="give at least one row")
    begin = places[0] if places else end
    index = np.array([*places, end]), np.array([*lines, line])
    return Records(path, header, num_rows, 0, every, *index, size, None if unpacked is None else unpacked[begin:end])


def _kind(path: Path) -> str:
    return path.name.lower().removesuffix(".gz").rpartition(".")[2]


@contextmanager
def _explain(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error, UnicodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as {kind.upper()} in UTF-8: {error}", hint="write it again") from error


def _unpack(path: Path, packed: bytes) -> bytes:
    """Unpack a table, after checking that it fits into the memory allowed."""
    enough, needed = 16 * allowed_bytes(len(packed)), 0  # far beyond the limit, so that the message has the full size
    with gzip.GzipFile(fileobj=BytesIO(packed)) as file:
        while needed <= enough and (block := file.read(BLOCK_BYTES)):
            rows = block.count(b"\n")
            cells = rows + block.count(b",") + block.count(b"\t")
            needed += CHARACTER_BYTES * len(block) + CELL_BYTES * cells + ROW_BYTES * rows
    check_unpacked(needed, packed=len(packed), place=str(path))
    return gzip.decompress(packed)


Record = tuple[int, int, list[str]]
"""The line in which a record ends, from 1, the first byte after it, and its cells; an empty line has none."""


def _drop_empty_end(records: Iterator[Record]) -> Iterator[Record]:
    """Yield records up to the last that is not an empty line."""
    waiting: list[Record] = []
    for record in records:
        waiting.append(record)
        if record[2]:
            yield from waiting
            waiting.clear()


@final
class _Lines:
    """Lines of a binary stream as texts, counting bytes; `returns` end lines too, `first` is the first of the file."""

    def __init__(self, stream: BinaryIO, *, returns: bool, first: bool) -> None:
        self.position = stream.tell()
        self._mark = BYTE_ORDER_MARK if first else b""
        self._pieces = _split_returns(stream) if returns else iter(stream)

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        content = next(self._pieces)
        self.position += len(content)
        text, self._mark = content.removeprefix(self._mark), b""
        return text.decode()


def _split_returns(stream: BinaryIO) -> Iterator[bytes]:
    for content in stream:
        if content.count(b"\r") > content.endswith(b"\r\n"):
            yield from filter(None, LONE_RETURN.split(content))
        else:
            yield content


def _csv(stream: BinaryIO, line: int, _two: bool) -> Iterator[Record]:
    lines = _Lines(stream, returns=True, first=not line)
    # Strict: an open quote would otherwise swallow the rest of the file.
    reader = csv.reader(lines, strict=True)
    while True:
        limit = csv.field_size_limit(LONGEST_CELL)
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise csv.Error(f"line {line + reader.line_num}: {error}") from error
        finally:
            csv.field_size_limit(limit)
        yield line + reader.line_num, lines.position, cells


def _tsv(stream: BinaryIO, line: int, two: bool) -> Iterator[Record]:
    for number, end, texts in _txt(stream, line, two):
        yield number, end, texts[0].split("\t", 1 if two else -1) if texts else []


def _txt(stream: BinaryIO, line: int, _two: bool) -> Iterator[Record]:
    lines = _Lines(stream, returns=False, first=not line)
    for number, content in enumerate(lines, line + 1):
        text = content.removesuffix("\n").removesuffix("\r")
        yield number, lines.position, [text] if text else []


_READERS = {"csv": _csv, "tsv": _tsv, "txt": _txt}
"""Functions that read records from a stream, given the number of lines before it, and whether there are two columns."""
