from dataclasses import replace

import pytest
import torch

from offramp.model._guarantees import with_losses, with_tuned_losses
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import compute_outcomes
from offramp.policy import Guarantee
from offramp.report import find
from offramp.report._frontier import format_options, list_reachable_points
from offramp.report._slider import describe_point, find_chosen
from offramp.report._words import list_notes
from offramp.runtime._dial import same_decisions
from tests.report.examples import at, drawn, toy, with_gates


def calibrated(model: EarlyExitModel) -> EarlyExitModel:
    """The same with losses on a calibrate split of other samples, from which guarantees are made."""
    points = model.points["threshold"]
    _, tune = toy(*drawn(2000, 4, 3, seed=1))
    _, calibrate = toy(*drawn(4000, 4, 3, seed=2))
    seen = [compute_outcomes(model.exits, source, model.temperatures) for source in (tune, calibrate)]
    return replace(model, points={"threshold": with_losses(with_tuned_losses(points, seen[0]), seen[1])})


def test_every_request_gets_its_point() -> None:
    model, _ = toy(*drawn(300, 4, 3))
    model = with_gates(calibrated(model))
    chosen = model.at(cost=0.7).point
    reachable = list_reachable_points(model, chosen)
    assert reachable[0].point is chosen
    assert len(reachable) > 5
    for entry in reachable:
        again = model.at(**entry.request).point
        assert same_decisions(again, entry.point)
        assert again.guarantee == entry.guarantee
    bounds = [entry.request["max_drop"] for entry in reachable if "max_drop" in entry.request]
    assert bounds
    assert bounds == sorted(bounds, reverse=True)
    assert not any(
        same_decisions(entry.point, other.point) for index, entry in enumerate(reachable) for other in reachable[:index]
    )


def test_a_point_chosen_by_its_cost_has_the_guarantee_that_exists() -> None:
    model, source = toy(*drawn(300, 4, 3))
    model = calibrated(model)
    guaranteed = model.at(max_drop=0.02).point
    chosen = next(point for point in model.points["threshold"] if same_decisions(point, guaranteed))
    assert chosen.guarantee is None
    entry, *others = list_reachable_points(model, chosen)
    assert entry.point is chosen
    assert entry.guarantee is not None
    assert entry.request == {"max_drop": entry.guarantee.at_most}
    assert same_decisions(model.at(**entry.request).point, chosen)
    assert not any(same_decisions(other.point, chosen) for other in others)
    findings = find(model, source, point=chosen)
    (shown,) = (row for row in findings.frontier if row.measured is findings.chosen)
    assert (shown.request, shown.guarantee) == (entry.request, entry.guarantee)
    texts = describe_point(findings, find_chosen(findings), "run me")
    assert texts["guarantee"] == str(entry.guarantee)
    assert any("decided on before any results" in note for note in list_notes(findings))


def test_another_policy_is_part_of_the_request() -> None:
    model, _ = toy(*drawn(300, 4, 3))
    model = with_gates(model)
    tuned = [
        replace(point, tune_metrics={"cost": 0.4 + index / 100, "accuracy": 0.5 + index / 100})
        for index, point in enumerate(model.points["gates"])
    ]
    model = replace(model, points={**model.points, "gates": tuned})
    listed = list_reachable_points(model, model.at(cost=0.6, policy="gates").point)
    assert all(entry.request["policy"] == "gates" for entry in listed)
    assert all(model.at(**entry.request).point is entry.point for entry in listed)


def test_a_chosen_guarantee_is_requested_again() -> None:
    model, source = toy(*drawn(300, 4, 3))
    model = calibrated(model)
    chosen = model.at(max_drop=0.03, confidence=0.9).point
    request = list_reachable_points(model, chosen)[0].request
    assert request == {"max_drop": 0.03, "confidence": 0.9}
    assert format_options(request) == "--max-drop 0.03 --confidence 0.9"
    other = replace(chosen, guarantee=replace(chosen.guarantee or pytest.fail("none"), bound="wsr"))
    assert format_options(list_reachable_points(model, other)[0].request) == ""  # no command has this option
    findings = find(model, source, point=other)
    texts = describe_point(findings, find_chosen(findings), "run me")
    assert texts["command"].startswith("None: the command line has no option for the bound")
    assert texts["call"] == "model.at(max_drop=0.03, confidence=0.9, bound='wsr')"


def test_no_request_gets_a_point_made_by_hand() -> None:
    model, source = toy(*drawn(300, 4, 3))
    chosen = at(model, 0.8123)
    assert list_reachable_points(model, chosen)[0].request == {}
    assert find(model, source, point=chosen).chosen in [
        entry.measured for entry in find(model, source, point=chosen).frontier if not entry.request
    ]


def test_the_frontier_is_measured_and_ascends() -> None:
    model, source = toy(*drawn(300, 4, 3))
    model = calibrated(model)
    findings = find(model, source, point=model.at(cost=0.7).point)
    costs = [entry.measured.relative_cost for entry in findings.frontier]
    assert costs == sorted(costs)
    for entry in findings.frontier:
        point = model.at(**entry.request).point
        expected = model.evaluate(source, points=[point]).rows[0]
        assert (entry.measured.accuracy, entry.measured.exit_shares) == (expected.accuracy, expected.exit_shares)
        assert entry.measured.cost_interval == expected.cost_interval
        assert entry.active == point.active
        assert isinstance(entry.guarantee, Guarantee) == ("max_drop" in entry.request)
        assert entry.measured in findings.curves["threshold"]
    assert torch.tensor([entry.measured is findings.chosen for entry in findings.frontier]).sum() == 1
