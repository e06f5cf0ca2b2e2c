"""A kept fit is identified by everything that it depends on."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("torch_geometric")
pytest.importorskip("efficientnet_lite_pytorch", reason="not installed: scripts/setup installs it")

from offramp.backbone import CifarResNet
from offramp.methods._settings import DEFAULT
from offramp_bench.guarantees import pools
from offramp_bench.guarantees.pools import identity
from offramp_bench.paper.tasks import TASKS


def backbone(seed: int = 0) -> CifarResNet:
    torch.manual_seed(seed)
    return CifarResNet(8)


def test_a_fit_is_known_by_settings_samples_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    task = TASKS["cifar10"]
    known = identity(task, backbone())
    assert identity(task, backbone()) == known
    others = [
        identity(replace(task, shares=(0.0, 0.3, 0.1)), backbone()),
        identity(replace(task, most_rows=100), backbone()),
        identity(task, backbone(seed=1)),
    ]
    monkeypatch.setattr(pools, "DEFAULT", replace(DEFAULT, epochs=3))
    others.append(identity(task, backbone()))
    assert len({known, *others}) == 5
