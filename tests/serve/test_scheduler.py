"""Requests before one model: the answers are those of `predict`, the clock is one that tests hold."""

import asyncio
import threading
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

import offramp
from offramp.errors import BudgetError, BusyError, InputError
from offramp.model._answer import join_answers
from offramp.preprocessing import Preprocessing
from offramp.runtime._eager import EagerBackend
from offramp.serve import Scheduler
from offramp.serve._scheduler import _fill, _Part
from offramp.serve._shadow import Shadow
from tests.cases import each
from tests.model.examples import LINEAR, PREPROCESSING, backbone, images


@cache
def fitted() -> offramp.EarlyExitModel:
    data = images(200, seed=1), images(120, seed=2)
    return offramp.fit(backbone(), *data, preprocessing=PREPROCESSING, settings=LINEAR, progress=False)


def model() -> offramp.EarlyExitModel:
    return fitted().at(cost=0.8, policy="threshold")


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Watching(EagerBackend):
    """Computes as ever, and calls back before each stage."""

    def __init__(self, model: offramp.EarlyExitModel, before_stage: Any) -> None:
        super().__init__(model.backbone, model.pooling, model.exits_in_force)
        self._before_stage = before_stage

    def stage(self, index: int, hidden: Any) -> Any:
        self._before_stage(index, len(hidden))
        return super().stage(index, hidden)


def same(found: offramp.Answer, expected: offramp.Answer) -> None:
    torch.testing.assert_close(found.probabilities, expected.probabilities, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.relative_cost, expected.relative_cost)
    assert torch.equal(found.exits, expected.exits)
    assert found.prediction_sets.keys() == expected.prediction_sets.keys()
    for level, sets in expected.prediction_sets.items():
        assert torch.equal(found.prediction_sets[level], sets)


class TestAnswers:
    def test_are_those_of_predict(self) -> None:
        inputs = images(30, seed=3)[0]
        scheduler = Scheduler(model(), max_batch=16)
        parts = range(1), range(1, 5), range(5, 25), range(25, 30)  # the third is more than a batch takes
        tickets = [scheduler.submit(inputs[part]) for part in parts]
        while scheduler.run_batch():
            pass
        expected = model().predict(inputs)
        assert len(set(expected.exits.tolist())) > 1
        for ticket, rows in zip(tickets, parts, strict=True):
            found = ticket.result(timeout=0)
            same(found, join_answers([expected[row] for row in rows]))
            assert ticket.point is scheduler.model.point

    def test_of_one_request_alone_are_bit_for_bit(self) -> None:
        inputs = images(7, seed=3)[0]
        scheduler = Scheduler(model())
        ticket = scheduler.submit(inputs)
        assert scheduler.run_batch() == 7
        assert torch.equal(ticket.result(timeout=0).probabilities, model().predict(inputs).probabilities)

    def test_of_a_batch_are_each_at_its_own_point(self) -> None:
        given, inputs = model(), images(4, seed=3)[0]
        requests: list[dict[str, float]] = [
            {},
            {"budget": given.dial.cheapest},
            {"budget": given.dial.most_expensive},
            {"max_drop": 0.5},
        ]
        scheduler = Scheduler(given)
        tickets = [scheduler.submit(inputs, **request) for request in requests]
        assert scheduler.run_batch() == 16
        for ticket, request in zip(tickets, requests, strict=True):
            alone = given.at(max_drop=0.5, policy="threshold") if "max_drop" in request else given
            expected = alone.predict(inputs, budget=request.get("budget"))
            same(ticket.result(timeout=0), expected)
        assert tickets[3].point.guarantee is not None
        assert tickets[3].point.guarantee.at_most == 0.5

    def test_of_a_bad_sample_have_its_error_alone(self) -> None:
        given = replace(model(), preprocessing=Preprocessing())
        inputs = torch.randn(3, 3, 32, 32)
        inputs[1] = torch.nan
        scheduler = Scheduler(given)
        bad, good = scheduler.submit(inputs), scheduler.submit(inputs[:1])
        scheduler.run_batch()
        assert list(bad.result(timeout=0).errors) == [1]
        assert bad.result().labels[1] == -1
        same(good.result(timeout=0), given.predict(inputs[:1]))

    def test_of_a_batch_that_cannot_run_together_come_one_by_one(self) -> None:
        """A network that takes any size of image takes each, but not both in one batch."""
        given = replace(model(), preprocessing=Preprocessing())
        small, large, wrong = torch.randn(2, 3, 32, 32), torch.randn(1, 3, 48, 48), torch.randn(1, 5, 32, 32)
        scheduler = Scheduler(given)
        tickets = [scheduler.submit(inputs) for inputs in (small, large, wrong)]
        assert scheduler.run_batch() == 4
        for ticket, inputs in zip(tickets, (small, large), strict=False):
            same(ticket.result(timeout=0), given.predict(inputs))
        with pytest.raises(InputError, match="channels"):
            tickets[2].result(timeout=0)

    @pytest.mark.slow
    def test_that_onnx_runtime_cannot_take_say_so(self) -> None:
        given = replace(model(), preprocessing=Preprocessing())
        running = given.on("onnx", example=torch.randn(2, 3, 32, 32))
        scheduler = Scheduler(running)
        good, bad = torch.randn(2, 3, 32, 32), torch.randn(1, 5, 32, 32)
        tickets = [scheduler.submit(inputs) for inputs in (good, bad, bad, good[:1])]
        assert scheduler.run_batch() == 5
        same(tickets[0].result(timeout=0), running.predict(good))
        same(tickets[3].result(timeout=0), running.predict(good[:1]))
        for ticket in tickets[1:3]:
            with pytest.raises(InputError, match="cannot take these inputs"):
                ticket.result(timeout=0)


