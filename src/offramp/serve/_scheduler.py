"""Requests of many callers, answered together in batches, each at its own operating point and by its own deadline."""

import asyncio
import itertools
import logging
import math
import threading
import time
from bisect import insort
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone._hidden import Hidden
from offramp.errors import BudgetError, BusyError, InputError
from offramp.model._answer import Answer, join_answers
from offramp.model._model import EarlyExitModel
from offramp.policy import OperatingPoint
from offramp.serve._observer import Observer
from offramp.serve._served import ServedModel, check_replaces
from offramp.serve._shadow import Shadow

__all__ = ["Scheduler", "Ticket"]

logger = logging.getLogger("offramp.serve")

MOST_BYTES = 2**30
"""Bytes of prepared inputs in the queue: a number of samples alone may be any number of bytes."""

SPARE = 2.0
"""Factor by which answers may take longer than expected: batches are made of similar sizes rather than in order, and
the machine may have other work."""

RECENT = 0.2
"""Weight of the latest batch in the moving average of the time per sample."""

MOST_PADDING = 0.25
"""Padding of a batch, as a share of its samples' sizes. Without it, batches of texts take up to twice the time."""


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
        max_queue: Most samples in the queue; requests beyond are refused, and so are those beyond 1 GiB of prepared
            inputs.
        overload_drop: Under overload, the operating point of requests that name none is lowered, as far as this
            `max_drop` is guaranteed; it stays where it is if left out.
        slow_ms: Milliseconds in the queue from which on there is overload.
        shadow: Share of requests whose answers are compared with those of the full network, for the observer. It runs
            after the answer, while the queue is empty.
        observer: A listener, such as the metrics of a server.
        clock: The clock of deadlines, in seconds.

    Raises:
        BudgetError: If `overload_drop` cannot be guaranteed, or by no point that is cheaper than the model's own.
    """

    def __init__(
        self,
        model: EarlyExitModel,
        *,
        max_batch: int = 64,
        max_queue: int = 512,
        overload_drop: float | None = None,
        slow_ms: float = 100.0,
        shadow: float = 0.0,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 1 <= max_batch <= max_queue:
            raise InputError(expected="1 <= max_batch <= max_queue", got=f"{max_batch} and {max_queue}")
        self._served = ServedModel(model, overload_drop=overload_drop, slow_ms=slow_ms)
        self._overload_drop, self._slow_ms = overload_drop, slow_ms
        self.max_batch, self.max_queue = max_batch, max_queue
        self._shadow, self._observer = Shadow(shadow, max_samples=max_batch), observer
        self._clock = clock
        self._queue: list[tuple[float, int, _Part]] = []
        self._queued = self._queued_bytes = self._running = 0
        self._sample_s = 0.0
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def model(self) -> EarlyExitModel:
        """The model that answers new requests."""
        return self._served.model

    @property
    def point(self) -> OperatingPoint:
        """The operating point of requests that name none, as of the last batch."""
        return self._served.point

    @property
    def level(self) -> int:
        """Steps by which overload has lowered the point, 0 without overload."""
        return self._served.control.level

    @property
    def most_requests(self) -> int:
        """Requests that may fill the queue and a batch; more at once cannot be answered."""
        return self.max_queue + self.max_batch

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
        waited_s: float = 0.0,
    ) -> Ticket:
        """Put a request into the queue. The inputs are prepared in the caller's thread.

        Args:
            inputs: Raw inputs, as `EarlyExitModel.predict` takes them.
            budget: Spend at most this share of the full network's cost, as for `predict`.
            max_drop: Lose at most this against the full network, guaranteed as by `EarlyExitModel.at`.
            deadline_ms: Milliseconds after which the answer is of no use.
            waited_s: Seconds that the request has waited already, such as for a busy server. They count for its
                deadline, and tell of overload.

        Raises:
            BusyError: If the queue is full, the deadline has passed or cannot be met, or the scheduler is closed.
            BudgetError: If no operating point meets the request.
            InputError: If the network cannot take the inputs.
        """
        self._check_room(1)  # before the work of preparing inputs
        served = self._served  # once, as `replace` may come at any time
        row, point = served.pick_point(budget, max_drop)
        if deadline_ms is not None and not deadline_ms > 0:
            raise InputError("deadline_ms", expected="milliseconds above 0", got=deadline_ms)
        now = self._clock() - waited_s
        _check_time(waited_s, deadline_ms)
        with torch.inference_mode():
            hidden, sizes = served.model.prepare(inputs)
        if not len(sizes):
            raise InputError("inputs", expected="at least one", got="none")
        count, ticket = len(sizes), Ticket(point)
        deadline = math.inf if deadline_ms is None else now + deadline_ms / 1000
        request = _Request(served, ticket, now, deadline, count, row, self._shadow.draw())
        parts = []
        for start in range(0, count, self.max_batch):
            samples = range(start, min(start + self.max_batch, count))
            own = hidden if len(samples) == count else served.model.backbone.select(hidden, torch.tensor(samples), 0)
            parts.append(_Part(request, samples, own, sizes[start : samples.stop]))
        with self._changed:
            num_bytes = sum(part.num_bytes for part in parts)
            self._check_room(count, num_bytes)
            before = self._running + sum(len(part) for other, _, part in self._queue if other <= deadline)
            if before:  # else the time of a sample may be wrong for ever, after one slow batch
                _check_time(self._clock() - now + (before + count) * self._sample_s, deadline_ms)
            for part in parts:
                insort(self._queue, (request.deadline, next(self._numbers), part))
            self._queued += count
            self._queued_bytes += num_bytes
            self._changed.notify()
        ticket.add_done_callback(self._withdraw)
        return ticket

    def run_batch(self) -> int:
        """Answer one batch of the queue, and return the number of its samples; 0 if the queue is empty."""
        with self._changed:
            parts = self._take()
            count = sum(map(len, parts))
            self._running += count
        if not parts:
            return 0
        begin = self._clock()
        try:
            self._answer(parts, begin)
        finally:
            with self._changed:
                self._running -= count
                self._sample_s += RECENT * ((self._clock() - begin) / count - self._sample_s)
        return count

    def _answer(self, parts: Sequence["_Part"], now: float) -> None:
        """Answer a batch, and keep some of its samples for the full network."""
        served = parts[0].request.served
        row = served.control.update(now - min(part.request.submitted for part in parts))
        for part in parts:
            part.request.start(now, row, served.levels[row])
        if self._observer is not None:
            self._observer.observe_batch(sum(map(len, parts)))
        try:
            self._run(parts)
        except Exception as error:  # because of some sample: the others are answered all the same
            self._run_halves(parts, error)
        try:
            for part in parts:
                if part.request.shadowed and all(sample in part.request.answers for sample in part.samples):
                    labels = torch.cat([part.request.answers[sample].labels for sample in part.samples])
                    self._shadow.add(served.model, part.hidden, labels)
        except Exception as error:  # such as too little memory; nobody waits for it
            logger.warning("samples were not kept for the full network: %s", type(error).__name__)

    def run_shadow(self) -> int:
        """Compare one answer with that of the full network, and return 1; 0 if none waits for it."""
        if not len(self._shadow):
            return 0
        try:
            disagrees = self._shadow.compare_next()
        except Exception as error:  # nobody waits for it; the message may quote inputs
            logger.warning("a comparison with the full network failed: %s", type(error).__name__)
            return 1
        if self._observer is not None:
            self._observer.observe_shadow(disagrees)
        return 1

    def replace(self, model: EarlyExitModel) -> None:
        """Answer new requests by another model; those in the queue are answered by the model that prepared them.

        Args:
            model: The model, at the operating point of requests that name none; let it predict once before.

        Raises:
            InputError: If it has other classes, takes other inputs, or lacks prediction sets of the current model.
            BudgetError: As for the scheduler itself.
        """
        check_replaces(model, self.model)
        self._served = ServedModel(model, overload_drop=self._overload_drop, slow_ms=self._slow_ms)
        self._sample_s = 0.0

    def move_point(self, *, budget: float | None = None, max_drop: float | None = None) -> None:
        """Answer new requests that name no operating point at another one.

        Args:
            budget: As for `submit`.
            max_drop: As for `submit`.
        """
        served = self._served
        model = replace(served.model, chosen=served.pick_point(budget, max_drop)[1])
        try:
            self.replace(model)
        except BudgetError:  # no cheaper point has the guarantee of overload
            self._served = ServedModel(model, overload_drop=None, slow_ms=self._slow_ms)

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
                self._changed.wait_for(lambda: self._queue or self._closed or len(self._shadow))
                if self._closed and not self._queue:
                    return
            if not self.run_batch():
                self.run_shadow()

    def _count(self) -> None:
        """Count what is in the queue."""
        self._queued = sum(len(part) for *_, part in self._queue)
        self._queued_bytes = sum(part.num_bytes for *_, part in self._queue)

    def _withdraw(self, ticket: Future[Answer]) -> None:
        """Give back the places of a request that has ended, if it was cancelled."""
        if not ticket.cancelled():
            return
        with self._changed:
            self._queue = [entry for entry in self._queue if entry[2].request.ticket is not ticket]
            self._count()

    def _check_room(self, count: int, num_bytes: int = 0) -> None:
        """Refuse samples that the queue cannot take; an empty queue takes any number of bytes."""
        if self._closed:
            raise BusyError("the scheduler is closed", hint="send the request to another one")
        if count > self.max_queue:
            raise InputError("inputs", expected=f"at most {self.max_queue:,}, the size of the queue", got=f"{count:,}")
        if self._queued + count > self.max_queue:
            raise BusyError(
                "the queue is full",
                expected=f"at most {self.max_queue:,} samples in it",
                got=f"{self._queued + count:,}, {count:,} of them new",
                hint="try again later",
            )
        if self._queued_bytes and self._queued_bytes + num_bytes > MOST_BYTES:
            raise BusyError(
                "the queue is full",
                expected=f"at most {MOST_BYTES:,} bytes in it",
                got=f"{self._queued_bytes + num_bytes:,}",
                hint="try again later",
            )

    def _take(self) -> list["_Part"]:
        """Take the samples of the next batch from the queue; drop those that nobody waits for.

        It has the most urgent part, and of the others of the same model those that are nearest to it in size.
        """
        now = self._clock()
        self._queue = [entry for entry in self._queue if entry[2].request.is_wanted(now)]
        parts = [part for *_, part in self._queue]
        batch = _fill([part for part in parts if part.request.served is parts[0].request.served], self.max_batch)
        taken = set(map(id, batch))
        self._queue = [entry for entry in self._queue if id(entry[2]) not in taken]
        self._count()
        return batch

    def _run(self, parts: Sequence["_Part"]) -> None:
        """Run the samples of some parts together, until all have left or been dropped."""
        model = parts[0].request.served.model
        engine, backbone = model.engine, model.backbone
        hidden = parts[0].hidden if len(parts) == 1 else backbone.concatenate([part.hidden for part in parts], 0)
        rows = torch.tensor([part.request.row for part in parts for _ in part.samples])
        samples = [(part.request, sample) for part in parts for sample in part.samples]
        sizes = torch.cat([part.sizes for part in parts])
        batch = engine.start(hidden, point=rows)
        while len(batch):
            depth, begin, answer = batch.depth, self._clock(), None
            batch, finished = engine.advance(batch)
            end = self._clock()
            if finished is not None:
                exits = torch.full(finished.rows.shape, finished.exit)
                left = finished.rows.cpu()
                answer = model.answer(finished.probabilities, exits, sizes[left], rows[left])
                for place, row in enumerate(left.tolist()):
                    request, sample = samples[row]
                    request.add(sample, answer[place])
            if self._observer is not None:
                stage = batch.depth - 1 if batch.depth > depth else None
                self._observer.observe_stages(stage, end - begin, answer)
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

    served: ServedModel
    """The model that prepared it, and that answers it."""
    ticket: Ticket
    submitted: float
    deadline: float
    """Time at which the answer is of no use; infinite without a deadline."""
    count: int
    """Number of samples."""
    row: int | None
    """Row of its operating point in the engine; None until it starts, if the load decides."""
    shadowed: bool
    """True if its answer is compared with that of the full network."""
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
            self.fail(_describe_delay(self.deadline - self.submitted, now - self.submitted))
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


@dataclass(frozen=True, eq=False)
class _Part:
    """Samples of one request that run together."""

    request: _Request
    samples: Sequence[int]
    """Their indices in the request."""
    hidden: Hidden
    """Their prepared inputs."""
    sizes: Tensor

    @cached_property
    def size(self) -> float:
        """Size of the largest sample; the others are padded to it."""
        return float(self.sizes.max())

    def __len__(self) -> int:
        return len(self.samples)

    @cached_property
    def num_bytes(self) -> int:
        """Bytes of the prepared inputs."""
        return sum(leaf.nbytes for leaf in pytree.tree_leaves(self.hidden) if isinstance(leaf, Tensor))


def _fill(waiting: Sequence[_Part], most: int) -> list[_Part]:
    """Choose parts that run together: the first, and others of a similar size.

    Args:
        waiting: Parts in the queue, the most urgent first.
        most: Number of samples, at most.
    """
    batch: list[_Part] = []
    count, unpadded, largest = 0, 0.0, 0.0
    for part in sorted(waiting, key=lambda part: abs(part.size - waiting[0].size)):
        count += len(part)
        unpadded += len(part) * part.size
        largest = max(largest, part.size)
        if count > most or count * largest > (1 + MOST_PADDING) * unpadded:
            break
        batch.append(part)
    return batch


def _check_time(expected_s: float, deadline_ms: float | None) -> None:
    """Refuse a request whose answer may come too late.

    Args:
        expected_s: Seconds until the answer, if samples take as long as recent ones did.
        deadline_ms: Its deadline; None without one.
    """
    if deadline_ms is not None and 1000 * SPARE * expected_s > deadline_ms:
        raise BusyError(
            "the deadline",
            expected=f"at least {1000 * SPARE * expected_s:.4g} ms for so busy a server",
            got=f"{deadline_ms:.4g} ms",
            hint="try again later, with a lower budget or a later deadline",
        )


def _describe_delay(expected_s: float, waited_s: float) -> BusyError:
    """Return the error of a request whose deadline has passed."""
    return BusyError(
        "the deadline passed before the answer",
        expected=f"an answer within {1000 * expected_s:.4g} ms",
        got=f"none after {1000 * waited_s:.4g} ms",
        hint="try again later, with a lower budget or a later deadline",
    )
