from typing import get_args

import pytest
import torch

from offramp.errors import InputError
from offramp.exits import LinearExits, all_logits
from offramp.features import MemorySource
from offramp.frontier import Outcomes, outcomes, simulate
from offramp.policy import POLICIES, OperatingPoint, Reading, observe
from tests.policy.examples import drawn

N, L, K, W = 70, 3, 4, 2


@pytest.fixture(scope="module")
def setting() -> tuple[LinearExits, MemorySource, torch.Tensor]:
    torch.manual_seed(0)
    features, own = torch.randn(N, 5 * L), {L - 1: torch.randn(N, K)}
    source = MemorySource(features, own, torch.randint(K, (N,)), (5,) * L)
    return LinearExits((5,) * L, (0, 1), K, stacked=W), source, torch.rand(W, L) + 0.5


def whole(setting: tuple[LinearExits, MemorySource, torch.Tensor], *, probabilities: bool) -> Outcomes:
    return outcomes(*setting, probabilities=probabilities)


def test_probabilities_are_kept_when_asked_for(setting: tuple[LinearExits, MemorySource, torch.Tensor]) -> None:
    bank, source, temperatures = setting
    (batch,) = source.in_order(batch_size=N)
    with torch.no_grad():
        logits = all_logits(bank, batch.features, batch.own_logits)
    found = whole(setting, probabilities=True)
    assert found.probabilities is not None
    assert found.probabilities.shape == (W, N, L, K)
    torch.testing.assert_close(found.probabilities, (logits / temperatures[:, None, :, None]).softmax(-1))
    assert torch.equal(found.probabilities.amax(-1), found.confidence)
    without = whole(setting, probabilities=False)
    assert without.probabilities is None
    assert torch.equal(without.confidence, found.confidence)


def test_observed_as_in_the_engine(setting: tuple[LinearExits, MemorySource, torch.Tensor]) -> None:
    bank, source, temperatures = setting
    (batch,) = source.in_order(batch_size=N)
    with torch.no_grad():
        logits = all_logits(bank, batch.features, batch.own_logits)
    kept, noise = whole(setting, probabilities=True), torch.rand(N)
    for classifier in range(W):
        for exit in range(L):
            raw = logits[classifier, :, exit]
            running = observe(get_args(Reading), raw, (raw / temperatures[classifier, exit]).softmax(1), noise)
            stored = kept.observe(get_args(Reading), classifier, exit, noise)
            for reading in get_args(Reading):
                torch.testing.assert_close(getattr(stored, reading), getattr(running, reading))


@pytest.mark.parametrize("policy", list(POLICIES))
def test_policies_are_told_what_is_missing(
    policy: str, setting: tuple[LinearExits, MemorySource, torch.Tensor]
) -> None:
    parameters = {name: value[0] for name, value in drawn(policy, 1, exits=L, classes=K).items()}
    point = OperatingPoint(policy, parameters, (0, 1, 2), torch.ones(L))
    without = whole(setting, probabilities=False)
    if "probabilities" in point.rule.reads:
        with pytest.raises(InputError, match=r"expected outcomes with the probabilities.*probabilities=True"):
            simulate([point], without)
    else:
        assert torch.equal(simulate([point], without), simulate([point], whole(setting, probabilities=True)))


def test_many_points_of_one_policy_are_each_as_alone(setting: tuple[LinearExits, MemorySource, torch.Tensor]) -> None:
    seen = whole(setting, probabilities=True)
    for policy in POLICIES:
        drawn_points = drawn(policy, 5, exits=L, classes=K)
        points = [
            OperatingPoint(policy, {name: value[row] for name, value in drawn_points.items()}, (0, 1, 2), torch.ones(L))
            for row in range(5)
        ]
        for point, exits in zip(points, simulate(points, seen), strict=True):
            assert torch.equal(exits, simulate([point], seen)[0])
