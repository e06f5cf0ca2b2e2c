"""Times of a model on every backend that it may run on here, and the fastest of them."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from offramp._progress import progress_bar
from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.backbone._merging import merge
from offramp.errors import InputError, MissingExtraError, OfframpError, OfframpWarning
from offramp.exits._none import NoExits
from offramp.policy import POLICIES, OperatingPoint
from offramp.runtime import BACKENDS, LatencyTable, measure_latency
from offramp.runtime._batch_timer import make_staying_point
from offramp.runtime._engine import Engine
from offramp.runtime._processor import find_missing_instructions
from offramp.runtime._run_times import RunTime, fastest, make_run, time_in_turns

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["BATCH_SIZES", "RARE", "SAMPLES", "make_full_network", "measure_backends", "without_rare_exits"]

BATCH_SIZES = (1, 8, 64)
"""Batch sizes by default."""

SAMPLES = 256
"""Samples to run: enough for realistic shares of samples at each exit."""

REPEATS = 3
"""Passes over the samples: the fewest that have a median and a range."""

RARE = 0.01
"""Share of the tune split below which an exit is hardly taken."""

LESS_PRECISE = "less precise: no guarantee"
NEEDS_FIT = "needs a new fit"


def measure_backends(
    model: "EarlyExitModel", inputs: Any, *, batch_sizes: Sequence[int] = BATCH_SIZES, progress: bool
) -> LatencyTable:
    """Time whole runs of a model at its point, beside the full network, on every backend that it may run on here.

    Backends: "eager"; "onnx" if it is installed; "bfloat16" if the processor has instructions for it. A model that was
    tuned on a backend runs only on that. The full network is the one that would be deployed without exits, in as few
    graphs as possible. At the smallest batch size, runs without exits that hardly any sample takes are timed too.

    Args:
        model: The model, on the CPU.
        inputs: Raw inputs, at least one; repeated if there are fewer than `SAMPLES`.
        batch_sizes: Batch sizes, ascending.
        progress: Show progress bars.

    Returns:
        The times of the stages and exits on the fastest backend, with all runs.
    """
    if model.unit.is_money:
        raise InputError(
            expected="a network that runs on this machine", got=f"one whose costs are {model.unit.name}, not times"
        )
    model.backbone.eval()
    hidden = model.backbone.prepare(model.preprocessing(inputs))
    names = _usable_backends(model)
    with progress_bar(f"preparing {', '.join(names)}", len(names), unit="backends", show=progress) as advance:
        candidates = []
        for name in names:
            try:
                candidates.append(_prepare(model, name, hidden))
            except OfframpError as error:
                warnings.warn(f"'{name}' was not measured: {error}", OfframpWarning, stacklevel=2)
            advance(1)
    given, count = model.backbone.batch_size(hidden, 0), max(SAMPLES, batch_sizes[-1])
    total = REPEATS * sum(count // size * size for size in batch_sizes)
    runs: list[RunTime] = []
    with torch.inference_mode(), progress_bar("measuring runs", total, unit="samples", show=progress) as advance:
        for size in batch_sizes:
            batches = [torch.arange(start, start + size) % given for start in range(0, count - size + 1, size)]
            works: dict[str, Callable[[int], object]] = {}
            for candidate in candidates:
                works |= candidate.works(batches, fewer=size == batch_sizes[0])
            times = time_in_turns(works, len(batches), repeats=REPEATS, advance=partial(advance, size))
            for candidate in candidates:
                runs += candidate.summarise(times, size, len(batches) * size)
    best = fastest(runs)
    assert best is not None  # "eager", or the backend that the model was tuned on
    running = next(candidate.model for candidate in candidates if candidate.name == best.backend)
    table = measure_latency(
        model.backbone,
        model.pooling,
        running.exits_in_force,
        hidden,
        backend=running.engine.backend,
        batch_sizes=batch_sizes,
        policies=list(model.points),
        progress=progress,
    )
    return replace(table, backend=best.backend, runs=tuple(runs))


@dataclass(frozen=True)
class _Candidate:
    """A model on a backend, beside its full network on the same."""

    name: str
    model: "EarlyExitModel"
    fewer: Engine | None
    """The same point without the exits that hardly any sample takes; None if all are taken."""
    full: Engine
    hidden: Hidden
    full_hidden: Hidden
    note: str

    def works(self, batches: Sequence[Tensor], *, fewer: bool) -> dict[str, Callable[[int], object]]:
        """Return what to time, as functions of the index of a batch."""
        engines = {"own": (self.model.engine, self.hidden), "full": (self.full, self.full_hidden)}
        if fewer and self.fewer is not None:
            engines["fewer"] = (self.fewer, self.hidden)
        return {f"{self.name} {kind}": _runner(*parts, batches) for kind, parts in engines.items()}

    def summarise(self, times: dict[str, list[float]], batch_size: int, samples: int) -> list[RunTime]:
        """Return the runs of this backend."""
        full = times[f"{self.name} full"]
        engines = {"own": (self.model.engine, self.note), "fewer": (self.fewer, NEEDS_FIT)}
        return [
            make_run(self.name, batch_size, len(engine.points.points[0].active), own, full, samples, note)
            for kind, (engine, note) in engines.items()
            if engine is not None and (own := times.get(f"{self.name} {kind}"))
        ]


def _runner(engine: Engine, hidden: Hidden, batches: Sequence[Tensor]) -> Callable[[int], object]:
    """Return a function that runs a batch by its index; the batches are made here, not while they are timed."""
    backbone = engine.backbone
    inputs = [backbone.trim(backbone.select(hidden, rows, 0), 0) for rows in batches]
    return lambda batch: engine.run(inputs[batch])


def _usable_backends(model: "EarlyExitModel") -> list[str]:
    """Return the names of the backends that a model may run on here."""
    if model.tuned_on is not None:
        return [model.tuned_on.kind]
    names = ["eager"]
    try:
        BACKENDS.get("onnx")
        names.append("onnx")
    except MissingExtraError:
        pass
    if find_missing_instructions("bfloat16") == ():
        names.append("bfloat16")
    return names


def _prepare(model: "EarlyExitModel", name: str, hidden: Hidden) -> _Candidate:
    """Make the backend of a model and that of its full network."""
    backbone, make = model.backbone, BACKENDS.get(name)

    def example(network: Any, inputs: Hidden) -> Hidden:
        # Activations of int8 have their ranges from all samples.
        return inputs if name == "int8" else network.select(inputs, torch.arange(2) % network.batch_size(inputs, 0), 0)

    running = model
    if model.tuned_on is None:
        running = model.on(make(backbone, model.pooling, model.exits_in_force, example(backbone, hidden)))
    point = without_rare_exits(running.point)
    fewer = None
    if point is not None:
        backend = running.engine.backend
        fewer = Engine(backbone, model.pooling, running.exits_in_force, [point], backend=backend)
    last, full_hidden = backbone, hidden
    if isinstance(backbone, Cascade):
        last, full_hidden = backbone.members[-1], backbone.inputs_of_members(hidden)[-1]
    network, exits, staying = make_full_network(last)
    backend = make(network, model.pooling, exits, example(network, full_hidden))
    full = Engine(network, model.pooling, exits, [staying], backend=backend)
    exact = model.tuned_on is not None or getattr(running.engine.backend, "exact", False)
    return _Candidate(name, running, fewer, full, hidden, full_hidden, "" if exact else LESS_PRECISE)


def make_full_network(backbone: Backbone) -> tuple[Backbone, NoExits, OperatingPoint]:
    """Return a network without exits, in as few stages as possible, with its only operating point.

    Args:
        backbone: The network; of a cascade, its last member.
    """
    network = merge(backbone, backbone.own_heads)
    exits = NoExits((1,) * network.num_exits, (), network.num_classes)
    return network, exits, make_staying_point(POLICIES.get("threshold"), (network.num_exits - 1,), exits)


def without_rare_exits(point: OperatingPoint) -> OperatingPoint | None:
    """Return a point without the early exits that hardly any sample of the tune split takes; None if all are taken.

    Samples that took them leave later, so accuracy and guarantee are not those of the point: only its time matters.

    Args:
        point: A point that knows where samples leave.
    """
    if point.leaving is None:
        return None
    *early, last = point.active
    taken = tuple(exit for exit in early if float(point.leaving[0][exit]) >= RARE)
    return None if len(taken) == len(early) else replace(point, active=(*taken, last), guarantee=None)
