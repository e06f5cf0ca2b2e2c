"""The engine agrees with the simulator, for any batching, mix of points, joining of batches and compaction."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import offramp
from offramp.backbone._backbone import Backbone
from offramp.errors import InputError
from offramp.exits import ExitSet, LadderExits, LinearExits
from offramp.exits._linear import CumulativeLinearExits
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate
from offramp.policy import POLICIES, OperatingPoint
from offramp.pooling import POOLINGS
from offramp.runtime._batch import Compaction
from offramp.runtime._batch_timer import make_staying_point
from offramp.runtime._engine import Engine
from tests.cases import each, refuses
from tests.model.cascade_examples import FEW, pair, vectors
from tests.model.examples import LINEAR, PREPROCESSING, SMALL, backbone, images
from tests.policy.examples import drawn

COUNT = 90


@dataclass(frozen=True)
class Example:
    frontier: EarlyExitModel
    inputs: Tensor
    points: tuple[OperatingPoint, ...]
    seen: Outcomes
    expected: Tensor
    """`P x N` exits, by the simulator."""


@cache
def example(kind: str) -> Example:
    if kind == "cascade":
        frontier = offramp.fit(pair(), vectors(300, seed=1), vectors(200, seed=2), settings=FEW, progress=False)
        raw, labels = vectors(COUNT, seed=3)
        inputs = torch.tensor(raw)
    else:
        settings = SMALL if kind == "ladder" else LINEAR
        data = images(200, seed=1), images(120, seed=2)
        frontier = offramp.fit(backbone(), *data, preprocessing=PREPROCESSING, settings=settings, progress=False)
        pixels, labels = images(COUNT, seed=3)
        inputs = PREPROCESSING(pixels)
    points = tuple(
        listed[index] for listed in frontier.points.values() for index in (len(listed) // 3, 2 * len(listed) // 3)
    )
    seen = _seen(frontier, inputs, torch.as_tensor(labels))
    return Example(frontier, inputs, points, seen, simulate(points, seen))


def _seen(frontier: EarlyExitModel, inputs: Tensor, labels: Tensor) -> Outcomes:
    """Return the outcomes of the exits on features in full precision."""
    from offramp.features._batch import MemorySource

    features, own = [], {}
    with torch.inference_mode():
        hidden = inputs
        for index, stage in enumerate(frontier.backbone.stages):
            hidden = stage(hidden)
            features.append(frontier.pooling(frontier.backbone.representation(hidden, index)))
            if index in frontier.backbone.own_heads:
                own[index] = frontier.backbone.own_logits(hidden, index)
    source = MemorySource(torch.cat(features, 1), own, labels, tuple(one.shape[1] for one in features))
    return compute_outcomes(frontier.exits, source, frontier.temperatures, probabilities=True)


def engine(example: Example, *points: OperatingPoint, compaction: Compaction | None = None) -> Engine:
    frontier = example.frontier
    return Engine(frontier.backbone, frontier.pooling, frontier.exits, points, compaction=compaction)


KINDS = each("kind", ["ladder", "linear", "cascade"])
QUIET = [name for name in POLICIES if "noise" not in POLICIES.get(name).reads]


def drawn_points(given: Example, policy: str) -> list[OperatingPoint]:
    """A point of all exits and one without the first; of some, those at which samples leave most here and there."""
    exits, classes = given.frontier.backbone.num_exits, given.frontier.backbone.num_classes
    parameters = drawn(policy, 12, exits=exits, classes=classes)
    chosen = []
    for active in (tuple(range(exits)), tuple(range(1, exits))):
        points = [
            OperatingPoint(
                policy, {name: value[row] for name, value in parameters.items()}, active, given.frontier.temperatures[0]
            )
            for row in range(12)
        ]
        chosen.append(points[int(simulate(points, given.seen).double().var(1).argmax())])
    return chosen


@KINDS
@each("policy", QUIET)
def test_every_policy_decides_as_in_the_simulator(kind: str, policy: str) -> None:
    given = example(kind)
    points = drawn_points(given, policy)
    expected = simulate(points, given.seen)
    for point, exits in zip(points, expected, strict=True):
        found, left = engine(given, point).run(given.inputs)
        assert (left != exits).sum() <= 1  # features are rounded otherwise in another batch
        assert given.seen.probabilities is not None
        said = given.seen.probabilities[0, torch.arange(COUNT), left]
        torch.testing.assert_close(found, said, atol=1e-4, rtol=1e-3)
    if (kind, policy) != ("linear", "patience"):  # whose exits agree on everything
        assert len(set(expected[0].tolist())) > 1


@KINDS
def test_all_policies_in_one_batch(kind: str) -> None:
    given = example(kind)
    points = [point for policy in QUIET for point in drawn_points(given, policy)]
    point = torch.arange(COUNT) % len(points)
    left = engine(given, *points).run(given.inputs, point=point)[1]
    expected = simulate(points, given.seen)[point, torch.arange(COUNT)]
    assert (left != expected).sum() <= 1


@each("policy", list(POLICIES))
def test_no_sample_leaves_while_a_policy_is_timed(policy: str) -> None:
    given = example("ladder")
    last = given.frontier.backbone.num_exits - 1
    point = make_staying_point(POLICIES.get(policy), range(last + 1), given.frontier.exits)
    assert (engine(given, point).run(given.inputs)[1] == last).all()


@KINDS
def test_samples_leave_where_the_simulator_says(kind: str) -> None:
    given = example(kind)
    assert len(set(given.expected.flatten().tolist())) > 1
    for point, expected in zip(given.points, given.expected, strict=True):
        exits = engine(given, point).run(given.inputs)[1]
        assert (exits != expected).sum() <= 1  # features are rounded otherwise in another batch


@KINDS
@each("size", [1, 7, 64])
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
def test_batches_at_one_depth_can_be_joined(kind: str) -> None:
    given = example(kind)
    runs = engine(given, *given.points)
    point = torch.arange(COUNT) % len(given.points)
    expected, exits = runs.run(given.inputs, point=point)
    half = COUNT // 2
    batches = [
        runs.start(given.inputs[rows], point=point[rows], rows=torch.arange(COUNT)[rows])
        for rows in (slice(half), slice(half, None))
    ]
    found, left = torch.zeros_like(expected), torch.full((COUNT,), -1)

    def note(finished: object) -> None:
        if finished is not None:
            found[finished.rows] = finished.probabilities  # type: ignore[attr-defined]
            left[finished.rows] = finished.exit  # type: ignore[attr-defined]

    for index in range(2):
        batches[index], finished = runs.step(batches[index])
        note(finished)
    together = runs.join(batches)
    while len(together):
        together, finished = runs.step(together)
        note(finished)
    assert torch.equal(left, exits)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@each("make", [LinearExits, CumulativeLinearExits, partial(LadderExits, width=8)])
def test_batches_with_no_point_in_common_join(make: Callable[..., ExitSet]) -> None:
    torch.manual_seed(0)
    simple = Backbone("simple", [nn.Linear(4, 4) for _ in range(3)], {2: nn.Linear(4, 3)}, num_classes=3)
    exits = make((4, 4, 4), (0, 1), 3).eval()
    zero = {"threshold": torch.tensor(2.0)}
    last, early = (OperatingPoint("threshold", zero, active, torch.ones(3)) for active in ((2,), (0, 1, 2)))
    runs, inputs = Engine(simple, POOLINGS.get("mean"), exits, [last, early]), torch.randn(6, 4)
    expected, _ = runs.run(inputs)
    at = [torch.zeros(3, dtype=torch.long), torch.ones(3, dtype=torch.long)]
    batches = [runs.start(inputs[3 * i : 3 * i + 3], point=at[i], rows=torch.arange(3) + 3 * i) for i in range(2)]
    together = runs.join([runs.step(batch)[0] for batch in batches])
    while len(together):
        together, finished = runs.step(together)
    assert finished is not None
    torch.testing.assert_close(finished.probabilities[finished.rows.argsort()], expected)


class Never(Compaction):
    def pays(self, depth: int, count: int, staying: int) -> bool:
        return False


@KINDS
def test_riders_are_answered_once(kind: str) -> None:
    given = example(kind)
    expected, exits = engine(given, given.points[0]).run(given.inputs)
    found, left = engine(given, given.points[0], compaction=Never()).run(given.inputs)
    assert torch.equal(left, exits)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_inactive_exits_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    given = example("linear")
    last = given.frontier.backbone.num_exits - 1
    sure = OperatingPoint("threshold", {"threshold": torch.tensor(2.0)}, (last,), torch.ones(last + 1))
    asked: list[int] = []
    monkeypatch.setattr(type(given.frontier.exits), "step", lambda self, stage, *rest: asked.append(stage))
    exits = engine(given, sure).run(given.inputs[:5])[1]
    assert exits.tolist() == [last] * 5
    assert asked == []


def test_a_ladder_runs_up_to_the_last_early_exit(monkeypatch: pytest.MonkeyPatch) -> None:
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


@each("marks", ["right", "holes"])
def test_texts_lose_padding_and_nothing_else(marks: str) -> None:
    torch.manual_seed(0)
    network = _words()
    last = network.num_exits - 1
    exits = LinearExits((24,) * (last + 1), tuple(range(last)), 3)
    lengths = torch.randint(2, 12, (24, 1))
    mask = (torch.arange(12) < lengths).long()
    if marks == "holes":
        mask[:, 1:-1:2] = 0
    inputs = {"ids": torch.randint(1, 50, (24, 12)) * mask, "mask": mask}
    point = OperatingPoint("threshold", {"threshold": torch.tensor(0.55)}, tuple(range(last + 1)), torch.ones(last + 1))
    runs = Engine(network, POOLINGS.get("auto"), exits, [point])
    prepared = network.prepare(inputs)
    found, left_at = runs.run(prepared)
    assert len(set(left_at.tolist())) > 1
    expected = torch.softmax(network(prepared), dim=1)
    through = left_at == last
    assert through.any()
    torch.testing.assert_close(found[through], expected[through], atol=1e-5, rtol=1e-4)


def _words() -> Backbone:
    """A text network that mixes tokens under a mask, cut by `split`."""

    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
            weights = mask[..., None].to(tokens.dtype)
            mean = (tokens * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp_min(1)
            return tokens + torch.tanh(self.linear(tokens + mean))

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 8)
            self.layers = nn.ModuleList([Mixing(), Mixing(), Mixing()])
            self.head = nn.Linear(8, 3)

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            tokens = self.embedding(ids)
            for layer in self.layers:
                tokens = layer(tokens, mask)
            weights = mask[..., None].to(tokens.dtype)
            scores: Tensor = self.head((tokens * weights).sum(1) / weights.sum(1).clamp_min(1))
            return scores

    example = {"ids": torch.ones(2, 6, dtype=torch.long), "mask": torch.ones(2, 6, dtype=torch.long)}
    return offramp.split(Words().eval(), example)


def test_carries_may_be_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    given = example("linear")
    gates = next(point for point in given.points if point.policy == "gates")
    threshold = next(point for point in given.points if point.policy == "threshold")
    policy = type(gates.rule)
    step = policy.step

    def wrapped(self: Any, seen: Any, carry: Any, parameters: Any) -> Any:
        leave, sums = step(self, seen, carry["sums"][:, 0], parameters)
        return leave, {"sums": sums[:, None]}

    expected = engine(given, threshold, gates).run(given.inputs, point=torch.arange(COUNT) % 2)[1]
    monkeypatch.setattr(policy, "initial_carry", lambda self, zeros: {"sums": zeros[:, None]})
    monkeypatch.setattr(policy, "step", wrapped)
    found = engine(given, threshold, gates).run(given.inputs, point=torch.arange(COUNT) % 2)[1]
    assert torch.equal(found, expected)


def test_an_empty_batch_is_ignored() -> None:
    given = example("ladder")
    last = given.frontier.backbone.num_exits - 1
    at_once = OperatingPoint("threshold", {"threshold": torch.tensor(0.0)}, (0, last), torch.ones(last + 1))
    runs = engine(given, at_once, given.points[0])
    empty, _ = runs.step(runs.start(given.inputs[:3]))
    assert len(empty) == 0
    there, _ = runs.step(runs.start(given.inputs[3:9], point=torch.ones(6, dtype=torch.long)))
    assert runs.join([empty, there]) is there
    assert len(runs.join([empty])) == 0


def test_the_cache_of_plans_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    given = example("ladder")
    monkeypatch.setattr("offramp.runtime._engine.MOST_PLANS", 4)
    runs = engine(given, *given.points)
    for index in range(len(given.points)):
        runs.run(given.inputs[:8], point=torch.arange(8) % (index + 1))
        assert len(runs._plans) <= 4


def test_an_empty_input() -> None:
    given = example("ladder")
    probabilities, exits = engine(given, given.points[0]).run(given.inputs[:0])
    assert probabilities.shape == (0, 3)
    assert exits.shape == (0,)


def test_what_does_not_fit_is_refused() -> None:
    given = example("ladder")
    other = OperatingPoint("threshold", {"threshold": torch.tensor(0.5)}, (0, 1), torch.ones(2))
    with refuses(InputError, expected="3 exits", got="2"):
        engine(given, other)
    for point in (torch.ones(5, dtype=torch.long), torch.zeros(5), torch.zeros(4, dtype=torch.long), 0):
        with refuses(InputError, expected="a tensor of 5 indices in 0 to 0"):
            engine(given, given.points[0]).run(given.inputs[:5], point=point)  # type: ignore[arg-type]
    never = OperatingPoint("threshold", {"threshold": torch.tensor(2.0)}, (0, 1, 2), torch.ones(3))
    runs = engine(given, never)
    early, late = runs.start(given.inputs[:2]), runs.start(given.inputs[2:4])
    with refuses(InputError, expected="passed the same stages", got="[0, 1]"):
        runs.join([runs.step(early)[0], late])
