"""One threshold on confidence per exit."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.policy import Observation, Policy
from offramp.policy._point import OperatingPoint
from offramp.policy._tuning import Tuning

__all__ = ["NEVER", "POLICY", "ExitThresholdsPolicy", "quota_thresholds"]

NEVER = 2.0
"""A threshold that no score reaches."""


def quota_thresholds(scores: Tensor, shares: Tensor) -> Tensor:
    r"""Return thresholds that fill each early exit's quota with the best scores among the samples that have not left.

    Exit by exit, the remaining samples are sorted by their scores there; the threshold is the
    $\lfloor N q_l \rfloor$-th largest, or the smallest where fewer remain. Samples of the same score leave or stay
    together, whichever is nearer to the quota. All others leave at the last exit.

    Args:
        scores: `N x E` scores at the early exits, up to 1.
        shares: `E` shares $q_l$ of all N samples that are to leave at each.

    Returns:
        `E` thresholds; 2, which no score reaches, where no sample is to leave or none remains.

    Example:
        >>> scores = torch.tensor([[0.9, 0.9], [0.8, 0.3], [0.2, 0.6], [0.1, 0.7]])
        >>> quota_thresholds(scores, torch.tensor([0.5, 0.25]))
        tensor([0.8000, 0.7000])
    """
    thresholds = scores.new_full(shares.shape, NEVER)
    waiting = torch.ones(len(scores), dtype=torch.bool)
    # A thousandth of a sample more: 100 times 0.29 is 29, not 28.999999.
    for exit, quota in enumerate((len(scores) * shares.double() + 1e-3).long().tolist()):
        remaining = scores[waiting, exit].sort(descending=True).values
        if quota and len(remaining):
            threshold = remaining[min(quota, len(remaining)) - 1]
            above, reaching = int((remaining > threshold).sum()), int((remaining >= threshold).sum())
            if reaching - quota > quota - above:
                threshold = remaining[above - 1] if above else scores.new_tensor(NEVER)
            thresholds[exit] = threshold
            waiting &= scores[:, exit] < threshold
    return thresholds


class ExitThresholdsPolicy(Policy):
    """A policy that leaves at the first exit whose temperature-scaled confidence reaches that exit's own threshold.

    The rule of MSDNet [Huang2018], BoostedNet and L2W-DEN. Parameters: `threshold`, one number per exit; above 1 no
    sample leaves there.

    Example:
        >>> observation = Observation(confidence=torch.tensor([0.9, 0.6]))
        >>> ExitThresholdsPolicy().step(observation, (), {"threshold": torch.tensor(0.8)})[0]
        tensor([ True, False])
    """

    name = "exit_thresholds"
    reads = frozenset({"confidence"})
    parameters = frozenset({"threshold"})
    per_exit = frozenset({"threshold"})
    stay_values = MappingProxyType({"threshold": 2.0})

    def initial_carry(self, zeros: Tensor) -> Any:
        """Return no carry."""
        return ()

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the confidence reaches the threshold."""
        assert observation.confidence is not None
        return observation.confidence >= parameters["threshold"], carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        r"""Return points at which shares $q_k \propto (p/20)^k$ of the tune samples leave at the exits, p = 1..39.

        The thresholds are those of `quota_thresholds`. This is the family of MSDNet's "budgeted batch" evaluation,
        which BoostedNet and L2W-DEN also use.
        """
        confidence = tuning.confidence[:, list(tuning.early)]
        powers = torch.arange(1, len(tuning.active) + 1, dtype=torch.float64)
        points = []
        for step in range(1, 40):
            shares = (step / 20) ** powers
            thresholds = quota_thresholds(confidence, (shares / shares.sum())[:-1])
            points.append(tuning.point(self.name, threshold=tuning.per_exit(thresholds, NEVER)))
        return points

    def mul_adds(self, num_classes: int) -> int:
        """Count a softmax, as for one threshold."""
        return 3 * num_classes


POLICY = ExitThresholdsPolicy()
"""The registered policy."""
