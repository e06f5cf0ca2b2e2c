"""The averaging of networks, whose shares are chosen by likelihood."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.cost._mul_adds import BackboneMulAdds
from offramp.features._batch import MemorySource
from offramp.methods._initialization import SHARES, fit_averaging
from offramp.methods._joint import fit_joint
from offramp.methods._settings import ExitKind, JointSettings
from tests.cases import each

K = 5


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def answers(labels: Tensor, strength: float, *, seed: int) -> Tensor:
    """Logits whose softmax is the posterior of noise around the true class, each network's noise its own."""
    noise = torch.randn(len(labels), K, generator=generator(seed))
    return strength * (strength * F.one_hot(labels, K) + noise)


def source(own: dict[int, Tensor], labels: Tensor) -> MemorySource:
    return MemorySource(torch.zeros(len(labels), 3), own, labels, (1, 1, 1))


def labels(count: int = 3000) -> Tensor:
    return torch.randint(K, (count,), generator=generator(0))


def loss(probabilities: Tensor, truth: Tensor) -> float:
    return float(-probabilities.log()[torch.arange(len(truth)), truth].double().mean())


class TestShares:
    def test_two_networks_as_good_as_one_another_help_each_other(self) -> None:
        truth = labels()
        found = fit_averaging(source({0: answers(truth, 1.5, seed=1), 2: answers(truth, 1.5, seed=2)}, truth))
        assert found.stages == (0, 2)
        assert found.shares[0] == 0
        assert 0.3 <= found.shares[1] <= 0.6
        torch.testing.assert_close(found.temperatures, torch.ones(2), rtol=0.1, atol=0)
        assert found.read == {0}

    def test_the_share_is_the_best_of_those_tried(self) -> None:
        truth = labels(500)
        own = {0: answers(truth, 1.0, seed=1), 2: answers(truth, 1.5, seed=2)}
        found = fit_averaging(source(own, truth))
        first, second = ((own[s] / t).softmax(1) for s, t in zip((0, 2), found.temperatures, strict=True))
        losses = {share: loss((1 - share) * second + share * first, truth) for share in SHARES}
        assert float(found.shares[1]) == pytest.approx(min(losses, key=lambda share: losses[share]))
        assert 0 < found.shares[1] < 0.5  # the weaker of the two

    def test_a_useless_network_gets_none(self) -> None:
        truth = labels()
        noise = 3 * torch.randn(len(truth), K, generator=generator(1))
        found = fit_averaging(source({0: noise, 2: answers(truth, 2.5, seed=2)}, truth))
        assert found.shares.tolist() == [0, 0]
        assert found.read == frozenset()

    def test_a_useless_network_last_leaves_it_to_the_first(self) -> None:
        truth = labels()
        noise = 3 * torch.randn(len(truth), K, generator=generator(1))
        found = fit_averaging(source({0: answers(truth, 2.5, seed=2), 2: noise}, truth))
        assert found.shares[1] == pytest.approx(0.9)

    def test_wrong_scales_are_put_right_first(self) -> None:
        truth = labels()
        own = {0: answers(truth, 1.5, seed=1), 2: answers(truth, 1.5, seed=2)}
        plain = fit_averaging(source(own, truth))
        scaled = fit_averaging(source({0: 7 * own[0], 2: own[2] / 3}, truth))
        torch.testing.assert_close(scaled.temperatures, plain.temperatures * torch.tensor([7, 1 / 3]))
        assert torch.equal(scaled.shares, plain.shares)

    def test_of_three_the_last_averages_with_what_the_second_made(self) -> None:
        truth = labels()
        own = {stage: answers(truth, 1.5, seed=stage + 1) for stage in range(3)}
        found = fit_averaging(source(own, truth))
        assert (found.shares[1:] > 0.2).all()
        first, second, third = ((own[s] / found.temperatures[s]).softmax(1) for s in range(3))
        before = (1 - found.shares[1]) * second + found.shares[1] * first
        losses = {share: loss((1 - share) * third + share * before, truth) for share in SHARES}
        assert float(found.shares[2]) == pytest.approx(min(losses, key=lambda share: losses[share]))

    def test_averaging_is_more_likely_than_the_last_network_alone(self) -> None:
        truth = labels()
        own = {0: answers(truth, 1.5, seed=1), 2: answers(truth, 1.5, seed=2)}
        together = fit_averaging(source(own, truth))(own)[2].exp()
        assert loss(together, truth) < loss(own[2].softmax(1), truth) - 0.05
        assert (together.argmax(1) == truth).float().mean() > (own[2].argmax(1) == truth).float().mean() + 0.03


