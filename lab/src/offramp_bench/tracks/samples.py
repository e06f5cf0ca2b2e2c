"""Cached features of a task, standardised and in memory: the same samples for every contestant."""

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from offramp.backbone._backbone import Backbone
from offramp.cost import count_backbone
from offramp.cost._mul_adds import BackboneMulAdds
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.features import BatchSource, Source, StoreSource, extract, split_by_id
from offramp.features._batch import Batch, MemorySource, StageView
from offramp.features._source import Rows
from offramp.features._splits import keep_apart
from offramp.features._store import Store
from offramp.methods._initialization import create_exits
from offramp.methods._settings import DEFAULT, ExitKind
from offramp.policy import POLICIES
from offramp.pooling import POOLINGS
from offramp.pooling._rich import DEFAULT_POOLING
from offramp_bench import places
from offramp_bench.paper.joined import JoinedSource
from offramp_bench.paper.tasks import TASKS, Task
from offramp_bench.rivals.cascaded_exits import CascadedExits

__all__ = [
    "LARGEST_SHARE",
    "Look",
    "Splits",
    "fingerprint_of",
    "load_splits",
    "open_splits",
    "pooling_of",
    "prices_of",
    "spacing_of",
    "store_of",
    "widest_ladder",
]

Look = Literal["means", "grid"]
"""Features that an exit sees of its stage: the vector that the paper's recipe gives, or the default's pooling."""

LEAST_DEVIATION = 1e-4
"""Features that vary less are constant."""


LARGEST_SHARE = 0.02
"""Share of the network's Mul-Adds that all exits of a contestant may take on the exits track."""

LADDER_WIDTHS = (256, 192, 128, 112, 96, 80, 64, 56, 48, 40, 32, 24, 16, 12, 8)
"""Sizes of a ladder's state that are tried, largest first."""


@dataclass(frozen=True)
class Splits:
    """The samples of one seed."""

    fit: BatchSource
    """At most 10,000 samples to train on (5,000 of images with 100 classes), one view."""
    tune: BatchSource
    """Samples for temperatures, settings and operating points."""
    calibrate: BatchSource
    """Samples for prediction sets and global choices."""
    test: BatchSource
    """Samples for the figures, the same for all seeds."""


