"""Files and folders at an address, `s3://bucket/pets.parquet` and the like, in the manner of `pathlib`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, RawIOBase
from posixpath import normpath
from typing import Any, BinaryIO, TypeVar, cast, final

from offramp.addresses import ask, connect
from offramp.errors import InputError

__all__ = ["RemotePath", "Status"]

Answer = TypeVar("Answer")

BLOCK_BYTES = 5 << 20  # fetched at a time where a file is read on and on; an object store answers in about 50 ms


@dataclass(frozen=True)
class Status:
    """What a store says of an object, called as in `os.stat_result`."""

    st_size: int
    """Bytes."""


@final
@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder at an address, with those methods of `pathlib.Path` that reading data needs.

    It is the address alone: nothing is connected before the first question, and a pickled one asks again elsewhere.

    Example:
        >>> import fsspec
        >>> fsspec.filesystem("memory").pipe("/pets/words.txt", b"one")
        >>> words = RemotePath("memory://pets") / "words.txt"
        >>> words.name, words.stem, words.parent.address, words.is_file(), words.read_range(1, 3)
        ('words.txt', 'words', 'memory://pets', True, b'ne')
    """

    address: str
    """With its scheme; slashes at the end do not count."""

    def __post_init__(self) -> None:
        scheme, _, rest = self.address.partition("://")
        if not scheme.replace("+", "").replace("-", "").isalnum() or "::" in rest:
            raise InputError(
                f"expected an address such as s3://bucket/folder, got {self.address}; give one, not a chain"
            )
        object.__setattr__(self, "address", f"{scheme}://{rest.rstrip('/')}")

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        """The last part, without the question that an address of the web may end with."""
        last = self.address.rpartition("/")[2]
        return last.partition("?")[0] if self.address.startswith("http") else last

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> "RemotePath":
        """The folder it lies in."""
        scheme, _, rest = self.address.partition("://")
        return RemotePath(f"{scheme}://{rest.rpartition('/')[0]}")

    def __truediv__(self, name: str) -> "RemotePath":
        name = normpath(name)  # to a store, `./a.png` is another object than `a.png`
        return RemotePath(self.address + name if self.address.endswith("://") else f"{self.address}/{name}")

    def is_file(self) -> bool:
        """Whether there is an object here; a question that cannot be answered raises."""
        return self._kind() == "file"

    def is_dir(self) -> bool:
        """Whether there are objects below here."""
        return self._kind() == "directory"

    def stat(self) -> Status:
        """What the store says of the object."""
        size = self._asked(lambda files, path: files.info(path)["size"])
        if size is None:
            raise InputError(f"{self} does not say how large it is; copy it to disk")
        return Status(int(size))

    def open(self, *, ahead: bool = True) -> BinaryIO:
        """A file to read and seek in.

        Args:
            ahead: Whether to fetch more than was asked for, as it is going to be read on and on.
        """
        # By ranges, and not by the library's own files: those are lost when a connection breaks while they are read.
        stream = _Ranges(self, self.stat().st_size)
        return cast(BinaryIO, BufferedReader(stream, BLOCK_BYTES) if ahead else stream)

    def names(self) -> list[str]:
        """Names of what lies straight inside this folder."""
        return [name for name, _ in self._entries()]

    def folders(self) -> list[str]:
        """Names of the folders straight inside this one."""
        return [name for name, kind in self._entries() if kind == "directory"]

    def sizes(self) -> dict[str, int]:
        """Bytes of every file below this folder, by its path from here."""
        files, path = self._place()
        found = self._asked(lambda files, path: files.find(path, detail=True))
        files.invalidate_cache()  # it would hold a million entries for as long as the process lives
        start = len(path.rstrip("/")) + 1
        return {str(name)[start:]: int(facts["size"] or 0) for name, facts in found.items() if len(name) > start}

    def read_range(self, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop - 1`, fewer where the object ends before."""
        found = self._asked(lambda files, path: cast(bytes, files.cat_file(path, start=start, end=stop)))
        if len(found) > stop - start:
            raise InputError(f"{self} is given whole where a part was asked for; copy it to disk")
        return found

    def read_files(self, names: Sequence[str]) -> list[bytes]:
        """The bytes of files in this folder, fetched together where the library can."""
        files, path = self._place()
        places = [f"{path.rstrip('/')}/{normpath(name)}" for name in names]
        try:
            # Not `cat`, which would take a bracket in a name for a pattern.
            return ask(files, lambda: _all_answered(files.cat_ranges(places, None, None, on_error="raise")))
        except Exception as error:
            for name in names:  # which one it was, the error does not always say
                (self / name).stat()
            raise self._failure(error) from error

    def _place(self) -> tuple[Any, str]:
        return connect(self.address)

    def _entries(self) -> list[tuple[str, str]]:
        path, entries = self._asked(lambda files, path: (path, files.ls(path, detail=True)))
        found = [(str(entry["name"]).strip("/"), str(entry["type"])) for entry in entries]
        return [(name.rpartition("/")[2], kind) for name, kind in found if name != path.strip("/")]

    def _kind(self) -> str | None:
        files, path = self._place()
        try:
            return str(ask(files, lambda: files.info(path))["type"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:
            raise self._failure(error) from error

    def _asked(self, question: Callable[[Any, str], Answer]) -> Answer:
        """What the store answers, or what is to be said instead."""
        files, path = self._place()
        try:
            return ask(files, lambda: question(files, path))
        except Exception as error:  # each library has errors of its own
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> InputError:
        if isinstance(error, FileNotFoundError):
            return InputError(f"found nothing at {self}; check the address, or put it back and try again")
        if isinstance(error, PermissionError):
            return InputError(f"{self} may not be read: {error}; give credentials that may")
        kind = type(error).__name__
        return InputError(f"{self} cannot be read: {kind}: {error}; check network and credentials, try again")


class _Ranges(RawIOBase):
    """An object as a file, each piece asked for by itself."""

    def __init__(self, place: RemotePath, size: int) -> None:
        self._place, self._size, self._at = place, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        self._at = offset + {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._at + len(buffer), self._size)
        if stop <= self._at:
            return 0
        content = self._place.read_range(self._at, stop)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def _all_answered(found: Sequence[Any]) -> list[bytes]:
    """What was read; the first error among it is raised, which some versions of fsspec give as an answer."""
    for one in found:
        if isinstance(one, Exception):
            raise one
    return list(found)
