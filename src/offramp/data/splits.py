"""Parts of a dataset that must not be taken for one: train, validation, test."""

import re
from collections.abc import Sequence

from offramp.data.location import Location
from offramp.errors import InputError
from offramp.registry import unknown_name

__all__ = ["SPLITS", "choose_split", "is_split_name", "split_of_file"]

SPLITS = frozenset({"dev", "eval", "test", "train", "training", "val", "valid", "validation"})
SHARD = re.compile(r"(.+)-[0-9]{5}-of-[0-9]{5}(-[0-9a-f]{16})?")  # the hub's; it once added a fingerprint
NUMBERED = re.compile(r"(?:.*[-._])?([^-._0-9][^-._]*?)[-._ ]?[0-9]*")


def is_split_name(name: str) -> bool:
    """Whether people call a split like this.

    Example:
        >>> is_split_name("Test"), is_split_name("cats")
        (True, False)
    """
    return name.lower() in SPLITS


def split_of_file(file: Location) -> str | None:
    """The split that a file belongs to by its name, if the name says one.

    Names of shards as the hub has them say one, whatever it is called; others only where the last word before the
    number is a usual one.

    Example:
        >>> from pathlib import Path
        >>> names = ("validation_matched-00000-of-00002.parquet", "train.parquet", "pets-train-1.tar", "part-1.parquet")
        >>> [split_of_file(Path(name)) for name in names]
        ['validation_matched', 'train', 'train', None]
    """
    if shard := SHARD.fullmatch(file.stem):
        return shard[1]
    numbered = NUMBERED.fullmatch(file.stem)
    return numbered[1] if numbered and is_split_name(numbered[1]) else None


def choose_split(path: Location, split: str | None, splits: Sequence[str]) -> str:
    """The split asked for, which must be there.

    Args:
        path: Where the data lies.
        split: What was asked for.
        splits: What there is.

    Raises:
        InputError: None was asked for.
        UnknownNameError: There is no such split.

    Example:
        >>> from pathlib import Path
        >>> choose_split(Path("pets"), None, ["test", "train"])
        Traceback (most recent call last):
        offramp.errors.InputError: pets holds the splits test, train; choose one: split='test'
    """
    if split is None:
        raise InputError(f"{path} holds the splits {', '.join(splits)}; choose one: split='{splits[0]}'")
    if split not in splits:
        raise unknown_name("split", split, splits)
    return split
