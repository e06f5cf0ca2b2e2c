import torch
from torch import Tensor

from offramp_bench.rivals.exit_thresholds import NEVER, quota_thresholds
from tests.cases import each


def count_leaving(scores: Tensor, thresholds: Tensor) -> list[int]:
    """Return the number of samples that leave at each early exit, and at the last."""
    counts, waiting = [], list(range(len(scores)))
    for exit, threshold in enumerate(thresholds.tolist()):
        leaving = [row for row in waiting if float(scores[row, exit]) >= threshold]
        counts.append(len(leaving))
        waiting = [row for row in waiting if row not in leaving]
    return [*counts, len(waiting)]


@each("shares", [(0.1, 0.2, 0.3), (0.29, 0.0, 0.71), (0.0, 0.0, 0.0), (0.57, 0.43, 0.0)])
def test_quotas_are_filled(shares: tuple[float, ...]) -> None:
    scores = torch.rand(100, 3, generator=torch.Generator().manual_seed(0))
    thresholds = quota_thresholds(scores, torch.tensor(shares))
    quotas = [round(100 * share) for share in shares]
    assert count_leaving(scores, thresholds) == [*quotas, 100 - sum(quotas)]


def test_parts_of_a_sample_stay() -> None:
    scores = torch.rand(10, 2, generator=torch.Generator().manual_seed(0))
    assert count_leaving(scores, quota_thresholds(scores, torch.tensor([0.19, 0.59]))) == [1, 5, 4]


def test_the_surest_leave_first() -> None:
    scores = torch.rand(50, 1, generator=torch.Generator().manual_seed(0))
    threshold = quota_thresholds(scores, torch.tensor([0.2]))
    assert float(threshold) == sorted(scores.flatten().tolist(), reverse=True)[9]


def test_those_who_are_alike_leave_or_stay_together() -> None:
    scores = torch.tensor([[0.8, 0.5]] * 6 + [[0.2, 0.9]] * 4)
    for share, expected in ((0.3, [6, 4, 0]), (0.2, [0, 4, 6]), (0.7, [6, 4, 0]), (0.9, [10, 0, 0])):
        assert count_leaving(scores, quota_thresholds(scores, torch.tensor([share, 0.4]))) == expected
    surest = torch.cat([torch.tensor([[0.9, 0.1]]), scores])
    assert count_leaving(surest, quota_thresholds(surest, torch.tensor([0.2, 0.0]))) == [1, 0, 10]
    # No sample remains for a third exit.
    assert quota_thresholds(torch.ones(5, 3), torch.tensor([0.6, 0.2, 0.2])).tolist() == [1.0, NEVER, NEVER]
