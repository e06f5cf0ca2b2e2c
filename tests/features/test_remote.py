import io
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from offramp.errors import StoreError
from offramp.features.remote import RemoteFolder


@pytest.fixture
def folder() -> Iterator[RemoteFolder]:
    files = fsspec.filesystem("memory")
    files.pipe("/remote/words.txt", bytes(range(100)))
    yield RemoteFolder("memory://remote/")
    files.rm("/remote", recursive=True)


def test_whole_and_in_part(folder: RemoteFolder) -> None:
    assert folder.read("words.txt") == bytes(range(100))
    assert folder.read_range("words.txt", 90, 95) == bytes(range(90, 95))
    assert folder.read_range("words.txt", 90, 200) == bytes(range(90, 100))
    assert folder.address_of("words.txt") == "memory://remote/words.txt"


def test_what_is_not_there_is_named(folder: RemoteFolder) -> None:
    with pytest.raises(StoreError, match=r"found nothing at memory://remote/none\.txt; put it back"):
        folder.read("none.txt")
    with pytest.raises(StoreError, match=r"found nothing at memory://remote/none\.txt; put it back"):
        folder.read_range("none.txt", 0, 1)


class _Breaking:
    """Files whose connection breaks after some bytes, a few times."""

    def __init__(self, content: bytes, breaks: int) -> None:
        self.content, self.breaks, self.opened = content, breaks, 0

    def open(self, path: str, mode: str, block_size: int) -> io.BytesIO:
        files, self.opened = self, self.opened + 1

        class File(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                if files.breaks and self.tell() >= 10 * files.opened:
                    files.breaks -= 1
                    raise ConnectionResetError("gone")
                return super().read(size)

        return File(self.content)

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        if self.breaks:
            self.breaks -= 1
            raise TimeoutError("too slow")
        return self.content[start:end]

    def invalidate_cache(self) -> None:
        pass


def test_a_broken_connection_goes_on_where_it_broke(folder: RemoteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.addresses.WAIT_S", 0)
    monkeypatch.setattr("offramp.features.remote.BLOCK_BYTES", 4)
    # More breaks than tries, but something came in between.
    monkeypatch.setattr(folder, "_files", _Breaking(bytes(range(60)), breaks=5))
    assert folder.read("words.txt") == bytes(range(60))
    monkeypatch.setattr(folder, "_files", _Breaking(bytes(range(60)), breaks=2))
    assert folder.read_range("words.txt", 3, 5) == bytes([3, 4])


def test_what_stays_broken_is_told(folder: RemoteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.addresses.WAIT_S", 0)
    monkeypatch.setattr(folder, "_files", _Breaking(b"", breaks=3))
    with pytest.raises(
        StoreError, match=r"cannot read memory://remote/words\.txt: TimeoutError: too slow; check network"
    ):
        folder.read_range("words.txt", 0, 1)

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("no key")

    files = _Breaking(b"", 0)
    monkeypatch.setattr(files, "open", refused)
    monkeypatch.setattr(folder, "_files", files)
    with pytest.raises(StoreError, match="no key; check network and credentials"):
        folder.read("words.txt")
