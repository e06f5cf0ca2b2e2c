"""Data in several files: a folder of them, or a pattern such as `pets-{000..009}.tar`."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TypeVar

from offramp.data.location import Location, names_in
from offramp.data.remote import RemotePath
from offramp.data.selection import Selection
from offramp.data.splits import choose_split, split_of_file
from offramp.errors import InputError

__all__ = ["expand_pattern", "find_shards", "is_pattern", "is_shard_name", "map_shards"]

Result = TypeVar("Result")

RANGE = re.compile(r"\{([0-9]+)\.\.([0-9]+)\}")
MOST_SHARDS = 1_000_000  # a slip of the keyboard names more; nobody has as many files
WAITING = 16  # shards asked for at once at an address, where most of the time is waiting


def is_shard_name(name: str, suffix: str) -> bool:
    """Whether a file of this name is a shard; hidden ones are not.

    Example:
        >>> is_shard_name("train-0.tar", ".tar"), is_shard_name("._train-0.tar", ".tar")
        (True, False)
    """
    return name.endswith(suffix) and not name.startswith(".")


def find_shards(folder: Location, selection: Selection, suffix: str) -> list[str]:
    """Names of a folder's shards in order, of one split if their names say several.

    Args:
        folder: Where they lie.
        selection: `split` chooses among files called `train-0.tar`, `train-00000-of-00002.parquet` and the like.
        suffix: How their names end.

    Raises:
        InputError: There are several splits, and none was asked for.
        UnknownNameError: There is no such split.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     for name in ("test-0.tar", "train-1.tar", "train-0.tar"):
        ...         Path(folder, name).touch()
        ...     find_shards(Path(folder), Selection(split="train"), ".tar")
        ['train-0.tar', 'train-1.tar']
    """
    names = sorted(name for name in names_in(folder) if is_shard_name(name, suffix))
    split_of = {name: split_of_file(folder / name) for name in names}
    splits = sorted({split for split in split_of.values() if split is not None})
    if not splits:
        selection.refuse_split(folder)
    if selection.split is None and len({*split_of.values()}) == 1:
        return names
    split = choose_split(folder, selection.split, splits)
    return [name for name in names if split_of[name] == split]


def is_pattern(path: Location) -> bool:
    """Whether a path stands for many: it has a range in braces.

    Example:
        >>> from pathlib import Path
        >>> is_pattern(Path("pets-{000..009}.tar")), is_pattern(Path("pets-{a}.tar"))
        (True, False)
    """
    return RANGE.search(str(path)) is not None


def expand_pattern(path: Location) -> tuple[Location, list[str]]:
    """The folder that all files of a pattern lie in, and their paths from there.

    Example:
        >>> from pathlib import Path
        >>> folder, names = expand_pattern(Path("/pets/{1..2}/part-{08..10}.tar"))
        >>> str(folder), len(names), names[3]
        ('/pets', 6, '2/part-08.tar')
    """
    folder, names = path.parent, path.name
    while is_pattern(folder):
        folder, names = folder.parent, f"{folder.name}/{names}"
    # Texts and ranges by turns: what is between the ranges, and their ends.
    pieces = RANGE.split(names)
    ranges = list(zip(pieces[1::3], pieces[2::3], strict=True))
    total = 1
    for first, last in ranges:
        total *= int(last) - int(first) + 1
        if not 0 < total <= MOST_SHARDS:
            raise InputError(f"expected ranges such as {{000..009}}, {MOST_SHARDS} files at most, got {path}; mend it")
    choices = [[str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)] for first, last in ranges]
    texts = pieces[0::3]
    return folder, [
        texts[0] + "".join(number + text for number, text in zip(chosen, texts[1:], strict=True))
        for chosen in product(*choices)
    ]


def map_shards(function: Callable[[Location], Result], folder: Location, names: Sequence[str]) -> list[Result]:
    """What a function says of each shard, in order; of shards at an address many are asked at once.

    Example:
        >>> from pathlib import Path
        >>> map_shards(lambda shard: shard.name, Path("pets"), ["a.tar", "b.tar"])
        ['a.tar', 'b.tar']
    """
    shards = [folder / name for name in names]
    if not isinstance(folder, RemotePath):
        return [function(shard) for shard in shards]
    with ThreadPoolExecutor(WAITING) as pool:
        return list(pool.map(function, shards))
