"""Timing one batch: whole passes, and the pieces of each."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from offramp.backbone import Backbone, Hidden, Pooling
from offramp.exits import ExitBank
from offramp.policy import POLICIES, OperatingPoint, Policy
from offramp.runtime.backend import Backend
from offramp.runtime.engine import Engine
from offramp.runtime.latency import MOST_OFF

__all__ = ["Job", "staying"]

SAMPLES = 8
"""Timed at every turn at least: single samples are over so quickly that one of them says little."""

_Pass = dict[str, float]


class Job:
    """What is timed of one batch: whole passes, as the engine runs them, and the pieces of each.

    Timed by themselves, pieces would be faster: everything they need would be in the processor's caches.
    """

    def __init__(
        self,
        backbone: Backbone,
        pooling: Pooling,
        bank: ExitBank,
        backend: Backend,
        example: Hidden,
        count: int,
        *,
        policies: Sequence[str],
    ) -> None:
        self._policies = policies
        self._passes: dict[str, list[_Pass]] = defaultdict(list)
        self.found: _Pass = {}
        self._backbone, self._carries, self._count = backbone, bank.carries_state, count
        self._batch = backbone.select(example, torch.arange(count) % backbone.batch_size(example, 0), 0)
        self._half = torch.arange(0, count, 2)
        self._full = _Full(backbone, bank, backend, self._batch)
        self._watch = _Stopwatch(backend)
        last = backbone.num_exits - 1
        actives = {"pass": (last,), "carry": (last - 1, last)}
        threshold = POLICIES.get("threshold")
        points = {name: staying(threshold, active, bank) for name, active in actives.items()}
        points |= {name: staying(POLICIES.get(name), range(last + 1), bank) for name in policies}
        self._engines = {
            name: Engine(backbone, pooling, bank, [point], backend=self._watch) for name, point in points.items()
        }

    def take_turn(self, turn: int) -> None:
        """Time everything, single samples some times; the policies take turns, too."""
        for again in range(max(1, SAMPLES // self._count)):
            took, _ = _timed(self._full)
            self._passes["whole"].append({"whole": took})
            self._pass("pass")
            self._pass(self._policies[(turn + again) % len(self._policies)])
            if self._carries:
                self._pass("carry")

    def forget(self) -> None:
        """Begin anew."""
        self._passes.clear()

    def settle(self) -> bool:
        """Keep what this round found if its pieces add up better than those before; whether what is kept adds up."""
        found = self._means()
        pieces = [f"stage.{stage}" for stage in self._backbone.full_stages]
        pieces.append(f"answer.{self._backbone.full_stages[-1]}")
        found["adds_up"] = sum(found[piece] for piece in pieces) / found["whole"]
        if not self.found or abs(found["adds_up"] - 1) < abs(self.found["adds_up"] - 1):
            self.found = found
        self.forget()
        return abs(self.found["adds_up"] - 1) <= MOST_OFF

    def _means(self) -> _Pass:
        """Of every piece, in milliseconds."""
        kinds = {kind: _middle(passes) for kind, passes in self._passes.items()}
        deciding = [kinds[name] for name in self._policies]
        passing, carrying = kinds["pass"], kinds.get("carry", {})
        found = {"whole": kinds["whole"]["whole"], "start": passing["start"]}
        last = self._backbone.num_exits - 1
        for stage in range(last + 1):
            found[f"stage.{stage}"] = fmean(one[f"stage.{stage}"] for one in (passing, *deciding))
            found[f"answer.{stage}"] = fmean(one[f"exit.{stage}"] for one in deciding)
            found[f"carry.{stage}"] = carrying.get(f"exit.{stage}", 0.0) if stage < last else 0.0
            found[f"select.{stage}"] = kinds["select"][f"select.{stage}"]
        found["pass"] = fmean(passing[f"rest.{stage}"] for stage in range(last)) if last else 0.0
        found["land"] = max(passing[f"rest.{last}"] - found["pass"], 0.0)
        for name, one in zip(self._policies, deciding, strict=True):
            rest = fmean(one[f"rest.{stage}"] for stage in range(last)) if last else 0.0
            found[f"decide.{name}"] = max(rest - found["pass"], 0.0)
        return found

    def _pass(self, kind: str) -> None:
        """One batch from the first stage to the last, nobody leaving."""
        engine, times, selecting = self._engines[kind], {}, {}
        times["start"], flight = _timed(engine.start, self._batch)
        for stage in range(self._backbone.num_exits):
            whole, (flight, _) = _timed(engine.step, flight)
            watch = self._watch
            times |= {f"stage.{stage}": watch.stage_ms, f"exit.{stage}": watch.exit_ms}
            times[f"rest.{stage}"] = whole - watch.stage_ms - watch.exit_ms
            selecting[f"select.{stage}"], _ = _timed(self._backbone.select, watch.hidden, self._half, stage + 1)
        self._passes[kind].append(times)
        self._passes["select"].append(selecting)


def _middle(passes: Sequence[_Pass]) -> _Pass:
    """The mean of each piece over the passes that took neither long nor short, the middle half of them.

    Not the median of each piece: where others use the machine too, those of short pieces add up to less than a pass.
    """
    ordered = sorted(passes, key=lambda times: sum(times.values()))
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    return {name: fmean(times[name] for times in kept) for name in kept[0]}


def staying(policy: Policy, active: Iterable[int], bank: ExitBank) -> OperatingPoint:
    """A point that asks some exits and leaves at the last.

    Args:
        policy: Its policy.
        active: The exits.
        bank: What answers at them.
    """
    length = len(bank.widths)
    parameters = {
        name: torch.full(
            policy.shape(name, num_exits=length, num_classes=bank.num_classes), policy.staying.get(name, 0.0)
        )
        for name in policy.parameters
    }
    return OperatingPoint(policy.name, parameters, tuple(sorted({*active} - {-1})), torch.ones(length))


class _Stopwatch:
    """A backend that remembers how long another took."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.stage_ms = self.exit_ms = 0.0
        self.hidden: Hidden = None

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        self.stage_ms, self.hidden = _timed(self._backend.stage, index, hidden)
        return self.hidden

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        self.exit_ms, answered = _timed(
            self._backend.exit, index, hidden, state, classifier, answer=answer, carry=carry
        )
        logits, state = answered
        return logits, state


class _Full:
    """The full network as a backend runs it, from where it begins: of a cascade, behind the networks before it."""

    def __init__(self, backbone: Backbone, bank: ExitBank, backend: Backend, batch: Hidden) -> None:
        self._backend, self._stages = backend, backbone.full_stages
        count = backbone.batch_size(batch, 0)
        self._classifier = None if bank.stacked == 1 else torch.zeros(count, dtype=torch.long)
        self._hidden, self._state = batch, (bank.initial_state(count), ())
        hidden = batch
        for stage in range(backbone.num_exits - 1):  # once: what its head may average with
            hidden = backend.stage(stage, hidden)
            _, self._state = backend.exit(stage, hidden, self._state, self._classifier, answer=False, carry=False)
            if stage + 1 == self._stages.start:
                self._hidden = hidden

    def __call__(self) -> None:
        hidden = self._hidden
        for stage in self._stages:
            hidden = self._backend.stage(stage, hidden)
        self._backend.exit(self._stages[-1], hidden, self._state, self._classifier, answer=True, carry=False)


def _timed(work: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    done = work(*arguments, **options)
    return 1000 * (time.perf_counter() - start), done
