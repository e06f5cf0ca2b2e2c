"""PCEE: leave where tune samples of a similar confidence are right often enough."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.policy import Observation, Policy
from offramp.policy._point import OperatingPoint
from offramp.policy._threshold import spread_levels
from offramp.policy._tuning import Tuning

__all__ = ["BINS", "NEVER", "POLICY", "PceePolicy", "reliability_map"]

BINS = 20
"""Bins of equal mass per exit. With 2,000 tune samples each has 100, so that the standard error of its accuracy is at
most 5 points, and 2 points at an accuracy of 95 %; more bins would mostly rank noise, fewer would merge confident
samples with unsure ones. Our choice: the paper's number is not known to us."""

NEVER = 2.0
"""A confidence and an accuracy that are never reached."""


def reliability_map(confidence: Tensor, correct: Tensor, bins: int = BINS) -> tuple[Tensor, Tensor]:
    """Return the accuracy of an exit by its confidence, in bins of equal mass.

    A bin starts at the confidence of its first sample, so that samples of the same confidence share a bin; where that
    leaves bins without samples, they start at 2, which no confidence reaches. The first bin starts at 0.

    Args:
        confidence: `N` largest probabilities, N >= 1.
        correct: `N` booleans, true where the exit is right.
        bins: B, the largest number of bins.

    Returns:
        `B` confidences at which the bins start, ascending, and the `B` accuracies of their samples.

    Example:
        >>> sure, right = torch.tensor([0.2, 0.4, 0.6, 0.8]), torch.tensor([False, True, True, True])
        >>> reliability_map(sure, right, 2)
        (tensor([0.0000, 0.6000]), tensor([0.5000, 1.0000]))
    """
    confidence = confidence.contiguous()
    ordered = confidence.sort().values
    firsts = torch.arange(bins) * len(ordered) // bins
    starts = torch.unique(ordered[firsts])
    starts[0] = 0
    places = torch.bucketize(confidence, starts, right=True) - 1
    counts = places.bincount(minlength=len(starts))
    accuracies = places.bincount(weights=correct.double(), minlength=len(starts)) / counts
    absent = bins - len(starts)
    return F.pad(starts, (0, absent), value=NEVER), F.pad(accuracies.to(starts.dtype), (0, absent))


class PceePolicy(Policy):
    r"""A policy that leaves at the first exit with $a_l(c^l) \ge$ the target accuracy.

    $a_l$ is the `reliability_map` of exit l, fitted on the tune split, and $c^l$ the temperature-scaled confidence.
    Performance control early exiting [Mofakhami2024]. The abstract leaves open, and we chose: the bins (their number,
    and that they have equal mass), and that the map counts all tune samples, not only those that reach the exit. The
    map is not forced to rise with the confidence. Parameters: per exit, `start` and `accuracy` (20 numbers each); per
    point, `target`.

    Example:
        >>> start, accuracy = torch.full((BINS,), NEVER), torch.zeros(BINS)
        >>> start[:2], accuracy[:2] = torch.tensor([0.0, 0.6]), torch.tensor([0.5, 0.9])
        >>> parameters = {"start": start, "accuracy": accuracy, "target": torch.tensor(0.8)}
        >>> PceePolicy().step(Observation(torch.tensor([0.3, 0.7])), (), parameters)[0]
        tensor([False,  True])
    """

    name = "pcee"
    reads = frozenset({"confidence"})
    parameters = frozenset({"start", "accuracy", "target"})
    per_exit = frozenset({"start", "accuracy"})
    vectors = MappingProxyType({"start": BINS, "accuracy": BINS})
    stay_values = MappingProxyType({"target": NEVER})

    def initial_carry(self, _zeros: Tensor) -> Any:
        """Return no carry."""
        return ()

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the accuracy of the sample's bin reaches the target."""
        assert observation.confidence is not None
        # First select the bins whose accuracy reaches the target; then compare the samples with those only.
        start = parameters["start"]
        end = F.pad(start[..., 1:], (0, 1), value=NEVER)
        good = parameters["accuracy"] >= parameters["target"][..., None]
        confidence = observation.confidence[..., None]
        return ((confidence >= start) & (confidence < end) & good).any(-1), carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Return up to 512 targets, at quantiles of the accuracies of all bins.

        Returns:
            Points from "all samples leave at the first exit" to "no sample leaves early".
        """
        maps = [reliability_map(tuning.confidence[:, exit], tuning.correct[:, exit]) for exit in tuning.early]
        nothing = tuning.confidence.new_empty(0, BINS)
        starts = torch.stack([start for start, _ in maps]) if maps else nothing
        accuracies = torch.stack([accuracy for _, accuracy in maps]) if maps else nothing
        start, accuracy = tuning.per_exit(starts, NEVER), tuning.per_exit(accuracies)
        ends = start.new_tensor([0.0, NEVER])
        targets = torch.cat([ends[:1], spread_levels(accuracies[starts < NEVER].float()), ends[1:]])
        return [tuning.point(self.name, start=start, accuracy=accuracy, target=target) for target in targets]

    def mul_adds(self, num_classes: int) -> int:
        """Count a softmax; comparisons are not counted."""
        return 3 * num_classes


POLICY = PceePolicy()
"""The registered policy."""
