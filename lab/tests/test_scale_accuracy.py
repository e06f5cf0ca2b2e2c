"""Accuracies between the points of a curve."""

import numpy as np
import pytest

from offramp_bench.scale.accuracy import accuracies_at


def test_linear_between_points_and_level_after_the_last() -> None:
    accuracies = accuracies_at(np.array([0.6, 0.2]), np.array([0.9, 0.8]), np.array([0.1, 0.2, 0.4, 0.6, 1.0]))
    assert np.isnan(accuracies[0])
    assert accuracies[1:] == pytest.approx([0.8, 0.85, 0.9, 0.9])