class TestQueue:
    def test_runs_the_earliest_deadline_first(self) -> None:
        scheduler = Scheduler(model(), max_batch=1, clock=Clock())
        inputs = images(1, seed=3)[0]
        deadlines = [None, 300, 100, None, 200]
        tickets = [scheduler.submit(inputs, deadline_ms=deadline) for deadline in deadlines]
        order = []
        while scheduler.run_batch():
            order.append(next(place for place, ticket in enumerate(tickets) if ticket.done() and place not in order))
        assert order == [2, 4, 1, 0, 3]

    def test_refuses_what_it_cannot_hold(self) -> None:
        scheduler = Scheduler(model(), max_batch=2, max_queue=4)
        with pytest.raises(InputError, match="at most 4, the size of the queue, got 5"):  # it would never fit
            scheduler.submit(images(5, seed=3)[0])
        inputs = images(3, seed=3)[0]
        first = scheduler.submit(inputs)
        with pytest.raises(BusyError, match="the queue is full"):
            scheduler.submit(inputs[:2])
        second = scheduler.submit(inputs[:1])
        assert len(scheduler) == 4
        while scheduler.run_batch():
            pass
        assert len(scheduler) == 0
        assert first.done()
        assert second.done()

    def test_refuses_more_bytes_than_it_may_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        image_bytes = 3 * 32 * 32 * 4  # prepared as float32
        monkeypatch.setattr("offramp.serve._scheduler.MOST_BYTES", 4 * image_bytes)
        scheduler, inputs = Scheduler(model(), max_batch=2), images(5, seed=3)[0]
        alone = scheduler.submit(inputs)  # larger than the limit, before an empty queue
        with pytest.raises(BusyError, match=f"got {5 * image_bytes:,}"):
            scheduler.submit(inputs[:1])
        alone.cancel()
        first, second = scheduler.submit(inputs[:3]), scheduler.submit(inputs[:1])
        with pytest.raises(BusyError, match="bytes"):
            scheduler.submit(inputs[:1])
        while scheduler.run_batch():
            pass
        same(first.result(timeout=0), model().predict(inputs[:3]))
        same(second.result(timeout=0), model().predict(inputs[:1]))
        assert scheduler._queued_bytes == 0

    def test_keeps_its_order_when_a_request_is_cancelled(self) -> None:
        """The places of a cancelled request are free at once; the others run by their deadlines."""
        scheduler = Scheduler(model(), max_batch=1, max_queue=6, clock=Clock())
        inputs = images(2, seed=3)[0]
        deadlines = [500, 100, 400, 200, 300]
        tickets = [scheduler.submit(inputs[:1], deadline_ms=deadline) for deadline in deadlines]
        tickets[1].cancel()
        tickets[2].cancel()
        tickets.append(scheduler.submit(inputs, deadline_ms=50))
        tickets.append(scheduler.submit(inputs[:1], deadline_ms=600))
        order: list[int] = []
        while scheduler.run_batch():
            order += [at for at, ticket in enumerate(tickets) if ticket.done() and at not in (1, 2, *order)]
        assert order == [5, 3, 4, 0, 6]
        assert len(scheduler) == 0

    def test_drops_requests_that_expired_in_it(self) -> None:
        clock = Clock()
        stages: list[int] = []
        given = model()
        given = replace(given, backend=Watching(given, lambda index, count: stages.append(count)))
        scheduler = Scheduler(given, clock=clock)
        inputs = images(2, seed=3)[0]
        late, other = scheduler.submit(inputs, deadline_ms=50), scheduler.submit(inputs[:1], deadline_ms=60)
        clock.now += 0.055
        assert scheduler.run_batch() == 1
        with pytest.raises(BusyError, match="the deadline passed"):
            late.result(timeout=0)
        assert other.result(timeout=0).labels.shape == (1,)
        assert other.queued_s == pytest.approx(0.055)
        assert max(stages) == 1

    def test_counts_the_time_before_it(self) -> None:
        clock = Clock()
        scheduler = Scheduler(model(), clock=clock)
        inputs = images(1, seed=3)[0]
        with pytest.raises(BusyError, match=r"at least 120 ms for so busy a server, got 50 ms"):
            scheduler.submit(inputs, deadline_ms=50, waited_s=0.06)
        ticket = scheduler.submit(inputs, deadline_ms=100, waited_s=0.04)
        clock.now += 0.061
        assert scheduler.run_batch() == 0
        with pytest.raises(BusyError, match="the deadline passed"):
            ticket.result(timeout=0)
        ticket = scheduler.submit(inputs, waited_s=0.04)
        assert scheduler.run_batch() == 1
        assert ticket.queued_s == pytest.approx(0.04)

    def test_refuses_requests_that_it_cannot_answer_in_time(self) -> None:
        clock = Clock()
        given = model()
        slow = Watching(given, lambda index, count: setattr(clock, "now", clock.now + 0.01 * (index == 0)))
        scheduler = Scheduler(replace(given, backend=slow), clock=clock, max_batch=4)
        inputs = images(4, seed=3)[0]
        for _ in range(50):
            scheduler.submit(inputs, deadline_ms=1000)
            assert scheduler.run_batch() == 4
        scheduler.submit(inputs)
        for _ in range(4):  # 2.5 ms per sample: the last of them after 40 ms
            scheduler.submit(inputs, deadline_ms=90)
        with pytest.raises(BusyError, match=r"expected at least 100 ms for so busy a server, got 90 ms"):
            scheduler.submit(inputs, deadline_ms=90)
        with pytest.raises(BusyError, match=r"expected at least 32 ms for so busy a server, got 30 ms"):
            scheduler.submit(inputs[:2], deadline_ms=30, waited_s=0.016)
        scheduler.submit(inputs[:2], deadline_ms=30)  # before the others
        scheduler.submit(inputs)

    def test_takes_requests_again_after_a_slow_batch(self) -> None:
        clock = Clock()
        given = model()
        pauses = iter([10.0])
        slow = Watching(given, lambda index, count: setattr(clock, "now", clock.now + next(pauses, 0.0)))
        scheduler = Scheduler(replace(given, backend=slow), clock=clock)
        inputs = images(1, seed=3)[0]
        scheduler.submit(inputs)
        scheduler.run_batch()
        for _ in range(50):
            scheduler.submit(inputs, deadline_ms=100)
            scheduler.run_batch()
        for _ in range(4):
            scheduler.submit(inputs, deadline_ms=100)

    def test_drops_requests_that_were_cancelled(self) -> None:
        scheduler = Scheduler(model())
        ticket = scheduler.submit(images(2, seed=3)[0])
        assert ticket.cancel()
        assert len(scheduler) == 0
        assert scheduler.run_batch() == 0
        with pytest.raises(CancelledError):
            ticket.result(timeout=0)

    @each("how", ["cancelled", "expired"])
    def test_drops_samples_between_stages(self, how: str) -> None:
        """Half of the batch is withdrawn while the first stage runs: the second runs without it."""
        clock, counts = Clock(), []
        given = model()

        def before_stage(index: int, count: int) -> None:
            counts.append(count)
            if index == 0:
                tickets[0].cancel() if how == "cancelled" else setattr(clock, "now", clock.now + 1)

        never = replace(given.point, parameters={"threshold": torch.full_like(given.point.parameters["threshold"], 2)})
        given = replace(given, chosen=never)
        given = replace(given, backend=Watching(given, before_stage))
        scheduler = Scheduler(given, clock=clock)
        inputs = images(6, seed=3)[0]
        tickets = [scheduler.submit(inputs[:4], deadline_ms=500), scheduler.submit(inputs[4:])]
        assert scheduler.run_batch() == 6
        assert counts[0] == 6
        assert set(counts[given.point.active[0] + 1 :]) == {2}
        same(tickets[1].result(timeout=0), replace(given, backend=None).predict(inputs[4:]))
        with pytest.raises(CancelledError if how == "cancelled" else BusyError):
            tickets[0].result(timeout=0)

    @each(
        ("request_", "error"),
        [
            ({"budget": 0.5, "max_drop": 0.1}, InputError),
            ({"budget": 1e-6}, BudgetError),
            ({"budget": float("nan")}, InputError),
            ({"max_drop": 1e-9}, BudgetError),
            ({"deadline_ms": 0}, InputError),
            ({"deadline_ms": float("nan")}, InputError),
        ],
    )
    def test_refuses_requests_at_once(self, request_: dict[str, float], error: type[Exception]) -> None:
        scheduler = Scheduler(model())
        with pytest.raises(error):
            scheduler.submit(images(1, seed=3)[0], **request_)
        with pytest.raises(InputError):
            scheduler.submit(images(1, seed=3)[0][:0])
        assert len(scheduler) == 0


