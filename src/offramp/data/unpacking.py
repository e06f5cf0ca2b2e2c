"""A limit on the memory that unpacking takes: a file of some kilobytes may unpack to gigabytes."""

import os

from offramp.errors import InputError

__all__ = ["VARIABLE", "allowed_bytes", "check_unpacked"]

VARIABLE = "OFFRAMP_MAX_BYTES"
"""Environment variable that raises or lowers the limit."""

DEFAULT_BYTES = 512 << 20
"""An image of 53 million pixels, or a table of some million rows from next to nothing."""

MOST_GROWTH = 200
"""Samples do not compress so well; what is made to grow does, 1032-fold by gzip."""


def allowed_bytes(packed: int = 0) -> int:
    """Return how many bytes of memory something packed may take.

    Args:
        packed: Its size; a large file may grow by a factor instead. Zero where only the limit itself counts.

    Example:
        >>> allowed_bytes() == DEFAULT_BYTES, allowed_bytes(10**9)
        (True, 200000000000)
    """
    given = os.environ.get(VARIABLE)
    if given is None:
        return max(DEFAULT_BYTES, MOST_GROWTH * packed)
    try:
        limit = int(given)
    except ValueError:
        limit = 0
    if limit <= 0:
        raise InputError(f"expected a number of bytes in {VARIABLE}, such as {DEFAULT_BYTES}, got '{given}'")
    return max(limit, MOST_GROWTH * packed)


def check_unpacked(needed: int, *, packed: int = 0, place: str) -> None:
    """Refuse what takes more memory unpacked than is allowed.

    Args:
        needed: Bytes it takes, or at least takes.
        packed: Its size; see `allowed_bytes`.
        place: What to call it in the message.

    Example:
        >>> check_unpacked(10**10, place="bomb.png")
        Traceback (most recent call last):
        offramp.errors.InputError: bomb.png takes 10,000,000,000 bytes or more unpacked, allowed are 536,870,912; if \
you trust it, set the environment variable OFFRAMP_MAX_BYTES=20000000000
    """
    allowed = allowed_bytes(packed)
    if needed > allowed:
        raise InputError(
            f"{place} takes {needed:,} bytes or more unpacked, allowed are {allowed:,}; if you trust it, set the "
            f"environment variable {VARIABLE}={2 * needed}"
        )
