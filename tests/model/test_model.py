"""A network with a dial, and on another backend: the same interface, and what was given is what runs."""

import math
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch

import offramp
from offramp.errors import ArtifactError, BudgetError, InputError, UnknownNameError
from offramp.preprocessing import Preprocessing
from offramp.runtime import BACKENDS, Backend, Dial, LatencyTable
from offramp.runtime._dial import same_decisions
from offramp.runtime._eager import EagerBackend
from tests.artifact_examples import change_manifest
from tests.cases import each
from tests.model.examples import LINEAR, PREPROCESSING, SMALL, backbone, images


@cache
def frontier(settings: offramp.JointSettings = LINEAR) -> offramp.EarlyExitModel:
    data = images(200, seed=1), images(120, seed=2)
    return offramp.fit(backbone(), *data, preprocessing=PREPROCESSING, settings=settings, progress=False)


def network() -> offramp.EarlyExitModel:
    return frontier().at(cost=0.8, policy="threshold")


class Counted(EagerBackend):
    stages = 0

    def stage(self, index: int, hidden: Any) -> Any:
        type(self).stages += 1
        return super().stage(index, hidden)


def test_a_backend_given_is_what_runs() -> None:
    given = network()
    backend: Backend = Counted(given.backbone, given.pooling, given.exits_in_force)
    inputs = images(30, seed=3)[0]
    found, expected = given.on(backend).predict(inputs), given.predict(inputs)
    assert torch.equal(found.probabilities, expected.probabilities)
    assert Counted.stages == int(expected.exits.max()) + 1


def test_a_name_makes_the_backend_once() -> None:
    given = network()
    narrow = given.on("bfloat16")
    assert isinstance(narrow.backend, EagerBackend)
    assert given.backend is None
    assert narrow.engine is narrow.engine
    assert narrow.engine.backend is narrow.backend
    assert narrow.point is given.point


def test_the_example_is_prepared_as_inputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def make(backbone: Any, pooling: Any, exits: Any, example: torch.Tensor) -> Backend:
        seen.append(example)
        return EagerBackend(backbone, pooling, exits)

    monkeypatch.setitem(BACKENDS._entries, "watching", make)
    inputs = images(2, seed=3)[0]
    network().on("watching", example=inputs)
    assert torch.equal(seen[0], PREPROCESSING(inputs))


def test_finished_samples_are_removed_by_the_table_that_was_given() -> None:
    model, inputs = network(), images(30, seed=3)[0]
    flat = ((1.0, 1.0),) * model.backbone.num_exits  # a stage takes the same time for any batch: removal never pays
    table = LatencyTable("eager", 1, (1, 64), flat, flat, flat, flat)
    riding = model.on("eager", latency=table)
    for kept in (riding, riding.on("bfloat16")):
        assert kept.engine.compaction.latency is table
    assert not riding.engine.compaction.pays(1, 64, 1)
    assert torch.equal(riding.predict(inputs).exits, model.predict(inputs).exits)


def test_unknown_names_are_told() -> None:
    with pytest.raises(UnknownNameError, match="unknown backend 'eagre'; did you mean 'eager'"):
        network().on("eagre")


def same(one: offramp.Answer, other: offramp.Answer) -> bool:
    """Return True if two answers are equal, up to the rounding differences between batch sizes."""
    torch.testing.assert_close(one.probabilities, other.probabilities, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one.relative_cost, other.relative_cost)
    assert list(one.prediction_sets) == list(other.prediction_sets)
    sets = [torch.equal(one.prediction_sets[level], other.prediction_sets[level]) for level in one.prediction_sets]
    return torch.equal(one.exits, other.exits) and all(sets)


def part(answer: offramp.Answer, rows: torch.Tensor) -> offramp.Answer:
    sets = {level: chosen[rows] for level, chosen in answer.prediction_sets.items()}
    columns = answer.labels[rows], answer.probabilities[rows], answer.exits[rows], answer.relative_cost[rows]
    return offramp.Answer(*columns, sets)


