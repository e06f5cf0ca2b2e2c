"""The contract of every policy that is registered."""

from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.policy import POLICIES, Observation, Policy
from offramp.policy._observation import Reading
from offramp.policy._policy import DEFAULT_POLICIES
from tests.cases import each
from tests.policy.examples import at, drawn, observed

L, N, P, K = 5, 40, 3, 3
every_policy = each("name", list(POLICIES))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def parameters_of(name: str, points: int) -> dict[str, Tensor]:
    return drawn(name, points, exits=L, classes=K)


def seen_at(policy: Policy, exit: int, keep: Tensor | None = None) -> Observation:
    return observed(policy, N, K, seed=100 + exit, keep=keep)


def all_exits(policy: Policy, parameters: Mapping[str, Tensor], sample_parameters: Tensor) -> list[Tensor]:
    """Decisions at every exit, each sample at the point given for it, nobody taken out."""
    carry = policy.initial_carry(torch.zeros(N))
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
        assert policy.parameters == set(parameters_of(name, 1))
        assert policy.per_exit <= policy.parameters
        assert set(policy.vectors) | policy.per_class <= policy.per_exit
        assert not set(policy.vectors) & policy.per_class
        assert 0 < policy.mul_adds(10) <= policy.mul_adds(100)

    @every_policy
    def test_nobody_leaves_where_it_says_so(self, name: str) -> None:
        policy = POLICIES.get(name)
        carry = policy.initial_carry(torch.zeros(N))
        for exit in range(L - 1):
            values = {
                key: torch.full(policy.shape(key, num_exits=L, num_classes=K), policy.stay_values.get(key, 0.0))
                for key in policy.parameters
            }
            here = {key: value[exit] if key in policy.per_exit else value for key, value in values.items()}
            leave, carry = policy.step(seen_at(policy, exit), carry, here)
            assert not leave.any()

    @every_policy
    def test_says_what_shape_parameters_have(self, name: str) -> None:
        policy = POLICIES.get(name)
        for parameter, values in parameters_of(name, P).items():
            assert policy.shape(parameter, num_exits=L, num_classes=K) == values.shape[1:]

    @every_policy
    def test_decides_for_each_sample(self, name: str) -> None:
        policy = POLICIES.get(name)
        decisions = all_exits(policy, parameters_of(name, 1), torch.zeros(N, dtype=torch.long))
        for leave in decisions:
            assert leave.shape == (N,)
            assert leave.dtype == torch.bool
        left = torch.stack(decisions)
        assert left.any()
        assert not left.all()

    @every_policy
    def test_carries_one_row_a_sample_of_one_kind(self, name: str) -> None:
        # What travels with samples is selected, joined and mixed with what others carry.
        policy = POLICIES.get(name)
        before = policy.initial_carry(torch.zeros(N))
        parameters = {key: value[0] for key, value in at(policy, parameters_of(name, 1), 0).items()}
        _, after = policy.step(seen_at(policy, 0), before, parameters)
        (first, spec), (then, also) = pytree.tree_flatten(before), pytree.tree_flatten(after)
        assert spec == also
        for one, other in zip(first, then, strict=True):
            assert one.shape == other.shape == (N,)
            assert one.dtype == other.dtype

    @every_policy
    def test_points_mixed_in_one_batch_are_points_apart(self, name: str) -> None:
        policy, parameters = POLICIES.get(name), parameters_of(name, P)
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
        policy, parameters = POLICIES.get(name), parameters_of(name, P)
        apart = [all_exits(policy, parameters, torch.full((N,), p)) for p in range(P)]
        carry = policy.initial_carry(torch.zeros(P, N))
        for exit in range(L):
            broadcast = {key: value[:, None] for key, value in at(policy, parameters, exit).items()}
            leave, carry = policy.step(seen_at(policy, exit), carry, broadcast)
            for p in range(P):
                assert torch.equal(leave.expand(P, N)[p], apart[p][exit])

    @every_policy
    def test_taking_samples_out_changes_nothing_for_the_rest(self, name: str) -> None:
        policy, parameters = POLICIES.get(name), parameters_of(name, 1)
        whole = all_exits(policy, parameters, torch.zeros(N, dtype=torch.long))
        waiting, carry = torch.arange(N), policy.initial_carry(torch.zeros(N))
        for exit in range(L):
            rows = {key: value[0] for key, value in at(policy, parameters, exit).items()}
            leave, carry = policy.step(seen_at(policy, exit, waiting), carry, rows)
            assert torch.equal(leave, whole[exit][waiting])
            stay = torch.rand(len(waiting), generator=generator(exit)) < 0.7
            waiting, carry = waiting[stay], _taken(carry, stay)


def _taken(carry: Any, stay: Tensor) -> Any:
    return pytree.tree_map(lambda leaf: leaf[stay], carry)


def test_what_is_offered_is_registered() -> None:
    assert set(DEFAULT_POLICIES) <= set(POLICIES)
