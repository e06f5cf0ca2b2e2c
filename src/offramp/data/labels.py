"""What the labels of a dataset stand for: numbers as they are, names by their order."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError, UnknownNameError

__all__ = ["Labels", "label_numbers", "named_labels", "read_labels", "unlabelled"]

INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # no more than fit 64 bits
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|inf", re.IGNORECASE)


@dataclass(frozen=True)
class Labels:
    """The labels of all rows."""

    numbers: npt.NDArray[np.int64]
    """`N` classes from 0 up; -1 each where there are no labels."""
    classes: tuple[str, ...] = ()
    """Names in the order of the numbers; empty where only numbers are known."""
    labelled: bool = True
    """Whether labels are known."""


def unlabelled(count: int, classes: Sequence[str] = ()) -> Labels:
    """Return the labels of data that has none."""
    return Labels(np.full(count, -1, np.int64), tuple(classes), labelled=False)


def named_labels(names: Sequence[str], classes: Sequence[str]) -> Labels:
    """Return labels by the place of each name in `classes`.

    Raises:
        UnknownNameError: Names are not among `classes`; the message has the first of them, and of the classes that no
            label has.
    """
    numbers = {name: number for number, name in enumerate(classes)}
    if unknown := set(names) - set(classes):
        raise _unknown_classes(unknown, set(names), classes)
    return Labels(np.array([numbers[name] for name in names], np.int64), tuple(classes))


def label_numbers(labels: Any, name: str, classes: Sequence[str]) -> Any:
    """Return labels that are names as the numbers of their classes; others as they came.

    Args:
        labels: `N` names or numbers.
        name: What the data is called in messages.
        classes: Names of the network's classes.
    """
    values = labels.tolist() if isinstance(labels, np.ndarray) and labels.dtype.kind in "OSU" else labels
    if not isinstance(values, list | tuple) or not any(isinstance(value, str) for value in values):
        return labels
    if not classes:
        raise InputError(
            f"expected numbers as labels of {name}, got names such as '{values[0]}', and the network does not know its "
            "classes; set backbone.classes to their names in the order of its outputs"
        )
    return named_labels(values, classes).numbers


def _unknown_classes(unknown: set[str], names: set[str], classes: Sequence[str]) -> UnknownNameError:
    """Make the error for labels that do not fit the classes: the first differences of both, and the nearest name."""
    first = sorted(unknown)
    near = get_close_matches(first[0], classes, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    unused = [name for name in classes if name not in names]
    rest = f"{len(unused)} of {len(classes)} classes have no label: {_shown(unused)}"
    rest = rest if unused else f"the classes are {_shown(classes)}"
    return UnknownNameError(
        f"unknown class '{first[0]}'{hint} {len(first)} of {len(names)} names of labels are no classes: "
        f"{_shown(first)}; {rest}. Rename the labels, or name their column: label=..."
    )


def _shown(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(f"'{name}'" for name in names[:most]) + (", ..." if len(names) > most else "")


def read_labels(
    values: Any,
    *,
    classes: Sequence[str] = (),
    names: Sequence[str] = (),
    place: Callable[[int], str] = "row {}".format,
) -> Labels:
    """Return labels as numbers from 0 up.

    Integers, and texts that are all integers, are classes as they stand. Other texts are names: looked up in `classes`
    where given, else numbered in sorted order. Where one of `classes` is itself called by an integer, all labels are
    names, integers too: of the classes "1", "2" and "3", 1 is the first.

    Labels that are empty in every row are none, as data to predict often has them; so are labels with `names` that are
    all -1, which is how Hugging Face marks them.

    Args:
        values: `N` integers or texts; empty texts and None are empty.
        classes: Names of all classes in the order of the network's outputs, where they are known.
        names: What integer values stand for, where the data itself says so; the order of `classes` still counts.
        place: Makes the words for a row in messages.

    Raises:
        InputError: A label is negative, too large or no whole number, or some are empty and others not.
        UnknownNameError: A name is not one of `classes`.

    Example:
        >>> read_labels(["dog", "cat", "dog"]).numbers.tolist()
        [1, 0, 1]
        >>> read_labels(["dog", "cat", "dog"], classes=["dog", "cat"]).numbers.tolist()
        [0, 1, 0]
        >>> read_labels(["2", "0"]).numbers.tolist()
        [2, 0]
        >>> read_labels(["2", "1"], classes=["1", "2", "3"]).numbers.tolist()
        [1, 0]
        >>> read_labels(["", ""]).labelled
        False
    """
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InputError(f"expected one label a row, got an array of shape {values.shape}; give classes as one integer")
    if isinstance(values, np.ndarray) and values.dtype.kind in "biu":
        return _from_integers(values.astype(np.int64), tuple(classes), tuple(names), place)
    texts = [value.strip() if isinstance(value, str) else value for value in values]
    empty = [row for row, text in enumerate(texts) if text is None or text == ""]
    if len(empty) == len(texts):
        return unlabelled(len(texts), classes or names)
    if empty:
        raise InputError(f"{place(empty[0])} has no label; leave the label out everywhere or nowhere")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"expected labels as integers or names, got {text!r} at {place(row)}; convert them")
    return _from_texts(texts, tuple(classes), place)


def _from_integers(
    numbers: npt.NDArray[np.int64], classes: tuple[str, ...], names: tuple[str, ...], place: Callable[[int], str]
) -> Labels:
    if names:
        if (numbers == -1).all():
            return unlabelled(len(numbers), classes or names)
        _numbered(numbers, names, place)  # to check them
        return named_labels([names[number] for number in numbers], classes or names)
    if _called_by_integers(classes):
        return named_labels([str(number) for number in numbers], classes)
    return _numbered(numbers, classes, place)


def _from_texts(texts: list[str], classes: tuple[str, ...], place: Callable[[int], str]) -> Labels:
    distinct = set(texts)
    if _called_by_integers(classes):
        return named_labels(texts, classes)
    if all(INTEGER.fullmatch(text) for text in distinct):
        return _numbered(np.array([int(text) for text in texts], np.int64), classes, place)
    if all(NUMBER.fullmatch(text) for text in distinct):
        # As names they would be sorted as texts, "10.0" before "2.0".
        row = next(row for row, text in enumerate(texts) if not INTEGER.fullmatch(text))
        raise InputError(f"expected labels as whole numbers or names, got '{texts[row]}' at {place(row)}; write '1'")
    return named_labels(texts, classes or sorted(distinct))


def _called_by_integers(classes: tuple[str, ...]) -> bool:
    return any(INTEGER.fullmatch(name) for name in classes)


def _numbered(numbers: npt.NDArray[np.int64], classes: tuple[str, ...], place: Callable[[int], str]) -> Labels:
    limit = len(classes) or np.iinfo(np.int64).max
    wrong = np.flatnonzero((numbers < 0) | (numbers >= limit))
    if len(wrong):
        to = f" to {limit - 1}, as there are {limit} classes" if classes else " up"
        raise InputError(
            f"expected labels from 0{to}; got {numbers[wrong[0]]} at {place(int(wrong[0]))}; number the classes from 0"
        )
    return Labels(numbers, classes)
