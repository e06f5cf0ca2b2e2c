from dataclasses import replace

import pytest
import torch

from offramp.frontier import CANDIDATES, gate_candidates
from tests.frontier.candidates.examples import EXITS, answers, seen, tuning


def test_every_cost_weight_with_every_offset() -> None:
    given = tuning(seen(*answers(50)), weights=3)
    points = gate_candidates(given.fitted, given.temperatures)
    assert len(points) == 3 * 65
    offsets = [float(point.parameters["offset"]) for point in points]
    assert offsets == pytest.approx([step / 4 - 8 for step in range(65)] * 3)
    gates = given.fitted.trained_gates
    for index, point in enumerate(points):
        assert torch.equal(point.parameters["weight"][:-1], gates.weight[index // 65])
        assert torch.equal(point.parameters["bias"][:-1], gates.bias[index // 65])
        assert point.active == tuple(range(EXITS))
        assert point.classifier == 0  # all share one set


def test_gates_decide_as_they_were_trained_to() -> None:
    given = tuning(seen(*answers(50)))
    branches = replace(given.fitted, gate_policy="branch_gates")
    assert {point.policy for point in gate_candidates(given.fitted, given.temperatures)} == {"gates"}
    assert {point.policy for point in gate_candidates(branches, given.temperatures)} == {"branch_gates"}
    for name in ("gates", "branch_gates"):  # whoever asks by name gets what was asked for
        assert {point.policy for point in CANDIDATES.get(name)(replace(given, fitted=branches))} == {name}
