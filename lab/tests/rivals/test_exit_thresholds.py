import torch

from offramp.policy import Observation
from offramp.policy._threshold import ThresholdPolicy
from offramp_bench.rivals.exit_thresholds import ExitThresholdsPolicy


def test_each_exit_has_a_threshold_of_its_own() -> None:
    confidence = torch.tensor([[0.9, 0.2], [0.6, 0.7], [0.5, 0.9]])  # N x L
    threshold = torch.tensor([0.8, 0.75])
    left = [
        ExitThresholdsPolicy().step(Observation(confidence=confidence[:, exit]), (), {"threshold": threshold[exit]})[0]
        for exit in range(2)
    ]
    assert torch.stack(left, 1).tolist() == [[True, False], [False, False], [False, True]]


def test_costs_what_one_threshold_does() -> None:
    assert ExitThresholdsPolicy().mul_adds(77) == ThresholdPolicy().mul_adds(77)
