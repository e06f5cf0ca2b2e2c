"""Budgets of one artifact: spent, kept on a stream that becomes harder, and changed between two batches."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import simulate
from offramp.policy._policy import OFFERED_POLICIES
from offramp.runtime import BudgetController, Dial
from offramp.runtime._budget import WINDOW
from offramp_bench.bars import Bar, say
from offramp_bench.guarantees.pools import Pool, load_pool
from offramp_bench.guarantees.switching import switching
from offramp_bench.paper.tasks import TASKS

__all__ = ["SampleCosts", "bound", "costs_at", "dial", "dial_and_costs", "draw_stream", "run_controller"]

IMAGES, TEXTS = "cifar10", "banking77"
"""Tasks: ResNet-56 on CIFAR-10, MiniLM on Banking77."""

POLICY = OFFERED_POLICIES[0]
"""The policy that is shipped."""

BUDGETS = 16
"""Number of budgets, evenly spaced from the cost of the cheapest point to that of the most expensive."""

BEYOND = 0.02
"""Largest excess over a budget, in relative cost."""

STREAM = 10_000
"""Samples of a stream that becomes harder half-way."""

NEAR = 0.02
"""Largest difference between the average over a stream and the budget, as a share of the budget."""

STREAM_BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Budgets of streams; used if they lie between the costs of the cheapest and the most expensive point."""

BATCH_SIZES = (1, 16, 64)
"""Batch sizes of streams; the last is that of `offramp predict`."""

SWITCH = 0.01
"""Longest time of a change of budget, as a share of a batch."""


@dataclass(frozen=True)
class SampleCosts:
    """Costs of N samples at each of P settings, and the correctness of the answers."""

    spent: Tensor
    """`P x N` costs."""
    full: Tensor
    """`N` costs of the full network, in the same unit."""
    correct: Tensor
    """`P x N` booleans."""

    def take(self, samples: Tensor) -> "SampleCosts":
        """Return some of the samples, in this order; samples may repeat."""
        return SampleCosts(self.spent[:, samples], self.full[samples], self.correct[:, samples])


def dial_and_costs(pool: Pool) -> tuple[Dial, SampleCosts, SampleCosts]:
    """Return a task's dial, and the costs of its test and calibrate samples at each setting.

    Args:
        pool: The task.
    """
    points = pool.frontier.points[POLICY]
    dial = Dial(points)
    point, exits = points[0], simulate(points, pool.pool)
    table, rows = pool.frontier.costs[POLICY].of(pool.pool.sizes), torch.arange(exits.shape[1])
    costs = SampleCosts(
        table.spent(exits, point.active).double(),
        table.full.double().expand(len(rows)),
        pool.pool.correct[point.classifier, rows, exits],
    )
    calibrating = int(pool.frontier.provenance["splits"]["calibrate"]["samples"])
    return dial, costs.take(rows[calibrating:]), costs.take(rows[:calibrating])


def costs_at(samples: SampleCosts, dial: Dial, budgets: Tensor) -> Tensor:
    """Return the relative cost of all samples at the setting that each budget picks.

    Args:
        samples: The samples.
        dial: The settings.
        budgets: `B` budgets.

    Returns:
        `B` relative costs: total spent over the total of the full network.
    """
    return samples.spent[dial.pick_rows(budgets)].sum(1) / samples.full.sum()


def run_controller(samples: SampleCosts, dial: Dial, budget: float, *, batch_size: int) -> dict[str, Any]:
    """Return the cost and accuracy of samples, in their order, when a controller moves the dial between batches.

    Args:
        samples: The samples.
        dial: The settings.
        budget: The average to keep.
        batch_size: Samples per batch.
    """
    controller = BudgetController(budget, costs=dial.costs)
    shares, right, spent, worst = samples.spent / samples.full, 0, 0.0, 0.0
    for batch in torch.split(torch.arange(len(samples.full)), batch_size):
        row = int(dial.pick_rows(torch.tensor([controller.next_budget]))[0])
        controller.record(shares[row, batch])
        right += int(samples.correct[row, batch].sum())
        spent += float(samples.spent[row, batch].sum())
        worst = max(worst, abs(controller.debt))
    return {
        "average": controller.average,
        "relative cost": spent / float(samples.full.sum()),
        "accuracy": right / len(samples.full),
        "largest debt": worst,
        "its bound": bound(budget, dial, (float(shares.min()), float(shares.max())), batch_size),
    }


def bound(budget: float, dial: Dial, costs: tuple[float, float], batch_size: int) -> float:
    """Return the bound on the debt by the theorem of `BudgetController`.

    Args:
        budget: b.
        dial: The settings; a and d are the costs of the cheapest and the most expensive.
        costs: The lowest and the highest cost of a sample, l and h.
        batch_size: n.
    """
    window = max(WINDOW, 2 * batch_size)
    above = window * (budget - dial.cheapest) + batch_size * (costs[1] - budget)
    return max(above, window * (dial.most_expensive - budget) + batch_size * (budget - costs[0]))


