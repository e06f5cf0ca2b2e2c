"""Whether the networks of a cascade answer better together."""

import torch
from torch import Tensor

from offramp.exits import Averaging
from offramp.features import BatchSource
from offramp.functional import cross_entropies, log_probabilities
from offramp.uncertainty import believable, fit_temperatures

__all__ = ["fit_averaging"]

SHARES = tuple(step / 10 for step in range(10))
"""Shares of the earlier answer that are tried; 0, the head alone, wins a tie."""


def fit_averaging(tune: BatchSource) -> Averaging:
    """Find for each of the network's own heads how far the answer before helps it, by likelihood on the tune split.

    Args:
        tune: Samples with the own logits of every head; not those the networks were trained on.

    Returns:
        The averaging; of a single head, none.
    """
    stages = tune.own_heads
    if len(stages) == 1:
        return Averaging((), torch.zeros(0), torch.zeros(0))
    batches = list(tune.in_order(batch_size=1000))
    labels = torch.cat([batch.labels for batch in batches])
    own = {stage: torch.cat([batch.own_logits[stage].float() for batch in batches]) for stage in stages}
    stacked = torch.stack([own[stage] for stage in stages], dim=1)[None]  # 1 x N x H x K
    chunks = list(zip(torch.split(stacked, 1000, dim=1), torch.split(labels, 1000), strict=True))
    temperatures = believable(fit_temperatures(lambda: chunks))[0]
    shares = torch.zeros(len(stages))
    before = log_probabilities(own[stages[0]] / temperatures[0])
    for index, stage in enumerate(stages[1:], start=1):
        losses = []
        for share in SHARES:
            trial = Averaging((stage,), torch.tensor([share]), temperatures[index : index + 1])
            answer, _ = trial.step(stage, own[stage], before)
            if share == 0:
                answer = answer / temperatures[index]
            losses.append(_mean_loss(answer, labels))
        shares[index] = SHARES[losses.index(min(losses))]
        trial = Averaging((stage,), shares[index : index + 1], temperatures[index : index + 1])
        _, before = trial.step(stage, own[stage], before)
    return Averaging(stages, shares, temperatures)


def _mean_loss(logits: Tensor, labels: Tensor) -> float:
    return float(cross_entropies(log_probabilities(logits[None, :, None]), labels).double().mean())
