"""Whether prediction sets hold the true class as often as they claim to, and where those fail that do not claim it.

A pool of real outcomes is split in two at random, a thousand times: one half sets thresholds, the other is covered or
not. Given the pool, all samples are exchangeable, so that the mean coverage over splits is what conformal prediction
speaks of. Splits come in pairs, the same halves with their parts exchanged, and the mean of a pair is one figure of
which the standard error is told: a half of hard samples covers the other well and is covered badly, so that the mean
varies less than either.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from offramp.model._outcomes import simulate
from offramp.policy import OperatingPoint
from offramp.uncertainty import prediction_set
from offramp.uncertainty._conformal import pool_exits
from offramp_bench.bars import Bar, say
from offramp_bench.conformal_variants import PaperVariant, variant_class_thresholds
from offramp_bench.guarantees.claims import CHEAPEST, CLAIMS, bars
from offramp_bench.guarantees.nesting import nesting
from offramp_bench.guarantees.pools import POOLS, Pool, pool

__all__ = ["ALPHAS", "COSTS", "conformal"]

SPLITS = 1000
ALPHAS = (0.05, 0.1)
COSTS = (0.2, 0.5, 0.8)
"""Shares of the full network's cost on tune: a point next to each, and the cheapest, which few exits are used at."""

MINIMUM = 20
"""Samples for a threshold of an exit's own: the default's."""

AT_ONCE = 20
"""Pairs of splits at a time; set sizes, which vary little, are taken from one split of them."""

OFTEN = 0.1
"""Share of the splits that a group must have a claim in, and samples to try it on, to be judged."""

BY_CLASS = " by class"


@dataclass(frozen=True)
class Seen:
    """What the samples of a pool are answered at one operating point; exits are counted among those in force."""

    scores_at_exits: Tensor
    """`N x L` scores of the true class."""
    exits: Tensor
    """`N` exits they leave at."""
    labels: Tensor
    """`N` true classes."""
    probabilities: Tensor
    """`N x K`, where they leave."""

    @property
    def num_exits(self) -> int:
        """L."""
        return self.scores_at_exits.shape[1]

    @property
    def num_classes(self) -> int:
        """K."""
        return self.probabilities.shape[1]

    @property
    def scores(self) -> Tensor:
        """`N` scores of the true class, where samples leave."""
        return self.scores_at_exits.gather(1, self.exits[:, None]).squeeze(1)

    def thresholds(self, name: str, rows: Tensor, miscoverage: float) -> Tensor:
        """Thresholds `B x L x K` of B splits, from the rows `B x N` that calibrate in each.

        All splits at once: to the variant each is a class of its own, or K of them.
        """
        variant = cast(PaperVariant, name.removesuffix(BY_CLASS))
        count = self.num_classes if name.endswith(BY_CLASS) else 1
        groups = torch.arange(len(rows))[:, None] * count + (self.labels[rows] if count > 1 else 0)
        flat = rows.flatten()
        found = variant_class_thresholds(
            variant,
            self.scores_at_exits[flat],
            self.exits[flat],
            groups.expand_as(rows).flatten(),
            num_classes=len(rows) * count,
            miscoverage=miscoverage,
            minimum=MINIMUM,
        )
        return found.view(self.num_exits, len(rows), count).transpose(0, 1).expand(-1, -1, self.num_classes)


def seen_at(point: OperatingPoint, given: Pool) -> Seen:
    """What a pool's samples are answered at a point."""
    outcomes, active = given.pool, torch.tensor(point.active)
    assert outcomes.probabilities is not None
    left = simulate([point], outcomes)[0]
    return Seen(
        outcomes.conformal_scores[point.classifier][:, active],
        torch.searchsorted(active, left),
        outcomes.labels,
        outcomes.probabilities[point.classifier, torch.arange(len(left)), left],
    )


