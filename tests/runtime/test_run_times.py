"""Whole runs are timed in turns, and the fastest is found."""

import time
from dataclasses import asdict, replace

import pytest

from offramp.errors import InputError
from offramp.runtime._run_times import RunTime, fastest, make_run, parse_run, time_in_turns
from tests.cases import each, refuses

RUN = RunTime("eager", 1, 3, ms=2.0, least_ms=1.5, most_ms=3.0, full_ms=5.0)


def test_works_take_turns() -> None:
    calls: list[tuple[str, int]] = []
    done: list[int] = []
    works = {name: lambda batch, name=name: calls.append((name, batch)) for name in ("a", "b")}
    times = time_in_turns(works, 2, repeats=2, advance=lambda: done.append(1))
    assert calls[:2] == [("a", 0), ("b", 0)]  # warm-up
    assert calls[2:6] == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    assert calls[6:] == [("b", 0), ("a", 0), ("a", 1), ("b", 1)]
    assert (sum(done), [len(row) for row in times.values()]) == (4, [2, 2])


def test_times_are_sums_over_the_batches() -> None:
    works = {"short": lambda _: time.sleep(0.002), "long": lambda _: time.sleep(0.006)}
    times = time_in_turns(works, 3, repeats=2, advance=lambda: None)
    assert min(times["short"]) >= 6
    assert min(times["long"]) >= 18


def test_a_run_is_the_median_with_its_range() -> None:
    run = make_run("onnx", 8, 4, [32.0, 16.0, 80.0], [64.0, 48.0, 640.0], 16, "")
    assert run == RunTime("onnx", 8, 4, ms=2.0, least_ms=1.0, most_ms=5.0, full_ms=4.0)
    assert run.speedup == 2


def test_the_fastest() -> None:
    runs = [RUN, replace(RUN, batch_size=8, ms=1.0), replace(RUN, backend="bfloat16", ms=0.1, note="less precise")]
    assert fastest(runs) == runs[1]
    assert fastest(runs, batch_size=1) == RUN
    assert fastest(runs[2:]) is None


def test_json() -> None:
    assert parse_run(asdict(RUN)) == RUN


@each("change", [{"batch_size": 0}, {"exits": 1.5}, {"ms": 0}, {"full_ms": float("inf")}, {"ms": "1"}, {"note": None}])
def test_wrong_json(change: dict[str, object]) -> None:
    with refuses(InputError, expected="counts of at least 1"):
        parse_run({**asdict(RUN), **change})
    with pytest.raises(TypeError):
        parse_run({"backend": "eager"})
