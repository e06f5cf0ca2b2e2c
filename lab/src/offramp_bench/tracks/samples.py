"""Cached features of a task, standardised and in memory: the same samples for every contestant."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from offramp.backbone._backbone import Backbone
from offramp.cost import count_backbone
from offramp.cost._mul_adds import BackboneMulAdds
from offramp.features import Source, StoreSource, extract, split_by_id
from offramp.features._batch import MemorySource
from offramp.features._source import Rows
from offramp.features._splits import keep_apart
from offramp.features._store import Store
from offramp.methods._initialization import create_exits
from offramp.methods._settings import DEFAULT
from offramp.policy import POLICIES
from offramp.pooling import POOLINGS
from offramp.pooling._rich import DEFAULT_POOLING
from offramp_bench import places
from offramp_bench.paper.tasks import TASKS, Task

__all__ = [
    "LARGEST_SHARE",
    "Look",
    "Splits",
    "load_splits",
    "pooling_of",
    "prices_of",
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

    fit: MemorySource
    """At most 10,000 samples to train on (5,000 of images with 100 classes), one view."""
    tune: MemorySource
    """Samples for temperatures, settings and operating points."""
    calibrate: MemorySource
    """Samples for prediction sets and global choices."""
    test: MemorySource
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
def store_of(name: str, part: str) -> Store:
    """Return the features of one part of a task, extracted on first use.

    Args:
        name: Name of the task.
        part: "seen", "unseen" or "test".
    """
    task, backbone = TASKS[name], _backbone(name)
    poolings = tuple(dict.fromkeys((task.look, DEFAULT_POOLING)))
    # Features of a network with other weights are another store.
    folder = places.STORES / f"{name}-{part}-{backbone.fingerprint()[:12]}"
    if not (folder / "manifest.json").exists():
        source: Source = getattr(task, part)()
        if part == "seen" and len(source) > task.most_rows:
            source = EveryNth(source, -(-len(source) // task.most_rows))
        extract(backbone, source, folder, poolings=poolings, views=(backbone.preprocessing,))
    return Store.open(folder)


@cache
def prices_of(name: str, look: Look) -> BackboneMulAdds:
    """Return the counted costs of a task's network."""
    task, backbone = TASKS[name], _backbone(name)
    example = backbone.prepare(backbone.preprocessing(task.unseen().read(0, 1).inputs))
    return count_backbone(backbone, example, POOLINGS.get(pooling_of(task, look)))


@cache
def widest_ladder(name: str, look: Look) -> int:
    """Return the largest state of a ladder whose exits take at most 2 % of the network's Mul-Adds.

    Args:
        name: Name of the task.
        look: What exits see.
    """
    task, store = TASKS[name], store_of(name, "unseen")
    source = StoreSource(store, pooling=pooling_of(task, look))
    for width in LADDER_WIDTHS:
        settings = replace(DEFAULT, ladder_width=width)
        exits = create_exits(source.widths, source.own_heads, source.num_classes, settings=settings)
        table = prices_of(name, look).price(exits, POLICIES.get("threshold")).average(source.sizes())
        if float(table.cumulative_costs()[-1] / table.full) - 1 <= LARGEST_SHARE:
            return width
    return LADDER_WIDTHS[-1]


def load_splits(task: Task, look: Look, seed: int) -> Splits:
    """Return the samples of one seed, every feature standardised on the fit samples.

    The seed decides which of the held-out samples tune and which calibrate. Standardised features are what linear exits
    need; folded into their weights, the scaling costs nothing.

    Args:
        task: The task.
        look: What exits see.
        seed: The seed.
    """
    pooling = pooling_of(task, look)
    unseen = store_of(task.name, "unseen")
    sizes = [int(share * unseen.num_rows) for share in task.shares]
    rows = np.arange(unseen.num_rows)
    if task.test is None:
        rows, left = split_by_id(unseen.ids(), (sum(sizes), unseen.num_rows - sum(sizes)))
        test = _Columns.read(unseen, pooling, left)
    else:
        test = _Columns.read(store_of(task.name, "test"), pooling)
    parts = split_by_id(unseen.ids()[rows], [size for size in sizes if size], seed=1 + seed)
    *learned, tune, calibrate = (_Columns.read(unseen, pooling, np.sort(rows[part])) for part in parts)
    held_out = sum(len(part.labels) for part in learned)
    if held_out < task.most_rows:
        seen = _Columns.read(store_of(task.name, "seen"), pooling)
        step = -(-len(seen.labels) // (task.most_rows - held_out))
        learned.append(seen.every(step))
    fit = _Columns.join(learned)
    features = fit.features.float()
    mean, deviation = features.mean(0), features.std(0).clamp_min(LEAST_DEVIATION)
    splits = Splits(*(part.standardize(mean, deviation) for part in (fit, tune, calibrate, test)))
    keep_apart(fit=splits.fit, tune=splits.tune, calibrate=splits.calibrate, test=splits.test)
    return splits


@dataclass(frozen=True)
class _Columns:
    """Features, logits, labels, ids and sizes of some samples, in memory."""

    features: Tensor
    own_logits: dict[int, Tensor]
    labels: Tensor
    ids: Tensor
    sizes: Tensor
    widths: tuple[int, ...]

    @classmethod
    def read(cls, store: Store, pooling: str, rows: npt.NDArray[np.int64] | None = None) -> "_Columns":
        source = StoreSource(store, pooling=pooling, rows=rows)
        batches = list(source.in_order(batch_size=2000))
        logits = {head: torch.cat([batch.own_logits[head] for batch in batches]).float() for head in source.own_heads}
        columns = zip(*((batch.features, batch.labels, batch.ids, batch.sizes) for batch in batches), strict=True)
        features, labels, ids, sizes = (torch.cat(column) for column in columns)
        return cls(features, logits, labels, ids, sizes, source.widths)

    @classmethod
    def join(cls, parts: "list[_Columns]") -> "_Columns":
        return cls(
            torch.cat([part.features for part in parts]),
            {head: torch.cat([part.own_logits[head] for part in parts]) for head in parts[0].own_logits},
            torch.cat([part.labels for part in parts]),
            torch.cat([part.ids for part in parts]),
            torch.cat([part.sizes for part in parts]),
            parts[0].widths,
        )

    def every(self, step: int) -> "_Columns":
        logits = {head: values[::step] for head, values in self.own_logits.items()}
        return _Columns(
            self.features[::step], logits, self.labels[::step], self.ids[::step], self.sizes[::step], self.widths
        )

    def standardize(self, mean: Tensor, deviation: Tensor) -> MemorySource:
        # Half precision, as stores hold features: a grid of 20,000 samples takes gigabytes otherwise.
        features = torch.cat([((rows.float() - mean) / deviation).half() for rows in torch.split(self.features, 1000)])
        return MemorySource(
            features.clamp_(-60_000, 60_000), self.own_logits, self.labels, self.widths, ids=self.ids, sizes=self.sizes
        )
