from typing import Any

import numpy as np
import pytest

from offramp.data._labels import Labels, read_label_blocks, read_labels
from offramp.errors import InputError, UnknownNameError
from tests.cases import each


@each(
    ("values", "numbers", "classes"),
    [
        (np.array([2, 0, 5]), [2, 0, 5], ()),
        (np.array([1, 0], np.uint8), [1, 0], ()),
        (np.array([True, False]), [1, 0], ()),
        (["2", "0", " 10 "], [2, 0, 10], ()),
        (["dog", "cat", "dog"], [1, 0, 1], ("cat", "dog")),
        (["one", "one"], [0, 0], ("one",)),
        (["1", "two"], [0, 1], ("1", "two")),
        (["Zebra", "ant", "Ärger"], [0, 1, 2], ("Zebra", "ant", "Ärger")),
    ],
)
def test_without_classes_the_data_numbers_them(values: object, numbers: list[int], classes: tuple[str, ...]) -> None:
    labels = read_labels(values)
    assert (labels.numbers.tolist(), labels.classes, labels.labelled) == (numbers, classes, True)
    assert labels.numbers.dtype == np.int64


@each(
    ("values", "classes", "numbers"),
    [
        (np.array([2, 0]), ("a", "b", "c"), [2, 0]),
        (["2", "0"], ("a", "b", "c"), [2, 0]),
        (["c", "a"], ("c", "b", "a"), [0, 2]),
        (["7", "3"], ("3", "7"), [1, 0]),
        (["1", "3"], ("1", "2", "3"), [0, 2]),
        (np.array([1, 3]), ("1", "2", "3"), [0, 2]),
        (["2", "other"], ("other", "2"), [1, 0]),
    ],
)
def test_with_classes_their_order_counts(values: object, classes: tuple[str, ...], numbers: list[int]) -> None:
    labels = read_labels(values, classes=classes)
    assert (labels.numbers.tolist(), labels.classes) == (numbers, classes)


def test_numbers_with_names_of_their_own_follow_the_order_of_classes() -> None:
    values, names = np.array([0, 1, 1]), ["cat", "dog"]
    assert read_labels(values, names=names).classes == ("cat", "dog")
    assert read_labels(values, names=names, classes=names).numbers.tolist() == [0, 1, 1]
    assert read_labels(values, names=names, classes=["dog", "cat"]).numbers.tolist() == [1, 0, 0]
    with pytest.raises(UnknownNameError, match="did you mean 'dogs'"):
        read_labels(values, names=names, classes=["cat", "dogs"])
    with pytest.raises(InputError, match="0 to 1, as there are 2 classes, got 2 at row 0"):
        read_labels(np.array([2]), names=names)


@each(
    ("values", "classes", "message"),
    [
        (np.array([0, -1]), (), "labels from 0 up, got -1 at row 1"),
        (["0", "-1"], (), "got -1 at row 1"),
        (np.array([0, 2]), ("a", "b"), "0 to 1, as there are 2 classes, got 2 at row 1"),
        (["0", "2"], ("a", "b"), "got 2 at row 1"),
        (["1", "2.0"], (), "whole numbers or names, got '2.0' at row 1"),
        (["1", "9" * 30], (), "whole numbers or names"),
        (["nan", "nan"], (), "whole numbers or names"),
        (["cat", " "], (), "row 1 has no label"),
        (["cat", None], (), "row 1 has no label"),
        ([1, None], (), "row 1 has no label"),
        ([0.5], (), "integers or names, got 0.5"),
        (np.eye(2), (), "one label per row, got an array of shape"),
    ],
)
def test_what_is_no_label_is_refused(values: object, classes: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_labels(values, classes=classes)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown class 'cats'; did you mean 'cat'"):
        read_labels(["cats"], classes=["cat", "dog"])
    with pytest.raises(UnknownNameError, match="cow"):
        Labels.from_names(["cow"], ["cat", "dog"])


def test_the_first_differences_of_both_are_told() -> None:
    classes = ["card_lost", "pin", "refund", "balance", "top_up", "fee", "limit"]
    told = (
        r"unknown class 'card lost'; did you mean 'card_lost'\? 2 of 3 label names are not classes: 'card lost', "
        r"'zzz'; 6 of 7 classes have no label: 'card_lost', 'refund', 'balance', 'top_up', 'fee', \.\.\.; rename"
    )
    with pytest.raises(UnknownNameError, match=told):
        Labels.from_names(["zzz", "pin", "card lost", "pin"], classes)


@each("values", [["0", "1", "2"], np.array([0, 1, 2])])
@each("classes", [("1", "2", "3"), ("1", "two", "three")])
def test_where_classes_are_called_by_integers_labels_are_names(values: object, classes: tuple[str, ...]) -> None:
    with pytest.raises(UnknownNameError, match="unknown class '0'"):
        read_labels(values, classes=classes)


@each("values", [["", ""], [None, None], [" ", None]])
def test_labels_that_are_all_empty_are_none(values: list[str | None]) -> None:
    labels = read_labels(values)
    assert (labels.numbers.tolist(), labels.classes, labels.labelled) == ([-1, -1], (), False)
    assert read_labels(values, names=["cat", "dog"]).classes == ("cat", "dog")
    assert read_labels(values, names=["cat", "dog"], classes=["dog", "cat"]).classes == ("dog", "cat")


def test_minus_one_everywhere_is_none_where_the_data_has_names() -> None:
    labels = read_labels(np.array([-1, -1]), names=["cat", "dog"])
    assert (labels.numbers.tolist(), labels.classes, labels.labelled) == ([-1, -1], ("cat", "dog"), False)
    assert read_labels(np.array([-1, -1]), names=["cat", "dog"], classes=["dog", "cat"]).classes == ("dog", "cat")
    with pytest.raises(InputError, match="got -1 at row 1"):
        read_labels(np.array([0, -1]), names=["cat", "dog"])
    with pytest.raises(InputError, match="got -1 at row 0"):
        read_labels(np.array([-1, -1]))


def test_messages_say_where() -> None:
    with pytest.raises(InputError, match="line 12"):
        read_labels(["0", "-1"], place=lambda row: f"line {row + 11}")


def test_no_labels_are_minus_one() -> None:
    labels = Labels.missing(3, ["cat"])
    assert (labels.numbers.tolist(), labels.classes, labels.labelled) == ([-1, -1, -1], ("cat",), False)


@each("values", [["1", "0", "1"], ["dog", "cat", "dog"], ["", " ", ""], [None, None], [], [1, 0, 1], [True, False]])
@each("classes", [(), ("dog", "cat")])
def test_blocks_of_labels_are_what_all_at_once_are(values: list[Any], classes: tuple[str, ...]) -> None:
    whole = read_labels(np.array(values) if values and isinstance(values[0], int) else values, classes=classes)
    for size in (1, 2, 3):
        blocks = [values[start : start + size] for start in range(0, len(values), size)]
        found = read_label_blocks(blocks, classes=classes)
        assert found.numbers.tolist() == whole.numbers.tolist()
        assert (found.classes, found.labelled) == (whole.classes, whole.labelled)


@each(
    ("values", "message"),
    [
        (["a", "b", "", "c", ""], "line 3 has no label"),
        (["0", "1", "1", "-1"], "line 4"),
        ([1, 1, 1, 1, -2], "line 5"),
        (["1", "1", "1.0"], "'1.0' at line 3"),
    ],
)
def test_the_first_wrong_label_of_all_blocks_is_named(values: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_label_blocks([values[:2], values[2:]], place=lambda row: f"line {row + 1}")
