"""What is kept of a fit is found again by what it depends on, and by nothing less."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("torch_geometric")
pytest.importorskip("efficientnet_lite_pytorch", reason="not installed: scripts/setup installs it")

from offramp.backbone import CifarResNet
from offramp_bench.guarantees.pools import identity
from offramp_bench.paper.tasks import TASKS


def backbone(seed: int = 0) -> CifarResNet:
    torch.manual_seed(seed)
    return CifarResNet(8)


def test_a_fit_is_known_by_settings_samples_and_weights() -> None:
    task = TASKS["cifar10"]
    known = identity(task, backbone())
    assert identity(task, backbone()) == known
    others = [
        identity(replace(task, default=replace(task.default, epochs=3)), backbone()),
        identity(replace(task, shares=(0.0, 0.3, 0.1)), backbone()),
        identity(replace(task, most=100), backbone()),
        identity(task, backbone(seed=1)),
    ]
    assert len({known, *others}) == 5
