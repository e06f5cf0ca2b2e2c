"""Latency tables: the times of stages, exits and engine on one machine, in milliseconds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offramp.backbone._backbone import Backbone
from offramp.cost import Costs
from offramp.cost._growth import fit_growth
from offramp.cost._table import CostTable
from offramp.errors import InputError
from offramp.exits import ExitSet, LadderExits
from offramp.policy import Policy
from offramp.runtime._run_times import RunTime, fastest, parse_run

__all__ = ["MOST_OFF", "VERSION", "LatencyPrices", "LatencyTable", "count_stage_weights", "describe_exits"]

FORMAT = "offramp latency"

VERSION = 2
"""Version of the file format. A reader takes this version."""

MOST_OFF = 0.2
"""Largest deviation of `sum_ratio` from 1: beyond it the machine was busy, and the times are unreliable."""

ENGINE = ("start", "pass", "finish")
"""Work of the engine itself: starting a batch, passing a stage, returning the results after the last."""

_PIECES = ("stage", "answer", "carry", "select")
_PER_STAGE = ("stage_weights", "widths")
_TEXTS = ("backend", "network", "exits", "machine", "torch")
_HINT = "give a file written by offramp inspect --measure --out FILE, or by LatencyTable.save"

Row = tuple[float, ...]
Rows = tuple[Row, ...]


@dataclass(frozen=True)
class LatencyTable:
    """Milliseconds per batch, for each stage (rows) and batch size (columns). Made by `measure_latency`.

    Example:
        >>> table = LatencyTable("eager", 1, (1, 3), ((1.0, 2.0),), ((0.1, 0.3),), ((0.0, 0.0),), ((0.01, 0.02),))
        >>> table.at("stage", 0, 2)
        1.5
    """

    backend: str
    """Name in `runtime.BACKENDS`, or class of another backend."""
    threads: int
    """Number of threads."""
    batch_sizes: tuple[int, ...]
    """Batch sizes, ascending."""
    stage: Rows
    """Running a stage."""
    answer: Rows
    """Pooling and classifying at an exit."""
    carry: Rows
    """Updating the state of an inactive exit; 0 without a state."""
    select: Rows
    """Removing half of the samples after a stage."""
    engine: Mapping[str, Row] = field(default_factory=dict)
    """Work of the engine itself: `start`, `pass` a stage, and `finish` after the last."""
    decide: Mapping[str, Row] = field(default_factory=dict)
    """Deciding at an exit, probabilities included, for each policy."""
    full: Row = ()
    """The full network by the same backend; of a cascade, its last member."""
    sum_ratio: Row = ()
    """Sum of the times of the full network's stages and head, relative to `full`. Far from 1, the machine was busy."""
    network: str = ""
    """Name of the network."""
    stage_weights: tuple[int, ...] = ()
    """Number of weights of each stage: distinguishes networks of the same name."""
    exits: str = ""
    """Kind of the exits, from `describe_exits`."""
    widths: tuple[int, ...] = ()
    """Number of features that exits see of each stage."""
    machine: str = ""
    """Name of the processor."""
    torch: str = ""
    """Version of torch."""
    size: float = 1.0
    """Size of every sample (tokens, nodes), where samples differ in size."""
    others: tuple["LatencyTable", ...] = ()
    """Tables for samples of other sizes."""
    runs: tuple[RunTime, ...] = ()
    """Times of whole runs on this and other backends; none unless `inspect --measure` compared them."""

    def at(self, piece: str, stage: int, batch_size: float) -> float:
        """Interpolate the milliseconds of one piece linearly; beyond the largest batch size, extrapolate.

        Args:
            piece: "stage", "answer", "carry" or "select".
            stage: The stage.
            batch_size: Number of samples.
        """
        return self._interpolate(getattr(self, piece)[stage], batch_size)

    def full_ms(self, batch_size: float) -> float:
        """Return the milliseconds of the full network."""
        if not self.full:
            raise InputError(
                "latency table", expected="times of the full network", got="none", hint="make it with measure_latency"
            )
        return self._interpolate(self.full, batch_size)

    @property
    def suspect_ratio(self) -> float | None:
        """The `sum_ratio` farthest from 1, if off by more than `MOST_OFF` (the machine was busy), else None."""
        ratios = [ratio for table in (self, *self.others) for ratio in table.sum_ratio]
        farthest = max(ratios, key=lambda ratio: abs(ratio - 1), default=1.0)
        return farthest if abs(farthest - 1) > MOST_OFF else None

    @property
    def fastest_run(self) -> RunTime | None:
        """The whole run with the least time per sample, without those that are not recommended; None if unknown."""
        return fastest(self.runs)

    def costs(self, exits: ExitSet, *, policy: str = "threshold", batch_size: int = 1) -> Costs:
        """Return the costs in milliseconds per sample.

        At batch sizes above 1, a sample takes its share of the time of a full batch. In a batch that others have
        left, the remaining samples take longer than that.

        Args:
            exits: Exits of the kind that was measured.
            policy: Name of the policy that decides.
            batch_size: A batch size within those measured.

        Returns:
            The costs, by the sizes of the samples where these differ.
        """
        tables = (self, *self.others)
        for table in tables:
            table._check(exits, policy, batch_size)
        pieces = torch.stack([table._pieces(exits, policy, batch_size) for table in tables])
        full = torch.tensor([table.full_ms(batch_size) / batch_size for table in tables], dtype=pieces.dtype)
        if len(tables) > 1:
            sizes = [table.size for table in tables]
            pieces, full = fit_growth(sizes, pieces), fit_growth(sizes, full)
        stage, carry, answer, decide = pieces.unbind(1)
        rows = zip(stage, carry, answer, decide, full, strict=True)
        return Costs(tuple(CostTable(*row, exits.carries_state) for row in rows))

    def with_stages(self, stages: Sequence[int], network: str) -> "LatencyTable":
        """Return the table of a network with only some of the stages, such as a cascade with fewer members.

        Args:
            stages: The stages to keep, the full network's among them.
            network: Name of that network.
        """
        rows: dict[str, Any] = {
            name: tuple(getattr(self, name)[stage] for stage in stages) for name in (*_PIECES, *_PER_STAGE)
        }
        others = tuple(table.with_stages(stages, network) for table in self.others)
        return replace(self, **rows, network=network, others=others, runs=())

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON content."""
        return asdict(self)

    def save(self, path: str | Path) -> None:
        """Write the table as JSON.

        Args:
            path: The file.
        """
        content = {"format": FORMAT, "version": VERSION, **self.to_json()}
        try:
            Path(path).write_text(json.dumps(content, indent=1) + "\n")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error}", hint="choose another place") from error

    @classmethod
    def load(cls, path: str | Path) -> "LatencyTable":
        """Read a table that was saved.

        Args:
            path: The file.
        """
        try:
            content = json.loads(Path(path).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"cannot read {path}: {error}", hint=_HINT) from error
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise InputError(f"{path}", expected="a latency table", got="another file", hint=_HINT)
        version = content.pop("version", None)
        if version != VERSION:
            raise InputError(
                f"{path}", expected=f"version {VERSION}", got=f"{version!r}", hint="measure again with this offramp"
            )
        try:
            return _parse(content)
        except InputError as error:
            raise InputError(f"{path}: {error.problem}", expected=error.expected, got=error.got, hint=_HINT) from error
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(f"{path} is no complete latency table: {error}", hint=_HINT) from error

    def _interpolate(self, row: Row, batch_size: float) -> float:
        sizes = self.batch_sizes
        if batch_size <= sizes[-1] or len(sizes) == 1:
            return float(np.interp(batch_size, sizes, row))
        slope = (row[-1] - row[-2]) / (sizes[-1] - sizes[-2])
        return float(row[-1] + slope * (batch_size - sizes[-1]))

    def _check(self, exits: ExitSet, policy: str, batch_size: int) -> None:
        """Refuse what the table has no times of."""
        measure = "make it with measure_latency"
        if set(self.engine) != set(ENGINE) or not self.full:
            raise InputError(
                "latency table", expected="times of engine and full network", got="a table without", hint=measure
            )
        if policy not in self.decide:
            names = ", ".join(self.decide) or "none"
            raise InputError("latency table", expected=f"times of policy '{policy}'", got=names, hint=measure)
        if (self.widths, self.exits) != (exits.widths, describe_exits(exits)):
            raise InputError(
                f"latency table of '{self.network}'",
                expected=f"exits that see {exits.widths} features, {describe_exits(exits)}",
                got=f"{self.widths}, {self.exits}",
                hint="measure this network and these exits: offramp inspect --measure --out FILE",
            )
        if not self.batch_sizes[0] <= batch_size <= self.batch_sizes[-1]:
            raise InputError(
                "batch size",
                expected=f"one within those measured, {self.batch_sizes}",
                got=f"{batch_size}",
                hint=f"measure it too: offramp inspect --measure --batch-size {batch_size}, or batch_sizes=... of "
                "measure_latency",
            )

    def _pieces(self, exits: ExitSet, policy: str, batch_size: int) -> Tensor:
        """Return `4 x L` milliseconds per sample: stage, carry, answer, decide."""
        stage, answer, carry, select = (
            np.array([self._interpolate(row, batch_size) for row in getattr(self, name)]) for name in _PIECES
        )
        start_ms, pass_ms, finish_ms = (self._interpolate(self.engine[name], batch_size) for name in ENGINE)
        stage = stage + pass_ms
        stage[0] += start_ms
        answer = np.maximum(answer - carry, 0)
        # A head that a later one averages with runs for every sample that passes, like the stage itself.
        read = list(exits.averaging.read)
        stage[read] += answer[read] + carry[read]
        answer[read] = carry[read] = 0
        decide = np.full_like(stage, self._interpolate(self.decide[policy], batch_size))
        if batch_size > 1:
            decide += select
        decide[-1] = 0
        answer[-1] += finish_ms
        return torch.from_numpy(np.stack([stage, carry, answer, decide]) / batch_size)


@dataclass(frozen=True)
class LatencyPrices:
    """A latency table as the prices of exits, `cost.Prices`."""

    table: LatencyTable
    """The measured times."""
    batch_size: int = 1
    """Number of samples per batch."""

    def price(self, exits: ExitSet, policy: Policy) -> Costs:
        """Return the milliseconds of network, exits and policy."""
        return self.table.costs(exits, policy=policy.name, batch_size=self.batch_size)


def count_stage_weights(backbone: Backbone) -> tuple[int, ...]:
    """Count the weights of each stage of a backbone."""
    return tuple(sum(weight.numel() for weight in stage.parameters()) for stage in backbone.stages)


def describe_exits(exits: ExitSet) -> str:
    """Describe exits as far as their times depend on it, except for the numbers of features."""
    width = f" of width {exits.width}" if isinstance(exits, LadderExits) else ""
    return f"{type(exits).__name__}{width} for {exits.num_classes} classes"


def _parse(content: Mapping[str, Any], *, inner: bool = False) -> LatencyTable:
    """Make a table of JSON content, or refuse the first field that is wrong."""
    sizes = content["batch_sizes"]
    positive = isinstance(sizes, list) and sizes and all(type(size) is int and size >= 1 for size in sizes)
    _require(positive and sizes == sorted(set(sizes)), "batch_sizes", "ascending whole numbers of at least 1")

    def row(values: Any, name: str) -> Row:
        times = all(type(value) in (int, float) and 0 <= value < float("inf") for value in values)
        _require(len(values) == len(sizes) and times, name, f"{len(sizes)} milliseconds per row, one per batch size")
        return tuple(map(float, values))

    def named_rows(name: str) -> dict[str, Row]:
        return {key: row(values, f"{name}.{key}") for key, values in content[name].items()}

    pieces: dict[str, Any] = {name: tuple(row(values, name) for values in content[name]) for name in _PIECES}
    num_stages = len(pieces["stage"])
    equal = num_stages and all(len(rows) == num_stages for rows in pieces.values())
    _require(equal, ", ".join(_PIECES), "the same number of rows, one per stage")
    per_stage: dict[str, Any] = {name: tuple(content[name]) for name in _PER_STAGE}
    for name, counts in per_stage.items():
        whole = all(type(count) is int and count >= 0 for count in counts)
        _require(len(counts) == num_stages and whole, name, "one whole number per stage")
    texts = {name: content[name] for name in _TEXTS}
    _require(all(isinstance(text, str) and len(text) <= 1000 for text in texts.values()), ", ".join(_TEXTS), "texts")
    threads, size = content["threads"], content["size"]
    _require(type(threads) is int and threads >= 1, "threads", "a whole number of at least 1")
    _require(type(size) in (int, float) and 0 < size < float("inf"), "size", "a number above 0")
    engine, full = named_rows("engine"), row(content["full"], "full")
    _require(set(engine) == set(ENGINE), "engine", ", ".join(ENGINE))
    _require(all(full), "full", "milliseconds above 0")
    others = tuple(_parse(other, inner=True) for other in content["others"])
    flat = not (inner and others) and all(len(other.stage) == num_stages for other in others)
    _require(flat, "others", "tables of the same stages, without tables of their own")
    distinct = len({size, *(other.size for other in others)}) == 1 + len(others)
    _require(distinct, "others", "tables for samples of other sizes")
    return LatencyTable(
        **texts,
        **pieces,
        **per_stage,
        threads=threads,
        batch_sizes=tuple(sizes),
        engine=engine,
        decide=named_rows("decide"),
        full=full,
        sum_ratio=row(content["sum_ratio"], "sum_ratio") if content["sum_ratio"] else (),
        size=float(size),
        others=others,
        runs=tuple(map(parse_run, content["runs"])),
    )


def _require(condition: object, name: str, expected: str) -> None:
    if not condition:
        raise InputError(f"field '{name}'", expected=expected)
