"""Where data lies: on this machine or at an address, read in the same way."""

import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, Self, cast

from offramp.addresses import is_address, was_address
from offramp.data.remote import RemotePath
from offramp.errors import InputError

__all__ = ["Location", "contents", "file_sizes", "folder_name", "locate", "names_in", "opened", "read_range"]


class _Sized(Protocol):
    @property
    def st_size(self) -> int: ...


class Location(Protocol):
    """A file or folder: a `pathlib.Path`, or a `RemotePath` with the same methods.

    Example:
        >>> place: Location = locate("memory://pets") / "words.txt"
        >>> place.name
        'words.txt'
    """

    @property
    def name(self) -> str:
        """The last part of the path."""

    @property
    def stem(self) -> str:
        """The name without its last suffix."""

    @property
    def parent(self) -> Self:
        """The folder it lies in."""

    def __truediv__(self, name: str, /) -> Self: ...

    def is_file(self) -> bool:
        """Whether it is a file."""

    def is_dir(self) -> bool:
        """Whether it is a folder."""

    def stat(self) -> _Sized:
        """How large the file is."""


def locate(path: str | Location) -> Location:
    """The place that a path or an address names, from wherever it is looked at later.

    Args:
        path: A path, or an address with its scheme, such as `s3://bucket/pets.parquet`; an address as text.

    Example:
        >>> locate("s3://bucket/pets.parquet/").name, str(locate("~")) == str(Path.home())
        ('pets.parquet', True)
        >>> locate(Path("s3://bucket"))
        Traceback (most recent call last):
        offramp.errors.InputError: expected an address as text, got Path('s3:/bucket'), which lost a slash; give text
    """
    if isinstance(path, str) and is_address(path):
        return RemotePath(path)
    if isinstance(path, str | Path):
        # Whole, as another process may work in another folder.
        place = Path(path).expanduser().absolute()
        if isinstance(path, Path) and was_address(path) and not place.exists():
            raise InputError(f"expected an address as text, got Path('{path}'), which lost a slash; give text")
        return place
    return path


def names_in(folder: Location) -> list[str]:
    """Names of what lies straight inside a folder, in no order.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "words.txt").write_bytes(b"one")
        ...     names_in(Path(folder))
        ['words.txt']
    """
    return os.listdir(folder) if isinstance(folder, Path) else _remote(folder).names()


def folder_name(folder: Location) -> str:
    """What a folder is called, whatever links lead there.

    Example:
        >>> folder_name(Path("/data/pets/cats/..")), folder_name(locate("s3://bucket/pets"))
        ('pets', 'pets')
    """
    return folder.resolve().name if isinstance(folder, Path) else folder.name


def file_sizes(folder: Location, names: Sequence[str]) -> list[int | None]:
    """Bytes of each file, None where there is none of that name.

    Args:
        folder: Where the names count from.
        names: Paths from there; at an address with `/`. There, all that lies in the innermost folder that has all of
            them is listed: a question for each file would take longer.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "words.txt").write_bytes(b"one")
        ...     file_sizes(Path(folder), ["words.txt", "none.txt"])
        [3, None]
    """
    if isinstance(folder, Path):
        return [_local_size(folder / name) for name in names]
    if not names:
        return []
    names = [posixpath.normpath(name) for name in names]  # as `RemotePath` takes them
    shared = posixpath.commonpath([posixpath.dirname(f"./{name}") for name in names])
    listed = _remote(folder / shared if shared else folder).sizes()
    start = len(shared) + 1 if shared else 0
    return [listed.get(name[start:]) for name in names]


def contents(folder: Location, names: Sequence[str]) -> Sequence[Path | bytes]:
    """Files as `decode_image` takes them: by path on this machine, else by their bytes, fetched together.

    Example:
        >>> [str(file) for file in contents(Path("pets"), ["tom.png"])]
        ['pets/tom.png']
    """
    if isinstance(folder, Path):
        return [folder / name for name in names]
    return _remote(folder).read_files(names)


@contextmanager
def opened(file: Location, *, ahead: bool = True) -> Iterator[BinaryIO]:
    """A file to read and seek in, closed at the end.

    Args:
        file: Where.
        ahead: Of an address: whether to fetch more than was asked for, as it is going to be read on and on.

    Raises:
        InputError: It cannot be opened.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "words.txt").write_bytes(b"one")
        ...     with opened(Path(folder, "words.txt")) as file:
        ...         file.read()
        b'one'
    """
    try:
        stream = cast(BinaryIO, open(file, "rb")) if isinstance(file, Path) else _remote(file).open(ahead=ahead)
    except OSError as error:
        raise _unreadable(file, error) from error
    with stream:
        yield stream


def read_range(file: Location, start: int, stop: int) -> bytes:
    """Bytes `start` to `stop - 1` of a file, all of which must be there.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "words.txt").write_bytes(b"one")
        ...     read_range(Path(folder, "words.txt"), 1, 3)
        b'ne'
    """
    if isinstance(file, Path):
        try:
            with opened(file) as stream:
                stream.seek(start)
                content = stream.read(stop - start)
        except OSError as error:
            raise _unreadable(file, error) from error
    else:
        content = _remote(file).read_range(start, stop)
    if len(content) != stop - start:
        raise InputError(
            f"expected bytes {start} to {stop - 1} of {file}, got {len(content)} of {stop - start}: it was cut short "
            "since it was opened; put it back and try again"
        )
    return content


def _remote(place: Location) -> RemotePath:
    assert isinstance(place, RemotePath), type(place)
    return place


def _unreadable(file: Location, error: OSError) -> InputError:
    return InputError(f"{file} cannot be read: {error.strerror or error}; mend that and try again")


def _local_size(path: Path) -> int | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # a name may be too long for a file, or hold a null character
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