def draw_stream(samples: SampleCosts, *, seed: int) -> Tensor:
    """Draw a stream of STREAM samples with replacement, first from the easier half, then from the harder.

    Args:
        samples: The samples; the harder half costs more, averaged over all settings.
        seed: Seed of the draw.

    Returns:
        STREAM numbers of samples.
    """
    order = (samples.spent / samples.full).mean(0).argsort(stable=True)
    generator = torch.Generator().manual_seed(seed)
    halves = order.tensor_split(2)
    return torch.cat([half[torch.randint(len(half), (STREAM // 2,), generator=generator)] for half in halves])


def _measure_budgets(pool: Pool) -> dict[str, Any]:
    """Measure sixteen budgets over the whole dial, on the test and calibrate splits."""
    dial, test, calibrate = dial_and_costs(pool)
    budgets = torch.linspace(dial.cheapest, dial.most_expensive, BUDGETS, dtype=torch.float64)
    at_one_setting, on_calibrate = costs_at(test, dial, budgets), costs_at(calibrate, dial, budgets)
    controlled = [run_controller(test, dial, budget, batch_size=BATCH_SIZES[-1]) for budget in budgets.tolist()]
    costs = torch.tensor([row["relative cost"] for row in controlled], dtype=torch.float64)
    rows = torch.arange(len(test.full))
    accuracy = [float(test.correct[row, rows].double().mean()) for row in dial.pick_rows(budgets).tolist()]
    return {
        "settings": len(dial),
        "test samples": len(test.full),
        "asked": budgets.tolist(),
        "one setting": {
            "cost": at_one_setting.tolist(),
            "accuracy": accuracy,
            **_deviations(at_one_setting, budgets),
        },
        "one setting, on the calibrate split": {"cost": on_calibrate.tolist(), **_deviations(on_calibrate, budgets)},
        "kept by a controller": {
            "cost": costs.tolist(),
            "accuracy": [row["accuracy"] for row in controlled],
            **_deviations(costs, budgets),
        },
    }


def _deviations(costs: Tensor, budgets: Tensor) -> dict[str, float]:
    """Return the largest excess over a budget, and the largest unspent part of one."""
    return {"beyond": float((costs - budgets).max()), "left": float((budgets - costs).max())}


def _measure_streams(pool: Pool) -> list[dict[str, Any]]:
    """Measure streams that become harder half-way, at several budgets and batch sizes, beside one setting for all."""
    dial, test, _ = dial_and_costs(pool)
    stream = test.take(draw_stream(test, seed=0))
    rows = []
    for budget in (budget for budget in STREAM_BUDGETS if dial.cheapest <= budget <= dial.most_expensive):
        row = int(dial.pick_rows(torch.tensor([budget]))[0])
        shares = stream.spent[row] / stream.full
        one_setting = {
            "average": float(shares.mean()),
            "average of each half": [float(half.mean()) for half in shares.tensor_split(2)],
            "accuracy": float(stream.correct[row].double().mean()),
        }
        by_size = {size: run_controller(stream, dial, budget, batch_size=size) for size in BATCH_SIZES}
        off = max(abs(result["average"] / budget - 1) for result in by_size.values())
        rows.append({"budget": budget, "one setting": one_setting, "batch size": by_size, "off by": off})
    return rows


def _test_images(pool: Pool, count: int) -> tuple[Any, Tensor]:
    """Return raw test images of a task, and their rows in the pool."""
    source = TASKS[pool.name].unseen()
    raw = source.read(0, len(source))
    places = {int(id): row for row, id in enumerate(raw.ids)}
    calibrating = int(pool.frontier.provenance["splits"]["calibrate"]["samples"])
    rows = [places[int(id)] for id in pool.ids[calibrating : calibrating + count]]
    return raw.inputs[rows], torch.arange(calibrating, calibrating + count)


def _compare_exits(pool: Pool, model: EarlyExitModel, images: Any, rows: Tensor) -> dict[str, int]:
    """Count the images that leave elsewhere than simulated, in batches where each image has its own budget."""
    points = pool.frontier.points[POLICY]
    dial = Dial(points)
    budgets = torch.linspace(dial.cheapest, dial.most_expensive, BUDGETS, dtype=torch.float64)[
        torch.arange(len(rows)) % BUDGETS
    ]
    expected = simulate(points, pool.pool)[dial.pick_rows(budgets), rows]
    parts = zip(np.array_split(images, len(rows) // 64), budgets.tensor_split(len(rows) // 64), strict=True)
    exits = torch.cat([model.predict(part, budget=part_budgets).exits for part, part_budgets in parts])
    return {"images": len(rows), "differ": int((exits != expected).sum())}


def dial() -> tuple[dict[str, Any], list[Bar]]:
    """Measure budgets, streams, agreement with the simulation, and switches."""
    pools = {name: load_pool(name) for name in (IMAGES, TEXTS)}
    budgets = {name: _measure_budgets(pool) for name, pool in pools.items()}
    streams = {name: _measure_streams(pool) for name, pool in pools.items()}
    for name in pools:
        controlled, fixed = (budgets[name][way]["beyond"] for way in ("kept by a controller", "one setting"))
        say(f"{name}: most beyond {BUDGETS} budgets {controlled:.4f} kept, {fixed:.4f} at one setting each")
    images, rows = _test_images(pools[IMAGES], 512)
    model = pools[IMAGES].frontier.at(cost=0.6, policy=POLICY)
    agreement = _compare_exits(pools[IMAGES], model, images, rows)
    changes = {size: switching(model, images, batch_size=size) for size in (1, 64)}
    bars = []
    for name in pools:
        for how in ("one setting", "kept by a controller"):
            bars.append(Bar(f"{name}: most beyond 16 budgets, {how}", budgets[name][how]["beyond"], BEYOND))
        off = max(row["off by"] for row in streams[name])
        bars.append(Bar(f"{name}: stream that turns harder, off its budget", off, NEAR))
        debts = [
            size["largest debt"] / size["its bound"] for row in streams[name] for size in row["batch size"].values()
        ]
        bars.append(Bar(f"{name}: largest debt over its bound", max(debts), 1.0))
    bars.append(Bar("images that leave elsewhere than simulated", agreement["differ"], 2))
    for size, row in changes.items():
        bars.append(
            Bar(f"batch {size}: a switch, share of a batch", row["a switch"]["median, share of a batch"], SWITCH)
        )
    return {"budgets": budgets, "streams": streams, "agreement": agreement, "switching": changes}, bars
