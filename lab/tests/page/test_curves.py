"""Pictures are looked at by people; here: that what is drawn is what was measured, and that all of it can be drawn."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lab.tests.page.examples import content
from offramp_bench.page import parse_results
from offramp_bench.page.card import Picture
from offramp_bench.page.curves import ACCURACY, CALIBRATION, SETS, against_cost, compared
from offramp_bench.page.pictures import calibration_by_depth, convergence, coverage, decomposition
from tests.cases import each
from tests.report.test_pictures import texts

RESULTS = parse_results(content("cifar10", "cifar10-cascade", "nci1"))


def lines(picture: Picture) -> dict[str, Any]:
    """Lines with an id, by what is told of them."""
    found = {line.get_gid(): line for line in picture.figure.axes[0].lines}
    return {title: found[gid] for gid, title in picture.titles.items() if gid in found and gid.startswith("line")}


@each(("shown", "scale"), [(ACCURACY, 100), (CALIBRATION, 100), (SETS, 1)])
def test_lines_are_the_curves(shown: Any, scale: float) -> None:
    task = RESULTS.tasks["nci1"]
    drawn = lines(against_cost(RESULTS, task, shown))
    assert len(drawn) == 14
    for one in (task.contestants["offramp"], task.contestants["PTEENet"]):
        line = drawn[f"{one.name}: area {100 * one.area:.1f}"]
        assert line.get_xdata().tolist() == [point.cost for point in one.curve]
        assert line.get_ydata() == pytest.approx([scale * getattr(point, shown.column) for point in one.curve])


def test_the_best_rival_and_the_smaller_networks_are_named() -> None:
    written = texts(against_cost(RESULTS, RESULTS.tasks["cifar10"], ACCURACY).figure)
    assert {"offramp", "JEI-DNN", "threshold", "ZTW, best rival", "other rivals", "ResNet-20"} <= set(written)
    assert "ResNet-20" not in texts(against_cost(RESULTS, RESULTS.tasks["cifar10"], SETS).figure)


def test_a_cascade_is_shown_with_its_last_network_alone() -> None:
    written = texts(against_cost(RESULTS, RESULTS.tasks["cifar10-cascade"], ACCURACY).figure)
    assert {"offramp, cifar10", "cascade of full n…, best rival", "ResNet-20"} <= set(written)


def test_what_does_not_matter_is_cut() -> None:
    task = RESULTS.tasks["nci1"]
    poor = replace(task.contestants["BoostedNet"], curve=tuple(
        replace(point, accuracy=0.01, set_size=50.0) for point in task.contestants["BoostedNet"].curve
    ))  # fmt: skip
    changed = replace(task, contestants={**task.contestants, "BoostedNet": poor})
    for shown, highest in ((ACCURACY, 82.0), (SETS, 3.0)):
        bottom, top = against_cost(RESULTS, changed, shown).figure.axes[0].get_ylim()
        assert bottom >= 0 if shown is SETS else bottom > 38
        assert top < highest


def test_few_are_compared_or_none() -> None:
    task = RESULTS.tasks["nci1"]
    picture = compared(task, ("JEI-DNN", "exit if min"), ACCURACY, prefix="min")
    assert picture is not None
    assert len(lines(picture)) == 2
    assert compared(task, ("JEI-DNN", "nobody"), ACCURACY, prefix="min") is None


def test_circles_grow_with_those_who_leave() -> None:
    task = RESULTS.tasks["nci1"]
    picture = decomposition(task, 1)
    circles = {line.get_gid(): line for line in picture.figure.axes[0].lines if line.get_gid()}
    exits = task.decomposition[1].exits
    left = {place: exit.leave for place, exit in enumerate(exits) if exit.leave}
    assert set(circles) == {f"exit-{place}" for place in left} == set(picture.titles)
    sizes = [circles[f"exit-{place}"].get_markersize() for place in left]
    assert np.argsort(sizes).tolist() == np.argsort([*left.values()]).tolist()
    most = max(left, key=lambda place: left[place])
    assert circles[f"exit-{most}"].get_ydata() == pytest.approx([100 * (exits[most].accuracy or 0)])
    assert f"{left[most]:,} leave" in picture.titles[f"exit-{most}"]


def test_depth_is_a_mean_over_cost_weights() -> None:
    task = RESULTS.tasks["nci1"]
    (line,) = calibration_by_depth({"nci1": task}).figure.axes[0].lines
    errors = [one.exits[3].ece for one in task.decomposition if one.exits[3].ece is not None]
    depths, drawn = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    assert drawn[np.isclose(depths, 100 * 3 / 7)].item() == pytest.approx(100 * sum(errors) / len(errors))


def test_coverage_is_drawn_above_what_was_asked() -> None:
    assert coverage(RESULTS.tasks["cifar10-cascade"]) is None
    picture = coverage(RESULTS.tasks["nci1"])
    assert picture is not None
    assert picture.caption == "nci1. Farthest from what was asked for: one an exit, from all, by +1.2 points."
    above = {line.get_label(): line.get_ydata() for line in picture.figure.axes[0].lines}
    assert above["one for all"] == pytest.approx([0.2] * 5)
    assert above["one an exit, from its own"] == pytest.approx([-1.0] * 5)


def test_convergence_shows_both() -> None:
    first, second = convergence(RESULTS.tasks["nci1"]).figure.axes[0].lines
    assert first.get_ydata() == pytest.approx([0.55 + 0.4 * np.exp(-epoch) for epoch in range(10)])
    assert second.get_ydata() == pytest.approx([0.55 + 0.4 * np.exp(-0.4 * epoch) for epoch in range(10)])
