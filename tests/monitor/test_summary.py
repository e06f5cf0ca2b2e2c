"""Counts and means of traffic, and what is said where there is none."""

import math

import pytest

from offramp.monitor import Traffic, summarise


def test_counts_and_means() -> None:
    found = summarise(Traffic([0, 0, 2, 1], [0.9, 0.8, 0.4, 0.5], [0, math.nan, 1, 1]), num_exits=4)
    assert found.exit_shares == (0.5, 0.25, 0.25, 0)
    assert found.confidence == pytest.approx(0.65)
    assert (found.samples, found.shadowed) == (4, 3)
    assert found.disagreement == pytest.approx(2 / 3)


def test_of_nothing() -> None:
    found = summarise(Traffic([], []), num_exits=2)
    assert (found.samples, found.shadowed) == (0, 0)
    assert all(math.isnan(value) for value in (found.confidence, found.disagreement, *found.exit_shares))