def dialled(settings: offramp.JointSettings, policy: str) -> offramp.EarlyExitModel:
    """A network all of whose points are settings: the dearer the more accurate, as if the tune split said so."""
    given = frontier(settings).at(cost=1.1, policy=policy)
    alike = [one for one in frontier(settings).points[policy] if one.classifier == given.point.classifier]
    points = [
        replace(point, tune_metrics={**point.tune_metrics, "accuracy": point.tune_metrics["cost"] / 2})
        for point in alike
    ]
    return replace(given, chosen=points[-1], points={policy: points})


class TestBudgets:
    @each("settings", [LINEAR, SMALL])
    @each("policy", ["threshold", "gates", "stopping"])
    def test_a_budget_answers_as_a_network_of_that_point_alone(
        self, policy: str, settings: offramp.JointSettings
    ) -> None:
        given, inputs = dialled(settings, policy), images(40, seed=3)[0]
        asked = torch.linspace(given.dial.cheapest, given.dial.most_expensive, 8).tolist()
        costs = set()
        for budget in asked:
            row = int(given.dial.pick_rows(torch.tensor([budget]))[0])
            alone = replace(given, chosen=given.dial.points[row], points={})
            assert same(given.predict(inputs, budget=budget), alone.predict(inputs))
            costs.add(float(alone.predict(inputs).relative_cost.mean()))
        assert len(costs) > 1
        assert same(given.predict(inputs), replace(given, points={}).predict(inputs))

    @each("policy", ["threshold", "gates", "stopping"])
    def test_every_sample_may_have_its_own(self, policy: str) -> None:
        given, inputs = dialled(SMALL, policy), images(60, seed=3)[0]
        levels = torch.linspace(given.dial.cheapest, given.dial.most_expensive, 5)
        which = torch.arange(60) % 5
        mixed = given.predict(inputs, budget=levels[which])
        assert same(mixed, given.predict(inputs, budget=levels[which].tolist()))
        for number, level in enumerate(levels.tolist()):
            rows = (which == number).nonzero().squeeze(1)
            assert same(part(mixed, rows), part(given.predict(inputs, budget=level), rows))

    def test_costs_and_sets_are_those_of_the_points_with_their_exits_in_force(self) -> None:
        given, inputs = network(), images(20, seed=3)[0]
        levels = {0.05: torch.full((3,), 2.0)}, {0.05: torch.full((3,), -1.0), 0.1: torch.zeros(3)}
        points = [
            replace(
                given.point,
                active=active,
                parameters={"threshold": torch.tensor(2.0)},
                conformal_thresholds=thresholds,
                tune_metrics={"cost": cost, "accuracy": cost / 2},
            )
            for active, thresholds, cost in zip(((2,), (0, 1, 2)), levels, (0.5, 1.0), strict=True)
        ]
        moved = replace(given, chosen=points[0], points={"threshold": points})
        answer = moved.predict(inputs, budget=[0.5, 1.0] * 10)
        assert answer.exits.tolist() == [2] * 20
        table = given.costs["threshold"].tables[0]
        ends = [float(table.cumulative_costs(active)[-1] / table.full) for active in ((2,), (0, 1, 2))]
        assert ends[0] < ends[1]
        assert answer.relative_cost.tolist() == pytest.approx(ends * 10)
        assert list(answer.prediction_sets) == [0.05]  # what both points have
        assert answer.prediction_sets[0.05].sum(1).tolist() == [3, 0] * 10
        assert list(moved.predict(inputs, budget=1.0).prediction_sets) == [0.05, 0.1]

    def test_the_dial_has_the_settings_of_one_policy_and_one_set_of_classifiers(self) -> None:
        for policy, points in frontier().points.items():
            chosen = frontier().at(cost=1.1, policy=policy)
            alike = [point for point in points if point.classifier == chosen.point.classifier]
            assert chosen.dial_points == Dial(alike).front
            assert any(point is chosen.point for point in chosen.dial_points)

    @each("settings", [LINEAR, SMALL])
    @each("policy", ["threshold", "gates", "stopping"])
    def test_a_budget_is_the_point_that_would_be_chosen_for_that_cost(
        self, policy: str, settings: offramp.JointSettings
    ) -> None:
        given, inputs = frontier(settings), images(30, seed=3)[0]
        whole = Dial(given.points[policy])
        for cost in torch.linspace(whole.cheapest, 1.2, 7).tolist():
            chosen = given.at(cost=cost, policy=policy)
            assert same(chosen.predict(inputs, budget=cost), chosen.predict(inputs))
            elsewhere = given.at(cost=1.2, policy=policy)
            if {point.classifier for point in given.points[policy]} == {chosen.point.classifier}:
                assert same(elsewhere.predict(inputs, budget=cost), chosen.predict(inputs))

    @each("policy", ["threshold", "gates", "stopping"])
    def test_a_point_that_was_chosen_for_a_promise_is_there_once(self, policy: str) -> None:
        chosen = frontier().at(max_drop=0.5, confidence=0.8, loss="disagreement", policy=policy)
        assert chosen.point.guarantee is not None
        alike = [one for one in chosen.points[policy] if one.classifier == chosen.point.classifier]
        assert len(chosen.engine.points.points) == len(alike)
        assert chosen.engine.points.points[0] is chosen.point
        assert sum(same_decisions(one, chosen.point) for one in chosen.engine.points.points) == 1
        assert len(chosen.dial) == len(Dial(chosen.dial_points))

    def test_moving_it_makes_no_engine(self) -> None:
        given, inputs = network(), images(4, seed=3)[0]
        engine = given.engine
        for budget in (given.dial.cheapest, given.dial.most_expensive):
            given.predict(inputs, budget=budget)
        assert given.engine is engine
        assert given.on("bfloat16").predict(inputs, budget=given.dial.cheapest).labels.shape == (4,)

    def test_one_sample_and_none(self) -> None:
        given, inputs = network(), images(4, seed=3)[0]
        whole = given.predict(inputs, budget=0.9)
        assert same(given.predict(inputs[:1], budget=[0.9]), part(whole, torch.tensor([0])))
        asked: list[Any] = [None, 0.9, []]
        for budget in asked:
            assert given.predict(inputs[:0], budget=budget).relative_cost.shape == (0,)

    def test_a_budget_below_the_cheapest_names_it(self) -> None:
        given = network()
        told = rf"expected {given.dial.cheapest:.2f}\d* or more, .*got 0\.001"
        for budget in (0.001, [0.9, 0.001]):
            with pytest.raises(BudgetError, match=told):
                given.predict(images(2, seed=3)[0], budget=budget)
        with pytest.raises(BudgetError, match=told):
            given.controller(0.001)

    @each(
        ("budget", "told"),
        [
            ([0.9] * 3, r"expected one budget, or 2, one per sample, got budgets of shape \(3,\)"),
            ([[0.9, 0.9]], r"one per sample, got budgets of shape \(1, 2\)"),
            ("much", "expected a budget as a number or numbers, such as 0.6, got 'much'"),
            (math.nan, "expected a share of the full network's cost, such as 0.6, got nan"),
            (0, "expected a share of the full network's cost, such as 0.6, got 0"),
        ],
    )
    def test_what_is_no_budget_is_refused(self, budget: Any, told: str) -> None:
        with pytest.raises(InputError, match=told):
            network().predict(images(2, seed=3)[0], budget=budget)

    def test_a_model_of_one_point_has_one_setting(self) -> None:
        alone, inputs = replace(network(), points={}), images(2, seed=3)[0]
        assert alone.dial_points == ()
        assert same(alone.predict(inputs, budget=0.9), alone.predict(inputs))

    def test_a_controller_keeps_the_average(self) -> None:
        given = dialled(SMALL, "threshold")
        inputs = images(400, seed=5)[0]
        for share in (0.3, 0.7):
            budget = given.dial.cheapest + share * (given.dial.most_expensive - given.dial.cheapest)
            controller = given.controller(budget)
            for start in range(0, 400, 8):
                answer = given.predict(inputs[start : start + 8], budget=controller.next_budget)
                controller.record(answer.relative_cost)
            assert controller.count == 400
            low, high = given.dial.cheapest, given.dial.most_expensive
            bound = 100 * max(budget - low, high - budget) + 8
            assert abs(controller.debt) <= bound
            assert controller.average == pytest.approx(budget, abs=0.05)


