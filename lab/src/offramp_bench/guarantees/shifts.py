"""Real shifts: texts of none of the classes, and corrupted images."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from offramp.features import ArraySource, Source, StoreSource, extract
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate
from offramp.monitor import Traffic
from offramp.policy import OperatingPoint
from offramp_bench.bars import say
from offramp_bench.cifar import cifar10
from offramp_bench.guarantees.pools import CACHE, Pool
from offramp_bench.texts import intents

__all__ = ["CORRUPTIONS", "Shift", "shifts_of", "traffic_of"]

SHARES = (0.1, 0.2, 0.3)
"""Shares of out-of-scope texts in the traffic."""

IMAGES = 2000
"""Images with each corruption: the first of the pool."""

_Pixels = npt.NDArray[np.float64]


def noise(images: _Pixels, spread: float) -> _Pixels:
    """Add normal noise to every pixel; the standard deviation is on the scale from 0 to 255."""
    return images + np.random.default_rng(0).normal(0, spread, images.shape)


def blur(images: _Pixels, radius: float) -> _Pixels:
    """Blur by a Gaussian; the standard deviation is in pixels."""
    steps = np.arange(-4, 5)
    weights = np.exp(-0.5 * (steps / radius) ** 2)
    weights /= weights.sum()
    for axis in (1, 2):
        padded = np.pad(images, [(4, 4) if other == axis else (0, 0) for other in range(4)], mode="edge")
        shifted = [padded.take(range(4 + step, 36 + step), axis) for step in steps]
        images = sum((weight * copy for weight, copy in zip(weights, shifted, strict=True)), np.zeros_like(images))
    return images


def contrast(images: _Pixels, factor: float) -> _Pixels:
    """Scale the differences of each image from its mean."""
    mean: _Pixels = images.mean((1, 2, 3), keepdims=True)
    return mean + factor * (images - mean)


CORRUPTIONS: dict[str, tuple[Callable[[_Pixels, float], _Pixels], float]] = {
    "noise 4": (noise, 4.0),
    "noise 6": (noise, 6.0),
    "noise 8": (noise, 8.0),
    "noise 16": (noise, 16.0),
    "blur 0.4": (blur, 0.4),
    "blur 0.5": (blur, 0.5),
    "blur 0.6": (blur, 0.6),
    "blur 0.8": (blur, 0.8),
    "contrast 0.6": (contrast, 0.6),
    "contrast 0.5": (contrast, 0.5),
    "contrast 0.4": (contrast, 0.4),
    "contrast 0.2": (contrast, 0.2),
}
"""Corruptions by name: function and amount."""


def corrupted_outcomes(pool: Pool, name: str) -> Outcomes:
    """Return outcomes on the pool's first images, corrupted; computed on first use, which takes half a minute.

    Args:
        pool: The pool of CIFAR-10.
        name: A key of CORRUPTIONS.
    """
    corrupt, amount = CORRUPTIONS[name]

    def make() -> Source:
        whole = cifar10("test")
        clean = whole.read(0, len(whole))
        places = {int(id): row for row, id in enumerate(clean.ids)}
        rows = [places[int(id)] for id in pool.ids[:IMAGES]]
        images = corrupt(clean.inputs[rows].astype(np.float64), amount)
        pixels = np.clip(np.rint(images), 0, 255).astype(np.uint8)
        return ArraySource(pixels, clean.labels[rows], name=f"cifar10/{name}")

    return _outcomes(pool, name, make)


def out_of_scope_outcomes(pool: Pool) -> Outcomes:
    """Return outcomes on texts outside of all 150 intents; their labels mean nothing.

    Args:
        pool: The pool of CLINC150.
    """

    def make() -> Source:
        whole = intents("clinc150", "oos_test")
        texts = whole.read(0, len(whole)).inputs
        return ArraySource(texts, np.zeros(len(whole), dtype=np.int64), name="clinc150/out-of-scope")

    return _outcomes(pool, "out of scope", make)


def _outcomes(pool: Pool, name: str, make: Callable[[], Source]) -> Outcomes:
    """Return outcomes on samples from outside the pool, computed on first use and kept under `lab/.cache`."""
    frontier = pool.frontier
    file = CACHE / "shifts" / f"{pool.name}-{name.replace(' ', '-')}-{pool.exits}.safetensors"
    if not file.exists():
        say(f"running {frontier.backbone.name}: {name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            views, pooling = (frontier.preprocessing,), frontier.pooling.name
            store = extract(frontier.backbone, make(), folder, poolings=(pooling,), views=views, progress=False)
            outcomes = compute_outcomes(frontier.exits, StoreSource(store, pooling=pooling), frontier.temperatures)
        tensors = {field.name: getattr(outcomes, field.name) for field in fields(Outcomes)}
        save_file({name: tensor.contiguous() for name, tensor in tensors.items() if isinstance(tensor, Tensor)}, file)
    return Outcomes(frontier.backbone.num_classes, **load_file(file))


@dataclass(frozen=True)
class Shift:
    """Other samples, mixed into those of a pool."""

    pool: Pool
    name: str
    outcomes: Outcomes
    """Outcomes on the other samples."""
    share: float
    """Share of the other samples in the traffic."""

    def accuracy_lost(self, point: OperatingPoint) -> float:
        """Return the loss on the same images, or with every answer to an out-of-scope text counted as wrong."""
        clean = traffic_of(point, self.pool.pool)[1]
        if self.share < 1:
            return float(self.share * clean.mean())
        return float(clean[:IMAGES].mean() - traffic_of(point, self.outcomes)[1].mean())


def shifts_of(pool: Pool) -> list[Shift]:
    """Return every shift of a pool; on first use its network runs for some minutes.

    Args:
        pool: The pool of CLINC150 or CIFAR-10.
    """
    if pool.name == "clinc150":
        outside = out_of_scope_outcomes(pool)
        return [Shift(pool, f"{share:.0%} out of scope", outside, share) for share in SHARES]
    return [Shift(pool, name, corrupted_outcomes(pool, name), 1.0) for name in CORRUPTIONS]


def traffic_of(point: OperatingPoint, outcomes: Outcomes) -> tuple[Traffic, npt.NDArray[np.bool_]]:
    """Return the answers at an operating point, all of them shadowed, and `N` booleans: true where they are right.

    Args:
        point: The operating point.
        outcomes: Outcomes of N samples.
    """
    exits = simulate([point], outcomes)[0]
    rows = torch.arange(len(exits))
    answers = outcomes.predictions[point.classifier, rows, exits]
    confidence = outcomes.confidence[point.classifier, rows, exits]
    traffic = Traffic(
        exits.numpy(), confidence.double().clamp(0, 1).numpy(), (answers != outcomes.full).double().numpy()
    )
    return traffic, (answers == outcomes.labels).numpy()
