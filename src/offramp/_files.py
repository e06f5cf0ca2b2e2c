"""Atomic writes of files and objects, JSON files with a checksum, locks between processes, local and remote places."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from uuid import uuid4

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from offramp._remote import RemotePath, is_address, local_path
from offramp.errors import BusyError, CorruptFileError, InputError, OfframpError, StoreError

__all__ = [
    "TEMPORARY",
    "Place",
    "as_place",
    "file_sha256",
    "hold_lock",
    "json_sha256",
    "place_size",
    "read_checked_json",
    "sync_folder",
    "write_atomically",
    "write_checked_json",
    "write_resumable",
]

TEMPORARY = ".tmp"
"""Suffix of files that are being written; if the writer is gone, the file is of no use."""

VERSION = 1
"""Format version of the JSON files. The checksum is computed the same way in all versions."""

Place: TypeAlias = Path | RemotePath
"""A file or folder on this machine, or an address in an object store."""


def as_place(path: str | Path | RemotePath) -> Place:
    """Return a path for a folder, and a remote path for an address.

    Args:
        path: A folder, or an address such as `s3://bucket/folder`.

    Example:
        >>> as_place("s3://bucket/features"), as_place("file:///data/features")
        (RemotePath('s3://bucket/features'), PosixPath('/data/features'))
    """
    if isinstance(path, RemotePath):
        return path
    if isinstance(path, Path):
        if is_address(str(path)):
            raise InputError(expected="an address as text", got=f"the path {path}, which has lost a slash")
        return path
    local = local_path(path)
    return RemotePath(path) if local is None else local


@contextmanager
def write_atomically(path: Place) -> Iterator[Path]:
    """Write a file so that a kill at any moment leaves the old file, the new file, or none.

    Args:
        path: The file to write or replace. A symbolic link is replaced, not followed.

    Yields:
        A temporary path to write to, beside `path` if that is local: it is renamed to `path` at the end. An object is
        uploaded from a temporary folder instead.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with write_atomically(Path(folder, "a.txt")) as temporary:
        ...         _ = temporary.write_text("done")
        ...     Path(folder, "a.txt").read_text()
        'done'
    """
    if isinstance(path, RemotePath):
        with TemporaryDirectory(prefix="offramp-upload-") as folder:
            local = Path(folder, path.name)
            yield local
            path.upload(local)
        return
    # A unique name: when the job of a lost worker is given to another, both may be writing the same file.
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


@contextmanager
def write_resumable(path: Place) -> Iterator[Path]:
    """Write a file of a resumable job as `write_atomically` does; failures to write become a `StoreError`."""
    try:
        with write_atomically(path) as temporary:
            yield temporary
    except OfframpError:  # raised by the content, not by writing it
        raise
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"cannot write {path}: {error}",
            hint="make room or give permission, then run the same call again: it goes on where it stopped",
        ) from error


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to the disk, so that a renamed file survives a power cut."""
    with suppress(OSError):  # Windows has no such call; some network file systems refuse it
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def place_size(path: Place) -> int:
    """Return the bytes of a file or object."""
    return path.size() if isinstance(path, RemotePath) else path.stat().st_size


def file_sha256(path: Place) -> str:
    """Hash a file or object without holding it in memory."""
    try:
        with path.open() if isinstance(path, RemotePath) else path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def json_sha256(content: Mapping[str, Any]) -> str:
    """Hash the content of a JSON file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_checked_json(path: Place, content: Mapping[str, Any]) -> None:
    """Write a JSON file together with its format version and checksum."""
    with write_resumable(path) as temporary:
        temporary.write_bytes(_encode({**content, "version": VERSION}))


def read_checked_json(path: Place) -> dict[str, Any]:
    """Read a file that `write_checked_json` wrote.

    Raises:
        CorruptFileError: If a single byte was changed.
        StoreError: If the file cannot be read, or has another format version.
    """
    try:
        encoded = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        content = json.loads(encoded)
        checksum = content.pop("seal", None) if isinstance(content, dict) else None
        # Compared as bytes: a changed blank leaves the JSON the same, but shows that the disk is faulty.
        intact = checksum is not None and _encode(content) == encoded
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise CorruptFileError(
            f"{path} does not match its own checksum",
            hint="delete it and run the same call again: it redoes only what is lost",
        )
    version = content.pop("version", None)
    if version != VERSION:
        raise StoreError(
            f"format version of {path}",
            expected=str(VERSION),
            got=str(version),
            hint="use the offramp that wrote it, or start again in another folder",
        )
    return dict(content)


def _encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps({**content, "seal": json_sha256(content)}, sort_keys=True).encode()


def _unreadable(path: Place, error: OSError) -> StoreError:
    return StoreError(f"cannot read {path}: {error}", hint="run the same call again to restore it")


@contextmanager
def hold_lock(path: Path, *, wait_s: float) -> Iterator[None]:
    """Hold a lock that one process has at a time; a kill releases it.

    Args:
        path: The lock file; its folder is created if needed. `<path>.owner` beside it names the holder.
        wait_s: Seconds to wait for another holder.

    Raises:
        BusyError: If another process still holds the lock after that; the message names the process.
        StoreError: If the folder or the file cannot be written.
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
        holder = holder or "another process"  # it has just taken or released the lock
        raise BusyError(
            f"{holder} is writing there (it holds {path})",
            hint="wait until it has finished, or choose another place",
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot write {error.filename or path}: {error.strerror}",
            hint="check its permission, or choose another place",
        ) from error
    try:
        owner.unlink(missing_ok=True)  # a symbolic link put there would be followed
        owner.write_text(f"process {os.getpid()} on {gethostname()}", "utf-8")
        yield
    finally:
        with suppress(OSError):
            owner.unlink(missing_ok=True)
        lock.release()
