"""Folders and objects of an object store, read and written through fsspec."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import Any, final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from offramp.errors import InputError, MissingExtraError, StoreError

__all__ = ["RemotePath", "find_file_system", "is_address", "local_path"]

BLOCK_BYTES = 8 << 20
"""Bytes that are requested at a time when an object is read in pieces."""

_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+-]+::)*[A-Za-z][A-Za-z0-9+-]+:/")
"""A scheme, maybe after others of fsspec (`simplecache::s3://`). A Windows drive has one letter; `pathlib` keeps one
slash."""


def is_address(path: str) -> bool:
    """Return whether a text is an address, and not the path of a file or folder."""
    return _ADDRESS.match(path) is not None


def local_path(path: str) -> Path | None:
    """Return the local path that a text or a `file:` address stands for; None for other addresses."""
    if path.startswith("file:/"):
        return Path(url2pathname(urlsplit(path).path))
    return None if is_address(path) else Path(path)


def find_file_system(address: str) -> tuple[Any, str]:
    """Return the fsspec filesystem of a folder or address, and the path within it.

    Args:
        address: A folder, or an address such as `s3://bucket/folder`.

    Raises:
        MissingExtraError: If the library for this scheme is not installed.
        InputError: If fsspec does not know the scheme.

    Example:
        >>> find_file_system("file:///my%20data")[1]
        '/my data'
    """
    from fsspec.core import url_to_fs  # imported here, as it takes a while, and most stores are local
    from fsspec.implementations.local import LocalFileSystem

    if (local := local_path(address)) is not None:
        return LocalFileSystem(), local.absolute().as_posix()
    try:
        # Without listings: they would hide what other processes have written since.
        files, path = url_to_fs(address, use_listings_cache=False)
    except ImportError as error:
        raise MissingExtraError(
            f"{address} needs another library: {error}", hint="install it; for s3:// it is pip install s3fs"
        ) from error
    except ValueError as error:
        raise InputError(
            f"fsspec cannot open {address}: {error}", hint="give a folder, or an address such as s3://bucket/folder"
        ) from error
    return files, str(path)


@final
class RemotePath:
    """An address such as `s3://bucket/folder`, with those methods of `pathlib.Path` that a store needs.

    The file system is opened by fsspec when it is first used, so that the address can be sent to other processes;
    endpoint and credentials come from their environment. An object appears whole or not at all when it is written, as
    in all object stores.

    Args:
        address: The address.

    Example:
        >>> str(RemotePath("s3://bucket/store/") / "plan.json")
        's3://bucket/store/plan.json'
    """

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(f"{self._address}/{name}")

    def __str__(self) -> str:
        return self._address

    def __repr__(self) -> str:
        return f"RemotePath('{self._address}')"

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self._address.rpartition("/")[2]

    def exists(self) -> bool:
        """Return whether the object is there."""
        try:
            self.size()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(
                f"cannot read {self}: {error}", hint="check the address, the credentials and the network"
            ) from error
        return True

    def size(self) -> int:
        """Return the bytes of the object."""
        files, path = find_file_system(self._address)
        with _raise_os_errors():
            return int(files.info(path)["size"])

    def read_bytes(self) -> bytes:
        """Return the content of the object."""
        files, path = find_file_system(self._address)
        with _raise_os_errors():
            content: bytes = files.cat_file(path)
            return content

    @contextmanager
    def open(self) -> Iterator["_RemoteFile"]:
        """Open the object to read it in pieces."""
        files, path = find_file_system(self._address)
        with _raise_os_errors():
            file = files.open(path, "rb", block_size=BLOCK_BYTES)
        with _RemoteFile(file) as reader:
            yield reader

    def upload(self, file: Path) -> None:
        """Write a local file to this address."""
        files, path = find_file_system(self._address)
        with _raise_os_errors():
            files.put_file(str(file), path)

    def download(self, file: Path) -> None:
        """Write the object to a local file."""
        files, path = find_file_system(self._address)
        with _raise_os_errors():
            files.get_file(path, str(file))


@final
class _RemoteFile(RawIOBase):
    """An object that is read in pieces; errors of its store are an `OSError`.

    Args:
        file: The file as fsspec opened it.
    """

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _raise_os_errors():
            return int(self._file.readinto(buffer))

    def close(self) -> None:
        if not self.closed:
            with _raise_os_errors():
                self._file.close()
        super().close()


@contextmanager
def _raise_os_errors() -> Iterator[None]:
    """Raise errors of fsspec as an `OSError`: each of its libraries has its own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
