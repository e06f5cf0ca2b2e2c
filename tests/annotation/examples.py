"""A set of inputs with an expensive model and cheap ones, for tests of annotation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import offramp
from offramp.backbone import Cascade

CLASSES = ("north", "east", "south", "west")

__all__ = ["CLASSES", "Expensive", "embeddings", "noisy_cascade"]


def embeddings(
    count: int, *, seed: int = 0, noise: float = 0.6
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Points around four centres in eight dimensions, and the expensive model's answers."""
    generator = np.random.default_rng(seed)
    answers = generator.integers(0, 4, count)
    centres = np.random.default_rng(99).normal(size=(4, 8))
    points = centres[answers] + noise * generator.normal(size=(count, 8))
    return points.astype(np.float32), answers


class Expensive:
    """Answers rows by a table, and counts what it is asked."""

    def __init__(self, answers: npt.NDArray[np.int64], *, fail: Callable[[int], bool] = lambda _: False) -> None:
        self.answers, self.fail = answers, fail
        self.asked: list[int] = []

    def __call__(self, rows: Any) -> list[Any]:
        self.asked += [int(row) for row in rows]
        return [None if self.fail(int(row)) else CLASSES[self.answers[int(row)]] for row in rows]


def noisy_cascade(expensive: Expensive, **options: Any) -> Cascade:
    """An encoder of the embeddings in front of the expensive model, which reads row numbers."""
    last = offramp.callable_model(expensive, CLASSES, name="expensive", field="row", **options)
    return offramp.cascade(offramp.encoder(field="embedding"), last)