class EveryNth:
    """Every n-th row of a source of arrays.

    Args:
        source: The source.
        step: n.
    """

    def __init__(self, source: Source, step: int) -> None:
        self.name = f"{source.name}/every-{step}"
        self._source, self._step = source, step

    def __len__(self) -> int:
        return -(-len(self._source) // self._step)

    def read(self, start: int, stop: int) -> Rows:
        """Read rows `start` to `stop - 1` of those that are kept."""
        rows = self._source.read(start * self._step, (stop - 1) * self._step + 1)
        return Rows(rows.inputs[:: self._step], rows.labels[:: self._step], rows.ids[:: self._step])


def pooling_of(task: Task, look: Look) -> str:
    """Return the name of the pooling behind a look."""
    return task.look if look == "means" else DEFAULT_POOLING


@cache
def _backbone(name: str) -> Backbone:
    return TASKS[name].backbone()


@cache
def fingerprint_of(name: str) -> str:
    """Return the fingerprint of a task's network."""
    return _backbone(name).fingerprint()


@cache
def store_of(name: str, part: str, *, every_row: bool = False) -> Store:
    """Return the features of one part of a task, extracted on first use.

    Args:
        name: Name of the task.
        part: "seen", "unseen" or "test".
        every_row: Extract all samples; otherwise, of those that the network has seen, as many as exits are trained on.
    """
    task, backbone = TASKS[name], _backbone(name)
    poolings = tuple(dict.fromkeys((task.look, DEFAULT_POOLING)))
    # Features of a network with other weights are another store.
    folder = places.STORES / f"{name}-{part}-{'every-row-' if every_row else ''}{fingerprint_of(name)[:12]}"
    if not (folder / "manifest.json").exists():
        source: Source = getattr(task, part)()
        if part == "seen" and len(source) > task.most_rows and not every_row:
            source = EveryNth(source, -(-len(source) // task.most_rows))
        extract(backbone, source, folder, poolings=poolings, views=(backbone.preprocessing,))
    return Store.open(folder)


@cache
def prices_of(name: str, look: Look, spacing: int) -> BackboneMulAdds:
    """Return the counted costs of a task's network.

    Args:
        name: Name of the task.
        look: What exits see.
        spacing: n: an exit stands after every n-th stage; stages between two exits count as one.
    """
    mul_adds = _count_stages(name, look)
    stages = _kept_stages(mul_adds.stage.shape[-1], spacing)
    cumulative = mul_adds.stage.cumsum(-1)[:, stages]
    stage = torch.diff(cumulative, prepend=torch.zeros_like(cumulative[:, :1]))
    return BackboneMulAdds(stage, mul_adds.pooling[:, stages], mul_adds.head[:, stages], mul_adds.full)


@cache
def _count_stages(name: str, look: Look) -> BackboneMulAdds:
    """Return the counted costs of all stages of a task's network, the same for every spacing."""
    task, backbone = TASKS[name], _backbone(name)
    example = backbone.prepare(backbone.preprocessing(task.unseen().read(0, 1).inputs))
    return count_backbone(backbone, example, POOLINGS.get(pooling_of(task, look)))


def _kept_stages(stages: int, spacing: int) -> list[int]:
    """Return the first stage, every n-th after it, and the last, which has the network's own head."""
    return [*range(0, stages - 1, spacing), stages - 1]


@cache
def spacing_of(name: str, look: Look, kind: ExitKind | Literal["cascaded"]) -> int:
    """Return the least n with which exits after every n-th stage take at most 2 % of the network's Mul-Adds.

    A ladder must have at least one number per class: with fewer, its late exits are worse than linear ones.

    Args:
        name: Name of the task.
        look: What exits see.
        kind: Kind of the exits; "cascaded": linear ones that also read the answer before.
    """
    for n in range(1, len(store_of(name, "unseen").widths(pooling_of(TASKS[name], look))) + 1):
        if kind == "ladder" and _widest(name, look, n) >= TASKS[name].num_classes:
            return n
        if kind != "ladder" and _share(name, look, n, kind) <= LARGEST_SHARE:
            return n
    raise InputError(
        f"{kind} exits of '{name}'", expected=f"at most {LARGEST_SHARE:.0%} of the Mul-Adds", got="more after one stage"
    )


@cache
def widest_ladder(name: str, look: Look) -> int:
    """Return the largest state of a ladder whose exits take at most 2 % of the network's Mul-Adds.

    Args:
        name: Name of the task.
        look: What exits see.
    """
    return _widest(name, look, spacing_of(name, look, "ladder"))


def _widest(name: str, look: Look, spacing: int) -> int:
    """Return the largest state of a ladder with exits after every n-th stage; 0 if none is small enough."""
    shares = ((width, _share(name, look, spacing, "ladder", width)) for width in LADDER_WIDTHS)
    return next((width for width, share in shares if share <= LARGEST_SHARE), 0)


def _share(
    name: str, look: Look, spacing: int, kind: ExitKind | Literal["cascaded"], width: int | None = None
) -> float:
    """Return the share of the network's Mul-Adds that exits after every n-th stage take."""
    source = StoreSource(store_of(name, "unseen"), pooling=pooling_of(TASKS[name], look))
    stages = _kept_stages(len(source.widths), spacing)
    widths, last = tuple(source.widths[stage] for stage in stages), len(stages) - 1
    exits: ExitSet
    if kind == "cascaded":
        exits = CascadedExits(widths, tuple(range(last)), source.num_classes)
    else:
        settings = replace(DEFAULT, exits=kind, ladder_width=width)
        exits = create_exits(widths, (last,), source.num_classes, settings=settings)
    table = prices_of(name, look, spacing).price(exits, POLICIES.get("threshold")).average(source.sizes())
    return float(table.cumulative_costs()[-1] / table.full) - 1


def open_splits(task: Task, look: Look, seed: int) -> Splits:
    """Return the samples of one seed as stores hold them.

    Args:
        task: The task.
        look: What exits see.
        seed: Seed that decides which of the held-out samples tune and which calibrate.
    """
    pooling, unseen = pooling_of(task, look), store_of(task.name, "unseen")
    sizes = [int(share * unseen.num_rows) for share in task.shares]
    rows = np.arange(unseen.num_rows)
    if task.test is None:
        rows, test_rows = split_by_id(unseen.ids(), (sum(sizes), unseen.num_rows - sum(sizes)))
        test = StoreSource(unseen, pooling=pooling, rows=test_rows)
    else:
        test = StoreSource(store_of(task.name, "test"), pooling=pooling)
    parts = split_by_id(unseen.ids()[rows], [size for size in sizes if size], seed=1 + seed)
    *fit_parts, tune, calibrate = (StoreSource(unseen, pooling=pooling, rows=np.sort(rows[part])) for part in parts)
    num_held_out = sum(part.num_samples for part in fit_parts)
    if num_held_out < task.most_rows:
        seen = store_of(task.name, "seen")
        step = -(-seen.num_rows // (task.most_rows - num_held_out))
        fit_parts.append(StoreSource(seen, pooling=pooling, rows=np.arange(0, seen.num_rows, step)))
    fit = fit_parts[0] if len(fit_parts) == 1 else JoinedSource(fit_parts)
    keep_apart(fit=fit, tune=tune, calibrate=calibrate, test=test)
    return Splits(fit, tune, calibrate, test)


@lru_cache(maxsize=1)
def load_splits(task: Task, look: Look, seed: int, spacing: int) -> Splits:
    """Return the samples of one seed in memory, every feature standardised on the fit samples.

    Standardised features are what linear exits need; folded into their weights, the scaling costs nothing.

    Args:
        task: The task.
        look: What exits see.
        seed: The seed.
        spacing: n: exits see every n-th stage.
    """
    splits = open_splits(task, look, seed)
    stages = _kept_stages(len(splits.fit.widths), spacing)
    widths = tuple(splits.fit.widths[stage] for stage in stages)
    fit = _read(StageView(splits.fit, stages))
    features = fit.features.float()
    mean, deviation = features.mean(0), features.std(0).clamp_min(LEAST_DEVIATION)
    held_out = (_read(StageView(part, stages)) for part in (splits.tune, splits.calibrate, splits.test))
    return Splits(*(_standardize(part, widths, mean, deviation) for part in (fit, *held_out)))


def _read(source: BatchSource) -> Batch:
    """Return all samples of a source as one batch, features in half precision, as stores hold them."""
    batches = [replace(batch, features=batch.features.half()) for batch in source.in_order(batch_size=2000)]
    features, labels, ids, sizes = (
        torch.cat([getattr(batch, name) for batch in batches]) for name in ("features", "labels", "ids", "sizes")
    )
    logits = {head: torch.cat([batch.own_logits[head] for batch in batches]).float() for head in source.own_heads}
    return Batch(features, logits, labels, ids, sizes)


def _standardize(batch: Batch, widths: tuple[int, ...], mean: Tensor, deviation: Tensor) -> MemorySource:
    # Half precision, as stores hold features: a grid of 20,000 samples takes gigabytes otherwise.
    features = torch.cat([((rows.float() - mean) / deviation).half() for rows in torch.split(batch.features, 1000)])
    features.clamp_(-60_000, 60_000)
    return MemorySource(features, batch.own_logits, batch.labels, widths, ids=batch.ids, sizes=batch.sizes)
