"""Replies of called models, and the class scores in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from offramp.errors import InputError

__all__ = ["LABEL_SCORE", "Reply", "read_replies"]

Scores = npt.NDArray[np.float32]

LABEL_SCORE = 20.0
"""Score of the class of a reply without scores; the others have 0. With 1,000 classes its probability is 1 - 2e-6."""


@dataclass(frozen=True)
class Reply:
    """The reply of a model to one input, with the tokens it is billed by."""

    answer: Any
    """A class number, a class name, or K scores, log-probabilities or probabilities; anything else is malformed."""
    input_tokens: int = 0
    """Tokens that the model read."""
    output_tokens: int = 0
    """Tokens that it wrote."""


@dataclass(frozen=True)
class Answers:
    """The replies to n inputs as class scores."""

    scores: Scores
    """`n x K` scores; NaN where the reply was malformed."""
    replies: Sequence[Reply]
    """`n` replies."""
    labels_only: bool
    """True if no reply had scores."""


def read_replies(replies: Any, count: int, classes: Sequence[str], num_classes: int) -> Answers:
    """Turn what a function returned into class scores.

    Args:
        replies: One reply per input: class numbers, class names, `n x K` numbers, or `Reply` objects.
        count: n, the number of inputs.
        classes: Class names in the order of the scores; empty if unknown.
        num_classes: K.

    Returns:
        The scores: logarithms of probabilities, other scores as they are, `LABEL_SCORE` for a label alone.

    Raises:
        InputError: If the number of replies is not the number of inputs.

    Example:
        >>> read_replies(["cat", "horse", Reply(1)], 3, ("cat", "dog"), 2).scores.tolist()
        [[20.0, 0.0], [nan, nan], [0.0, 20.0]]
    """
    if isinstance(replies, torch.Tensor):
        replies = replies.detach().float().cpu().numpy() if replies.is_floating_point() else replies.cpu().numpy()
    if not hasattr(replies, "__len__") or isinstance(replies, str) or len(replies) != count:
        got = f"{len(replies)}" if hasattr(replies, "__len__") and not isinstance(replies, str) else type(replies)
        raise InputError("replies", expected=f"one per input, {count}", got=got)
    if isinstance(replies, np.ndarray) and replies.ndim == 2 and replies.dtype.kind == "f":
        read = _read_scores(replies, num_classes)
        return Answers(read, [Reply(None)] * count, labels_only=False)
    given = [reply if isinstance(reply, Reply) else Reply(reply) for reply in replies]
    numbers = {name: number for number, name in enumerate(classes)}
    rows = [_read_answer(reply.answer, numbers, num_classes) for reply in given]
    scores = np.stack([row for row, _ in rows]) if rows else np.empty((0, num_classes), np.float32)
    return Answers(scores, given, labels_only=all(label_only for _, label_only in rows))


def _read_answer(answer: Any, numbers: dict[str, int], num_classes: int) -> tuple[Scores, bool]:
    """Return `K` scores of one answer, NaN if it is malformed; and True if it is a label alone."""
    if isinstance(answer, str):
        answer = numbers.get(answer.strip())
    if isinstance(answer, int | np.integer) and not isinstance(answer, bool) and 0 <= answer < num_classes:
        scores = np.zeros(num_classes, np.float32)
        scores[answer] = LABEL_SCORE
        return scores, True
    try:
        row = np.asarray(answer, np.float32)
    except (TypeError, ValueError):
        row = np.empty(0, np.float32)
    if row.shape != (num_classes,):
        return np.full(num_classes, np.nan, np.float32), True
    return _read_scores(row[None], num_classes)[0], False


def _read_scores(scores: npt.NDArray[Any], num_classes: int) -> Scores:
    """Return `n x K` scores, logarithms where rows are probabilities, NaN where a row is not finite."""
    if scores.shape[1] != num_classes:
        raise InputError("replies", expected=f"n x {num_classes} scores", got=scores.shape)
    rows = scores.astype(np.float32)
    probabilities = ((rows >= 0) & (rows <= 1)).all(1) & (np.abs(rows.sum(1) - 1) < 1e-3)
    with np.errstate(divide="ignore"):
        # The smallest normal number for 0: a score must be finite.
        rows[probabilities] = np.log(np.maximum(rows[probabilities], np.finfo(np.float32).tiny))
    rows[~np.isfinite(rows).all(1)] = np.nan
    return rows
