"""Coverage of prediction sets over many splits of a pool, where it is claimed and where it is not.

A pool of real outcomes is split in two at random, a thousand times: one half sets thresholds, on the other coverage is
counted. Given the pool, all samples are exchangeable, so the mean over splits estimates the coverage that conformal
prediction guarantees. Splits come in pairs: the same halves with exchanged roles. The standard error is that of the
mean of a pair, which varies less than either split: a half of hard samples covers the other half well, and is itself
covered badly.
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
from offramp_bench.guarantees.pools import POOLS, Pool, load_pool

__all__ = ["ALPHAS", "COSTS", "conformal"]

SPLITS = 1000
ALPHAS = (0.05, 0.1)
COSTS = (0.2, 0.5, 0.8)
"""Relative costs on tune; figures are of the point next to each, and of the cheapest one, which uses few exits."""

MINIMUM = 20
"""Fewest samples for a threshold of an exit's own, as in the default."""

AT_ONCE = 20
"""Pairs of splits computed together; sizes of sets, which vary little, are measured on one split of them."""

OFTEN = 0.1
"""Share of the splits in which a group must have a claim and test samples, to be judged."""

BY_CLASS = " by class"


@dataclass(frozen=True)
class PoolAnswers:
    """Answers to the samples of a pool at one operating point; exits are numbered among the active ones."""

    scores_at_exits: Tensor
    """`N x L` scores of the true class."""
    exits: Tensor
    """`N` exits where samples leave."""
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
        """Return thresholds `B x L x K` of B splits, from the rows `B x N` that calibrate in each.

        All splits are computed at once: each is passed to the variant as a class of its own, or as K classes.
        """
        variant = cast(PaperVariant, name.removesuffix(BY_CLASS))
        count = self.num_classes if name.endswith(BY_CLASS) else 1
        groups = torch.arange(len(rows))[:, None] * count + (self.labels[rows] if count > 1 else 0)
        flat = rows.flatten()
        by_group = variant_class_thresholds(
            variant,
            self.scores_at_exits[flat],
            self.exits[flat],
            groups.expand_as(rows).flatten(),
            num_classes=len(rows) * count,
            miscoverage=miscoverage,
            minimum=MINIMUM,
        )
        return by_group.view(self.num_exits, len(rows), count).transpose(0, 1).expand(-1, -1, self.num_classes)


def answers_at(point: OperatingPoint, pool: Pool) -> PoolAnswers:
    """Return the answers to a pool's samples at a point."""
    outcomes, active = pool.pool, torch.tensor(point.active)
    assert outcomes.probabilities is not None
    left = simulate([point], outcomes)[0]
    return PoolAnswers(
        outcomes.conformal_scores[point.classifier][:, active],
        torch.searchsorted(active, left),
        outcomes.labels,
        outcomes.probabilities[point.classifier, torch.arange(len(left)), left],
    )


