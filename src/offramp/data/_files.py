"""Names and digests of data that follow its content, and a limit on the memory that a packed file may take."""

import hashlib
import os
import re
import stat
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.data._columns import TextColumn
from offramp.errors import InputError

__all__ = [
    "MAX_BYTES",
    "allowed_bytes",
    "check_unpacked",
    "file_size",
    "hash_file",
    "hash_files",
    "hash_parts",
    "name_dataset",
]

MAX_BYTES = "OFFRAMP_MAX_BYTES"
"""Environment variable that sets the limit on the memory that a packed file may take."""

DEFAULT_BYTES = 512 << 20  # an image of 53 million pixels, or a table of some million rows
MOST_GROWTH = 200  # real samples compress less than this; gzip reaches 1032 on files made to grow
DIGEST_BYTES = 8  # 64 bits: among 10^6 datasets, two share a digest with probability 3e-8
LONGEST_STEM = 80  # file systems take 255 bytes, and callers append to the name
SAMPLED_FILES = 64
EDGE_BYTES = 1 << 20
BLOCK_ROWS = 1 << 16


def name_dataset(stem: str, *parts: str | bytes | npt.NDArray[Any]) -> str:
    """Make a name for data that is a valid folder name: letters, digits, `-`, `_` and `.` only.

    Args:
        stem: A name for people; other characters become `-`.
        parts: Content of the data; the name ends with a digest of it.

    Example:
        >>> name_dataset("my pets (final)", "some content")
        'my-pets-final-bd008cfe26549df6'
    """
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:LONGEST_STEM].strip("-.")
    return f"{safe or 'data'}-{hash_parts(*parts)}"


def hash_parts(*parts: str | bytes | npt.NDArray[Any]) -> str:
    """Hash several texts, or arrays of numbers in one dimension, in order."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        size = content.nbytes if isinstance(content, np.ndarray) else len(content)
        digest.update(b"%d:" % size)  # the lengths tell ("ab", "c") from ("a", "bc")
        if isinstance(content, bytes):
            digest.update(content)
            continue
        for start in range(0, len(content), BLOCK_ROWS):  # an array may be larger than memory
            digest.update(np.ascontiguousarray(content[start : start + BLOCK_ROWS]).data)
    return digest.hexdigest()


def hash_file(path: Path) -> str:
    """Hash the bytes of a file, read in pieces."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    try:
        with open(path, "rb") as file:
            while piece := file.read(EDGE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def hash_files(folder: Path, names: TextColumn) -> str:
    """Hash many files: every name and size, and the first and last megabyte of up to 64 files, evenly spread.

    Hashing a million images would take longer than using them. Names and sizes alone are not enough: the splits of a
    dataset may have the same names, and uncompressed files of one shape have the same size.

    Args:
        folder: The folder of the files.
        names: The path of each file in the folder.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    sampled = {place * len(names) // SAMPLED_FILES for place in range(SAMPLED_FILES)}
    blocks = (names[start : start + BLOCK_ROWS] for start in range(0, len(names), BLOCK_ROWS))
    for row, name in enumerate(chain.from_iterable(blocks)):
        size = file_size(folder / name)
        if size is None:
            raise InputError(f"{folder / name} cannot be read: there is no such file", hint="put it back")
        digest.update(f"{name}\0{size}\0".encode(errors="surrogateescape"))
        if row in sampled:
            with open(folder / name, "rb") as file:
                digest.update(file.read(EDGE_BYTES))
                file.seek(max(file.tell(), size - EDGE_BYTES))
                digest.update(file.read(EDGE_BYTES))
    return digest.hexdigest()


def file_size(path: Path) -> int | None:
    """Return the size of a file in bytes; None if there is no such file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # a name may be too long, or contain a null character
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def allowed_bytes(packed: int = 0) -> int:
    """Return the memory in bytes that something may take unpacked.

    Args:
        packed: Its packed size; large files may grow by a factor. 0 returns the limit alone.
    """
    setting = os.environ.get(MAX_BYTES)
    try:
        limit = DEFAULT_BYTES if setting is None else int(setting)
    except ValueError:
        limit = 0
    if limit <= 0:
        raise InputError(MAX_BYTES, expected=f"a number of bytes, such as {DEFAULT_BYTES}", got=f"'{setting}'")
    return max(limit, MOST_GROWTH * packed)


def check_unpacked(needed: int, *, packed: int = 0, place: str) -> None:
    """Refuse data that takes more memory unpacked than allowed: some kilobytes may unpack to gigabytes.

    Args:
        needed: Bytes that it takes at least.
        packed: Its packed size; see `allowed_bytes`.
        place: Its name in the message.
    """
    allowed = allowed_bytes(packed)
    if needed > allowed:
        raise InputError(
            place,
            expected=f"at most {allowed:,} bytes unpacked",
            got=f"{needed:,} or more",
            hint=f"if you trust it, set the environment variable {MAX_BYTES}={2 * needed}",
        )
