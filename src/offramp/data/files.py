"""Files before their rows are read: names and digests that follow the content, and a limit on what they unpack to."""

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from offramp.errors import InputError

__all__ = [
    "MAX_BYTES",
    "allowed_bytes",
    "check_unpacked",
    "dataset_name",
    "file_digest",
    "file_sizes",
    "files_digest",
    "joint_digest",
]

MAX_BYTES = "OFFRAMP_MAX_BYTES"
"""Environment variable that raises or lowers the limit on what a file unpacks to."""

DEFAULT_BYTES = 512 << 20  # an image of 53 million pixels, or a table of some million rows from next to nothing
MOST_GROWTH = 200  # samples do not compress so well; what is made to grow does, 1032-fold by gzip
DIGEST_BYTES = 8  # 64 bits: among 10^6 datasets, two share a digest with probability 3e-8
LONGEST_STEM = 80  # a file system takes 255 bytes, and what writes beside the data adds to the name
SAMPLED_FILES = 64
EDGE_BYTES = 1 << 20


def dataset_name(stem: str, *parts: str | bytes) -> str:
    """Return a name for data that can be a folder's: letters, digits, `-`, `_` and `.` only.

    Args:
        stem: What people call it; other characters become `-`.
        parts: What the data is; the name ends with a digest of it.

    Example:
        >>> dataset_name("my pets (final)", "some content")
        'my-pets-final-bd008cfe26549df6'
    """
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem)[:LONGEST_STEM].strip("-.")
    return f"{safe or 'data'}-{joint_digest(*parts)}"


def joint_digest(*parts: str | bytes) -> str:
    """Return the digest of several things in order.

    Example:
        >>> joint_digest("ab", "c"), joint_digest("a", "bc")
        ('4024ad5048d711de', 'c8dd0f99cbb6ce78')
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(content) + content)  # with lengths, so that ("ab", "c") is not ("a", "bc")
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return the digest of a file's bytes, read in pieces."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    try:
        with open(path, "rb") as file:
            while piece := file.read(EDGE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; mend that and try again") from error
    return digest.hexdigest()


def files_digest(folder: Path, names: Sequence[str]) -> str:
    """Return the digest of many files: every name and size, and the content of some.

    Hashing a million images would take longer than using them. Names and sizes alone are too little: the splits of one
    dataset may have the same names, and uncompressed files of one shape the same size. So the first and last megabyte
    of up to 64 files, evenly spread, count as well.

    Args:
        folder: The folder of the files.
        names: The path of each from there.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    sampled = {place * len(names) // SAMPLED_FILES for place in range(SAMPLED_FILES)}
    for row, (name, size) in enumerate(zip(names, file_sizes(folder, names), strict=True)):
        if size is None:
            raise InputError(f"{folder / name} cannot be read: there is no such file; put it back")
        digest.update(f"{name}\0{size}\0".encode(errors="surrogateescape"))
        if row in sampled:
            with open(folder / name, "rb") as file:
                digest.update(file.read(EDGE_BYTES))
                file.seek(max(file.tell(), size - EDGE_BYTES))
                digest.update(file.read(EDGE_BYTES))
    return digest.hexdigest()


def file_sizes(folder: Path, names: Sequence[str]) -> list[int | None]:
    """Return the bytes of each file, None where there is none of that name."""
    return [_size(folder / name) for name in names]


def _size(path: Path) -> int | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # a name may be too long for a file, or hold a null character
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def allowed_bytes(packed: int = 0) -> int:
    """Return how many bytes of memory something packed may take.

    Args:
        packed: Its size; a large file may grow by a factor instead. Zero where only the limit itself counts.

    Example:
        >>> allowed_bytes() == DEFAULT_BYTES, allowed_bytes(10**9)
        (True, 200000000000)
    """
    given = os.environ.get(MAX_BYTES)
    try:
        limit = DEFAULT_BYTES if given is None else int(given)
    except ValueError:
        limit = 0
    if limit <= 0:
        raise InputError(f"expected a number of bytes in {MAX_BYTES}, such as {DEFAULT_BYTES}, got '{given}'")
    return max(limit, MOST_GROWTH * packed)


def check_unpacked(needed: int, *, packed: int = 0, place: str) -> None:
    """Refuse what takes more memory unpacked than is allowed: a file of some kilobytes may unpack to gigabytes.

    Args:
        needed: Bytes it takes, or at least takes.
        packed: Its size; see `allowed_bytes`.
        place: What to call it in the message.
    """
    allowed = allowed_bytes(packed)
    if needed > allowed:
        raise InputError(
            f"{place} takes {needed:,} bytes or more unpacked, allowed are {allowed:,}; if you trust it, set the "
            f"environment variable {MAX_BYTES}={2 * needed}"
        )
