"""One hash for ids and seeds that is the same on every machine and in every run."""

import hashlib

__all__ = ["stable_hash"]


def stable_hash(text: str) -> int:
    """Hash `text` to 63 bits, so that it fits a signed integer and a seed.

    Python's own `hash` is salted anew in every process.

    Example:
        >>> stable_hash("train/5")
        1434713311643516606
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