def halves(num_samples: int, times: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield two random halves of the rows, `times` times; of an odd number, one row is in neither."""
    generator, half = torch.Generator().manual_seed(0), num_samples // 2
    for _ in range(times):
        order = torch.randperm(num_samples, generator=generator)
        yield order[:half], order[half : 2 * half]


def coverage_by_group(
    answers: PoolAnswers, name: str, calibrating: Tensor, test: Tensor, thresholds: Tensor
) -> dict[str, Tensor]:
    """Return the coverage in B splits by kind of group, `B x groups` each; NaN where a group has no claim or samples.

    Args:
        answers: The answers.
        name: The way that thresholds were set.
        calibrating: `B x N` rows that they were set on.
        test: `B x N` rows to cover.
        thresholds: `B x L x K`.
    """
    split, length, classes = torch.arange(len(test))[:, None], answers.num_exits, answers.num_classes
    exits, labels = answers.exits[test], answers.labels[test]
    covered = (answers.scores[test] <= thresholds[split, exits, labels]).double().flatten()

    def count_in(groups: Tensor, count: int, weights: Tensor | None = None) -> Tensor:
        return (split * count + groups).flatten().bincount(weights, minlength=len(test) * count).view(-1, count)

    def shares(groups: Tensor, count: int, claimed: Tensor | None = None) -> Tensor:
        covered_shares = count_in(groups, count, covered) / count_in(groups, count)
        return covered_shares if claimed is None else covered_shares.masked_fill(~claimed, torch.nan)

    own = _has_own_threshold(name, count_in(answers.exits[calibrating], length))
    coverage = {
        "overall": shares(torch.zeros_like(exits), 1),
        "exit": shares(exits, length, own),
        "every exit": shares(exits, length),
        "rare exits": shares(own[split, exits].long(), 2)[:, :1],
        "class": shares(labels, classes),
    }
    if name == "pooled by class":
        cells = count_in(answers.labels[calibrating] * length + answers.exits[calibrating], classes * length)
        claimed = _has_own_threshold(name, cells.view(-1, length)).view(-1, classes * length)
        coverage["class at exit"] = shares(labels * length + exits, classes * length, claimed)
    return coverage


def _has_own_threshold(name: str, counts: Tensor) -> Tensor:
    """Return `G x L` booleans: true where a group has a threshold of its own at an exit."""
    if name.startswith("pooled"):
        return torch.as_tensor(pool_exits(counts, MINIMUM).sum(-1) == 1)
    return counts >= (MINIMUM if name == "gated" else 1)


def measure_coverage(answers: PoolAnswers, *, splits: int) -> dict[str, Any]:
    """Measure the mean coverage of every way to set thresholds at one point, group by group, and sizes of sets."""
    figures: dict[str, Any] = {name: {} for name in CLAIMS}
    pairs = list(halves(len(answers.labels), splits // 2))
    for name in CLAIMS:
        for alpha in ALPHAS:
            by_kind: dict[str, list[Tensor]] = {}
            sizes = []
            for start in range(0, len(pairs), AT_ONCE):
                first, second = (torch.stack(half) for half in zip(*pairs[start : start + AT_ONCE], strict=True))
                calibrating, test = torch.cat([first, second]), torch.cat([second, first])
                thresholds = answers.thresholds(name, calibrating, alpha)
                for kind, shares in coverage_by_group(answers, name, calibrating, test, thresholds).items():
                    by_kind.setdefault(kind, []).append(shares.view(2, len(first), -1).nanmean(0))
                sets = prediction_set(answers.probabilities[test[0]], thresholds[0, answers.exits[test[0]]])
                sizes.append(float(sets.sum() / len(sets)))
            worst = {kind: _worst_group(torch.cat(shares), alpha) for kind, shares in by_kind.items()}
            judged = {kind: group for kind, group in worst.items() if group is not None}
            figures[name][str(alpha)] = {"mean set size": sum(sizes) / len(sizes)} | judged
    return figures


def _worst_group(shares: Tensor, alpha: float) -> dict[str, Any] | None:
    """Return the group farthest below 1 - alpha in standard errors, of `pairs x groups`; None without groups."""
    known = ~shares.isnan()
    counts = known.sum(0)
    enough = counts >= max(2, OFTEN * len(shares))
    if not enough.any():
        return None
    shares, counts = shares[:, enough], counts[enough]
    means = shares.nanmean(0)
    spread = (shares - means).square().nansum(0) / (counts - 1).clamp_min(1)
    errors = (spread / counts).sqrt().clamp_min(1e-6)  # without spread if all splits cover all samples, or none
    short = (1 - alpha - means) / errors
    worst = int(short.argmax())
    return {
        "groups": len(means),
        "coverage": float(means[worst]),
        "standard error": float(errors[worst]),
        "short by standard errors": float(short[worst]),
    }


def conformal(*, splits: int = SPLITS) -> tuple[dict[str, Any], list[Bar]]:
    """Measure the coverage of conformal sets on all pools.

    Args:
        splits: Number of splits of each pool, even.
    """
    figures: dict[str, Any] = {}
    for name in POOLS:
        pool = load_pool(name)
        points = choose_points(pool)
        cells = {}
        for label, point in points.items():
            answers = answers_at(point, pool)
            say(f"{name}, {label}: {answers.exits.bincount(minlength=answers.num_exits).tolist()} leave")
            cells[label] = {
                "cost on tune": point.tune_metrics["cost"],
                "leaving": answers.exits.bincount(minlength=answers.num_exits).tolist(),
                "accuracy": float((answers.probabilities.argmax(1) == answers.labels).double().mean()),
                "ways": measure_coverage(answers, splits=splits),
            }
        figures[name] = {
            "samples": len(pool.pool.labels),
            "splits": splits,
            "points": cells,
            "nesting": nesting(pool, list(points.values())),
        }
    return figures, bars(figures)


def choose_points(pool: Pool) -> dict[str, OperatingPoint]:
    """Return the cheapest point, and those next to COSTS, by their cost on tune."""

    def distance(point: OperatingPoint, *, cost: float) -> float:
        return abs(point.tune_metrics["cost"] - cost)

    ways: list[tuple[str, Callable[[OperatingPoint], float]]] = [(CHEAPEST, lambda point: point.tune_metrics["cost"])]
    ways += [(f"cost {cost}", partial(distance, cost=cost)) for cost in COSTS]
    return {label: min(pool.points, key=key) for label, key in ways}
