"""What data is called: names and digests that follow the content, wherever it lies."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from offramp.errors import InputError

__all__ = ["dataset_name", "file_digest", "files_digest", "joint_digest"]

DIGEST_BYTES = 8  # 64 bits: among 10^6 datasets, two share a digest with probability 3e-8
LONGEST_STEM = 80  # a file system takes 255 bytes, and what writes beside the data adds to the name
SAMPLED_FILES = 64
EDGE_BYTES = 1 << 20


def dataset_name(stem: str, *parts: str | bytes) -> str:
    """A name for data that can be a folder's: letters, digits, `-`, `_` and `.` only.

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
    """Digest of several things in order.

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
    """Digest of a file's bytes, read in pieces.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.txt").write_bytes(b"purrs")
        ...     file_digest(Path(folder, "a.txt"))
        '7c03e9e8a224a76c'
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def files_digest(files: Sequence[tuple[str, Path]]) -> str:
    """Digest of many files: every name and size, and the content of some.

    Hashing a million images would take longer than using them. Names and sizes alone are too little: the splits of one
    dataset may have the same names, and uncompressed files of one shape the same size. So the first and last megabyte
    of up to 64 files, evenly spread, count as well.

    Args:
        files: Name, as it counts, and path of each.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.txt").write_bytes(b"purrs")
        ...     files_digest([("a.txt", Path(folder, "a.txt"))])
        '61da782a44cb16cd'
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    sampled = {place * len(files) // SAMPLED_FILES for place in range(SAMPLED_FILES)}
    for row, (name, path) in enumerate(files):
        try:
            size = path.stat().st_size
            digest.update(f"{name}\0{size}\0".encode(errors="surrogateescape"))
            if row in sampled:
                digest.update(_edges(path, size))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _edges(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        first = file.read(EDGE_BYTES)
        file.seek(max(len(first), size - EDGE_BYTES))
        return first + file.read(EDGE_BYTES)
