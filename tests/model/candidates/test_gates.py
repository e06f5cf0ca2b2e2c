import pytest
import torch

from tests.cases import each
from tests.model.candidates.examples import EXITS, answers, candidates, seen, tuning


@each("policy", ["gates", "sampled_gates", "branch_gates"])
def test_every_cost_weight_with_every_offset(policy: str) -> None:
    given = tuning(seen(*answers(50)), weights=3)
    points = candidates(policy, given)
    assert {point.policy for point in points} == {policy}
    assert len(points) == 3 * 65
    offsets = [float(point.parameters["offset"]) for point in points]
    assert offsets == pytest.approx([step / 4 - 8 for step in range(65)] * 3)
    weight, bias = given.gates
    for index, point in enumerate(points):
        assert torch.equal(point.parameters["weight"][:-1], weight[index // 65])
        assert torch.equal(point.parameters["bias"][:-1], bias[index // 65])
        assert point.active == tuple(range(EXITS))
        assert point.classifier == 0  # all share one set
