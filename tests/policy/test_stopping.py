import math
from typing import Any

import pytest
import torch
from torch import Tensor

from offramp.policy import Observation
from offramp.policy._stopping import BASIS_SIZE, StoppingPolicy, basis


def seen(confidence: list[float], prediction: list[int], evidence: Tensor | None = None) -> Observation:
    count = len(confidence)
    return Observation(
        torch.tensor(confidence),
        torch.zeros(count, 4) if evidence is None else evidence,
        prediction=torch.tensor(prediction),
    )


class TestBasis:
    def test_number_by_number(self) -> None:
        evidence = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
        carry = torch.tensor([0.5, -0.5]), torch.tensor([3, 4])
        found = basis(seen([0.8, 0.6], [3, 3], evidence), carry)
        assert found.shape == (2, BASIS_SIZE)
        for row, (confidence, before, agrees) in enumerate([(0.8, 0.5, 1.0), (0.6, -0.5, 0.0)]):
            odds = math.log(confidence / (1 - confidence))
            assert found[row].tolist() == pytest.approx([1, *evidence[row].tolist(), odds, before, agrees], rel=1e-5)

    def test_the_first_exit_has_nothing_before(self) -> None:
        found = basis(seen([0.8], [0]), StoppingPolicy().initial_carry(torch.zeros(1)))
        assert found[0, -2:].tolist() == [0, 0]

    def test_certainty_is_finite(self) -> None:
        found = basis(seen([1.0, 0.0], [0, 0]), (torch.zeros(2), torch.zeros(2).long()))
        assert found[:, 5].tolist() == pytest.approx([math.log(9999), -math.log(9999)], rel=1e-3)


class TestStoppingPolicy:
    def test_leaves_where_the_advantage_is_not_below_the_offset(self) -> None:
        draw = torch.Generator().manual_seed(1)
        evidence, weight = torch.randn(300, 4, generator=draw), torch.randn(BASIS_SIZE, generator=draw)
        confidence, prediction = torch.rand(300, generator=draw), torch.randint(4, (300,), generator=draw)
        carry = torch.randn(300, generator=draw), torch.randint(4, (300,), generator=draw)
        shown = Observation(confidence, evidence, prediction=prediction)
        advantage = basis(shown, carry).double() @ weight.double()
        for offset in (-0.5, 0.0, 0.5):
            leave, _ = StoppingPolicy().step(shown, carry, {"weight": weight, "offset": torch.tensor(offset)})
            assert torch.equal(leave, advantage >= -offset)

    def test_remembers_the_exit_before_alone(self) -> None:
        policy, nothing = StoppingPolicy(), {"weight": torch.zeros(BASIS_SIZE), "offset": torch.tensor(0.0)}
        carry: Any = policy.initial_carry(torch.zeros(1))
        for confidence, label in ((0.5, 1), (0.75, 2)):
            _, carry = policy.step(seen([confidence], [label]), carry, nothing)
        assert [float(carry[0]), int(carry[1])] == pytest.approx([math.log(3), 2])
        assert basis(seen([0.5], [2]), carry)[0, -2:].tolist() == pytest.approx([math.log(3), 1])
        assert basis(seen([0.5], [1]), carry)[0, -1] == 0
