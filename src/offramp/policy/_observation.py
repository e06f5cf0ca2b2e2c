"""The part of an exit's answer that policies decide by."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from offramp.functional import evidence
from offramp.functional._statistics import log_probabilities

__all__ = ["Observation", "Reading", "observe", "top_two_margin"]

Reading = Literal["confidence", "evidence", "margin", "noise", "prediction", "probabilities"]


@dataclass(frozen=True)
class Observation:
    """The answers of one exit to n samples; fields that no policy reads are None."""

    confidence: Tensor | None = None
    """`... x n` largest probability, temperature applied."""
    evidence: Tensor | None = None
    """`... x n x 4` evidence of the raw logits."""
    margin: Tensor | None = None
    """`... x n` difference between the two largest probabilities, temperature applied."""
    noise: Tensor | None = None
    """`... x n` uniform draws in [0, 1)."""
    prediction: Tensor | None = None
    """`... x n` most probable classes."""
    probabilities: Tensor | None = None
    """`... x n x K`, temperature applied."""


def observe(reads: Collection[str], logits: Tensor, probabilities: Tensor, noise: Tensor | None = None) -> Observation:
    """Compute the fields of an observation that are read, and no others.

    Args:
        reads: The fields to compute.
        logits: `n x K` raw logits.
        probabilities: `n x K`, temperature applied.
        noise: `n` uniform draws, if they are read.

    Example:
        >>> import torch
        >>> observation = observe({"confidence"}, torch.zeros(1, 2), torch.tensor([[0.25, 0.75]]))
        >>> observation.confidence, observation.evidence
        (tensor([0.7500]), None)
    """
    return Observation(
        confidence=probabilities.amax(-1) if "confidence" in reads else None,
        evidence=evidence(log_probabilities(logits)) if "evidence" in reads else None,
        margin=top_two_margin(probabilities) if "margin" in reads else None,
        noise=noise,
        prediction=probabilities.argmax(-1) if "prediction" in reads else None,
        probabilities=probabilities if "probabilities" in reads else None,
    )


def top_two_margin(probabilities: Tensor) -> Tensor:
    """Return the difference between the two largest of `... x K` probabilities, K >= 2."""
    first, second = probabilities.topk(2, dim=-1).values.unbind(-1)
    return first - second
