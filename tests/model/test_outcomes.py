from typing import get_args

import pytest
import torch

from offramp.errors import InputError
from offramp.exits import LinearExits
from offramp.exits._averaging import Averaging
from offramp.exits._exit_set import all_logits
from offramp.features._batch import MemorySource
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate
from offramp.policy import POLICIES, OperatingPoint
from offramp.policy._observation import Reading, observe
from tests.cases import each
from tests.policy.examples import drawn

N, L, K, W = 70, 3, 4, 2


@pytest.fixture(scope="module")
def setting() -> tuple[LinearExits, MemorySource, torch.Tensor]:
    torch.manual_seed(0)
    features, own = torch.randn(N, 5 * L), {L - 1: torch.randn(N, K)}
    source = MemorySource(features, own, torch.randint(K, (N,)), (5,) * L)
    return LinearExits((5,) * L, (0, 1), K, stacked=W), source, torch.rand(W, L) + 0.5


def whole(setting: tuple[LinearExits, MemorySource, torch.Tensor], *, probabilities: bool) -> Outcomes:
    return compute_outcomes(*setting, probabilities=probabilities)


def test_probabilities_are_kept_when_asked_for(setting: tuple[LinearExits, MemorySource, torch.Tensor]) -> None:
    exits, source, temperatures = setting
    (batch,) = source.in_order(batch_size=N)
    with torch.no_grad():
        logits = all_logits(exits, batch.features, batch.own_logits)
    found = whole(setting, probabilities=True)
    assert found.probabilities is not None
    assert found.probabilities.shape == (W, N, L, K)
    torch.testing.assert_close(found.probabilities, (logits / temperatures[:, None, :, None]).softmax(-1))
    assert torch.equal(found.probabilities.amax(-1), found.confidence)
    without = whole(setting, probabilities=False)
    assert without.probabilities is None
    assert torch.equal(without.confidence, found.confidence)


def test_observed_as_in_the_engine(setting: tuple[LinearExits, MemorySource, torch.Tensor]) -> None:
    exits, source, temperatures = setting
    (batch,) = source.in_order(batch_size=N)
    with torch.no_grad():
        logits = all_logits(exits, batch.features, batch.own_logits)
    kept, noise = whole(setting, probabilities=True), torch.rand(N)
    for classifier in range(W):
        for exit in range(L):
            raw = logits[classifier, :, exit]
            running = observe(get_args(Reading), raw, (raw / temperatures[classifier, exit]).softmax(1), noise)
            stored = kept.observe(get_args(Reading), classifier, exit, noise)
            for reading in get_args(Reading):
                torch.testing.assert_close(getattr(stored, reading), getattr(running, reading))


@each("policy", list(POLICIES))
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


def test_brier_gaps_are_against_the_last_network_alone_at_its_own_temperature() -> None:
    torch.manual_seed(1)
    own = {stage: 2 * torch.randn(N, K) for stage in (1, 2)}
    source = MemorySource(torch.randn(N, 5 * L), own, torch.randint(K, (N,)), (5,) * L)
    exits = LinearExits((5,) * L, (0,), K)
    exits.averaging = Averaging((1, 2), torch.tensor([0.0, 0.5]), torch.tensor([1.5, 2.5]))
    found = compute_outcomes(exits, source, torch.rand(1, L) + 0.5, probabilities=True)
    truth = torch.eye(K)[found.labels]
    full = ((own[2] / 2.5).softmax(1) - truth).square().sum(1)
    assert found.probabilities is not None
    assert found.brier_gaps is not None
    torch.testing.assert_close(
        found.brier_gaps, (found.probabilities - truth[:, None]).square().sum(-1) - full[:, None]
    )
    assert float(found.brier_gaps[..., -1].abs().max()) > 0.01  # the last exit averages, the full network does not


@each("share", [0.0, 0.5])
def test_where_nothing_is_averaged_the_last_exit_is_the_full_network(share: float) -> None:
    torch.manual_seed(1)
    own = {stage: 2 * torch.randn(N, K) for stage in (1, 2)}
    source = MemorySource(torch.randn(N, 5 * L), own, torch.randint(K, (N,)), (5,) * L)
    exits = LinearExits((5,) * L, (0,), K)
    exits.averaging = Averaging((1, 2), torch.tensor([0.0, share]), torch.tensor([1.5, 2.5]))
    found = compute_outcomes(exits, source, torch.tensor([[0.7, 0.8, 0.9]]))
    assert found.brier_gaps is not None
    truth = torch.eye(K)[found.labels]
    full = ((own[2] / (2.5 if share else 0.9)).softmax(1) - truth).square().sum(1)
    mixed = own[2].log_softmax(1)
    if share:
        mixed = ((1 - share) * (own[2] / 2.5).softmax(1) + share * (own[1] / 1.5).softmax(1)).log()
    expected = ((mixed / 0.9).softmax(1) - truth).square().sum(1) - full
    torch.testing.assert_close(found.brier_gaps[0, :, -1], expected)
    assert bool(found.brier_gaps[0, :, -1].abs().max() < 1e-6) == (share == 0)
