"""The engine answers as the simulator says, however samples are batched, mixed, joined or left riding along."""

from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor

import offramp
from offramp.errors import InputError
from offramp.frontier import Frontier, outcomes, simulate
from offramp.policy import OperatingPoint
from offramp.runtime import Compaction, Engine
from tests.frontier.chain_examples import FEW, pair, vectors
from tests.frontier.examples import LINEAR, PREPROCESSING, SMALL, images, trunk

COUNT = 90


@dataclass(frozen=True)
class Example:
    frontier: Frontier
    inputs: Tensor
    points: tuple[OperatingPoint, ...]
    expected: Tensor
    """`P x N` exits, by the simulator."""


@cache
def example(kind: str) -> Example:
    if kind == "chain":
        frontier = offramp.fit(pair(), vectors(300, seed=1), vectors(200, seed=2), settings=FEW, progress=False)
        raw, labels = vectors(COUNT, seed=3)
        inputs = torch.tensor(raw)
    else:
        settings = SMALL if kind == "ladder" else LINEAR
        data = images(200, seed=1), images(120, seed=2)
        frontier = offramp.fit(trunk(), *data, preprocessing=PREPROCESSING, settings=settings, progress=False)
        pixels, labels = images(COUNT, seed=3)
        inputs = PREPROCESSING(pixels)
    points = tuple(
        listed[index] for listed in frontier.points.values() for index in (len(listed) // 3, 2 * len(listed) // 3)
    )
    return Example(frontier, inputs, points, _simulated(frontier, inputs, torch.as_tensor(labels), points))


def _simulated(frontier: Frontier, inputs: Tensor, labels: Tensor, points: tuple[OperatingPoint, ...]) -> Tensor:
    """Where the simulator lets samples leave, on features in full precision."""
    from offramp.features import MemorySource

    features, own = [], {}
    with torch.inference_mode():
        hidden = inputs
        for index, stage in enumerate(frontier.trunk.stages):
            hidden = stage(hidden)
            features.append(frontier.pooling(frontier.trunk.representation(hidden, index)))
            if index in frontier.trunk.own_heads:
                own[index] = frontier.trunk.own_logits(hidden, index)
    source = MemorySource(torch.cat(features, 1), own, labels, tuple(one.shape[1] for one in features))
    return simulate(points, outcomes(frontier.bank, source, frontier.temperatures))


def engine(example: Example, *points: OperatingPoint, compaction: Compaction | None = None) -> Engine:
    frontier = example.frontier
    return Engine(frontier.trunk, frontier.pooling, frontier.bank, points, compaction=compaction)


KINDS = pytest.mark.parametrize("kind", ["ladder", "linear", "chain"])


@KINDS
def test_samples_leave_where_the_simulator_says(kind: str) -> None:
    given = example(kind)
    assert len(set(given.expected.flatten().tolist())) > 1
    for point, expected in zip(given.points, given.expected, strict=True):
        exits = engine(given, point).run(given.inputs)[1]
        assert (exits != expected).sum() <= 1  # features are rounded otherwise in another batch


@KINDS
@pytest.mark.parametrize("size", [1, 7, 64])
def test_batches_of_any_size_and_order(kind: str, size: int) -> None:
    given = example(kind)
    runs = engine(given, given.points[0])
    whole, exits = runs.run(given.inputs)
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(0))
    parts = [runs.run(given.inputs[rows]) for rows in torch.split(order, size)]
    torch.testing.assert_close(torch.cat([part[0] for part in parts]), whole[order], atol=1e-5, rtol=1e-4)
    assert torch.equal(torch.cat([part[1] for part in parts]), exits[order])


