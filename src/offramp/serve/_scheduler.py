"""Requests of many callers, answered together in batches, each at its own operating point and by its own deadline."""

import asyncio
import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from offramp.backbone._hidden import Hidden
from offramp.errors import BudgetError, BusyError, InputError
from offramp.model._answer import Answer, join_answers
from offramp.model._guarantees import Shortfall, list_guaranteed
from offramp.model._model import EarlyExitModel
from offramp.policy import OperatingPoint
from offramp.runtime._dial import same_decisions
from offramp.serve._overload import OverloadControl, choose_levels

__all__ = ["Scheduler", "Ticket"]

MOST_GUARANTEES = 64
"""Values of `max_drop` whose points are kept: anybody may ask for ever new ones."""


class Ticket(Future[Answer]):
    """The answer to a request, once it is there: `ticket.result()` waits for it, so does `await ticket`.

    `ticket.cancel()` withdraws the request. Its samples are then dropped before the next stage.

    Attributes:
        point: The operating point of its samples.
        queued_s: Seconds from `submit` to the first stage; None while it is in the queue.
    """

    def __init__(self, point: OperatingPoint) -> None:
        super().__init__()
        self.point = point
        self.queued_s: float | None = None

    def __await__(self) -> Generator[Any, None, Answer]:
        return asyncio.wrap_future(self).__await__()


