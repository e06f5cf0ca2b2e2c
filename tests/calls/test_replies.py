"""Replies of any kind become class scores; what is no answer becomes NaN."""

from typing import Any

import numpy as np
import pytest
import torch

from offramp.calls import Reply
from offramp.calls._replies import LABEL_SCORE, read_replies
from offramp.errors import InputError
from tests.cases import each

CLASSES = ("cat", "dog", "fish")
ONE = [0.0, LABEL_SCORE, 0.0]
SHARES = [0.2, 0.5, 0.3]


@each(
    "replies",
    [
        ["dog"],
        [" dog\n"],
        [1],
        np.array([1]),
        np.array(["dog"]),
        torch.tensor([1]),
        [Reply("dog", 7, 1)],
        (np.int32(1),),
    ],
)
def test_a_label_in_any_form_is_one_class_alone(replies: Any) -> None:
    read = read_replies(replies, 1, CLASSES, 3)
    assert read.scores.tolist() == [ONE]
    assert read.labels_only


@each(
    "replies",
    [np.array([SHARES]), torch.tensor([SHARES]), [SHARES], [Reply(SHARES)]],
)
def test_probabilities_become_logarithms(replies: Any) -> None:
    read = read_replies(replies, 1, CLASSES, 3)
    np.testing.assert_allclose(read.scores, np.log([SHARES]), rtol=1e-6)
    assert not read.labels_only


def test_scores_stay_as_they_are_and_a_probability_of_0_is_finite() -> None:
    scores = np.array([[3.0, -1.0, 0.5], [0.0, 1.0, 0.0]])
    read = read_replies(scores, 2, (), 3).scores
    assert read[0].tolist() == [3.0, -1.0, 0.5]
    assert np.isfinite(read).all()
    assert read[1].argmax() == 1


@each("wrong", ["horse", 3, -1, None, True, [0.5, 0.5], [float("nan")] * 3, {"class": "dog"}, 1.5, ""])
def test_what_is_no_answer_is_malformed(wrong: Any) -> None:
    read = read_replies(["dog", wrong], 2, CLASSES, 3).scores
    assert read[0].tolist() == ONE
    assert np.isnan(read[1]).all()


def test_rows_of_scores_that_are_not_finite_are_malformed() -> None:
    read = read_replies(np.array([[1.0, np.inf, 0], [1.0, 2.0, 3.0]]), 2, (), 3).scores
    assert np.isnan(read[0]).all()
    assert read[1].tolist() == [1.0, 2.0, 3.0]


@each("replies", [["dog"], "dog", None, 3, np.zeros((2, 4))])
def test_replies_of_another_number_or_width_are_refused(replies: Any) -> None:
    with pytest.raises(InputError):
        read_replies(replies, 2, CLASSES, 3)


def test_a_thousand_classes_and_none_of_inputs() -> None:
    assert read_replies([999], 1, (), 1000).scores.argmax() == 999
    assert read_replies([], 0, (), 1000).scores.shape == (0, 1000)
