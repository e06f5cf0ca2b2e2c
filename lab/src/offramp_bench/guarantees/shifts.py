"""Real shifts: texts that no class is right for, images that were spoiled on their way."""

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
"""Of out-of-scope texts in the traffic."""

IMAGES = 2000
"""Spoiled in each way: the first of the pool."""

_Pixels = npt.NDArray[np.float64]


def noise(images: _Pixels, spread: float) -> _Pixels:
    """Normal noise on every pixel, its standard deviation of 255."""
    return images + np.random.default_rng(0).normal(0, spread, images.shape)


def blur(images: _Pixels, radius: float) -> _Pixels:
    """A normal blur, its standard deviation in pixels."""
    steps = np.arange(-4, 5)
    weights = np.exp(-0.5 * (steps / radius) ** 2)
    weights /= weights.sum()
    for axis in (1, 2):
        padded = np.pad(images, [(4, 4) if one == axis else (0, 0) for one in range(4)], mode="edge")
        moved = [padded.take(range(4 + step, 36 + step), axis) for step in steps]
        images = sum((weight * one for weight, one in zip(weights, moved, strict=True)), np.zeros_like(images))
    return images


def contrast(images: _Pixels, left: float) -> _Pixels:
    """What is left of each image's differences from its mean."""
    mean: _Pixels = images.mean((1, 2, 3), keepdims=True)
    return mean + left * (images - mean)


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
"""By name: how images are spoiled, and how much."""


def corrupted(pool: Pool, name: str) -> Outcomes:
    """What the exits say of the pool's first images, spoiled; computed on first use: half a minute.

    Args:
        pool: Of CIFAR-10.
        name: One of CORRUPTIONS.
    """
    spoil, amount = CORRUPTIONS[name]

    def make() -> Source:
        whole = cifar10("test")
        read = whole.read(0, len(whole))
        places = {int(one): row for row, one in enumerate(read.ids)}
        rows = [places[int(one)] for one in pool.ids[:IMAGES]]
        images = spoil(read.inputs[rows].astype(np.float64), amount)
        pixels = np.clip(np.rint(images), 0, 255).astype(np.uint8)
        return ArraySource(pixels, read.labels[rows], name=f"cifar10/{name}")

    return _answered(pool, name, make)


def out_of_scope(pool: Pool) -> Outcomes:
    """What the exits say of texts outside of all 150 intents; their labels mean nothing.

    Args:
        pool: Of CLINC150.
    """

    def make() -> Source:
        whole = intents("clinc150", "oos_test")
        texts = whole.read(0, len(whole)).inputs
        return ArraySource(texts, np.zeros(len(whole), dtype=np.int64), name="clinc150/out-of-scope")

    return _answered(pool, "out of scope", make)


def _answered(pool: Pool, name: str, make: Callable[[], Source]) -> Outcomes:
    """Outcomes of other samples than the pool's, kept under `lab/.cache`."""
    frontier = pool.frontier
    file = CACHE / "shifts" / f"{pool.name}-{name.replace(' ', '-')}-{pool.exits}.safetensors"
    if not file.exists():
        say(f"running {frontier.backbone.name}: {name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            views, pooling = (frontier.preprocessing,), frontier.pooling.name
            store = extract(frontier.backbone, make(), folder, poolings=(pooling,), views=views, progress=False)
            seen = compute_outcomes(frontier.exits, StoreSource(store, pooling=pooling), frontier.temperatures)
        tensors = {field.name: getattr(seen, field.name) for field in fields(Outcomes)}
        save_file({name: one.contiguous() for name, one in tensors.items() if isinstance(one, Tensor)}, file)
    return Outcomes(frontier.backbone.num_classes, **load_file(file))


@dataclass(frozen=True)
class Shift:
    """Other samples, mixed into a pool's."""

    pool: Pool
    name: str
    seen: Outcomes
    """Of the other samples."""
    share: float
    """Of the traffic that they are."""

    def accuracy_lost(self, point: OperatingPoint) -> float:
        """On the same images where they are spoiled; an answer to what is out of scope is wrong."""
        clean = traffic_of(point, self.pool.pool)[1]
        if self.share < 1:
            return float(self.share * clean.mean())
        return float(clean[:IMAGES].mean() - traffic_of(point, self.seen)[1].mean())


def shifts_of(pool: Pool) -> list[Shift]:
    """Every shift of a pool; its network runs on first use, some minutes.

    Args:
        pool: Of CLINC150 or CIFAR-10.
    """
    if pool.name == "clinc150":
        outside = out_of_scope(pool)
        return [Shift(pool, f"{share:.0%} out of scope", outside, share) for share in SHARES]
    return [Shift(pool, name, corrupted(pool, name), 1.0) for name in CORRUPTIONS]


def traffic_of(point: OperatingPoint, seen: Outcomes) -> tuple[Traffic, npt.NDArray[np.bool_]]:
    """The answers at an operating point, all of them compared with the full network, and whether they are right.

    Args:
        point: The operating point.
        seen: Outcomes of N samples.
    """
    exits = simulate([point], seen)[0]
    rows = torch.arange(len(exits))
    answers = seen.predictions[point.classifier, rows, exits]
    confidence = seen.confidence[point.classifier, rows, exits]
    traffic = Traffic(exits.numpy(), confidence.double().clamp(0, 1).numpy(), (answers != seen.full).double().numpy())
    return traffic, (answers == seen.labels).numpy()
