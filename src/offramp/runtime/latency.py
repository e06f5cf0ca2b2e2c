"""What stages and exits take on some machine, in milliseconds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offramp.backbone import Backbone
from offramp.cost import Costs, CostTable, growth
from offramp.errors import InputError
from offramp.exits import ExitBank, LadderExits
from offramp.policy import Policy

__all__ = ["MOST_OFF", "VERSION", "LatencyTable", "Milliseconds", "kind_of", "stage_weights"]

VERSION = 1
"""Of the file. A reader takes this version."""

MOST_OFF = 0.2
"""By how much, as a share, the full network's stages may miss its time when added up: beyond it times are doubtful."""

FORMAT = "offramp latency"

Row = tuple[float, ...]
Rows = tuple[Row, ...]


@dataclass(frozen=True)
class LatencyTable:
    """Milliseconds a batch, for each stage (rows) at each batch size (columns). Made by `measure_latency`.

    Example:
        >>> table = LatencyTable("eager", 1, (1, 3), ((1.0, 2.0),), ((0.1, 0.3),), ((0.0, 0.0),), ((0.01, 0.02),))
        >>> table.at("stage", 0, 2)
        1.5
    """

    backend: str
    """What computed: a name of `runtime.BACKENDS`, or the class of another backend."""
    threads: int
    """With how many threads."""
    batch_sizes: tuple[int, ...]
    """Ascending."""
    stage: Rows
    """Running a stage."""
    answer: Rows
    """Pooling and answering at an exit."""
    carry: Rows
    """Passing an exit that is not in force: what its state takes, 0 where there is none."""
    select: Rows
    """Taking half of the samples out after a stage."""
    engine: Mapping[str, Row] = field(default_factory=dict)
    """What the engine takes for itself: to `start`, to `pass` a stage, and to `land` behind the last."""
    decide: Mapping[str, Row] = field(default_factory=dict)
    """Deciding at an exit, probabilities included, for each policy."""
    whole: Row = ()
    """The full network by the same backend: of a cascade, its last."""
    adds_up: Row = ()
    """What the full network's stages and head add up to, as a share of `whole`: far from 1, the machine was busy."""
    network: str = ""
    """The network's name."""
    stage_weights: tuple[int, ...] = ()
    """How many each stage has: tells networks of one name apart, such as one cut elsewhere."""
    exits: str = ""
    """The kind of exits, `kind_of`."""
    widths: tuple[int, ...] = ()
    """Features that exits see of each stage."""
    machine: str = ""
    """The processor."""
    torch: str = ""
    """The version that ran."""
    size: float = 1.0
    """Of every sample, where samples differ in size: tokens, nodes."""
    others: tuple["LatencyTable", ...] = ()
    """The same for samples of other sizes."""

    def at(self, what: str, index: int, batch_size: float) -> float:
        """Milliseconds of one entry at any batch size: straight lines between those measured, and beyond.

        Args:
            what: "stage", "answer", "carry" or "select".
            index: The stage.
            batch_size: How many samples.
        """
        return self._between(getattr(self, what)[index], batch_size)

    def full(self, batch_size: float) -> float:
        """Milliseconds of the full network."""
        if not self.whole:
            raise InputError("expected a table with the full network measured, got none; make it with measure_latency")
        return self._between(self.whole, batch_size)

    @property
    def doubtful(self) -> float | None:
        """What of `adds_up`, at any size, is farthest from 1, if it is farther than `MOST_OFF`: measure again."""
        shares = [share for one in (self, *self.others) for share in one.adds_up]
        farthest = max(shares, key=lambda share: abs(share - 1), default=1.0)
        return farthest if abs(farthest - 1) > MOST_OFF else None

    def costs(self, bank: ExitBank, *, policy: str = "threshold", batch_size: int = 1) -> Costs:
        """Milliseconds a sample, in place of Mul-Adds.

        At batch sizes above 1 a sample takes its share of what a full batch takes: those who stay in a batch that
        others have left take longer than that.

        Args:
            bank: Exits of the kind that was measured.
            policy: What decides.
            batch_size: Within those measured.

        Returns:
            The costs, by the samples' sizes where they differ.
        """
        tables = (self, *self.others)
        for one in tables:
            one._check(bank, policy, batch_size)
        pieces = torch.stack([one._pieces(bank, policy, batch_size) for one in tables])
        full = torch.tensor([one.full(batch_size) / batch_size for one in tables], dtype=pieces.dtype)
        if len(tables) > 1:
            sizes = [one.size for one in tables]
            pieces, full = growth(sizes, pieces), growth(sizes, full)
        stage, carry, answer, decide = pieces.unbind(1)
        rows = zip(stage, carry, answer, decide, full, strict=True)
        return Costs(tuple(CostTable(*row, bank.carries_state) for row in rows))

    def taking(self, stages: Sequence[int], network: str) -> "LatencyTable":
        """The table of a network that has some of the stages: of a cascade, fewer networks.

        Args:
            stages: Those it has, the full network's among them.
            network: Its name.
        """
        rows: dict[str, Any] = {
            name: tuple(getattr(self, name)[stage] for stage in stages) for name in (*_ROWS, *_SHAPE)
        }
        return replace(self, **rows, network=network, others=tuple(one.taking(stages, network) for one in self.others))

    def to_json(self) -> dict[str, Any]:
        """The table as JSON holds it."""
        return asdict(self)

    def save(self, path: str | Path) -> None:
        """Write the table as JSON.

        Args:
            path: The file.
        """
        whole = {"format": FORMAT, "version": VERSION, **self.to_json()}
        try:
            Path(path).write_text(json.dumps(whole, indent=1) + "\n")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error}; give another place") from error

    @classmethod
    def load(cls, path: str | Path) -> "LatencyTable":
        """Read a table that was saved.

        Args:
            path: The file.
        """
        try:
            whole = json.loads(Path(path).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"cannot read {path}: {error}; {_MAKE_ONE}") from error
        if not isinstance(whole, dict) or whole.pop("format", None) != FORMAT:
            raise InputError(f"expected in {path} a latency table, got something else; {_MAKE_ONE}")
        version = whole.pop("version", None)
        if version != VERSION:
            raise InputError(f"expected in {path} version {VERSION}, got {version!r}; measure again with this offramp")
        try:
            return _table(whole)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(f"{path} is no whole latency table: {error}; {_MAKE_ONE}") from error

    def _between(self, row: Row, batch_size: float) -> float:
        sizes = self.batch_sizes
        if batch_size <= sizes[-1] or len(sizes) == 1:
            return float(np.interp(batch_size, sizes, row))
        slope = (row[-1] - row[-2]) / (sizes[-1] - sizes[-2])
        return float(row[-1] + slope * (batch_size - sizes[-1]))

    def _check(self, bank: ExitBank, policy: str, batch_size: int) -> None:
        if set(self.engine) != set(ENGINE) or not self.whole:
            raise InputError(
                "expected engine and full network measured, got a table without; make it with measure_latency"
            )
        if policy not in self.decide:
            raise InputError(
                f"expected a table with policy '{policy}' measured, got one with {', '.join(self.decide) or 'none'}; "
                "make it with measure_latency"
            )
        if (self.widths, self.exits) != (bank.widths, kind_of(bank)):
            raise InputError(
                f"expected a table of exits that see {bank.widths} features, {kind_of(bank)}, got one of "
                f"{self.widths}, {self.exits}, in '{self.network}'; measure the network and exits that run"
            )
        if not self.batch_sizes[0] <= batch_size <= self.batch_sizes[-1]:
            raise InputError(
                f"expected a batch size within those measured, {self.batch_sizes}, got {batch_size}; measure that too: "
                f"offramp inspect --measure --batch-size {batch_size}, or batch_sizes=... of measure_latency"
            )

    def _pieces(self, bank: ExitBank, policy: str, batch_size: int) -> Tensor:
        """`4 x L` milliseconds a sample: stage, carry, answer, decide."""
        stage, answer, carry, select = (
            np.array([self._between(row, batch_size) for row in getattr(self, name)]) for name in _ROWS
        )
        start, passing, land = (self._between(self.engine[name], batch_size) for name in ENGINE)
        stage = stage + passing
        stage[0] += start
        answer = np.maximum(answer - carry, 0)
        # A head that a later one averages with is asked by everybody who passes, like the stage itself.
        read = list(bank.averaging.read)
        stage[read] += answer[read] + carry[read]
        answer[read] = carry[read] = 0
        decide = np.full_like(stage, self._between(self.decide[policy], batch_size))
        if batch_size > 1:
            decide += select
        decide[-1] = 0
        answer[-1] += land
        return torch.from_numpy(np.stack([stage, carry, answer, decide]) / batch_size)


