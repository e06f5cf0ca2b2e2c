import math
from typing import Any

import pytest
import torch

from offramp.policy import Observation
from offramp_bench.rivals.eenet import EENetPolicy, statistics

N, L, K = 20, 4, 5


def test_statistics_are_confidence_and_certainty() -> None:
    assert statistics(torch.tensor([0.5, 0.25, 0.25, 0])).tolist() == pytest.approx([0.5, 1 - 1.5 / 2], abs=1e-6)


def test_scores_exit_by_exit() -> None:
    draw = torch.Generator().manual_seed(0)
    answers = (2 * torch.randn(N, L, K, generator=draw)).softmax(-1)
    class_weight, weight = 0.4 * torch.randn(L, K, generator=draw), torch.randn(L, 3, generator=draw)
    bias, threshold = 0.2 * torch.randn(L, generator=draw), torch.rand(L, generator=draw)
    policy = EENetPolicy()
    carry: Any = policy.initial_carry(torch.zeros(N))
    scores = []
    for exit in range(L):
        here = {
            "class_weight": class_weight[exit],
            "weight": weight[exit],
            "bias": bias[exit],
            "threshold": threshold[exit],
        }
        leave, carry = policy.step(Observation(probabilities=answers[:, exit]), carry, here)
        scores.append(carry.tolist())
        assert leave.tolist() == [score >= float(threshold[exit]) for score in carry.tolist()]
    for row in range(N):
        before = 0.0
        for exit in range(L):
            p = answers[row, exit].tolist()
            certainty = 1 + sum(value * math.log(value) for value in p) / math.log(K)
            score = sum(value * factor for value, factor in zip(p, class_weight[exit].tolist(), strict=True))
            score += float(weight[exit] @ torch.tensor([max(p), certainty, before])) + float(bias[exit])
            before = min(1.0, max(0.0, score))
            assert scores[exit][row] == pytest.approx(before, abs=1e-5)
    assert any(score in (0.0, 1.0) for row in scores for score in row)
    assert any(0 < score < 1 for row in scores for score in row)
