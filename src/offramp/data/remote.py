"""Files and folders at an address, `s3://bucket/pets.parquet` and the like, in the manner of `pathlib`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, cast, final

from offramp.addresses import connect
from offramp.errors import InputError, OfframpError

__all__ = ["RemotePath", "Status"]

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
        return RemotePath(self.address + name if self.address.endswith("://") else f"{self.address}/{name}")

    def is_file(self) -> bool:
        """Whether there is an object here; a question that cannot be answered raises."""
        return self._kind() == "file"

    def is_dir(self) -> bool:
        """Whether there are objects below here."""
        return self._kind() == "directory"

    def stat(self) -> Status:
        """What the store says of the object."""
        files, path = self._place()
        with self._explained(files):
            size = files.info(path)["size"]
        if size is None:
            raise InputError(f"{self} does not say how large it is; copy it to disk")
        return Status(int(size))

    def open(self, mode: Literal["rb"] = "rb", *, ahead: bool = True) -> BinaryIO:
        """A file to read and seek in.

        Args:
            mode: As of files.
            ahead: Whether to fetch more than was asked for, as it is going to be read on and on.
        """
        files, path = self._place()
        with self._explained(files):
            caching = {"cache_type": "readahead", "block_size": BLOCK_BYTES} if ahead else {"cache_type": "none"}
            return cast(BinaryIO, files.open(path, mode, **caching))

    def names(self) -> list[str]:
        """Names of what lies straight inside this folder."""
        return [name for name, _ in self._entries()]

    def folders(self) -> list[str]:
        """Names of the folders straight inside this one."""
        return [name for name, kind in self._entries() if kind == "directory"]

    def sizes(self) -> dict[str, int]:
        """Bytes of every file below this folder, by its path from here."""
        files, path = self._place()
        with self._explained(files):
            found = files.find(path, detail=True)
        files.invalidate_cache()  # it would hold a million entries for as long as the process lives
        start = len(path.rstrip("/")) + 1
        return {str(name)[start:]: int(facts["size"] or 0) for name, facts in found.items() if len(name) > start}

    def read_range(self, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop - 1`, fewer where the object ends before."""
        files, path = self._place()
        with self._explained(files):
            return cast(bytes, files.cat_file(path, start=start, end=stop))

    def read_files(self, names: Sequence[str]) -> list[bytes]:
        """The bytes of files in this folder, fetched together where the library can."""
        files, path = self._place()
        try:
            # Not `cat`, which would take a bracket in a name for a pattern.
            return list(
                files.cat_ranges([f"{path.rstrip('/')}/{name}" for name in names], None, None, on_error="raise")
            )
        except Exception:
            for name in names:  # which one it was, the error does not always say
                (self / name).stat()
            with self._explained(files):
                raise

    def _place(self) -> tuple[Any, str]:
        return connect(self.address)

    def _entries(self) -> list[tuple[str, str]]:
        files, path = self._place()
        with self._explained(files):
            entries = files.ls(path, detail=True)
        found = [(str(entry["name"]).strip("/"), str(entry["type"])) for entry in entries]
        return [(name.rpartition("/")[2], kind) for name, kind in found if name != path.strip("/")]

    def _kind(self) -> str | None:
        files, path = self._place()
        try:
            return str(files.info(path)["type"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception:
            with self._explained(files):
                raise

    @contextmanager
    def _explained(self, files: Any) -> Iterator[None]:
        try:
            yield
        except OfframpError:
            raise
        except Exception as error:  # each library has errors of its own
            files.invalidate_cache()  # so that what is mended is found
            if isinstance(error, FileNotFoundError):
                raise InputError(f"found nothing at {self}; check the address, or put it back and try again") from error
            if isinstance(error, PermissionError):
                raise InputError(f"{self} may not be read: {error}; give credentials that may") from error
            kind = type(error).__name__
            raise InputError(
                f"{self} cannot be read: {kind}: {error}; check network and credentials, try again"
            ) from error
