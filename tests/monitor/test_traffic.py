"""Traffic from arrays and tensors of many kinds, and values that are refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from offramp.errors import InputError
from offramp.monitor import Traffic
from offramp.monitor._traffic import summarise
from tests.cases import each


def test_lists_arrays_and_tensors_are_the_same() -> None:
    exits, confidence, differs = [0, 2], [0.5, 1.0], [math.nan, 1.0]
    for make in (list, np.array, torch.tensor):
        traffic = Traffic(make(exits), make(confidence), make(differs))
        assert traffic.exits.tolist() == exits
        assert traffic.confidence.tolist() == confidence
        assert traffic.shadowed.tolist() == [1.0]
        assert traffic.exits.dtype == np.int64


def test_without_a_shadow_nobody_was_run_to_full_depth() -> None:
    assert len(Traffic([1], [0.5]).shadowed) == 0


def test_parts_put_together_are_the_whole() -> None:
    whole = Traffic([0, 1, 2], [0.1, 0.2, 0.3], [0, math.nan, 1])
    again = whole[:1].join(whole[1:])
    assert again.exits.tolist() == [0, 1, 2]
    assert again.confidence.tolist() == [0.1, 0.2, 0.3]
    assert np.array_equal(again.disagreement, whole.disagreement, equal_nan=True)


def test_a_confidence_that_was_rounded_above_one_is_one() -> None:
    above = np.nextafter(np.float32(1), np.float32(2))
    assert Traffic([0, 0], [above, 1 + 9e-6]).confidence.tolist() == [1.0, 1.0]
    given = np.array([1 + 1e-6])
    Traffic([0], given)
    assert given[0] > 1  # what was given is not written into


def test_no_samples_are_traffic_too() -> None:
    assert len(Traffic([], [])) == 0


@each(
    ("columns", "told"),
    [
        (([0, 1], [0.5]), "as many exits as confidences and disagreements, got 2, 1 and 2"),
        (([0], [0.5], [0, 1]), "got 1, 1 and 2"),
        (([0, -1], [0.5, 0.5]), "exits as numbers 0, 1, ..., got -1 for sample 1"),
        (([0.5], [0.5]), "got 0.5 for sample 0"),
        (([math.nan], [0.5]), "got nan for sample 0"),
        (([math.inf], [0.5]), "got inf for sample 0"),
        (([0], [1.5]), "confidences between 0 and 1, got 1.5 for sample 0"),
        (([0], [1 + 2e-5]), "confidences between 0 and 1, got 1.00002 for sample 0"),
        (([0], [-1e-6]), "confidences between 0 and 1, got -1e-06 for sample 0"),
        (([0, 0], [0.5, math.nan]), "got nan for sample 1"),
        (([0], [0.5], [2]), "disagreements 0, 1 or NaN, got 2 for sample 0"),
        (([[0]], [0.5]), "exits as numbers, one per sample, got an array of shape"),
        ((["first"], [0.5]), "expected exits as numbers, one per sample, got list"),
    ],
)
def test_what_is_refused(columns: tuple[Any, ...], told: str) -> None:
    with pytest.raises(InputError, match=told.replace("...", r"\.\.\.").replace("[", r"\[")):
        Traffic(*columns)


def test_summary_counts_and_means() -> None:
    summary = summarise(Traffic([0, 0, 2, 1], [0.9, 0.8, 0.4, 0.5], [0, math.nan, 1, 1]), num_exits=4)
    assert summary.exit_shares == (0.5, 0.25, 0.25, 0)
    assert summary.confidence == pytest.approx(0.65)
    assert (summary.samples, summary.shadowed) == (4, 3)
    assert summary.disagreement == pytest.approx(2 / 3)


def test_summary_of_nothing() -> None:
    summary = summarise(Traffic([], []), num_exits=2)
    assert (summary.samples, summary.shadowed) == (0, 0)
    assert all(math.isnan(value) for value in (summary.confidence, summary.disagreement, *summary.exit_shares))