class TestMany:
    @each("size", [1, 16, 64])
    @each("budget", [None, 0.6])
    def test_batches_together_are_answered_as_one(self, size: int, budget: float | None) -> None:
        given, inputs = dialled(SMALL, "threshold"), images(60, seed=3)[0]
        batches = [inputs[first : first + size] for first in range(0, 60, size)]
        expected = given.predict(inputs, budget=budget)
        assert (len(set(expected.exits.tolist())) > 1) == (budget is not None)  # its own point is the dearest
        assert same(given.predict_many(iter(batches), budget=budget), expected)

    def test_no_batches_are_no_answers(self) -> None:
        for budget in (None, 0.6):
            answer = dialled(SMALL, "threshold").predict_many([], budget=budget)
            assert answer.probabilities.shape == (0, 3)
            assert len(answer.relative_cost) == len(answer.labels) == 0

    def test_an_input_without_an_answer_is_named_by_its_place_among_all(self) -> None:
        given = replace(network(), preprocessing=Preprocessing())
        inputs = torch.randn(20, 3, 32, 32)
        inputs[13] = math.nan
        with pytest.raises(InputError, match="1 of 20 inputs have no finite answer, the first is input 13"):
            given.predict_many([inputs[:8], inputs[8:]])


class TestSaved:
    @each(
        "request_",
        [
            {"cost": 0.7},
            {"max_drop": 0.5, "confidence": 0.8, "loss": "disagreement"},
            {"cost": 0.9, "policy": "gates"},
            {},
        ],
    )
    def test_it_comes_back_at_its_point(self, tmp_path: Path, request_: dict[str, Any]) -> None:
        saved = frontier().at(**request_) if request_ else frontier()
        saved.save(tmp_path / "model")
        loaded = offramp.load(tmp_path / "model", backbone=saved.backbone)
        assert loaded.request == saved.request
        if request_:
            assert loaded.point.tune_metrics == saved.point.tune_metrics
            assert loaded.point.guarantee == saved.point.guarantee
            assert same(loaded.predict(images(9, seed=3)[0]), saved.predict(images(9, seed=3)[0]))

    def test_a_request_that_cannot_be_met_names_its_field(self, tmp_path: Path) -> None:
        frontier().at(cost=0.7).save(tmp_path)
        for request_ in ({"cost": 1e-6}, {"cost": "low"}, {"speed": 3.0}, {"policy": "dice"}, {"max_drop": 2.0}):
            change_manifest(tmp_path, partial(_set_request, request_))
            with pytest.raises(ArtifactError, match="request"):
                offramp.load(tmp_path, backbone=frontier().backbone)


def _set_request(request_: Any, whole: dict[str, Any]) -> None:
    whole["content"]["request"] = request_


def test_printed_in_a_notebook_it_is_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*shown: object) -> None:
        raise AssertionError(f"rich displays {shown}")

    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", fail)
    assert "accuracy" in str(network().frontier)


def test_it_shows_as_html() -> None:
    shown = network()._repr_html_()
    assert shown.count("<tr>") == len(network().frontier._rows()) + 1
    assert "EarlyExitModel(" in shown
    hostile = replace(network().frontier, network="<script>")._repr_html_()
    assert "&lt;script&gt;" in hostile
    assert "<script>" not in hostile
    rows = network().frontier.to_dicts()
    assert [set(row) for row in rows] == [{"cost", "accuracy", "change"}] * len(network().frontier)
