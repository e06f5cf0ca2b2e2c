"""The peer: BARGAIN, which bounds the disagreement of a cheap model by sampling at increasing thresholds."""

from typing import Any

import numpy as np
import numpy.typing as npt
from BARGAIN import BARGAIN_A, Oracle, Proxy

__all__ = ["THRESHOLD_COUNTS", "count_calls"]

THRESHOLD_COUNTS = (20, 50, 100)
"""Numbers of thresholds that are tried; the figure is that of the best."""


class _Cheap(Proxy):  # type: ignore[misc]
    def __init__(self, answers: npt.NDArray[np.int64], confidence: npt.NDArray[np.float64]) -> None:
        super().__init__(verbose=False)
        self.answers, self.confidence = answers, confidence

    def get_preds_and_scores(self, indxs: Any, data_records: Any) -> tuple[Any, Any]:
        """Look the answers up, without the threads of BARGAIN."""
        rows = np.asarray(indxs, np.int64)
        return self.answers[rows], self.confidence[rows]


class _Expensive(Oracle):  # type: ignore[misc]
    def __init__(self, truth: npt.NDArray[np.int64]) -> None:
        super().__init__(verbose=False)
        self.truth = truth

    def get_pred(self, data_records: Any, indxs: Any = None) -> Any:
        """Look the answers up."""
        return self.truth[np.asarray(indxs, np.int64)]

    def is_answer_correct(self, indxs: Any, data_records: Any, proxy_outputs: Any) -> Any:
        """Compare answers of the cheap model."""
        return self.truth[np.asarray(indxs, np.int64)] == proxy_outputs


def count_calls(
    answers: npt.NDArray[np.int64],
    confidence: npt.NDArray[np.float64],
    truth: npt.NDArray[np.int64],
    *,
    max_drop: float,
    thresholds: int,
    seed: int,
) -> tuple[int, int]:
    """Return the number of inputs that BARGAIN sends to the expensive model, and the number of answers that differ.

    Args:
        answers: `n` answers of the cheap model.
        confidence: `n` confidences.
        truth: `n` answers of the expensive model.
        max_drop: Share of the n answers that may differ.
        thresholds: M, one of THRESHOLD_COUNTS.
        seed: Seed of its samples.
    """
    peer = BARGAIN_A(
        _Cheap(answers, confidence),
        _Expensive(truth),
        target=1 - max_drop,
        delta=0.05,
        M=thresholds,
        verbose=False,
        seed=seed,
    )
    output, calls = peer.process(np.arange(len(truth)), return_oracle_usage=True)
    return int(np.sum(calls)), int((np.asarray(output, np.int64) != truth).sum())
