"""The full network's answers are those of the network as it was given."""

import torch

from offramp.backbone import CifarResNet
from offramp.methods._settings import JointSettings
from offramp.model._fitting import fit
from offramp.monitor import full_labels

QUICK = JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)


def test_as_the_full_network_says() -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
    backbone = CifarResNet(8)
    data = (images[:30], labels[:30]), (images[30:], labels[30:])
    network = fit(backbone, *data, settings=QUICK, anyway=True, progress=False).at(cost=1.1)
    with torch.no_grad():
        expected = backbone(images).argmax(1)
    assert full_labels(network, images, torch.arange(60)).tolist() == expected.tolist()
    some = torch.tensor([7, 3])
    assert full_labels(network, images, some).tolist() == expected[some].tolist()
    few = torch.arange(60) % 5 == 0
    assert full_labels(network, images, few).tolist() == expected[few].tolist()
    assert full_labels(network, images, torch.zeros(60, dtype=torch.bool)).tolist() == []
