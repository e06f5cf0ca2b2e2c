"""What lies where in a tar file, found without reading what it holds."""

import tarfile
from collections.abc import Callable, Iterator
from typing import Any, cast

from offramp.data.location import Location, opened
from offramp.errors import InputError, OfframpError

__all__ = ["Member", "read_members"]

Member = tuple[str, int, int, Callable[[], bytes]]
"""Name, first byte, number of bytes, and what reads them while the file is open."""


def read_members(file: Location) -> Iterator[Member]:
    """The regular files in a tar file, in its order.

    Only their headers are read. At an address the bytes between come along, where they are few: a store takes as long
    to be asked as to send some megabytes.

    Args:
        file: Where it lies; not compressed.

    Raises:
        InputError: It is no tar file, or broken, or cut short.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "tom.cls").write_bytes(b"cat")
        ...     with tarfile.open(Path(folder, "pets.tar"), "w", format=tarfile.USTAR_FORMAT) as archive:
        ...         archive.add(Path(folder, "tom.cls"), "tom.cls")
        ...     [(name, start, size, read()) for name, start, size, read in read_members(Path(folder, "pets.tar"))]
        [('tom.cls', 512, 3, b'cat')]
    """
    with opened(file) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                while (member := archive.next()) is not None:
                    cast(Any, archive).members.clear()  # it would hold them all
                    if member.issparse():
                        raise InputError(f"{member.name} in {file} has holes; write it anew without --sparse")
                    if member.isreg():
                        start, size = member.offset_data, member.size

                        def read(start: int = start, size: int = size) -> bytes:
                            stream.seek(start)
                            return stream.read(size)

                        yield member.name, start, size, read
                # Where a header is broken or missing, tarfile stops without a word.
                stream.seek(archive.offset)
                rest = stream.read(tarfile.BLOCKSIZE)
        except OfframpError:
            raise
        except Exception as error:  # besides tarfile's, those of the library that fetches
            raise InputError(f"{file} cannot be read as tar: {error}; put it back whole, or write it anew") from error
    if rest != bytes(tarfile.BLOCKSIZE):
        found = "is cut short: its end is missing" if len(rest) < tarfile.BLOCKSIZE else "is broken"
        raise InputError(f"{file} {found} at byte {archive.offset}; put it back whole, or write it anew")
