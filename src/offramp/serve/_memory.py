"""Memory that requests have used, given back to the system."""

import asyncio
import ctypes
from collections.abc import Callable
from functools import partial

__all__ = ["find_trim", "trim_often"]

TRIM_S = 10.0
"""Seconds between two times."""


def find_trim() -> Callable[[], object] | None:
    """Return the function of the C library that gives free memory back to the system; None if it has none.

    glibc keeps what is free between blocks in use, for each thread apart: requests of megabytes, now in one thread and
    now in another, make a process grow for hours.
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