@KINDS
def test_every_sample_may_have_a_point_of_its_own(kind: str) -> None:
    given = example(kind)
    point = torch.arange(COUNT) % len(given.points)
    mixed, exits = engine(given, *given.points).run(given.inputs, point=point)
    for index, one in enumerate(given.points):
        alone, expected = engine(given, one).run(given.inputs)
        mine = point == index
        assert torch.equal(exits[mine], expected[mine])
        torch.testing.assert_close(mixed[mine], alone[mine], atol=1e-5, rtol=1e-4)


@KINDS
def test_newcomers_join_where_flights_meet(kind: str) -> None:
    given = example(kind)
    runs = engine(given, *given.points)
    point = torch.arange(COUNT) % len(given.points)
    expected, exits = runs.run(given.inputs, point=point)
    half = COUNT // 2
    flights = [
        runs.start(given.inputs[rows], point=point[rows], rows=torch.arange(COUNT)[rows])
        for rows in (slice(half), slice(half, None))
    ]
    found, left = torch.zeros_like(expected), torch.full((COUNT,), -1)

    def note(departed: object) -> None:
        if departed is not None:
            found[departed.rows] = departed.probabilities  # type: ignore[attr-defined]
            left[departed.rows] = departed.exit  # type: ignore[attr-defined]

    for index in range(2):
        flights[index], departed = runs.step(flights[index])
        note(departed)
    together = runs.join(flights)
    while len(together):
        together, departed = runs.step(together)
        note(departed)
    assert torch.equal(left, exits)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


class Never(Compaction):
    def pays(self, depth: int, count: int, staying: int) -> bool:
        return False


@KINDS
def test_those_who_ride_along_are_answered_once(kind: str) -> None:
    given = example(kind)
    expected, exits = engine(given, given.points[0]).run(given.inputs)
    found, left = engine(given, given.points[0], compaction=Never()).run(given.inputs)
    assert torch.equal(left, exits)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_exits_out_of_force_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    given = example("linear")
    last = given.frontier.trunk.num_exits - 1
    sure = OperatingPoint("threshold", {"threshold": torch.tensor(2.0)}, (last,), torch.ones(last + 1))
    asked: list[int] = []
    monkeypatch.setattr(type(given.frontier.bank), "step", lambda self, stage, *rest: asked.append(stage))
    exits = engine(given, sure).run(given.inputs[:5])[1]
    assert exits.tolist() == [last] * 5
    assert asked == []


def test_a_ladder_is_climbed_as_far_as_somebody_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    given = example("ladder")
    pooled: list[object] = []
    pooling = given.frontier.pooling
    point = given.points[0]
    first = OperatingPoint("threshold", {"threshold": torch.tensor(2.0)}, (0, point.active[-1]), point.temperatures)
    monkeypatch.setattr(type(pooling), "__call__", _counting(type(pooling).__call__, pooled))
    engine(given, first).run(given.inputs[:5])
    assert len(pooled) == 1


def _counting(call: object, pooled: list[object]) -> object:
    def counted(self: object, representation: object) -> object:
        pooled.append(representation)
        return call(self, representation)  # type: ignore[operator]

    return counted


def test_nobody_at_all() -> None:
    given = example("ladder")
    probabilities, exits = engine(given, given.points[0]).run(given.inputs[:0])
    assert probabilities.shape == (0, 3)
    assert exits.shape == (0,)


def test_what_does_not_fit_is_refused() -> None:
    given = example("ladder")
    other = OperatingPoint("threshold", {"threshold": torch.tensor(0.5)}, (0, 1), torch.ones(2))
    with pytest.raises(InputError, match="expected operating points of 3 exits"):
        engine(given, other)
    with pytest.raises(InputError, match="expected 5 numbers of operating points, 0 to 0"):
        engine(given, given.points[0]).run(given.inputs[:5], point=torch.ones(5, dtype=torch.long))
    runs = engine(given, given.points[0])
    early, late = runs.start(given.inputs[:2]), runs.start(given.inputs[2:4])
    with pytest.raises(InputError, match="passed the same stages"):
        runs.join([runs.step(early)[0], late])
