"""Whether the engine says what the simulator says, sample by sample."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from offramp.features import StoreSource, extract
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import Outcomes, simulate
from offramp.policy import OperatingPoint
from offramp.runtime import Backend
from offramp.runtime._engine import Engine
from offramp_bench.bars import say
from offramp_bench.cifar import PREPROCESSING, cifar10
from offramp_bench.runtime.networks import CACHE, FRONTIERS, all_images

__all__ = ["ALLOWED", "Expected", "expected", "flipped_by_half", "parity"]

ALLOWED = 10
"""Differences in 10,000 answers at most."""

NEAR = 1e-4
"""How near to a policy's boundary a sample must be to be decided otherwise."""

BATCH_SIZES = (1, 7, 64, 256)

ASKED = (("threshold", 0.4), ("threshold", 0.6), ("threshold", 0.8), ("gates", 0.5), ("gates", 0.7))
"""Policies and costs of the five points."""


@dataclass(frozen=True)
class Expected:
    """What the simulator says of all test images at the points, on features in full precision."""

    network: str
    frontier: EarlyExitModel
    points: Sequence[OperatingPoint]
    exits: Tensor
    """`P x N`."""
    labels: Tensor
    """`P x N`."""
    margins: Tensor
    """`P x N x L` distances from the boundary at each exit; infinite where nothing is decided."""


def expected(network: str) -> Expected:
    """A network's answers, simulated.

    Args:
        network: "ResNet-56", whose early exits are trained ones, or "cascade", where the first network's own head is
            one.
    """
    frontier = FRONTIERS[network]()
    seen, asked, points = _seen(network, frontier, torch.float32)
    exits = simulate(asked, seen)
    labels = _at(seen.predictions, asked, exits)
    margins = torch.stack([_margins(point, seen) for point in asked])
    return Expected(network, frontier, points, exits, labels, margins)


def flipped_by_half(wanted: Expected) -> dict[str, int]:
    """How many of 10,000 samples leave elsewhere, or are answered otherwise, by features kept in half precision."""
    seen, asked, _ = _seen(wanted.network, wanted.frontier, torch.float16)
    exits = simulate(asked, seen)
    labels = _at(seen.predictions, asked, exits)
    return {
        f"{policy} {cost}": int(((exits[row] != wanted.exits[row]) | (labels[row] != wanted.labels[row])).sum())
        for row, (policy, cost) in enumerate(ASKED)
    }


def parity(name: str, backend: Backend, wanted: Expected) -> list[dict[str, Any]]:
    """Differences in every cell: each batch size and point; shuffled; cut at random; all points in one batch.

    Args:
        name: Of the backend.
        backend: What computes; of the frontier's backbone and exits.
        wanted: What the simulator says.
    """
    frontier, images = wanted.frontier, all_images()
    engine = Engine(frontier.backbone, frontier.pooling, frontier.exits, wanted.points, backend=backend)
    draw = torch.Generator().manual_seed(0)
    everybody, count = torch.arange(len(images)), len(wanted.points)
    rows = []
    for size in BATCH_SIZES:
        for point, (policy, cost) in enumerate(ASKED):
            at = torch.full_like(everybody, point)
            found = _differences(engine, images, _cut(everybody, size), at, wanted)
            rows.append(
                {"network": wanted.network, "backend": name, "batch": size, "point": f"{policy} {cost}", **found}
            )
        say(f"parity of {wanted.network}, {name}, at batch {size}: {[row['differ'] for row in rows[-count:]]}")
    shuffled = torch.randperm(len(images), generator=draw)
    cuts = torch.randint(1, 300, (200,), generator=draw).cumsum(0)
    uneven = everybody.tensor_split(cuts[cuts < len(images)])
    mixed = torch.randint(count, (len(images),), generator=draw)
    middle = torch.full_like(everybody, 1)
    for kind, batches, at in (
        ("shuffled", _cut(shuffled, 64), middle),
        ("cut at random", uneven, middle),
        ("points mixed", _cut(shuffled, 64), mixed),
    ):
        rows.append(
            {
                "network": wanted.network,
                "backend": name,
                "batch": kind,
                **_differences(engine, images, batches, at, wanted),
            }
        )
    return rows


def _cut(rows: Tensor, size: int) -> list[Tensor]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _seen(
    network: str, frontier: EarlyExitModel, dtype: torch.dtype
) -> tuple[Outcomes, Sequence[OperatingPoint], Sequence[OperatingPoint]]:
    """What all exits say of all test images from features of some precision, and the points as asked of that."""
    folder = CACHE / f"{network}-{str(dtype).removeprefix('torch.')}"
    pooling = frontier.pooling.name
    store = extract(
        frontier.backbone, cifar10("test"), folder, poolings=(pooling,), views=(PREPROCESSING,), dtype=dtype
    )
    points = [frontier.at(cost=cost, policy=policy).point for policy, cost in ASKED]
    asked, seen = frontier.outcomes_at(points, StoreSource(store, pooling=pooling))
    return seen, asked, points


def _at(predictions: Tensor, points: Sequence[OperatingPoint], exits: Tensor) -> Tensor:
    """What is answered where samples leave, `P x N`."""
    return torch.stack(
        [
            predictions[point.classifier].gather(1, left[:, None]).squeeze(1)
            for point, left in zip(points, exits, strict=True)
        ]
    )


def _margins(point: OperatingPoint, seen: Outcomes) -> Tensor:
    """How far each sample is from being decided otherwise at each exit, `N x L`."""
    found = torch.full(seen.confidence.shape[1:], float("inf"))
    total = torch.zeros(len(seen.labels))
    for exit in point.active[:-1]:
        if point.policy == "threshold":
            found[:, exit] = (seen.confidence[point.classifier, :, exit] - point.parameters["threshold"]).abs()
            continue
        weight, bias = point.parameters["weight"][exit], point.parameters["bias"][exit]
        logits = seen.evidence[point.classifier, :, exit] @ weight + bias + point.parameters["offset"]
        score = logits.sigmoid()
        found[:, exit] = (2 * score + total - 1).abs()
        total = total + score
    return found


def _differences(
    engine: Engine, images: Tensor, batches: Sequence[Tensor], at: Tensor, wanted: Expected
) -> dict[str, int]:
    """How many samples leave or are answered otherwise, and how many of them are far from any boundary."""
    differ = far = 0
    for rows, probabilities, exits in _answers(engine, images, batches, at):
        points = at[rows]
        labels = probabilities.argmax(1)
        other_exit = exits != wanted.exits[points, rows]
        other_label = (labels != wanted.labels[points, rows]) & ~other_exit
        top = probabilities.topk(2).values
        near = torch.where(other_exit, wanted.margins[points, rows].amin(1) <= NEAR, top[:, 0] - top[:, 1] <= NEAR)
        differ += int((other_exit | other_label).sum())
        far += int(((other_exit | other_label) & ~near).sum())
    return {"differ": differ, "far": far}


def _answers(
    engine: Engine, images: Tensor, batches: Sequence[Tensor], at: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for rows in batches:
        if len(rows):
            yield rows, *engine.run(images[rows], point=at[rows])
