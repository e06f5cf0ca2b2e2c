"""What an address is, and what is said where it cannot be read."""

import sys

import pytest

from offramp.addresses import connect, is_address
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
