import math

import pytest
import torch

from offramp.policy import Observation
from offramp_bench.rivals.entropy import EntropyPolicy, relative_entropy
from tests.cases import each


class TestRelativeEntropy:
    @each("classes", [2, 10, 1000])
    def test_from_certain_to_even(self, classes: int) -> None:
        certain, even = torch.zeros(classes), torch.full((classes,), 1 / classes)
        certain[1] = 1
        assert relative_entropy(torch.stack([certain, even])).tolist() == pytest.approx([0, 1], abs=1e-6)

    def test_the_definition(self) -> None:
        row = [0.5, 0.3, 0.15, 0.05]
        expected = -sum(p * math.log(p) for p in row) / math.log(4)
        assert float(relative_entropy(torch.tensor(row))) == pytest.approx(expected)

    def test_even_over_a_few_of_many(self) -> None:
        # Entropy of an even choice of m among K is ln m / ln K.
        row = torch.zeros(16)
        row[[3, 5, 8, 9]] = 0.25
        assert float(relative_entropy(row)) == pytest.approx(0.5)


class TestEntropyPolicy:
    def test_leaves_where_entropy_is_low(self) -> None:
        probabilities = torch.tensor([[1.0, 0.0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25]])
        for limit, expected in ((-1.0, [0, 0, 0]), (0.0, [1, 0, 0]), (0.75, [1, 1, 0]), (1.01, [1, 1, 1])):
            leave, carry = EntropyPolicy().step(
                Observation(probabilities=probabilities), (), {"limit": torch.tensor(limit)}
            )
            assert leave.tolist() == [bool(flag) for flag in expected]
            assert carry == ()
