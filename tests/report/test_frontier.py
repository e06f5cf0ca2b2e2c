from dataclasses import replace

import pytest
import torch

from offramp.model._guarantees import with_losses, with_tuned_losses
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import compute_outcomes
from offramp.policy import Guarantee
from offramp.report import find
from offramp.report._frontier import options, reachable_points
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
    for policy in ("threshold",):
        chosen = model.at(cost=0.7, policy=policy).point
        listed = reachable_points(model, chosen)
        assert listed[0].point is chosen
        assert len(listed) > 5
        for entry in listed:
            got = model.at(**entry.request).point
            assert same_decisions(got, entry.point)
            assert got.guarantee == entry.point.guarantee
        bounds = [entry.request["max_drop"] for entry in listed if "max_drop" in entry.request]
        assert bounds
        assert bounds == sorted(bounds, reverse=True)
        assert not any(
            same_decisions(one.point, other.point) for place, one in enumerate(listed) for other in listed[:place]
        )


def test_another_policy_is_part_of_the_request() -> None:
    model, _ = toy(*drawn(300, 4, 3))
    model = with_gates(model)
    tuned = [
        replace(point, tune_metrics={"cost": 0.4 + place / 100, "accuracy": 0.5 + place / 100})
        for place, point in enumerate(model.points["gates"])
    ]
    model = replace(model, points={**model.points, "gates": tuned})
    listed = reachable_points(model, model.at(cost=0.6, policy="gates").point)
    assert all(entry.request["policy"] == "gates" for entry in listed)
    assert all(model.at(**entry.request).point is entry.point for entry in listed)


def test_a_chosen_guarantee_is_requested_again() -> None:
    model, _ = toy(*drawn(300, 4, 3))
    model = calibrated(model)
    chosen = model.at(max_drop=0.03, confidence=0.9).point
    request = reachable_points(model, chosen)[0].request
    assert request == {"max_drop": 0.03, "confidence": 0.9}
    assert options(request) == "--max-drop 0.03 --confidence 0.9"
    other = replace(chosen, guarantee=replace(chosen.guarantee or pytest.fail("none"), bound="wsr"))
    assert options(reachable_points(model, other)[0].request) == ""  # no command has this option


def test_no_request_gets_a_point_made_by_hand() -> None:
    model, source = toy(*drawn(300, 4, 3))
    chosen = at(model, 0.8123)
    assert reachable_points(model, chosen)[0].request == {}
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