class TestEdges:
    def test_a_single_head_averages_with_nothing(self) -> None:
        truth = labels(50)
        found = fit_averaging(source({2: answers(truth, 1.0, seed=1)}, truth))
        assert found.stages == ()
        given = {2: torch.randn(3, K)}
        assert found(given)[2] is given[2]

    @each("perfect", [0, 2])
    def test_a_perfect_head(self, perfect: int) -> None:
        truth = labels(200)
        right = 10.0 * F.one_hot(truth, K)
        own = {stage: right if stage == perfect else answers(truth, 1.0, seed=1) for stage in (0, 2)}
        found = fit_averaging(source(own, truth))
        assert found.shares[1] == (pytest.approx(0.9) if perfect == 0 else 0)
        assert (found.temperatures >= 0.2).all()  # never wrong here is not never wrong
        answer = found(own)[2]
        assert answer.isfinite().all()
        assert torch.equal(answer.argmax(1), truth)

    def test_two_perfect_heads_stay_alone(self) -> None:
        truth = labels(200)
        right = 10.0 * F.one_hot(truth, K)
        assert fit_averaging(source({0: right, 2: right}, truth)).shares.tolist() == [0, 0]

    def test_one_sample(self) -> None:
        truth = torch.tensor([1])
        found = fit_averaging(source({0: torch.zeros(1, K), 2: torch.zeros(1, K)}, truth))
        assert found.shares.tolist() == [0, 0]
        assert found.temperatures.isfinite().all()

    def test_two_classes(self) -> None:
        truth = labels() % 2
        own = {stage: answers(truth, 1.5, seed=stage)[:, :2] for stage in (0, 2)}
        assert 0.3 <= fit_averaging(source(own, truth)).shares[1] <= 0.6


@each("kind", ["linear", "cumulative", "ladder"])
def test_a_fit_keeps_its_averaging_through_stacking_and_checkpoints(kind: ExitKind, tmp_path: Path) -> None:
    truth = torch.arange(90) % 3
    features = torch.randn(90, 12, generator=generator(5))
    own = {stage: 2 * F.one_hot(truth, 3) + torch.randn(90, 3, generator=generator(stage)) for stage in (0, 2)}
    data = MemorySource(features, own, truth, (4, 4, 4))
    costs = BackboneMulAdds(torch.ones(1, 3), torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([3.0]))
    settings = JointSettings(exits=kind, cost_weights=(0.1, 1.0), warmup_epochs=1, epochs=1, batch_size=30)
    expected = fit_averaging(data)
    assert expected.shares[1] > 0
    for again in range(2):  # the second time from the checkpoint alone
        seen: list[int] = []
        fitted = fit_joint(
            data,
            data,
            costs,
            settings,
            checkpoint=tmp_path / "fit.safetensors",
            on_epoch=lambda record, seen=seen: seen.append(record.epoch),  # type: ignore[misc]
        )
        assert len(seen) == (0 if again else 2)
        for exits in (fitted.exits, fitted.exits.take(0)):
            assert exits.averaging.stages == (0, 2)
            assert torch.equal(exits.averaging.shares, expected.shares)
            assert torch.equal(exits.averaging.temperatures, expected.temperatures)
