"""A saved model for processes of engines to load, and the comparison of their answers with its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import offramp
from tests.model.artifact_examples import resnet

__all__ = ["check_rows", "save_and_load"]


def save_and_load(folder: Path) -> offramp.EarlyExitModel:
    """Save a model into a folder, and return it as loaded from there."""
    resnet().at(cost=0.9, policy="threshold").save(folder, weights=True)
    return offramp.load(folder)


def check_rows(rows: Sequence[Any], model: offramp.EarlyExitModel, pixels: Any) -> None:
    """Compare answers, in any order, with those of `predict`, as far as batches round.

    Args:
        rows: The answers by the names of their columns; `id` is the number of the image.
        model: The model.
        pixels: The images.
    """
    rows = sorted(rows, key=lambda row: row["id"])
    expected = model.predict(pixels)
    assert [row["id"] for row in rows] == list(range(len(pixels)))
    assert [row["label"] for row in rows] == expected.labels.tolist()
    assert [row["exit"] for row in rows] == expected.exits.tolist()
    assert len(set(expected.exits.tolist())) > 1
    np.testing.assert_allclose([row["confidence"] for row in rows], expected.probabilities.amax(1), atol=1e-5)
    assert [list(row["set"]) for row in rows] == [
        members.nonzero().flatten().tolist() for members in expected.prediction_sets[0.05]
    ]
