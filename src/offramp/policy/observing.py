"""What policies see of an exit's answer."""

from collections.abc import Collection

from torch import Tensor

from offramp.functional import evidence, log_probabilities
from offramp.policy.margin import lead
from offramp.policy.policy import Observation

__all__ = ["observe"]


def observe(reads: Collection[str], logits: Tensor, probabilities: Tensor, noise: Tensor | None = None) -> Observation:
    """What is read of an answer, and nothing else: the rest is not computed.

    Args:
        reads: Everything that a policy at hand reads.
        logits: `n x K` raw scores.
        probabilities: `n x K`, temperature applied.
        noise: `n` uniform draws, where they are read.

    Example:
        >>> import torch
        >>> seen = observe({"confidence"}, torch.zeros(1, 2), torch.tensor([[0.25, 0.75]]))
        >>> seen.confidence, seen.evidence
        (tensor([0.7500]), None)
    """
    return Observation(
        confidence=probabilities.amax(-1) if "confidence" in reads else None,
        evidence=evidence(log_probabilities(logits)) if "evidence" in reads else None,
        margin=lead(probabilities) if "margin" in reads else None,
        noise=noise,
        prediction=probabilities.argmax(-1) if "prediction" in reads else None,
        probabilities=probabilities if "probabilities" in reads else None,
    )
