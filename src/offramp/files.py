"""Atomic file writes, locks that a dying process releases, and a check for local paths."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from uuid import uuid4

from filelock import FileLock, Timeout

from offramp.errors import BusyError, InputError, StoreError

__all__ = ["TEMPORARY", "check_local", "hold_lock", "replacing", "sync_folder"]

TEMPORARY = ".tmp"
"""Suffix of files being written; such a file is of no use once its writer is gone."""


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+-]+:/")  # a drive has one letter; `pathlib` leaves one slash


def check_local(path: str | Path) -> None:
    """Refuse an address where something is to be written.

    Args:
        path: The folder or the address.

    Example:
        >>> check_local("s3://bucket/store")
        Traceback (most recent call last):
        offramp.errors.InputError: expected a folder to write to, got the address s3://bucket/store; write to a folder \
and copy it there afterwards
    """
    if _ADDRESS.match(str(path)):
        raise InputError(
            f"expected a folder to write to, got the address {path}; write to a folder and copy it there afterwards"
        )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file so that a kill at any moment leaves the old one, the new one, or none.

    Args:
        path: The file to write or replace. A symbolic link is replaced, not followed.

    Yields:
        A temporary name beside `path` to write to; it takes the place of `path` at the end.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with replacing(Path(folder, "a.txt")) as temporary:
        ...         _ = temporary.write_text("done")
        ...     Path(folder, "a.txt").read_text()
        'done'
    """
    # A unique name: when a lost worker's job is given to another, both may be writing the same file.
    temporary = path.with_name(f"{path.name}.{uuid4().hex}{TEMPORARY}")
    try:
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Write a folder's list of names to the disk, so that a renamed file survives a power cut."""
    with suppress(OSError):  # Windows has no such call; some network file systems refuse it
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def hold_lock(path: Path, *, wait_s: float) -> Iterator[None]:
    """Hold a lock that one process has at a time; a kill releases it.

    Args:
        path: The lock file; its folder is made if it is not there. Beside it, `<path>.owner` names the holder.
        wait_s: Seconds to wait for another holder.

    Raises:
        BusyError: If another process still holds the lock after that; the message names the process.
        StoreError: If the folder or the file cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, hold_lock(Path(folder, "answers.lock"), wait_s=0):
        ...     Path(folder, "answers.lock.owner").read_text().startswith("process ")
        True
    """
    owner = path.with_name(f"{path.name}.owner")
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=wait_s)
    except Timeout as error:
        try:
            holder = owner.read_text("utf-8")
        except OSError:
            holder = ""
        holder = holder or "another process"  # one that has just taken or released the lock has no name there
        raise BusyError(
            f"{holder} is writing there (it holds {path}); wait until it has finished, or choose another place"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot write {error.filename or path}: {error.strerror}; check its permission, or choose another place"
        ) from error
    try:
        owner.unlink(missing_ok=True)  # a symbolic link put there would be followed
        owner.write_text(f"process {os.getpid()} on {gethostname()}", "utf-8")
        yield
    finally:
        with suppress(OSError):
            owner.unlink(missing_ok=True)
        lock.release()
