"""Folders and objects of an object store, read and written through fsspec."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from offramp.errors import InputError, MissingExtraError, StoreError

__all__ = ["RemotePath"]

BLOCK_BYTES = 8 << 20
"""Bytes that are requested at a time when an object is read in pieces."""


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
        with self._open() as (files, path):
            return int(files.info(path)["size"])

    def read_bytes(self) -> bytes:
        """Return the content of the object."""
        with self._open() as (files, path):
            content: bytes = files.cat_file(path)
            return content

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the object to read it in pieces."""
        with self._open() as (files, path), files.open(path, "rb", block_size=BLOCK_BYTES) as file:
            yield file

    def upload(self, file: Path) -> None:
        """Write a local file to this address."""
        with self._open() as (files, path):
            files.put_file(str(file), path)

    def download(self, file: Path) -> None:
        """Write the object to a local file."""
        with self._open() as (files, path):
            files.get_file(path, str(file))

    @contextmanager
    def _open(self) -> Iterator[tuple[Any, str]]:
        """Yield the fsspec file system and the path within it; make its errors an `OSError`."""
        files, path = _find_file_system(self._address)
        try:
            yield files, path
        except OSError:
            raise
        except Exception as error:  # each library of fsspec has its own
            raise OSError(f"{type(error).__name__}: {error}") from error


def _find_file_system(address: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # most stores are local

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
