"""Addresses of object stores and servers, `s3://bucket/folder` and the like: the one file that knows fsspec."""

from typing import Any

from offramp.errors import InputError, MissingExtraError

__all__ = ["connect", "is_address"]


def is_address(text: str) -> bool:
    """Whether a text is an address and not a path on this machine.

    Args:
        text: Either.

    Example:
        >>> is_address("s3://bucket/store"), is_address("features/store")
        (True, False)
    """
    return "://" in text


def connect(address: str) -> tuple[Any, str]:
    """What reads there, and the address as it knows it.

    Credentials are found where the library of the scheme looks for them (s3fs for `s3://`, gcsfs for `gs://`), and
    connections are kept for the next time.

    Args:
        address: With its scheme: any that fsspec knows.

    Raises:
        MissingExtraError: If fsspec, or what it needs for the scheme, is not installed.

    Example:
        >>> files, path = connect("memory://words/one.txt")
        >>> files.pipe(path, b"one")
        >>> files.cat(path)
        b'one'
    """
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError(f"reading {address} needs fsspec; pip install 'offramp[remote]'") from error
    try:
        files, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise MissingExtraError(f"reading {address} needs one more library: {error}") from error
    except Exception as error:  # a library's own, of an address it does not understand
        raise InputError(f"{address} cannot be read: {error}; check the address") from error
    return files, str(path)