def halves(num_samples: int, times: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Two halves of the rows, again and again; of an odd number one row is in neither."""
    generator, half = torch.Generator().manual_seed(0), num_samples // 2
    for _ in range(times):
        order = torch.randperm(num_samples, generator=generator)
        yield order[:half], order[half : 2 * half]


def covered_in(seen: Seen, name: str, calibrating: Tensor, tried: Tensor, thresholds: Tensor) -> dict[str, Tensor]:
    """Coverage of B splits by kinds of groups, `B x groups` each; NaN where a group has no claim, or nobody in it.

    Args:
        seen: The samples.
        name: The way that thresholds were set.
        calibrating: `B x N` rows they were set by.
        tried: `B x N` rows to cover.
        thresholds: `B x L x K`.
    """
    split, length, classes = torch.arange(len(tried))[:, None], seen.num_exits, seen.num_classes
    exits, labels = seen.exits[tried], seen.labels[tried]
    covered = (seen.scores[tried] <= thresholds[split, exits, labels]).double().flatten()

    def counted(groups: Tensor, count: int, weights: Tensor | None = None) -> Tensor:
        return (split * count + groups).flatten().bincount(weights, minlength=len(tried) * count).view(-1, count)

    def shares(groups: Tensor, count: int, claimed: Tensor | None = None) -> Tensor:
        found = counted(groups, count, covered) / counted(groups, count)
        return found if claimed is None else found.masked_fill(~claimed, torch.nan)

    alone = _alone(name, counted(seen.exits[calibrating], length))
    found = {
        "overall": shares(torch.zeros_like(exits), 1),
        "exit": shares(exits, length, alone),
        "every exit": shares(exits, length),
        "rare exits": shares(alone[split, exits].long(), 2)[:, :1],
        "class": shares(labels, classes),
    }
    if name == "pooled by class":
        cells = counted(seen.labels[calibrating] * length + seen.exits[calibrating], classes * length)
        claimed = _alone(name, cells.view(-1, length)).view(-1, classes * length)
        found["class at exit"] = shares(labels * length + exits, classes * length, claimed)
    return found


def _alone(name: str, counts: Tensor) -> Tensor:
    """`G x L` whether the samples of each group have a threshold of their own at each exit."""
    if name.startswith("pooled"):
        return torch.as_tensor(pool_exits(counts, MINIMUM).sum(-1) == 1)
    return counts >= (MINIMUM if name == "gated" else 1)


def cell(seen: Seen, *, splits: int) -> dict[str, Any]:
    """Mean coverage of every way to set thresholds at one point, group by group, and sizes of sets."""
    found: dict[str, Any] = {name: {} for name in CLAIMS}
    pairs = list(halves(len(seen.labels), splits // 2))
    for name in CLAIMS:
        for alpha in ALPHAS:
            gathered: dict[str, list[Tensor]] = {}
            sizes = []
            for start in range(0, len(pairs), AT_ONCE):
                ones, others = (torch.stack(half) for half in zip(*pairs[start : start + AT_ONCE], strict=True))
                calibrating, tried = torch.cat([ones, others]), torch.cat([others, ones])
                thresholds = seen.thresholds(name, calibrating, alpha)
                for kind, shares in covered_in(seen, name, calibrating, tried, thresholds).items():
                    gathered.setdefault(kind, []).append(shares.view(2, len(ones), -1).nanmean(0))
                sets = prediction_set(seen.probabilities[tried[0]], thresholds[0, seen.exits[tried[0]]])
                sizes.append(float(sets.sum() / len(sets)))
            judged = {kind: _judged(torch.cat(shares), alpha) for kind, shares in gathered.items()}
            known = {kind: told for kind, told in judged.items() if told is not None}
            found[name][str(alpha)] = {"mean set size": sum(sizes) / len(sizes)} | known
    return found


def _judged(shares: Tensor, alpha: float) -> dict[str, Any] | None:
    """The group whose mean coverage is lowest in standard errors, of `pairs x groups`; None if there is no group."""
    known = ~shares.isnan()
    counts = known.sum(0)
    enough = counts >= max(2, OFTEN * len(shares))
    if not enough.any():
        return None
    shares, counts = shares[:, enough], counts[enough]
    means = shares.nanmean(0)
    spread = (shares - means).square().nansum(0) / (counts - 1).clamp_min(1)
    errors = (spread / counts).sqrt().clamp_min(1e-6)  # all or nobody covered in every split: no spread
    short = (1 - alpha - means) / errors
    worst = int(short.argmax())
    return {
        "groups": len(means),
        "coverage": float(means[worst]),
        "standard error": float(errors[worst]),
        "short by standard errors": float(short[worst]),
    }


def conformal(*, splits: int = SPLITS) -> tuple[dict[str, Any], list[Bar]]:
    """Figures and bars of the part on conformal sets.

    Args:
        splits: How often each pool is split, an even number.
    """
    figures: dict[str, Any] = {}
    for name in POOLS:
        given = pool(name)
        points = chosen(given)
        cells = {}
        for label, point in points.items():
            seen = seen_at(point, given)
            say(f"{name}, {label}: {seen.exits.bincount(minlength=seen.num_exits).tolist()} leave")
            cells[label] = {
                "cost on tune": point.tune_metrics["cost"],
                "leaving": seen.exits.bincount(minlength=seen.num_exits).tolist(),
                "accuracy": float((seen.probabilities.argmax(1) == seen.labels).double().mean()),
                "ways": cell(seen, splits=splits),
            }
        figures[name] = {
            "samples": len(given.pool.labels),
            "splits": splits,
            "points": cells,
            "nesting": nesting(given, list(points.values())),
        }
    return figures, bars(figures)


def chosen(given: Pool) -> dict[str, OperatingPoint]:
    """The cheapest point, and those next to COSTS, by their cost on tune."""

    def away(point: OperatingPoint, *, cost: float) -> float:
        return abs(point.tune_metrics["cost"] - cost)

    ways: list[tuple[str, Callable[[OperatingPoint], float]]] = [(CHEAPEST, lambda point: point.tune_metrics["cost"])]
    ways += [(f"cost {cost}", partial(away, cost=cost)) for cost in COSTS]
    return {label: min(given.points, key=key) for label, key in ways}
