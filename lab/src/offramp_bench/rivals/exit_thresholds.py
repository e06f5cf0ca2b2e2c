"""A threshold on confidence for each exit."""

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
    r"""Thresholds that fill each early exit's quota with the best scores among those who have not left.

    Exit by exit, those who are left are sorted by their scores there; the threshold is the
    $\lfloor N q_l \rfloor$-th largest, or the smallest where fewer are left. Those of the same score leave or stay
    together, whichever is nearer to the quota. The last exit takes the rest.

    Args:
        scores: `N x E` scores at the early exits, up to 1.
        shares: `E` shares $q_l$ of all N samples that are to leave at each.

    Returns:
        `E` thresholds; 2, which nobody reaches, where nobody is to leave or nobody is left.

    Example:
        >>> scores = torch.tensor([[0.9, 0.9], [0.8, 0.3], [0.2, 0.6], [0.1, 0.7]])
        >>> quota_thresholds(scores, torch.tensor([0.5, 0.25]))
        tensor([0.8000, 0.7000])
    """
    thresholds = scores.new_full(shares.shape, NEVER)
    waiting = torch.ones(len(scores), dtype=torch.bool)
    # A thousandth of a sample more: 100 times .29 are 29, not 28.999999.
    for exit, quota in enumerate((len(scores) * shares.double() + 1e-3).long().tolist()):
        left = scores[waiting, exit].sort(descending=True).values
        if quota and len(left):
            threshold = left[min(quota, len(left)) - 1]
            surer, reaching = int((left > threshold).sum()), int((left >= threshold).sum())
            if reaching - quota > quota - surer:
                threshold = left[surer - 1] if surer else scores.new_tensor(NEVER)
            thresholds[exit] = threshold
            waiting &= scores[:, exit] < threshold
    return thresholds


class ExitThresholdsPolicy(Policy):
    """Leave at the first exit whose temperature-scaled confidence reaches that exit's own threshold.

    The rule of MSDNet [Huang2018], and with it of BoostedNet and L2W-DEN. Parameters: `threshold`, one an exit; above 1
    nobody leaves there.

    Example:
        >>> seen = Observation(confidence=torch.tensor([0.9, 0.6]))
        >>> ExitThresholdsPolicy().step(seen, (), {"threshold": torch.tensor(0.8)})[0]
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

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where confidence reaches the threshold; nothing is remembered."""
        assert seen.confidence is not None
        return seen.confidence >= parameters["threshold"], carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        r"""Offer points at which shares $q_k \propto (p/20)^k$ of the tune samples leave at the exits, p = 1..39.

        The thresholds of exit after exit are the confidences that fill these quotas; the last exit takes the rest. The
        family of MSDNet's "budgeted batch" evaluation, which BoostedNet and L2W-DEN are measured with.
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
        """A softmax, as for one threshold."""
        return 3 * num_classes


POLICY = ExitThresholdsPolicy()
"""The policy, as it is registered."""
