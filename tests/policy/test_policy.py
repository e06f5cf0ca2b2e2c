"""The contract of every policy that is registered."""

from collections.abc import Callable, Mapping
from typing import get_args

import pytest
import torch
from torch import Tensor

from offramp.policy import POLICIES, Observation, Policy, Reading

L, N, P = 5, 40, 3


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gate_parameters(points: int) -> dict[str, Tensor]:
    return {
        "weight": torch.randn(points, L, 4, generator=generator(1)),
        "bias": torch.randn(points, L, generator=generator(2)) - 1,
        "offset": torch.randn(points, generator=generator(3)),
    }


# Parameters of some points, `P x L x ...` or `P`. A new policy finds its tests here once it says what it takes.
PARAMETERS: dict[str, Callable[[int], dict[str, Tensor]]] = {
    "gates": gate_parameters,
    "sampled_gates": gate_parameters,
    "threshold": lambda points: {"threshold": torch.rand(points, generator=generator(1))},
}
every_policy = pytest.mark.parametrize("name", list(POLICIES))


def at(policy: Policy, parameters: Mapping[str, Tensor], exit: int) -> dict[str, Tensor]:
    """Each parameter at one exit, its points first."""
    return {name: value[:, exit] if name in policy.per_exit else value for name, value in parameters.items()}


def seen_at(policy: Policy, exit: int, keep: Tensor | None = None) -> Observation:
    """What the policy declares it reads, and nothing else."""
    draw = generator(100 + exit)
    everything = {
        "confidence": torch.rand(N, generator=draw),
        "evidence": torch.randn(N, 4, generator=draw),
        "noise": torch.rand(N, generator=draw),
    }
    kept = {reading: value if keep is None else value[keep] for reading, value in everything.items()}
    return Observation(**{reading: kept[reading] for reading in policy.reads})


def all_exits(policy: Policy, parameters: Mapping[str, Tensor], sample_parameters: Tensor) -> list[Tensor]:
    """Decisions at every exit, each sample at the point given for it, nobody taken out."""
    carry: object = 0.0
    decisions = []
    for exit in range(L):
        rows = {name: value[sample_parameters] for name, value in at(policy, parameters, exit).items()}
        leave, carry = policy.step(seen_at(policy, exit), carry, rows)
        decisions.append(leave)
    return decisions


class TestContract:
    @every_policy
    def test_says_what_it_needs(self, name: str) -> None:
        policy = POLICIES.get(name)
        assert policy.name == name
        assert policy.reads <= set(get_args(Reading))
        assert policy.per_exit <= set(PARAMETERS[name](1))
        assert 0 < policy.mul_adds(10) <= policy.mul_adds(100)

    @every_policy
    def test_decides_for_each_sample(self, name: str) -> None:
        policy = POLICIES.get(name)
        decisions = all_exits(policy, PARAMETERS[name](1), torch.zeros(N, dtype=torch.long))
        for leave in decisions:
            assert leave.shape == (N,)
            assert leave.dtype == torch.bool
        left = torch.stack(decisions)
        assert left.any()
        assert not left.all()

    @every_policy
    def test_points_mixed_in_one_batch_are_points_apart(self, name: str) -> None:
        policy, parameters = POLICIES.get(name), PARAMETERS[name](P)
        point = torch.randint(0, P, (N,), generator=generator(7))
        mixed = all_exits(policy, parameters, point)
        apart = [all_exits(policy, parameters, torch.full((N,), p)) for p in range(P)]
        assert any(not torch.equal(apart[0][exit], apart[1][exit]) for exit in range(L))
        for exit in range(L):
            for sample in range(N):
                assert mixed[exit][sample] == apart[int(point[sample])][exit][sample]

    @every_policy
    def test_an_axis_of_points_before_the_samples(self, name: str) -> None:
        # The simulator's way: all samples at all points.
        policy, parameters = POLICIES.get(name), PARAMETERS[name](P)
        apart = [all_exits(policy, parameters, torch.full((N,), p)) for p in range(P)]
        carry: object = 0.0
        for exit in range(L):
            broadcast = {key: value[:, None] for key, value in at(policy, parameters, exit).items()}
            leave, carry = policy.step(seen_at(policy, exit), carry, broadcast)
            assert leave.shape == (P, N)
            for p in range(P):
                assert torch.equal(leave[p], apart[p][exit])

    @every_policy
    def test_taking_samples_out_changes_nothing_for_the_rest(self, name: str) -> None:
        policy, parameters = POLICIES.get(name), PARAMETERS[name](1)
        whole = all_exits(policy, parameters, torch.zeros(N, dtype=torch.long))
        waiting, carry = torch.arange(N), torch.zeros(N)
        for exit in range(L):
            rows = {key: value[0] for key, value in at(policy, parameters, exit).items()}
            leave, carry = policy.step(seen_at(policy, exit, waiting), carry, rows)
            assert torch.equal(leave, whole[exit][waiting])
            stay = torch.rand(len(waiting), generator=generator(exit)) < 0.7
            waiting, carry = waiting[stay], carry[stay]
