"""From real images and a real pretrained network to a chosen operating point, at a small size."""

from pathlib import Path

import pytest
import torch

import offramp
from offramp.features import ArraySource, StoreSource, extract
from offramp_bench.cifar import AUGMENTED, PREPROCESSING, cifar10, resnet


@pytest.mark.data
@pytest.mark.slow
def test_resnet20_on_cifar10(tmp_path: Path) -> None:
    backbone = resnet(20)
    # The first test images tune and calibrate, the next ones score: the network has seen neither.
    validation = cifar10("test", rows=2_000)
    frontier = offramp.fit(
        backbone,
        cifar10("train", rows=3_500),
        validation,
        preprocessing=PREPROCESSING,
        fitting=offramp.FittingOptions(augmented=(AUGMENTED,)),
        store=tmp_path / "stores",
        progress=False,
    )
    unseen = cifar10("test").read(2_000, 4_000)
    source = ArraySource(unseen.inputs, unseen.labels, name="unseen")
    scored = extract(backbone, source, tmp_path / "test", views=(PREPROCESSING,), progress=False)
    test = StoreSource(scored, pooling="rich")
    points = [frontier.at(cost=cost).point for cost in (0.6, 0.8, 0.95)]
    found = frontier.evaluate(test, points=points).rows
    for asked, measured in zip((0.6, 0.8, 0.95), found, strict=True):
        assert measured.relative_cost < asked + 0.02
        assert measured.calibration_error < 0.03
    losses = [-measured.change for measured in found]
    assert losses[1] < 0.02, losses
    assert losses[2] < 0.01, losses
    assert losses[0] < 0.08, losses

    network = frontier.at(cost=0.8)
    answer = network.predict(unseen.inputs[1_000:1_200])
    labels = torch.from_numpy(unseen.labels[1_000:1_200])
    assert (answer.labels == labels).double().mean() > 0.85
    assert answer.prediction_sets[0.1][torch.arange(200), labels].double().mean() > 0.82
