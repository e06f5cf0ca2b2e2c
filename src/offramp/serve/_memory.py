"""Memory that requests have used, given back to the system."""

import asyncio
import ctypes
from collections.abc import Callable
from functools import partial

__all__ = ["find_trim", "share_memory", "trim_often"]

TRIM_S = 2.0
"""Seconds between two times."""

ARENAS = 2
"""Parts of the memory that threads allocate from; without a limit, each of many threads keeps its own."""

M_ARENA_MAX = -8
"""Number of the option in `malloc.h`."""


def share_memory() -> None:
    """Let threads that start from now on allocate from the same few parts of memory, if the C library is glibc."""
    if find_trim() is not None:
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def find_trim() -> Callable[[], object] | None:
    """Return the function of the C library that gives free memory back to the system; None if it has none.

    glibc keeps what is free, for each thread apart: requests of megabytes, now in one thread and now in another, make a
    process grow for hours.
    """
    try:
        return partial(ctypes.CDLL(None).malloc_trim, 0)
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return None


async def trim_often() -> None:
    """Give free memory back to the system every few seconds, in another thread."""
    trim = find_trim()
    while trim is not None:
        await asyncio.sleep(TRIM_S)
        await asyncio.to_thread(trim)
