"""Files that are whole or not there, and that show a changed byte."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from offramp.errors import CorruptFileError, OfframpError, StoreError
from offramp.files import replacing

__all__ = ["VERSION", "file_sha256", "read_sealed", "seal", "whole_file", "write_sealed"]

VERSION = 1
"""Format version of everything in a store. How a file is sealed stays the same in all versions."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Write a file of a store as `files.replacing` does; what prevents it is a `StoreError` that says how to go on.

    Yields:
        A temporary name beside `path` to write to; it takes the place of `path` at the end.
    """
    try:
        with replacing(path) as temporary:
            yield temporary
    except OfframpError:  # of what was to be written, and not of writing it
        raise
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"cannot write {path}: {error}; make room or give permission, then run the same call again: "
            "it goes on where it stopped"
        ) from error


def file_sha256(path: Path) -> str:
    """Hash a file without holding it in memory."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}; run the same extraction again to restore it") from error


def seal(content: Mapping[str, Any]) -> str:
    """Hash of what a JSON file says.

    Example:
        >>> seal({"rows": 5})[:8]
        'de225b3a'
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps({**content, "seal": seal(content)}, sort_keys=True).encode()


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file that carries its version and its own hash."""
    with whole_file(path) as temporary:
        temporary.write_bytes(_encode({**content, "version": VERSION}))


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what `write_sealed` wrote, or refuse it."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}; run the same extraction again to restore it") from error
    try:
        content = json.loads(raw)
        # Byte for byte: a changed blank says as little about JSON's meaning as it says much about the disk.
        intact = isinstance(content, dict) and "seal" in content and _encode(_without_seal(content)) == raw
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise CorruptFileError(
            f"{path} does not match its own checksum; delete it and run the same extraction again: "
            "it redoes only what is lost"
        )
    if content.get("version") != VERSION:
        raise StoreError(
            f"{path} has format version {content.get('version')}, this offramp reads {VERSION}; "
            "use the offramp that wrote it, or extract again elsewhere"
        )
    return {key: value for key, value in content.items() if key not in ("seal", "version")}


def _without_seal(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key != "seal"}
