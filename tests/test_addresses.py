"""What an address is, and what is said where it cannot be read."""

import sys
from pathlib import Path

import pytest

from offramp.addresses import TRIES, ask, check_local, connect, is_address
from offramp.errors import InputError, MissingExtraError


@pytest.mark.parametrize(
    ("text", "expected"), [("s3://a/b", True), ("memory://", True), ("a/b", False), ("C:/a", False), ("", False)]
)
def test_is_address(text: str, expected: bool) -> None:
    assert is_address(text) is expected


def test_connected() -> None:
    files, path = connect("memory://addresses/one.txt")
    files.pipe(path, b"one")
    again, same = connect("memory://addresses/one.txt")
    assert again.cat(same) == b"one"


def test_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"reading s3://a needs fsspec; pip install 'offramp\[remote\]'"):
        connect("s3://a")


def test_an_unknown_scheme() -> None:
    with pytest.raises(InputError, match=r"nowhere://bucket cannot be read: .*; check the address"):
        connect("nowhere://bucket")


@pytest.mark.parametrize(("error", "tries"), [(TimeoutError, TRIES), (PermissionError, 1), (FileNotFoundError, 1)])
def test_how_often_is_asked(error: type[Exception], tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.addresses.WAIT_S", 0)
    files, _ = connect("memory://")
    asked = []

    def question() -> int:
        asked.append(1)
        raise error("no")

    with pytest.raises(error, match="no"):
        ask(files, question)
    assert len(asked) == tries


def test_an_answer_after_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.addresses.WAIT_S", 0)
    files, _ = connect("memory://")
    errors = [ConnectionResetError("gone")]

    def question() -> int:
        if errors:
            raise errors.pop()
        return 5

    assert ask(files, question) == 5


@pytest.mark.parametrize("path", ["s3://bucket/x", Path("s3://bucket/x"), "memory://x"])
def test_nothing_is_written_to_an_address(path: str | Path) -> None:
    with pytest.raises(InputError, match=r"expected a folder to write to, got the address .*x; write to a folder"):
        check_local(path)


@pytest.mark.parametrize("path", ["x", Path("a/b"), Path("C:/x"), Path("/a:/b")])
def test_what_is_no_address_is_written_to(path: str | Path) -> None:
    check_local(path)
