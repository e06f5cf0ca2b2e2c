"""Times of one batch: whole passes, and the pieces of each."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.exits import ExitSet
from offramp.policy import POLICIES, OperatingPoint, Policy
from offramp.pooling import Pooling
from offramp.runtime._backend import Backend
from offramp.runtime._engine import Engine
from offramp.runtime._latency import MOST_OFF

__all__ = ["BatchTimer", "make_staying_point"]

SAMPLES = 8
"""Samples timed per turn at least: a single one takes too little time to measure."""

_Times = dict[str, float]


class BatchTimer:
    """The timing of one batch: whole passes of the engine, and the pieces of each.

    Pieces timed alone would be faster, as all they need would be in the processor's caches.

    Attributes:
        times: Milliseconds of each piece in the best round so far, and `sum_ratio`.
    """

    def __init__(
        self,
        backbone: Backbone,
        pooling: Pooling,
        exits: ExitSet,
        backend: Backend,
        example: Hidden,
        count: int,
        *,
        policies: Sequence[str],
    ) -> None:
        self.times: _Times = {}
        self._policies = policies
        self._passes: dict[str, list[_Times]] = defaultdict(list)
        self._backbone, self._carries, self._count = backbone, exits.carries_state, count
        self._batch = backbone.select(example, torch.arange(count) % backbone.batch_size(example, 0), 0)
        self._half = torch.arange(0, count, 2)
        self._full = _FullNetwork(backbone, exits, backend, self._batch)
        self._watch = _Stopwatch(backend)
        last = backbone.num_exits - 1
        actives = {"pass": (last,), "carry": (last - 1, last)}
        threshold = POLICIES.get("threshold")
        points = {name: make_staying_point(threshold, active, exits) for name, active in actives.items()}
        points |= {name: make_staying_point(POLICIES.get(name), range(last + 1), exits) for name in policies}
        self._engines = {
            name: Engine(backbone, pooling, exits, [point], backend=self._watch) for name, point in points.items()
        }

    def take_turn(self, turn: int) -> None:
        """Time each kind of pass once, more often at small batch sizes; the policies take turns."""
        for repeat in range(max(1, SAMPLES // self._count)):
            full_ms, _ = _time(self._full)
            self._passes["full"].append({"full": full_ms})
            self._time_pass("pass")
            self._time_pass(self._policies[(turn + repeat) % len(self._policies)])
            if self._carries:
                self._time_pass("carry")

    def reset(self) -> None:
        """Drop the passes of this round."""
        self._passes.clear()

    def end_round(self) -> bool:
        """Keep the times of this round if they add up better than before; tell if those kept add up."""
        times = self._mean_times()
        pieces = [f"stage.{stage}" for stage in self._backbone.full_stages]
        pieces.append(f"answer.{self._backbone.full_stages[-1]}")
        times["sum_ratio"] = sum(times[piece] for piece in pieces) / times["full"]
        if not self.times or abs(times["sum_ratio"] - 1) < abs(self.times["sum_ratio"] - 1):
            self.times = times
        self.reset()
        return abs(self.times["sum_ratio"] - 1) <= MOST_OFF

    def _mean_times(self) -> _Times:
        """Return the milliseconds of every piece."""
        means = {kind: _mean_of_middle(passes) for kind, passes in self._passes.items()}
        deciding = [means[name] for name in self._policies]
        passing, carrying = means["pass"], means.get("carry", {})
        times = {"full": means["full"]["full"], "start": passing["start"]}
        last = self._backbone.num_exits - 1
        for stage in range(last + 1):
            times[f"stage.{stage}"] = fmean(mean[f"stage.{stage}"] for mean in (passing, *deciding))
            times[f"answer.{stage}"] = fmean(mean[f"exit.{stage}"] for mean in deciding)
            times[f"carry.{stage}"] = carrying.get(f"exit.{stage}", 0.0) if stage < last else 0.0
            times[f"select.{stage}"] = means["select"][f"select.{stage}"]
        times["pass"] = fmean(passing[f"rest.{stage}"] for stage in range(last)) if last else 0.0
        times["finish"] = max(passing[f"rest.{last}"] - times["pass"], 0.0)
        for name, mean in zip(self._policies, deciding, strict=True):
            rest = fmean(mean[f"rest.{stage}"] for stage in range(last)) if last else 0.0
            times[f"decide.{name}"] = max(rest - times["pass"], 0.0)
        return times

    def _time_pass(self, kind: str) -> None:
        """Time one batch from the first stage to the last; no sample leaves early."""
        engine, times, select_times = self._engines[kind], {}, {}
        times["start"], batch = _time(engine.start, self._batch)
        for stage in range(self._backbone.num_exits):
            step_ms, (batch, _) = _time(engine.step, batch)
            watch = self._watch
            times |= {f"stage.{stage}": watch.stage_ms, f"exit.{stage}": watch.exit_ms}
            times[f"rest.{stage}"] = step_ms - watch.stage_ms - watch.exit_ms
            select_times[f"select.{stage}"], _ = _time(self._backbone.select, watch.hidden, self._half, stage + 1)
        self._passes[kind].append(times)
        self._passes["select"].append(select_times)


def make_staying_point(policy: Policy, active: Iterable[int], exits: ExitSet) -> OperatingPoint:
    """Make a point of a policy at which the exits `active` run and no sample leaves before the last."""
    length = len(exits.widths)
    parameters = {
        name: torch.full(
            policy.shape(name, num_exits=length, num_classes=exits.num_classes), policy.stay_values.get(name, 0.0)
        )
        for name in policy.parameters
    }
    return OperatingPoint(policy.name, parameters, tuple(sorted({*active} - {-1})), torch.ones(length))


class _Stopwatch:
    """A backend that records the times of another."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.stage_ms = self.exit_ms = 0.0
        self.hidden: Hidden = None

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        self.stage_ms, self.hidden = _time(self._backend.stage, index, hidden)
        return self.hidden

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        self.exit_ms, (logits, state) = _time(
            self._backend.exit, index, hidden, state, classifier, answer=answer, carry=carry
        )
        return logits, state