class TestThread:
    def test_answers_many_callers(self) -> None:
        inputs = images(60, seed=3)[0]
        expected = model().predict(inputs)
        found: dict[int, offramp.Answer] = {}

        def call(rows: range) -> None:
            for row in rows:
                found[row] = scheduler.submit(inputs[row : row + 1]).result(timeout=60)

        with Scheduler(model(), max_batch=8) as scheduler:
            callers = [threading.Thread(target=call, args=(range(start, 60, 6),)) for start in range(6)]
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
        for row in range(60):
            same(found[row], expected[row])

    def test_can_be_awaited(self) -> None:
        inputs = images(4, seed=3)[0]

        async def ask() -> list[offramp.Answer]:
            return list(await asyncio.gather(*(scheduler.submit(inputs[row : row + 1]) for row in range(4))))

        with Scheduler(model()) as scheduler:
            answers = asyncio.run(ask())
        assert [int(answer.labels) for answer in answers] == model().predict(inputs).labels.tolist()

    def test_survives_samples_that_cannot_be_kept_for_the_full_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_arguments: object) -> None:
            raise MemoryError

        monkeypatch.setattr(Shadow, "add", fail)
        inputs = images(1, seed=3)[0]
        with Scheduler(model(), shadow=1.0) as scheduler:
            for _ in range(2):
                scheduler.submit(inputs).result(timeout=60)
            assert scheduler.is_running
        assert not scheduler.is_running

    def test_closing_answers_what_was_accepted(self) -> None:
        inputs = images(40, seed=3)[0]
        with Scheduler(model(), max_batch=4) as scheduler:
            tickets = [scheduler.submit(inputs[row : row + 1]) for row in range(40)]
        assert all(ticket.done() for ticket in tickets)
        with pytest.raises(BusyError, match="closed"):
            scheduler.submit(inputs)


class TestPadding:
    @staticmethod
    def parts(*sizes: float) -> list[_Part]:
        request: Any = None
        return [_Part(request, [0], None, torch.tensor([size])) for size in sizes]

    @pytest.mark.parametrize(
        ("waiting", "together"),
        [
            ((10, 40, 11, 9, 12), [10, 11, 9, 12]),
            ((40, 10, 11, 9, 12), [40]),
            ((40, 10, 39, 11, 41), [40, 39, 41]),
            ((5,), [5]),
            ((1, 1, 1, 1, 1, 1), [1, 1, 1, 1, 1]),
        ],
    )
    def test_is_kept_low_by_running_similar_sizes_together(self, waiting: Any, together: Any) -> None:
        assert [part.size for part in _fill(self.parts(*waiting), most=5)] == together

    def test_does_not_keep_anybody_waiting(self) -> None:
        waiting, runs = self.parts(50, 10, 11, 90, 10, 52), []
        while waiting:
            batch = _fill(waiting, most=64)
            assert batch[0] is waiting[0]
            runs.append([part.size for part in batch])
            waiting = [part for part in waiting if part not in batch]
        assert runs == [[50, 52], [10, 10, 11], [90]]
