"""Samples that leave by their confidence, bags of few samples, and exact ranks to compare with."""

import math
from fractions import Fraction

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

# A shared machine may stall for longer than hypothesis' deadline.
quick = settings(deadline=None, max_examples=60)
exact = settings(deadline=None, max_examples=150)

Bag = tuple[Tensor, Tensor, Tensor]
"""Scores where samples leave, their exits and labels."""


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


@st.composite
def bags(draw: st.DrawFn) -> Bag:
    """Few samples, some exits rare, some hard, and ties."""
    count, num_exits, num_classes = draw(st.integers(2, 30)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rows = st.lists(st.tuples(st.integers(0, 9), st.integers(0, num_exits**2 - 1), st.integers(0, num_classes - 1)))
    scores, exits, labels = zip(*(draw(rows.filter(len)) * count)[:count], strict=True)
    rare = [math.isqrt(exit) for exit in exits]
    hard = draw(st.lists(st.integers(0, 9), min_size=num_exits, max_size=num_exits))
    made = [(score + 10 * hard[exit]) / 100 for score, exit in zip(scores, rare, strict=True)]
    return torch.tensor(made, dtype=torch.float64), torch.tensor(rare), torch.tensor(labels)


def enough(inside: Tensor, percent: int) -> bool:
    return Fraction(int(inside.sum()), max(1, len(inside))) >= Fraction(100 - percent, 100) or not len(inside)
