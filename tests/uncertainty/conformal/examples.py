"""Samples that leave by their confidence, and exact ranks to compare with."""

import torch
from hypothesis import settings
from torch import Tensor

# A shared machine may stall for longer than hypothesis' deadline.
quick = settings(deadline=None, max_examples=60)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def exits_and_labels(num_samples: int, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities `N x L x K`, the first exit's overconfident; labels; exits chosen by confidence, so a selection."""
    truth = 1.5 * torch.randn(num_samples, 5, dtype=torch.float64, generator=generator(seed))
    labels = torch.multinomial(truth.softmax(-1), 1, generator=generator(seed + 1)).squeeze(1)
    noise = torch.randn(num_samples, 3, 5, dtype=torch.float64, generator=generator(seed + 2))
    noisy = torch.tensor([2.5, 0.5, 0.1], dtype=torch.float64)
    probabilities = (truth[:, None] + noisy[:, None] * noise).softmax(-1)
    sure = probabilities.amax(-1) > torch.tensor([0.8, 0.6, 0.0])
    return probabilities.to(dtype), labels, sure.int().argmax(-1)


def exact_rank(n: int, percent: int) -> int:
    """ceil((n + 1) (1 - percent / 100)) in integers."""
    return -(-(n + 1) * (100 - percent) // 100)