class _FullNetwork:
    """The full network by a backend; of a cascade, only the last member."""

    def __init__(self, backbone: Backbone, exits: ExitSet, backend: Backend, batch: Hidden) -> None:
        self._backend, self._stages = backend, backbone.full_stages
        count = backbone.batch_size(batch, 0)
        self._classifier = None if exits.stacked == 1 else torch.zeros(count, dtype=torch.long)
        self._hidden, self._state = batch, (exits.initial_state(count), ())
        hidden = batch
        for stage in range(backbone.num_exits - 1):  # once, for the answers that its head may average with
            hidden = backend.stage(stage, hidden)
            _, self._state = backend.exit(stage, hidden, self._state, self._classifier, answer=False, carry=False)
            if stage + 1 == self._stages.start:
                self._hidden = hidden

    def __call__(self) -> None:
        hidden = self._hidden
        for stage in self._stages:
            hidden = self._backend.stage(stage, hidden)
        self._backend.exit(self._stages[-1], hidden, self._state, self._classifier, answer=True, carry=False)


def _mean_of_middle(passes: Sequence[_Times]) -> _Times:
    """Return the mean of each piece over the middle half of the passes by total time.

    Not the median of each piece: on a busy machine the medians of short pieces add up to less than a pass.
    """
    ordered = sorted(passes, key=lambda times: sum(times.values()))
    cut = len(ordered) // 4
    middle = ordered[cut : len(ordered) - cut]
    return {name: fmean(times[name] for times in middle) for name in middle[0]}


def _time(work: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    """Return the milliseconds and the result of a call."""
    start = time.perf_counter()
    result = work(*arguments, **options)
    return 1000 * (time.perf_counter() - start), result
