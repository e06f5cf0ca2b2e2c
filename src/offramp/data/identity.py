"""What data is called: names and digests that follow the content, wherever it lies."""

import hashlib
import re
from collections.abc import Sequence

from offramp.data.location import Location, file_sizes, opened, read_range
from offramp.errors import InputError

__all__ = ["dataset_name", "file_digest", "files_digest", "joint_digest", "large_file_digest"]

DIGEST_BYTES = 8  # 64 bits: among 10^6 datasets, two share a digest with probability 3e-8
LONGEST_STEM = 80  # a file system takes 255 bytes, and what writes beside the data adds to the name
SAMPLED_FILES = 64
EDGE_BYTES = 1 << 20
LARGE_BYTES = 1 << 28  # a second or two to read, from a store; more is sampled
SAMPLED_PIECES = 64


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


def file_digest(path: Location) -> str:
    """Digest of a file's bytes, read in pieces.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.txt").write_bytes(b"purrs")
        ...     file_digest(Path(folder, "a.txt"))
        '7c03e9e8a224a76c'
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    try:
        with opened(path) as file:
            while piece := file.read(EDGE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}; mend that and try again") from error
    return digest.hexdigest()


def large_file_digest(path: Location) -> str:
    """Digest of a file that is never read as a whole.

    Up to 256 MB it is that of all bytes; beyond, of the size and 64 pieces of a megabyte, evenly spread from the first
    byte to the last: a change between them goes unseen.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.txt").write_bytes(b"purrs")
        ...     large_file_digest(Path(folder, "a.txt"))
        '7c03e9e8a224a76c'
    """
    size = path.stat().st_size
    if size <= LARGE_BYTES:
        return file_digest(path)
    starts = [place * (size - EDGE_BYTES) // (SAMPLED_PIECES - 1) for place in range(SAMPLED_PIECES)]
    return joint_digest(str(size), *(read_range(path, start, start + EDGE_BYTES) for start in starts))


def files_digest(folder: Location, names: Sequence[str], sizes: Sequence[int | None] = ()) -> str:
    """Digest of many files: every name and size, and the content of some.

    Hashing a million images would take longer than using them. Names and sizes alone are too little: the splits of one
    dataset may have the same names, and uncompressed files of one shape the same size. So the first and last megabyte
    of up to 64 files, evenly spread, count as well.

    Args:
        folder: Where the files lie.
        names: The path of each from there.
        sizes: Bytes of each, where the caller has asked already; as `file_sizes` gives them.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.txt").write_bytes(b"purrs")
        ...     files_digest(Path(folder), ["a.txt"])
        '61da782a44cb16cd'
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    sampled = {place * len(names) // SAMPLED_FILES for place in range(SAMPLED_FILES)}
    for row, (name, size) in enumerate(zip(names, sizes or file_sizes(folder, names), strict=True)):
        if size is None:
            raise InputError(f"{folder / name} cannot be read: there is no such file; put it back")
        digest.update(f"{name}\0{size}\0".encode(errors="surrogateescape"))
        if row in sampled:
            digest.update(_edges(folder / name, size))
    return digest.hexdigest()


def _edges(path: Location, size: int) -> bytes:
    first = read_range(path, 0, min(size, EDGE_BYTES))
    return first + read_range(path, max(len(first), size - EDGE_BYTES), size)
