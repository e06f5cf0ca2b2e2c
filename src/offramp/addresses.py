"""Addresses of object stores and servers, `s3://bucket/folder` and the like: the one file that knows fsspec."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from offramp.errors import InputError, MissingExtraError

__all__ = ["ask", "check_local", "connect", "is_address", "wait_or_raise", "was_address"]

Answer = TypeVar("Answer")

TRIES = 3
"""Times that a question is put: in hours of reading some connection breaks."""

WAIT_S = 0.5
"""Before asking again; twice as long each time."""

SHORTENED = re.compile(r"[A-Za-z][A-Za-z0-9+-]+:/[^/]")
"""What `pathlib` makes of an address. A drive has one letter."""

FINAL = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Answers, though not the wanted ones: to ask again would not change them."""


def is_address(text: str) -> bool:
    """Whether a text is an address and not a path on this machine.

    Args:
        text: Either.

    Example:
        >>> is_address("s3://bucket/store"), is_address("features/store")
        (True, False)
    """
    return "://" in text


def was_address(path: Path) -> bool:
    """Whether a path was made of an address, which lost a slash by it.

    Args:
        path: The path.

    Example:
        >>> was_address(Path("s3://bucket/store")), was_address(Path("features/store"))
        (True, False)
    """
    return SHORTENED.match(str(path)) is not None


def check_local(path: str | Path) -> None:
    """Refuse an address where something is to be written.

    Args:
        path: Where.

    Example:
        >>> check_local("s3://bucket/store")
        Traceback (most recent call last):
        offramp.errors.InputError: expected a folder to write to, got the address s3://bucket/store; write to a folder \
and copy it there afterwards
    """
    if was_address(path) if isinstance(path, Path) else is_address(path):
        raise InputError(
            f"expected a folder to write to, got the address {path}; write to a folder and copy it there afterwards"
        )


def connect(address: str) -> tuple[Any, str]:
    """What reads there, and the address as it knows it.

    Credentials are found where the library of the scheme looks for them (s3fs for `s3://`, gcsfs for `gs://`), and
    connections are kept for the next time.

    Args:
        address: With its scheme: any that fsspec knows.

    Raises:
        MissingExtraError: If fsspec, or what it needs for the scheme, is not installed.

    Example:
        >>> files, path = connect("memory://words/one.txt")
        >>> files.pipe(path, b"one")
        >>> files.cat(path)
        b'one'
    """
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(f"reading {address} needs fsspec; pip install 'offramp[remote]'") from error
    try:
        files, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise MissingExtraError(f"reading {address} needs one more library: {error}") from error
    except Exception as error:  # a library's own, of an address it does not understand
        raise InputError(f"{address} cannot be read: {error}; check the address") from error
    return files, str(path)


def ask(files: Any, question: Callable[[], Answer]) -> Answer:
    """What a store answers, asked again where the connection broke.

    Args:
        files: As `connect` gives it.
        question: Asks it.

    Example:
        >>> files, path = connect("memory://words/two.txt")
        >>> files.pipe(path, b"two")
        >>> ask(files, lambda: files.info(path)["size"])
        3
    """
    tries = 0
    while True:
        tries += 1
        try:
            return question()
        except Exception as error:  # each library has errors of its own
            wait_or_raise(files, error, tries)


def wait_or_raise(files: Any, error: Exception, tries: int) -> None:
    """Wait a little before a question is put again; raise its error where that would bring nothing.

    Args:
        files: As `connect` gives it.
        error: What came instead of an answer.
        tries: How often the question was put.

    Example:
        >>> wait_or_raise(connect("memory://")[0], PermissionError("not yours"), tries=1)
        Traceback (most recent call last):
        PermissionError: not yours
    """
    files.invalidate_cache()  # so that what is mended is found
    if isinstance(error, FINAL) or tries == TRIES:
        raise error
    time.sleep(WAIT_S * 2 ** (tries - 1))
