from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from offramp.functional import exit_distribution
from offramp.functional._leaving import first_exit, should_leave
from offramp.policy import Observation, Policy
from offramp.policy._gates import GatePolicy, SampledGatePolicy
from tests.cases import each


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator(seed))


def parameters(num_exits: int, *, bias: float = -1.0, offset: float = 0.0, seed: int = 1) -> dict[str, Tensor]:
    return {
        "weight": draw(num_exits, 4, seed=seed),
        "bias": draw(num_exits, seed=seed + 1) + bias,
        "offset": torch.tensor(offset, dtype=torch.float64),
    }


def scores_of(evidence: Tensor, given: dict[str, Tensor]) -> Tensor:
    """Scores of all exits, `N x L`; the final one's is 1."""
    logits = torch.einsum("nld,ld->nl", evidence, given["weight"]) + given["bias"] + given["offset"]
    scores = 1 / (1 + torch.exp(-logits))
    scores[:, -1] = 1
    return scores


def run(
    policy: Policy, evidence: Tensor, given: dict[str, Tensor], active: Sequence[int], noise: Tensor | None = None
) -> Tensor:
    """The exit each of N samples leaves at: exit by exit, those who left taken out, as a runtime does it."""
    count = len(evidence)
    exits, waiting = torch.full((count,), active[-1]), torch.arange(count)
    carry: Any = torch.zeros(count, dtype=evidence.dtype)
    for exit in active[:-1]:
        seen = Observation(evidence=evidence[waiting, exit], noise=None if noise is None else noise[waiting, exit])
        here = {"weight": given["weight"][exit], "bias": given["bias"][exit], "offset": given["offset"]}
        leave, carry = policy.step(seen, carry, here)
        exits[waiting[leave]] = exit
        waiting, carry = waiting[~leave], carry[~leave]
    return exits


def by_equation_4(scores: list[float]) -> int:
    """The first exit with P(E) >= 1/2, by Eqs. 8 and 4 one after the other."""
    left, arriving = 1.0, 1.0
    for exit, score in enumerate(scores):
        probability = min(score, left)
        chance = probability / arriving if arriving > 1e-12 else 1.0
        if chance >= 0.5:
            return exit
        left, arriving = max(0.0, left - score), arriving * (1 - chance)
    raise AssertionError("the final exit takes everyone")


class TestGatePolicy:
    @each("num_exits", [1, 2, 7, 14])
    @each("bias", [-3.0, -1.0, 0.5])
    def test_exit_by_exit_is_the_closed_form(self, num_exits: int, bias: float) -> None:
        evidence, given = draw(2000, num_exits, 4, seed=0), parameters(num_exits, bias=bias)
        scores = scores_of(evidence, given)
        found = run(GatePolicy(), evidence, given, range(num_exits))
        tie = ((scores + scores.cumsum(1) - 1).abs() < 1e-9).any(1)
        assert torch.equal(found[~tie], first_exit(should_leave(scores))[~tie])
        assert found.tolist() == [by_equation_4(row) for row in scores.tolist()]

    @each("active", [(0, 1, 2, 3, 4, 5), (0, 2, 5), (1, 3, 4, 5), (5,)])
    def test_only_active_exits_feed_the_running_sum(self, active: tuple[int, ...]) -> None:
        evidence, given = draw(2000, 6, 4, seed=0), parameters(6, bias=-2.0)
        scores = scores_of(evidence, given)
        found = run(GatePolicy(), evidence, given, active)
        expected = [active[by_equation_4(row)] for row in scores[:, list(active)].tolist()]
        assert found.tolist() == expected
        if 1 < len(active) < 6:
            # Carrying the others' scores along would let some leave earlier.
            closed = should_leave(scores)
            closed[:, [exit for exit in range(5) if exit not in active]] = False
            careless = first_exit(closed)
            assert (careless <= found).all()
            assert (careless < found).double().mean() > 0.05

    def test_offsets_move_every_gate(self) -> None:
        evidence = draw(3000, 6, 4, seed=0)
        runs = [run(GatePolicy(), evidence, parameters(6, offset=offset), range(6)) for offset in (-50, -1, 0, 1, 50)]
        assert (runs[0] == 5).all()
        assert (runs[-1] == 0).all()
        for later, earlier in pairwise(runs):
            assert (earlier <= later).all()
            assert (earlier < later).any()

    def test_the_carry_is_the_running_sum(self) -> None:
        evidence, given = draw(9, 4, 4, seed=0), parameters(4)
        scores = scores_of(evidence, given)
        carry: Any = 0.0
        for exit in range(3):
            here = {"weight": given["weight"][exit], "bias": given["bias"][exit], "offset": given["offset"]}
            _, carry = GatePolicy().step(Observation(evidence=evidence[:, exit]), carry, here)
            torch.testing.assert_close(carry, scores[:, : exit + 1].sum(1))


class TestSampledGatePolicy:
    @each("bias", [-2.0, -0.5, 1.0])
    def test_frequencies(self, bias: float) -> None:
        num_samples, num_exits = 60_000, 5
        evidence = draw(1, num_exits, 4, seed=0)
        given = parameters(num_exits, bias=bias)
        expected = exit_distribution(scores_of(evidence, given))[0]
        noise = torch.rand(num_samples, num_exits, dtype=torch.float64, generator=generator(5))
        found = run(SampledGatePolicy(), evidence.expand(num_samples, -1, -1), given, range(num_exits), noise)
        frequencies = torch.bincount(found, minlength=num_exits) / num_samples
        bound = 5 * (expected * (1 - expected) / num_samples).sqrt()
        assert ((frequencies - expected).abs() <= bound).all()

    def test_dropped_exits_leave_their_share_to_the_rest(self) -> None:
        evidence, given, active = draw(1, 5, 4, seed=0), parameters(5, bias=-2.0), [0, 3, 4]
        expected = exit_distribution(scores_of(evidence, given)[:, active])[0]
        noise = torch.rand(60_000, 5, dtype=torch.float64, generator=generator(5))
        found = run(SampledGatePolicy(), evidence.expand(60_000, -1, -1), given, active, noise)
        frequencies = torch.bincount(found, minlength=5)[active] / 60_000
        assert ((frequencies - expected).abs() <= 5 * (expected * (1 - expected) / 60_000).sqrt()).all()

    def test_nobody_stays_where_nothing_is_left(self) -> None:
        # Scores .9 and .9: whoever passes the first gate has a tenth left, and the second takes it all.
        given = {"weight": torch.zeros(4), "bias": torch.tensor(9.0).log(), "offset": torch.tensor(0.0)}
        almost_1 = torch.full((3,), 1 - 1e-7)
        seen = Observation(evidence=torch.zeros(3, 4), noise=almost_1)
        leave, carry = SampledGatePolicy().step(seen, 0.0, given)
        assert not leave.any()
        assert SampledGatePolicy().step(seen, carry, given)[0].all()
        assert SampledGatePolicy().step(seen, carry + 5, given)[0].all()


class TestCost:
    @each("policy", [GatePolicy(), SampledGatePolicy()])
    def test_the_papers(self, policy: Policy) -> None:
        assert policy.mul_adds(10) == 96
        assert policy.mul_adds(100) == 906
