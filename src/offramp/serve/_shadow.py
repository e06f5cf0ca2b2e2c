"""A share of requests that the full network answers as well, to count how often it disagrees."""

import random
from collections import deque

import torch
from torch import Tensor

from offramp.backbone._hidden import Hidden
from offramp.errors import InputError
from offramp.model._model import EarlyExitModel
from offramp.monitor._shadow import label_hidden

__all__ = ["Shadow"]


class Shadow:
    """Samples that wait for a comparison with the full network, a share of all requests.

    Args:
        share: Share of requests that are drawn.
        max_samples: Most samples that wait; those beyond are left out, whatever their answers.
        seed: Seed of the draws.
    """

    def __init__(self, share: float, *, max_samples: int, seed: int = 0) -> None:
        if not 0 <= share <= 1:
            raise InputError("shadow", expected="a share of requests between 0 and 1", got=share, hint="1 % is 0.01")
        self._share, self._max_samples = share, max_samples
        self._random = random.Random(seed)
        self._waiting: deque[tuple[EarlyExitModel, Hidden, int]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def draw(self) -> bool:
        """Tell if a request is to be compared, independently of its answer."""
        return self._share > 0 and self._random.random() < self._share

    def add(self, model: EarlyExitModel, hidden: Hidden, labels: Tensor) -> None:
        """Keep samples for comparison.

        Args:
            model: The model that answered them.
            hidden: Their prepared inputs.
            labels: Their `n` labels; -1 for a bad sample, which is left out.
        """
        for place, label in enumerate(labels.tolist()):
            if label >= 0 and len(self._waiting) < self._max_samples:
                self._waiting.append((model, model.backbone.select(hidden, torch.tensor([place]), 0), label))

    def compare_next(self) -> bool:
        """Run the full network on the first sample that waits, and tell if its label is another one.

        One sample at a time: a request that arrives meanwhile waits for no more.
        """
        model, hidden, label = self._waiting.popleft()
        return int(label_hidden(model, hidden)) != label