ENGINE = ("start", "pass", "land")
"""What the engine does for itself."""

_ROWS = ("stage", "answer", "carry", "select")
_SHAPE = ("stage_weights", "widths")
_MAKE_ONE = "give a file of offramp inspect --measure --out FILE, or of LatencyTable.save"
_TEXTS = ("backend", "network", "exits", "machine", "torch")


def stage_weights(backbone: Backbone) -> tuple[int, ...]:
    """How many weights each stage of a backbone has."""
    return tuple(sum(weight.numel() for weight in stage.parameters()) for stage in backbone.stages)


def kind_of(bank: ExitBank) -> str:
    """What exits are, as far as their times depend on it and the features they see do not tell."""
    wide = f" of width {bank.width}" if isinstance(bank, LadderExits) else ""
    return f"{type(bank).__name__}{wide} for {bank.num_classes} classes"


@dataclass(frozen=True)
class Milliseconds:
    """A latency table as the prices of exits, `cost.Prices`."""

    table: LatencyTable
    """What was measured."""
    batch_size: int = 1
    """How many samples come at a time."""

    def price(self, bank: ExitBank, policy: Policy) -> Costs:
        """Put the milliseconds of network, exits and policy together."""
        return self.table.costs(bank, policy=policy.name, batch_size=self.batch_size)


