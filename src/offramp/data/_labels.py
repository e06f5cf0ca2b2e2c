"""Labels of a dataset as class numbers: integers as they are, names by their position among the classes."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.data._columns import map_numbers
from offramp.errors import InputError, UnknownNameError

__all__ = ["Labels", "encode_labels", "read_label_blocks", "read_labels"]

INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # up to 18 digits fit 64 bits
BLOCK_ROWS = 1 << 16  # labels that are converted together
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|inf", re.IGNORECASE)


@dataclass(frozen=True)
class Labels:
    """The labels of all rows."""

    numbers: npt.NDArray[np.int64]
    """`N` classes from 0 up; -1 everywhere if there are no labels."""
    classes: tuple[str, ...] = ()
    """Class names in the order of the numbers; empty if only numbers are known."""
    labelled: bool = True
    """False if there are no labels."""

    @classmethod
    def missing(cls, count: int, classes: Sequence[str] = ()) -> "Labels":
        """Make the labels of data without labels."""
        return cls(np.broadcast_to(np.int64(-1), count), tuple(classes), labelled=False)

    @classmethod
    def from_names(cls, names: Sequence[str], classes: Sequence[str]) -> "Labels":
        """Number each name by its position in `classes`.

        Raises:
            UnknownNameError: If names are not in `classes`; the message shows the first ones, and unused classes.
        """
        numbers = {name: number for number, name in enumerate(classes)}
        if unknown := set(names) - set(classes):
            raise _unknown_classes(sorted(unknown), set(names), classes)
        return cls(np.array([numbers[name] for name in names], np.int64), tuple(classes))


def _unknown_classes(unknown: list[str], names: set[str], classes: Sequence[str]) -> UnknownNameError:
    near = get_close_matches(unknown[0], classes, n=1)
    unused = [name for name in classes if name not in names]
    rest = f"{len(unused)} of {len(classes)} classes have no label: {_quote(unused)}"
    rest = rest if unused else f"the classes are {_quote(classes)}"
    return UnknownNameError(
        f"unknown class '{unknown[0]}'",
        hint=(f"did you mean '{near[0]}'? " if near else "")
        + f"{len(unknown)} of {len(names)} label names are not classes: {_quote(unknown)}; {rest}; rename the labels, "
        "or name their column: label=...",
    )


def _quote(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(f"'{name}'" for name in names[:most]) + (", ..." if len(names) > most else "")


def encode_labels(labels: Any, name: str, classes: Sequence[str]) -> Any:
    """Return labels that are names as class numbers, and other labels unchanged.

    Args:
        labels: `N` names or numbers.
        name: Name of the data, for messages.
        classes: Names of the network's classes.
    """
    values = labels.tolist() if isinstance(labels, np.ndarray) and labels.dtype.kind in "OSU" else labels
    if not isinstance(values, list | tuple) or not any(isinstance(value, str) for value in values):
        return labels
    if not classes:
        raise InputError(
            f"labels of {name}",
            expected="numbers, as the network does not know its classes",
            got=f"names such as '{values[0]}'",
            hint="pass classes=[...] to fit, or set backbone.classes: names in the order of the network's outputs",
        )
    return Labels.from_names(values, classes).numbers


def read_labels(
    values: Any,
    *,
    classes: Sequence[str] = (),
    names: Sequence[str] = (),
    place: Callable[[int], str] = "row {}".format,
) -> Labels:
    """Return labels as numbers from 0 up.

    Integers, and texts that are all integers, are class numbers. Other texts are names: looked up in `classes` if they
    are given, else numbered in sorted order. If one of `classes` is itself an integer, all labels are names, integers
    too: of the classes "1", "2" and "3", 1 is the first.

    Labels that are empty in every row count as missing; so do labels with `names` that are all -1, which is how Hugging
    Face marks them.

    Args:
        values: `N` integers or texts; empty texts and None are empty.
        classes: Names of all classes in the order of the network's outputs, if known.
        names: Names of the integer values, if the data has them; the order of `classes` still counts.
        place: Describes a row in messages.

    Raises:
        InputError: If a label is negative, too large or no integer, or only some are empty.
        UnknownNameError: If a name is not one of `classes`.

    Example:
        >>> read_labels(["dog", "cat", "dog"]).numbers.tolist()
        [1, 0, 1]
        >>> read_labels(["dog", "cat", "dog"], classes=["dog", "cat"]).numbers.tolist()
        [0, 1, 0]
    """
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InputError(expected="one label per row", got=f"an array of shape {values.shape}", hint="give one integer")
    if isinstance(values, np.ndarray) and values.dtype.kind in "biu":
        return _from_integers(values.astype(np.int64), tuple(classes), tuple(names), place)
    texts = [value.strip() if isinstance(value, str) else value for value in values]
    empty = [row for row, text in enumerate(texts) if text is None or text == ""]
    if len(empty) == len(texts):
        return Labels.missing(len(texts), classes or names)
    if empty:
        raise InputError(f"{place(empty[0])} has no label", hint="leave the label out in every row or in none")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(expected="labels as integers or names", got=f"{text!r} at {place(row)}")
    return _from_texts(texts, tuple(classes), place)


def read_label_blocks(
    blocks: Iterable[Sequence[Any]],
    *,
    classes: Sequence[str] = (),
    names: Sequence[str] = (),
    place: Callable[[int], str] = "row {}".format,
) -> Labels:
    """Return the labels that `read_labels` returns, in a temporary file: only the different ones are held.

    Args:
        blocks: The labels in blocks, integers or texts.
        classes: As in `read_labels`.
        names: As in `read_labels`.
        place: As in `read_labels`.

    Example:
        >>> read_label_blocks([["dog", "cat"], ["dog"]]).numbers.tolist()
        [1, 0, 1]
    """
    codes: dict[Any, int] = {}
    first_rows: list[int] = []
    numbers = map_numbers(_encode_blocks(blocks, codes, first_rows))
    values = list(codes)
    integers = bool(values) and not any(value is None or isinstance(value, str) for value in values)
    labels = read_labels(
        np.array(values) if integers else values,
        classes=classes,
        names=names,
        place=lambda code: place(first_rows[code]),
    )
    if not labels.labelled:
        return Labels.missing(len(numbers), labels.classes)
    starts = range(0, len(numbers), BLOCK_ROWS)
    blocks_of_labels = (labels.numbers[numbers[start : start + BLOCK_ROWS]] for start in starts)
    return Labels(map_numbers(blocks_of_labels), labels.classes)


def _encode_blocks(
    blocks: Iterable[Sequence[Any]], codes: dict[Any, int], first_rows: list[int]
) -> Iterator[npt.NDArray[np.int64]]:
    """Number values by their first appearance; `codes` and `first_rows` are filled."""
    row = 0
    for block in blocks:
        for place, value in enumerate(block):
            if value not in codes:
                codes[value] = len(codes)
                first_rows.append(row + place)
        row += len(block)
        yield np.fromiter((codes[value] for value in block), np.int64, len(block))


def _from_integers(
    numbers: npt.NDArray[np.int64], classes: tuple[str, ...], names: tuple[str, ...], place: Callable[[int], str]
) -> Labels:
    if names:
        if (numbers == -1).all():
            return Labels.missing(len(numbers), classes or names)
        _check_range(numbers, names, place)
        return Labels.from_names([names[number] for number in numbers], classes or names)
    if _has_integer_names(classes):
        return Labels.from_names([str(number) for number in numbers], classes)
    _check_range(numbers, classes, place)
    return Labels(numbers, classes)


def _from_texts(texts: list[str], classes: tuple[str, ...], place: Callable[[int], str]) -> Labels:
    distinct = set(texts)
    if _has_integer_names(classes):
        return Labels.from_names(texts, classes)
    if all(INTEGER.fullmatch(text) for text in distinct):
        return _from_integers(np.array([int(text) for text in texts], np.int64), classes, (), place)
    if all(NUMBER.fullmatch(text) for text in distinct):
        # As names they would be sorted as texts, "10.0" before "2.0".
        row = next(row for row, text in enumerate(texts) if not INTEGER.fullmatch(text))
        raise InputError(
            expected="labels as whole numbers or names",
            got=f"'{texts[row]}' at {place(row)}",
            hint="write integers (1, not 1.0) or class names",
        )
    return Labels.from_names(texts, classes or sorted(distinct))


def _has_integer_names(classes: tuple[str, ...]) -> bool:
    return any(INTEGER.fullmatch(name) for name in classes)


def _check_range(numbers: npt.NDArray[np.int64], classes: tuple[str, ...], place: Callable[[int], str]) -> None:
    limit = len(classes) or np.iinfo(np.int64).max
    wrong = np.flatnonzero((numbers < 0) | (numbers >= limit))
    if len(wrong):
        end = f"to {limit - 1}, as there are {limit} classes" if classes else "up"
        raise InputError(
            expected=f"labels from 0 {end}",
            got=f"{numbers[wrong[0]]} at {place(int(wrong[0]))}",
            hint="number the classes from 0",
        )
