"""Compare the answers of the engine with those of the simulator, sample by sample."""

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

__all__ = ["ALLOWED", "Simulation", "count_half_precision_flips", "parity", "simulate_network"]

ALLOWED = 10
"""Largest number of differences in 10,000 answers."""

NEAR = 1e-4
"""Largest distance from a policy's boundary at which rounding may change a decision."""

BATCH_SIZES = (1, 7, 64, 256)

TARGETS = (("threshold", 0.4), ("threshold", 0.6), ("threshold", 0.8), ("gates", 0.5), ("gates", 0.7))
"""Policies and costs of the five points."""


@dataclass(frozen=True)
class Simulation:
    """Simulated answers for all test images at the points, on features in full precision."""

    network: str
    frontier: EarlyExitModel
    points: Sequence[OperatingPoint]
    exits: Tensor
    """`P x N` exits where samples leave."""
    labels: Tensor
    """`P x N` labels."""
    margins: Tensor
    """`P x N x L` distances from the boundary at each exit; infinite where nothing is decided."""


def simulate_network(network: str) -> Simulation:
    """Simulate the answers of a network.

    Args:
        network: "ResNet-56", with trained early exits, or "cascade", where the own head of the first member is an exit.
    """
    frontier = FRONTIERS[network]()
    outcomes, placed_points, points = _outcomes(network, frontier, torch.float32)
    exits = simulate(placed_points, outcomes)
    labels = _labels_at(outcomes.predictions, placed_points, exits)
    margins = torch.stack([_margins(point, outcomes) for point in placed_points])
    return Simulation(network, frontier, points, exits, labels, margins)


def count_half_precision_flips(simulation: Simulation) -> dict[str, int]:
    """Count the samples, of 10,000, whose exit or label changes with features in half precision, at each point."""
    outcomes, placed_points, _ = _outcomes(simulation.network, simulation.frontier, torch.float16)
    exits = simulate(placed_points, outcomes)
    labels = _labels_at(outcomes.predictions, placed_points, exits)
    return {
        f"{policy} {cost}": int(((exits[row] != simulation.exits[row]) | (labels[row] != simulation.labels[row])).sum())
        for row, (policy, cost) in enumerate(TARGETS)
    }


def parity(name: str, backend: Backend, simulation: Simulation) -> list[dict[str, Any]]:
    """Count differences for each batch size and point; also shuffled, cut at random, and with all points in one batch.

    Args:
        name: Name of the backend.
        backend: The backend of the model's backbone and exits.
        simulation: The simulated answers.
    """
    frontier, images = simulation.frontier, all_images()
    engine = Engine(frontier.backbone, frontier.pooling, frontier.exits, simulation.points, backend=backend)
    draw = torch.Generator().manual_seed(0)
    all_rows, count = torch.arange(len(images)), len(simulation.points)
    rows = []
    for size in BATCH_SIZES:
        for point, (policy, cost) in enumerate(TARGETS):
            at = torch.full_like(all_rows, point)
            differences = _differences(engine, images, _cut(all_rows, size), at, simulation)
            rows.append(
                {
                    "network": simulation.network,
                    "backend": name,
                    "batch": size,
                    "point": f"{policy} {cost}",
                    **differences,
                }
            )
        say(f"parity of {simulation.network}, {name}, at batch {size}: {[row['differ'] for row in rows[-count:]]}")
    shuffled = torch.randperm(len(images), generator=draw)
    cuts = torch.randint(1, 300, (200,), generator=draw).cumsum(0)
    uneven = all_rows.tensor_split(cuts[cuts < len(images)])
    mixed = torch.randint(count, (len(images),), generator=draw)
    middle = torch.full_like(all_rows, 1)
    for kind, batches, at in (
        ("shuffled", _cut(shuffled, 64), middle),
        ("cut at random", uneven, middle),
        ("points mixed", _cut(shuffled, 64), mixed),
    ):
        rows.append(
            {
                "network": simulation.network,
                "backend": name,
                "batch": kind,
                **_differences(engine, images, batches, at, simulation),
            }
        )
    return rows


def _cut(rows: Tensor, size: int) -> list[Tensor]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _outcomes(
    network: str, frontier: EarlyExitModel, dtype: torch.dtype
) -> tuple[Outcomes, Sequence[OperatingPoint], Sequence[OperatingPoint]]:
    """Return the outcomes on all test images by features of some precision, the points for them, and the points."""
    folder = CACHE / f"{network}-{str(dtype).removeprefix('torch.')}"
    pooling = frontier.pooling.name
    store = extract(
        frontier.backbone, cifar10("test"), folder, poolings=(pooling,), views=(PREPROCESSING,), dtype=dtype
    )
    points = [frontier.at(cost=cost, policy=policy).point for policy, cost in TARGETS]
    placed_points, outcomes = frontier.outcomes_at(points, StoreSource(store, pooling=pooling))
    return outcomes, placed_points, points


def _labels_at(predictions: Tensor, points: Sequence[OperatingPoint], exits: Tensor) -> Tensor:
    """Return the `P x N` labels at the exits where samples leave."""
    return torch.stack(
        [
            predictions[point.classifier].gather(1, left[:, None]).squeeze(1)
            for point, left in zip(points, exits, strict=True)
        ]
    )


def _margins(point: OperatingPoint, outcomes: Outcomes) -> Tensor:
    """Return the `N x L` distances from the policy's boundary at each exit."""
    margins = torch.full(outcomes.confidence.shape[1:], float("inf"))
    total = torch.zeros(len(outcomes.labels))
    for exit in point.active[:-1]:
        if point.policy == "threshold":
            margins[:, exit] = (outcomes.confidence[point.classifier, :, exit] - point.parameters["threshold"]).abs()
            continue
        weight, bias = point.parameters["weight"][exit], point.parameters["bias"][exit]
        logits = outcomes.evidence[point.classifier, :, exit] @ weight + bias + point.parameters["offset"]
        score = logits.sigmoid()
        margins[:, exit] = (2 * score + total - 1).abs()
        total = total + score
    return margins


def _differences(
    engine: Engine, images: Tensor, batches: Sequence[Tensor], at: Tensor, simulation: Simulation
) -> dict[str, int]:
    """Count the samples with another exit or label, and those of them that are far from any boundary."""
    differ = far = 0
    for rows, probabilities, exits in _answers(engine, images, batches, at):
        points = at[rows]
        labels = probabilities.argmax(1)
        other_exit = exits != simulation.exits[points, rows]
        other_label = (labels != simulation.labels[points, rows]) & ~other_exit
        top = probabilities.topk(2).values
        near = torch.where(other_exit, simulation.margins[points, rows].amin(1) <= NEAR, top[:, 0] - top[:, 1] <= NEAR)
        differ += int((other_exit | other_label).sum())
        far += int(((other_exit | other_label) & ~near).sum())
    return {"differ": differ, "far": far}


def _answers(
    engine: Engine, images: Tensor, batches: Sequence[Tensor], at: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for rows in batches:
        if len(rows):
            yield rows, *engine.run(images[rows], point=at[rows])
