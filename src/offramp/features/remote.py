"""A folder at an address, `s3://bucket/store` and the like, read as a store needs it."""

from collections.abc import Iterator

from offramp.addresses import ask, connect, wait_or_raise
from offramp.errors import StoreError

__all__ = ["RemoteFolder"]

BLOCK_BYTES = 4 << 20
"""Read in one go: an object store takes some 50 ms to answer, and then some 100 MB/s come."""


class RemoteFolder:
    """Files below an address.

    Args:
        address: As `offramp.addresses.connect` takes it.

    Example:
        >>> import fsspec
        >>> fsspec.filesystem("memory").pipe("/words/one.txt", b"one")
        >>> words = RemoteFolder("memory://words")
        >>> words.read("one.txt"), words.read_range("one.txt", 1, 3)
        (b'one', b'ne')
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._files, path = connect(self.address)
        self._path = path.rstrip("/")

    def address_of(self, name: str) -> str:
        """The address of a file, for messages."""
        return f"{self.address}/{name}"

    def blocks(self, name: str) -> Iterator[bytes]:
        """The content of a file, some megabytes at a time; where a connection breaks, it goes on from there."""
        done, tries = 0, 0
        while True:
            try:
                with self._files.open(f"{self._path}/{name}", "rb", block_size=BLOCK_BYTES) as file:
                    file.seek(done)
                    while block := file.read(BLOCK_BYTES):
                        yield block
                        done, tries = done + len(block), 0
                return
            except Exception as error:  # each library has errors of its own
                tries += 1
                try:
                    wait_or_raise(self._files, error, tries)
                except Exception:
                    raise self._failure(name, error) from error

    def read(self, name: str) -> bytes:
        """The whole of a small file."""
        return b"".join(self.blocks(name))

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop - 1` of a file, fewer where it ends before."""
        try:
            return bytes(ask(self._files, lambda: self._files.cat_file(f"{self._path}/{name}", start=start, end=stop)))
        except Exception as error:
            raise self._failure(name, error) from error

    def _failure(self, name: str, error: Exception) -> StoreError:
        """What is to be said of a question without an answer."""
        address = self.address_of(name)
        if isinstance(error, FileNotFoundError):
            return StoreError(
                f"found nothing at {address}; put it back, or copy the store there again, then run the same call again"
            )
        return StoreError(
            f"cannot read {address}: {type(error).__name__}: {error}; check network and credentials, then run the "
            "same call again"
        )
