"""The gates: one small linear layer an exit, for every cost weight."""

import torch
from torch import Tensor, nn

from offramp.functional import EVIDENCE_SIZE

__all__ = ["Gates"]


class Gates(nn.Module):
    r"""A linear layer and a sigmoid on the evidence of each exit but the last: $g^l = \sigma(w_l \cdot m^l + b_l)$.

    Initialised as `torch.nn.Linear`, alike for every cost weight.

    Args:
        num_exits: L, the final exit included; it has no gate.
        stacked: W, how many cost weights.

    Example:
        >>> Gates(7, stacked=16)(torch.zeros(16, 5, 6, 4)).shape
        torch.Size([16, 5, 6])
    """

    def __init__(self, num_exits: int, *, stacked: int = 1) -> None:
        super().__init__()
        bound = EVIDENCE_SIZE**-0.5
        weight = torch.empty(1, num_exits - 1, EVIDENCE_SIZE).uniform_(-bound, bound)
        bias = torch.empty(1, num_exits - 1).uniform_(-bound, bound)
        self.weight = nn.Parameter(weight.repeat(stacked, 1, 1))
        self.bias = nn.Parameter(bias.repeat(stacked, 1))

    def forward(self, evidence: Tensor) -> Tensor:
        """Gate logits `W x N x (L-1)` from evidence `W x N x (L-1) x 4` (W may be 1 where classifiers are shared)."""
        # Term by term, which keeps the samples last in memory: see `log_probabilities`.
        logits = self.bias[:, None]
        for statistic in range(EVIDENCE_SIZE):
            logits = logits + evidence[..., statistic] * self.weight[:, None, :, statistic]
        return logits

    @staticmethod
    def scores(gate_logits: Tensor) -> Tensor:
        """Scores of all L exits, `... x L`: sigmoids, and 1 at the final exit."""
        return torch.cat([gate_logits.sigmoid(), gate_logits.new_ones((*gate_logits.shape[:-1], 1))], dim=-1)
