"""A small backbone with random weights, and images whose classes it can tell apart."""

import numpy as np
import numpy.typing as npt
import torch

from offramp.backbone import CifarResNet
from offramp.methods._settings import JointSettings
from offramp.preprocessing._images import image_preprocessing

PREPROCESSING = image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
SMALL = JointSettings(
    exits="ladder",
    classifier_loss="fixed",
    cost_weights=(0.1, 1.0),
    warmup_epochs=4,
    epochs=1,
    batch_size=50,
    warmup_learning_rate=3e-3,
    scale_rates_by_depth=False,
    ladder_width=8,
)
LINEAR = JointSettings(cost_weights=(0.03, 0.3), warmup_epochs=3, epochs=2, batch_size=50, switch_every=4)


def images(count: int, *, seed: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Noisy images in three colours; half of them with little noise, half with much."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, count)
    colour = np.eye(3)[labels][:, None, None] * 60 + 90
    noise = draw.normal(size=(count, 32, 32, 3)) + draw.normal(size=(count, 1, 1, 3)) * draw.choice(
        [0.1, 1], (count, 1, 1, 1)
    )
    return np.clip(colour + 40 * noise, 0, 255).astype(np.uint8), labels


def backbone() -> CifarResNet:
    """A ResNet-8 whose own head is a nearest-centroid rule on its last features."""
    torch.manual_seed(0)
    network = CifarResNet(8, num_classes=3)
    inputs, labels = images(150, seed=99)
    hidden = PREPROCESSING(inputs)
    with torch.no_grad():
        for stage in network.stages:
            hidden = stage(hidden)
        pooled = hidden.mean((2, 3))
        centroids = torch.stack([pooled[torch.from_numpy(labels) == label].mean(0) for label in range(3)])
        linear = next(module for module in network.heads.modules() if isinstance(module, torch.nn.Linear))
        scale = 4 / (centroids - centroids.mean(0)).square().sum(1).mean()
        linear.weight.copy_(scale * (centroids - centroids.mean(0)))
        linear.bias.copy_(-linear.weight @ centroids.mean(0))
    return network