def _table(content: Mapping[str, Any], *, inner: bool = False) -> LatencyTable:
    """A table of what JSON holds, if every entry is what it should be."""
    sizes = content["batch_sizes"]
    good = isinstance(sizes, list) and sizes and all(type(size) is int and size >= 1 for size in sizes)
    if not good or sizes != sorted(set(sizes)):
        raise ValueError("field 'batch_sizes': expected whole numbers of at least 1 that ascend")

    def row(values: Any, name: str) -> Row:
        good = (type(value) in (int, float) and 0 <= value < float("inf") for value in values)
        if len(values) != len(sizes) or not all(good):
            raise ValueError(f"field '{name}': expected {len(sizes)} milliseconds in a row, one a batch size")
        return tuple(map(float, values))

    def named(name: str) -> dict[str, Row]:
        return {key: row(values, f"{name}.{key}") for key, values in content[name].items()}

    rows: dict[str, Any] = {name: tuple(row(values, name) for values in content[name]) for name in _ROWS}
    if not rows["stage"] or len({len(found) for found in rows.values()}) != 1:
        raise ValueError(f"fields {', '.join(_ROWS)}: expected as many rows each, one a stage")
    shape: dict[str, Any] = {name: tuple(content[name]) for name in _SHAPE}
    for name, found in shape.items():
        if len(found) != len(rows["stage"]) or any(type(count) is not int or count < 0 for count in found):
            raise ValueError(f"field '{name}': expected a whole number a stage")
    texts = {name: content[name] for name in _TEXTS}
    if not all(isinstance(text, str) and len(text) <= 1000 for text in texts.values()):
        raise ValueError(f"fields {', '.join(_TEXTS)}: expected texts")
    if type(content["threads"]) is not int or content["threads"] < 1:
        raise ValueError("field 'threads': expected a whole number of at least 1")
    if type(content["size"]) not in (int, float) or not 0 < content["size"] < float("inf"):
        raise ValueError("field 'size': expected a number above 0")
    engine = named("engine")
    if set(engine) != set(ENGINE):
        raise ValueError(f"field 'engine': expected {', '.join(ENGINE)}")
    others = tuple(_table(other, inner=True) for other in content["others"])
    if (inner and others) or any(len(other.stage) != len(rows["stage"]) for other in others):
        raise ValueError("field 'others': expected tables of the same stages, with none in them")
    if len({content["size"], *(other.size for other in others)}) != 1 + len(others):
        raise ValueError("field 'others': expected samples of other sizes")
    if not all(row(content["whole"], "whole")):
        raise ValueError("field 'whole': expected milliseconds above 0")
    return LatencyTable(
        **texts,
        **rows,
        **shape,
        threads=content["threads"],
        batch_sizes=tuple(sizes),
        engine=engine,
        decide=named("decide"),
        whole=row(content["whole"], "whole"),
        adds_up=row(content["adds_up"], "adds_up") if content.get("adds_up") else (),  # older files have none
        size=float(content["size"]),
        others=others,
    )
