"""Budgets asked of one artifact: spent, kept on a stream that turns harder, and changed between two batches."""

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
from offramp_bench.guarantees.pools import Pool, pool
from offramp_bench.guarantees.switching import switching
from offramp_bench.paper.tasks import TASKS

__all__ = ["Served", "bound", "dial", "harder_half_way", "kept", "served", "spent_at"]

IMAGES, TEXTS = "cifar10", "banking77"
"""Tasks: ResNet-56 on CIFAR-10, MiniLM on Banking77."""

POLICY = OFFERED_POLICIES[0]
"""The policy that is shipped."""

BUDGETS = 16
"""Evenly spread from the cost of the cheapest point to that of the most expensive."""

BEYOND = 0.02
"""How much more than what was asked for may be spent, in shares of the full network's cost."""

STREAM = 10_000
"""Samples of a stream that turns harder half-way."""

NEAR = 0.02
"""How far from the budget the average over a stream may be, as a share of the budget."""

STREAM_BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Those between the cheapest and the dearest setting are asked for."""

BATCH_SIZES = (1, 16, 64)
"""Of streams; the last is what `offramp predict` takes."""

SWITCH = 0.01
"""What changing the budget may cost, as a share of a batch."""


@dataclass(frozen=True)
class Served:
    """What N samples cost at each of P settings, and whether the answer is right."""

    spent: Tensor
    """`P x N`."""
    full: Tensor
    """`N`, in the same unit."""
    correct: Tensor
    """`P x N`."""

    def of(self, samples: Tensor) -> "Served":
        """Some of the samples, in this order, perhaps more than once."""
        return Served(self.spent[:, samples], self.full[samples], self.correct[:, samples])


def served(found: Pool) -> tuple[Dial, Served, Served]:
    """The settings of a task's dial; what its samples for figures cost at them, and those that calibrate.

    Args:
        found: The task.
    """
    points = found.frontier.points[POLICY]
    dial = Dial(points)
    point, exits = points[0], simulate(points, found.pool)
    table, rows = found.frontier.costs[POLICY].of(found.pool.sizes), torch.arange(exits.shape[1])
    whole = Served(
        table.spent(exits, point.active).double(),
        table.full.double().expand(len(rows)),
        found.pool.correct[point.classifier, rows, exits],
    )
    calibrating = int(found.frontier.provenance["splits"]["calibrate"]["samples"])
    return dial, whole.of(rows[calibrating:]), whole.of(rows[:calibrating])


def spent_at(seen: Served, dial: Dial, budgets: Tensor) -> Tensor:
    """What samples cost at the settings that budgets pick, one setting for all.

    Args:
        seen: The samples.
        dial: The settings.
        budgets: `B`.

    Returns:
        `B` relative costs: total spent over the total of the full network.
    """
    return seen.spent[dial.pick_rows(budgets)].sum(1) / seen.full.sum()


def kept(seen: Served, dial: Dial, budget: float, *, batch_size: int) -> dict[str, Any]:
    """What samples cost in their order when a controller moves the dial from batch to batch.

    Args:
        seen: The samples.
        dial: The settings.
        budget: The average to keep.
        batch_size: How many come at a time.
    """
    controller = BudgetController(budget, costs=dial.costs)
    shares, right, spent, worst = seen.spent / seen.full, 0, 0.0, 0.0
    for batch in torch.split(torch.arange(len(seen.full)), batch_size):
        row = int(dial.pick_rows(torch.tensor([controller.next_budget]))[0])
        controller.record(shares[row, batch])
        right += int(seen.correct[row, batch].sum())
        spent += float(seen.spent[row, batch].sum())
        worst = max(worst, abs(controller.debt))
    return {
        "average": controller.average,
        "relative cost": spent / float(seen.full.sum()),
        "accuracy": right / len(seen.full),
        "largest debt": worst,
        "its bound": bound(budget, dial, (float(shares.min()), float(shares.max())), batch_size),
    }


def bound(budget: float, dial: Dial, costs: tuple[float, float], batch_size: int) -> float:
    """The most that the debt may be, by the theorem of `BudgetController`.

    Args:
        budget: b.
        dial: The settings, their ends a and d.
        costs: What a sample may cost at least and at most, l and h.
        batch_size: n.
    """
    window = max(WINDOW, 2 * batch_size)
    above = window * (budget - dial.cheapest) + batch_size * (costs[1] - budget)
    return max(above, window * (dial.most_expensive - budget) + batch_size * (budget - costs[0]))


def harder_half_way(seen: Served, *, seed: int) -> Tensor:
    """A stream of STREAM samples, drawn with replacement: from the easier half first, then from the harder.

    Args:
        seen: The samples; those are harder that cost more, all settings taken together.
        seed: Of the draw.

    Returns:
        STREAM numbers of samples.
    """
    order = (seen.spent / seen.full).mean(0).argsort(stable=True)
    generator = torch.Generator().manual_seed(seed)
    halves = order.tensor_split(2)
    return torch.cat([half[torch.randint(len(half), (STREAM // 2,), generator=generator)] for half in halves])


def _budgets(found: Pool) -> dict[str, Any]:
    """Sixteen budgets over the whole dial, on samples that nothing was chosen on."""
    dial, test, calibrating = served(found)
    budgets = torch.linspace(dial.cheapest, dial.most_expensive, BUDGETS, dtype=torch.float64)
    at_one_setting, near_by = spent_at(test, dial, budgets), spent_at(calibrating, dial, budgets)
    controlled = [kept(test, dial, budget, batch_size=BATCH_SIZES[-1]) for budget in budgets.tolist()]
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
            **_off(at_one_setting, budgets),
        },
        "one setting, on the calibrate split": {"cost": near_by.tolist(), **_off(near_by, budgets)},
        "kept by a controller": {
            "cost": costs.tolist(),
            "accuracy": [row["accuracy"] for row in controlled],
            **_off(costs, budgets),
        },
    }


def _off(costs: Tensor, budgets: Tensor) -> dict[str, float]:
    """The most that was spent beyond a budget, and the most that was left of one."""
    return {"beyond": float((costs - budgets).max()), "left": float((budgets - costs).max())}


def _streams(found: Pool) -> list[dict[str, Any]]:
    """Streams that turn harder half-way, at several budgets and batch sizes, beside one setting for all."""
    dial, test, _ = served(found)
    stream = test.of(harder_half_way(test, seed=0))
    rows = []
    for budget in (budget for budget in STREAM_BUDGETS if dial.cheapest <= budget <= dial.most_expensive):
        row = int(dial.pick_rows(torch.tensor([budget]))[0])
        shares = stream.spent[row] / stream.full
        alone = {
            "average": float(shares.mean()),
            "average of each half": [float(half.mean()) for half in shares.tensor_split(2)],
            "accuracy": float(stream.correct[row].double().mean()),
        }
        by_size = {size: kept(stream, dial, budget, batch_size=size) for size in BATCH_SIZES}
        off = max(abs(one["average"] / budget - 1) for one in by_size.values())
        rows.append({"budget": budget, "one setting": alone, "batch size": by_size, "off by": off})
    return rows


def _test_images(found: Pool, count: int) -> tuple[Any, Tensor]:
    """Raw test images of a task, and their rows among its samples for figures."""
    source = TASKS[found.name].unseen()
    raw = source.read(0, len(source))
    place = {int(one): row for row, one in enumerate(raw.ids)}
    calibrating = int(found.frontier.provenance["splits"]["calibrate"]["samples"])
    rows = [place[int(one)] for one in found.ids[calibrating : calibrating + count]]
    return raw.inputs[rows], torch.arange(calibrating, calibrating + count)


def _agreement(found: Pool, network: EarlyExitModel, images: Any, rows: Tensor) -> dict[str, int]:
    """Whether the network, every image at a budget of its own, lets them leave where the simulator does."""
    points = found.frontier.points[POLICY]
    dial = Dial(points)
    budgets = torch.linspace(dial.cheapest, dial.most_expensive, BUDGETS, dtype=torch.float64)[
        torch.arange(len(rows)) % BUDGETS
    ]
    expected = simulate(points, found.pool)[dial.pick_rows(budgets), rows]
    parts = zip(np.array_split(images, len(rows) // 64), budgets.tensor_split(len(rows) // 64), strict=True)
    exits = torch.cat([network.predict(part, budget=asked).exits for part, asked in parts])
    return {"images": len(rows), "differ": int((exits != expected).sum())}


def dial() -> tuple[dict[str, Any], list[Bar]]:
    """Figures and bars."""
    found = {name: pool(name) for name in (IMAGES, TEXTS)}
    budgets = {name: _budgets(one) for name, one in found.items()}
    streams = {name: _streams(one) for name, one in found.items()}
    for name in found:
        met, aside = (budgets[name][way]["beyond"] for way in ("kept by a controller", "one setting"))
        say(f"{name}: most beyond {BUDGETS} budgets {met:.4f} kept, {aside:.4f} at one setting each")
    images, rows = _test_images(found[IMAGES], 512)
    network = found[IMAGES].frontier.at(cost=0.6, policy=POLICY)
    agreement = _agreement(found[IMAGES], network, images, rows)
    changes = {size: switching(network, images, batch_size=size) for size in (1, 64)}
    bars = []
    for name in found:
        for how in ("one setting", "kept by a controller"):
            bars.append(Bar(f"{name}: most beyond 16 budgets, {how}", budgets[name][how]["beyond"], BEYOND))
        off = max(row["off by"] for row in streams[name])
        bars.append(Bar(f"{name}: stream that turns harder, off its budget", off, NEAR))
        debts = [one["largest debt"] / one["its bound"] for row in streams[name] for one in row["batch size"].values()]
        bars.append(Bar(f"{name}: largest debt over its bound", max(debts), 1.0))
    bars.append(Bar("images that leave elsewhere than simulated", agreement["differ"], 2))
    for size, row in changes.items():
        bars.append(
            Bar(f"batch {size}: a switch, share of a batch", row["a switch"]["median, share of a batch"], SWITCH)
        )
    return {"budgets": budgets, "streams": streams, "agreement": agreement, "switching": changes}, bars
