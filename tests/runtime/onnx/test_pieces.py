"""Every policy that is registered decides without torch as it does with it."""

from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import offramp_onnx
from offramp.backbone import CifarResNet
from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.exits import LinearExits
from offramp.policy import POLICIES, OperatingPoint
from offramp.pooling import POOLINGS
from offramp.runtime._engine import Engine
from offramp.runtime.onnx._composing import write_single
from tests.cases import each
from tests.policy.examples import drawn
from tests.runtime.onnx.examples import write_folder

MEAN, COUNT = POOLINGS.get("mean"), 40
QUIET = [name for name in POLICIES if "noise" not in POLICIES.get(name).reads]


@cache
def network() -> tuple[CifarResNet, LinearExits, torch.Tensor]:
    """Exits that say now this, now that."""
    torch.manual_seed(0)
    backbone, exits = CifarResNet(8, num_classes=5), LinearExits((16, 32, 64), (0, 1), 5)
    with torch.no_grad():
        for weight in exits.parameters():
            weight.mul_(8)
    return backbone, exits, torch.randn(COUNT, 3, 32, 32) * torch.linspace(0.2, 3, COUNT)[:, None, None, None]


def points() -> list[OperatingPoint]:
    return [
        OperatingPoint(
            policy,
            {name: value[row] for name, value in drawn(policy, 3, exits=3, classes=5).items()},
            (0, 1, 2) if row else (1, 2),
            torch.tensor([0.7, 1.2, 1.0]),
        )
        for policy in QUIET
        for row in range(3)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    backbone, exits, inputs = network()
    place = tmp_path_factory.mktemp("exported") / "graphs"
    ones, zero = torch.ones(3), torch.zeros(3)
    costs = Costs((CostTable(ones, zero, zero, zero, full=torch.tensor(3.0), carries_state=False),))
    write_folder(place, backbone, MEAN, exits, inputs, points(), dict.fromkeys(QUIET, costs))
    return place


def test_every_policy_without_torch(folder: Path) -> None:
    backbone, exits, inputs = network()
    runner = offramp_onnx.load(folder)
    left: dict[str, set[int]] = {}
    for row, point in enumerate(points()):
        probabilities, left_at = Engine(backbone, MEAN, exits, [point]).run(inputs)
        found = runner.predict(inputs.numpy(), point=row)
        np.testing.assert_array_equal(found.exits, left_at)
        np.testing.assert_allclose(found.probabilities, probabilities, atol=1e-5)
        left.setdefault(point.policy, set()).update(left_at.tolist())
    assert all(len(stages) > 1 for stages in left.values()), left


def test_all_of_them_in_one_batch(folder: Path) -> None:
    backbone, exits, inputs = network()
    chosen = torch.arange(COUNT) % len(points())
    left_at = Engine(backbone, MEAN, exits, points()).run(inputs, point=chosen)[1]
    np.testing.assert_array_equal(
        offramp_onnx.load(folder).predict(inputs.numpy(), point=chosen.numpy()).exits, left_at
    )


@each("policy", QUIET)
def test_in_one_graph(policy: str, folder: Path) -> None:
    backbone, exits, inputs = network()
    row = 1 + 3 * QUIET.index(policy)
    write_single(folder, row)
    session = onnxruntime.InferenceSession(folder / "single.onnx")
    runs = Engine(backbone, MEAN, exits, [points()[row]])
    for sample in range(0, COUNT, 8):
        one = inputs[sample : sample + 1]
        assert session.run(["exit"], {"input": one.numpy()})[0].tolist() == runs.run(one)[1].tolist()