class Scheduler:
    """A queue before a model: requests are answered in batches, earliest deadline first.

    A sample is answered as soon as it leaves the network. Those of cancelled requests and of requests whose deadline
    has passed are dropped before the next stage. `with` starts a thread that runs batches, and on leaving answers what
    is in the queue; without it, call `run_batch`.

    Args:
        model: The model, at the operating point of requests that name none.
        max_batch: Most samples that run together.
        max_queue: Most samples in the queue; requests beyond are refused.
        overload_drop: Under overload, the operating point of requests that name none is lowered, as far as this
            `max_drop` is guaranteed; it stays where it is if left out.
        slow_ms: Milliseconds in the queue from which on there is overload.
        clock: The clock of deadlines, in seconds.

    Raises:
        BudgetError: If `overload_drop` cannot be guaranteed, or by no point that is cheaper than the model's own.
    """

    def __init__(
        self,
        model: EarlyExitModel,
        *,
        max_batch: int = 64,
        max_queue: int = 1024,
        overload_drop: float | None = None,
        slow_ms: float = 100.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 1 <= max_batch <= max_queue:
            raise InputError(expected="1 <= max_batch <= max_queue", got=f"{max_batch} and {max_queue}")
        self.model = model
        self.max_batch, self.max_queue = max_batch, max_queue
        self._clock = clock
        self._queue: list[tuple[float, int, _Part]] = []
        self._queued = 0
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._guaranteed: dict[float, tuple[int, OperatingPoint]] = {}
        self._levels = {0: model.point}
        if overload_drop is not None:
            self._levels |= self._overload_levels(overload_drop)
        self._control = OverloadControl(list(self._levels), slow_s=slow_ms / 1000)

    @property
    def point(self) -> OperatingPoint:
        """The operating point of requests that name none, as of the last batch."""
        return list(self._levels.values())[self._control.level]

    @property
    def is_running(self) -> bool:
        """True while the thread that runs batches is alive."""
        return self._thread is not None and self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run_until_closed, name="offramp-scheduler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._queued

    def submit(
        self,
        inputs: Any,
        *,
        budget: float | None = None,
        max_drop: float | None = None,
        deadline_ms: float | None = None,
    ) -> Ticket:
        """Put a request into the queue. The inputs are prepared in the caller's thread.

        Args:
            inputs: Raw inputs, as `EarlyExitModel.predict` takes them.
            budget: Spend at most this share of the full network's cost, as for `predict`.
            max_drop: Lose at most this against the full network, guaranteed as by `EarlyExitModel.at`.
            deadline_ms: Milliseconds from now after which the answer is of no use.

        Raises:
            BusyError: If the queue is full, or the scheduler is closed.
            BudgetError: If no operating point meets the request.
            InputError: If the network cannot take the inputs.
        """
        self._check_room(1)  # before the work of preparing inputs
        row, point = self._pick_point(budget, max_drop)
        if deadline_ms is not None and not deadline_ms > 0:
            raise InputError("deadline_ms", expected="milliseconds above 0", got=deadline_ms)
        now = self._clock()
        with torch.inference_mode():
            hidden, sizes = self.model.prepare(inputs)
        if not len(sizes):
            raise InputError("inputs", expected="at least one", got="none")
        count, ticket = len(sizes), Ticket(point)
        request = _Request(ticket, now, math.inf if deadline_ms is None else now + deadline_ms / 1000, count, row)
        parts = []
        for samples in torch.split(torch.arange(count), self.max_batch):
            own = hidden if len(samples) == count else self.model.backbone.select(hidden, samples, 0)
            parts.append(_Part(request, samples.tolist(), own, sizes[samples]))
        with self._changed:
            self._check_room(count)
            for part in parts:
                heapq.heappush(self._queue, (request.deadline, next(self._numbers), part))
            self._queued += count
            self._changed.notify()
        return ticket

    def run_batch(self) -> int:
        """Answer one batch of the queue, and return the number of its samples; 0 if the queue is empty."""
        with self._changed:
            parts = self._take()
        if not parts:
            return 0
        now = self._clock()
        row = self._control.update(now - min(part.request.submitted for part in parts))
        for part in parts:
            part.request.start(now, row, self._levels[row])
        try:
            self._run(parts)
        except Exception as error:  # because of some sample: the others are answered all the same
            self._run_halves(parts, error)
        return sum(map(len, parts))

    def close(self) -> None:
        """Refuse new requests, and answer those in the queue."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        while self.run_batch():
            pass

    def _run_until_closed(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
            self.run_batch()

    def _check_room(self, count: int) -> None:
        """Refuse samples that the queue cannot take."""
        if self._closed:
            raise BusyError("the scheduler is closed", hint="send the request to another one")
        if self._queued + count > self.max_queue:
            raise BusyError(
                "the queue is full",
                expected=f"at most {self.max_queue:,} samples in it",
                got=f"{count:,} more than the {self._queued:,} there",
                hint="try again later",
            )

    def _pick_point(self, budget: float | None, max_drop: float | None) -> tuple[int | None, OperatingPoint]:
        """Return the operating point for a request, and its row in the engine; None if the load decides."""
        if budget is not None and max_drop is not None:
            raise InputError(expected="budget or max_drop", got="both", hint="leave one out")
        if max_drop is not None:
            return self._pick_guaranteed(max_drop)
        rows = self.model.pick_rows(budget, 1)
        return (None, self.model.point) if rows is None else (int(rows), self.model.engine.points.points[int(rows)])

    def _pick_guaranteed(self, max_drop: float) -> tuple[int, OperatingPoint]:
        """Return the cheapest point with a guarantee, of the confidence and loss that the model was chosen for."""
        known = self._guaranteed.get(max_drop)
        if known is None:
            asked, policy = self.model.request, self.model.point.policy
            point = self.model.at(
                max_drop=max_drop, confidence=asked.confidence, loss=asked.loss, bound=asked.bound, policy=policy
            ).point
            row = self._find_row(point)
            if row is None or point.guarantee is None:
                raise BudgetError(
                    f"max_drop {max_drop:g} cannot be guaranteed by the classifiers and the backend that run",
                    hint="name it when the model is chosen: model.at(max_drop=...)",
                )
            if len(self._guaranteed) >= MOST_GUARANTEES:
                self._guaranteed.clear()
            known = self._guaranteed[max_drop] = row, point
        return known

    def _find_row(self, point: OperatingPoint) -> int | None:
        """Return the row of a point in the engine, if it is there."""
        points = self.model.engine.points.points
        return next((row for row, other in enumerate(points) if same_decisions(point, other)), None)

    def _overload_levels(self, max_drop: float) -> dict[int, OperatingPoint]:
        """Return the points that an overload may lower the model to, by their rows in the engine."""
        _, cheapest = self._pick_guaranteed(max_drop)
        given = cheapest.guarantee
        assert given is not None
        guaranteed = list_guaranteed(
            self.model.points[cheapest.policy],
            max_drop=max_drop,
            confidence=given.confidence,
            loss=given.loss,
            bound=self.model.request.bound or "ltt",
        )
        assert not isinstance(guaranteed, Shortfall)  # `cheapest` is one of them
        levels = choose_levels(self.model.point, guaranteed)
        rows = {row: point for point in levels if (row := self._find_row(point)) is not None}
        if not rows:
            raise BudgetError(
                expected=f"a point that is cheaper than {self.model.point.tune_metrics['cost']:.4f}, the model's own",
                got=f"none for which a drop of {max_drop:g} is guaranteed",
                hint="allow more under overload, or leave it out",
            )
        return rows

    def _take(self) -> list["_Part"]:
        """Take the samples of the next batch from the queue; drop those that nobody waits for."""
        now, parts, count = self._clock(), [], 0
        while self._queue:
            part = self._queue[0][2]
            if part.request.is_wanted(now):
                if count + len(part) > self.max_batch:
                    break
                parts.append(part)
                count += len(part)
            heapq.heappop(self._queue)
            self._queued -= len(part)
        return parts

    def _run(self, parts: Sequence["_Part"]) -> None:
        """Run the samples of some parts together, until all have left or been dropped."""
        engine, backbone = self.model.engine, self.model.backbone
        hidden = parts[0].hidden if len(parts) == 1 else backbone.concatenate([part.hidden for part in parts], 0)
        rows = torch.tensor([part.request.row for part in parts for _ in part.samples])
        samples = [(part.request, sample) for part in parts for sample in part.samples]
        sizes = torch.cat([part.sizes for part in parts])
        batch = engine.start(hidden, point=rows)
        while len(batch):
            batch, finished = engine.advance(batch)
            if finished is not None:
                exits = torch.full(finished.rows.shape, finished.exit)
                left = finished.rows.cpu()
                answer = self.model.answer(finished.probabilities, exits, sizes[left], rows[left])
                for place, row in enumerate(left.tolist()):
                    request, sample = samples[row]
                    request.add(sample, answer[place])
            now = self._clock()
            flags = [samples[row][0].is_wanted(now) for row in batch.rows.tolist()]
            if all(flags):
                continue
            wanted = torch.tensor(flags)
            riders = torch.zeros_like(wanted) if batch.finished is None else batch.finished.cpu()
            if not bool((wanted | riders).all()):
                batch = engine.keep(batch, (wanted & ~riders).nonzero().squeeze(1).to(batch.rows.device))

    def _run_halves(self, parts: Sequence["_Part"], error: Exception) -> None:
        """Run the halves of a batch that failed, until only requests fail that fail by themselves."""
        if len(parts) == 1:
            parts[0].request.fail(error)
            return
        for half in (parts[: len(parts) // 2], parts[len(parts) // 2 :]):
            waiting = [part for part in half if not part.request.ticket.done()]
            try:
                if waiting:
                    self._run(waiting)
            except Exception as reason:
                self._run_halves(waiting, reason)


@dataclass(eq=False)
class _Request:
    """A request on its way."""

    ticket: Ticket
    submitted: float
    deadline: float
    """Time at which the answer is of no use; infinite without a deadline."""
    count: int
    """Number of samples."""
    row: int | None
    """Row of its operating point in the engine; None until it starts, if the load decides."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """Answers to the samples that have left."""

    def start(self, now: float, row: int, point: OperatingPoint) -> None:
        """Note the time, and take the operating point in force if the request names none."""
        if self.row is None:
            self.row, self.ticket.point = row, point
        if self.ticket.queued_s is None:
            self.ticket.queued_s = now - self.submitted

    def is_wanted(self, now: float) -> bool:
        """Tell if somebody waits for the answer; fail the request if its deadline has passed."""
        if now >= self.deadline and not self.ticket.done():
            self.fail(
                BusyError(
                    "the deadline passed before the answer",
                    expected=f"an answer within {1000 * (self.deadline - self.submitted):.4g} ms",
                    got=f"none after {1000 * (now - self.submitted):.4g} ms",
                    hint="try again later, with a lower budget or a later deadline",
                )
            )
        return not self.ticket.done()

    def add(self, sample: int, answer: Answer) -> None:
        """Keep the answer to one sample; with the last one the request is answered."""
        self.answers[sample] = answer
        if len(self.answers) == self.count:
            ordered = [self.answers[index] for index in range(self.count)]
            with suppress(InvalidStateError):  # cancelled meanwhile
                self.ticket.set_result(join_answers(ordered))

    def fail(self, error: Exception) -> None:
        """End the request with an error."""
        with suppress(InvalidStateError):
            self.ticket.set_exception(error)


@dataclass(frozen=True)
class _Part:
    """Samples of one request that run together."""

    request: _Request
    samples: Sequence[int]
    """Their indices in the request."""
    hidden: Hidden
    """Their prepared inputs."""
    sizes: Tensor

    def __len__(self) -> int:
        return len(self.samples)
