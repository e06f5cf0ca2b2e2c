"""Gates: one small linear layer per exit and cost weight."""

import torch
from torch import Tensor, nn

from offramp.functional._statistics import EVIDENCE_SIZE

__all__ = ["Gates"]


class Gates(nn.Module):
    r"""One linear layer and sigmoid on the evidence of each exit but the last: $g^l = \sigma(w_l \cdot m^l + b_l)$.

    Initialised as `torch.nn.Linear`, with the same values for every cost weight.

    Args:
        num_exits: L, the final exit included; it has no gate.
        stacked: W, the number of cost weights.

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
        """Return `W x N x (L-1)` gate logits from `W x N x (L-1) x 4` evidence; its W may be 1 (shared classifiers)."""
        # One statistic at a time, which keeps samples last in memory: see `log_probabilities`.
        logits = self.bias[:, None]
        for statistic in range(EVIDENCE_SIZE):
            logits = logits + evidence[..., statistic] * self.weight[:, None, :, statistic]
        return logits

    @staticmethod
    def scores(gate_logits: Tensor) -> Tensor:
        """Return the `... x L` scores of all exits: sigmoids, and 1 at the final exit."""
        return torch.cat([gate_logits.sigmoid(), gate_logits.new_ones((*gate_logits.shape[:-1], 1))], dim=-1)
