import itertools
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from offramp.report import find
from offramp.report._canvas import to_svg
from offramp.report._chart import CHOSEN, NARROW, SHOWN, WIDE, accuracy_against_cost
from offramp.report._markup import inline_svg
from offramp.report._palette import PALETTE
from tests.cases import each
from tests.report.examples import at, drawn, found, toy, with_gates
from tests.report.test_pictures import texts


@each(("samples", "exits", "threshold"), [(1, 2, 0.8), (40, 2, 0.0), (60, 30, 0.8)])
@each("size", [WIDE, NARROW])
def test_all_kinds_of_findings_can_be_drawn(
    samples: int, exits: int, threshold: float, size: tuple[float, float]
) -> None:
    findings = found(samples=samples, exits=exits, classes=2, threshold=threshold)
    chart = accuracy_against_cost(findings, size)
    assert texts(chart.figure)
    assert len(chart.positions) == len(findings.frontier)


@each("size", [WIDE, NARROW])
def test_the_marker_goes_where_the_points_are(size: tuple[float, float]) -> None:
    findings = found()
    chart = accuracy_against_cost(findings, size)
    svg = inline_svg(to_svg(chart.figure), name="one", label="chart")
    root = ElementTree.fromstring(svg)
    marks = {}
    for name in (CHOSEN, SHOWN):
        (group,) = (group for group in root.iter("g") if group.get("id") == f"one-{name}")
        (use,) = group.iter("use")
        marks[name] = [float(use.get("x", "")), float(use.get("y", ""))]
    index = next(index for index, entry in enumerate(findings.frontier) if entry.measured is findings.chosen)
    assert marks[SHOWN] == marks[CHOSEN] == pytest.approx(list(chart.positions[index]), abs=1)
    lefts = [left for left, _ in chart.positions]
    assert lefts == sorted(lefts)
    accuracies = [entry.measured.accuracy for entry in findings.frontier]
    heights = {accuracy: top for accuracy, (_, top) in zip(accuracies, chart.positions, strict=True)}
    ranked = [heights[accuracy] for accuracy in sorted(heights)]
    assert ranked == sorted(ranked, reverse=True)  # down the page is less accurate
    assert all(0 <= left <= 72 * size[0] and 0 <= top <= 72 * size[1] for left, top in chart.positions)


def test_very_cheap_points_have_a_logarithmic_axis() -> None:
    findings = found()
    assert accuracy_against_cost(findings).figure.axes[0].get_xscale() == "linear"
    cheap = replace(findings.alternatives[-1], relative_cost=0.02)
    spread = replace(findings, alternatives=(*findings.alternatives, cheap))
    figure = accuracy_against_cost(spread).figure
    assert figure.axes[0].get_xscale() == "log"
    assert "0.02" in texts(figure)
    free = replace(findings, alternatives=(*findings.alternatives, replace(cheap, relative_cost=0.0)))
    assert accuracy_against_cost(free).figure.axes[0].get_xscale() == "linear"


def test_networks_and_policies_are_named_and_labels_do_not_touch() -> None:
    frontier, source = toy(*drawn(200, 6, 3), members=(2, 4))
    findings = find(with_gates(frontier), source, point=at(frontier, 0.8))
    figure = accuracy_against_cost(findings).figure
    assert {"threshold", "gates", "net0", "net1", "chosen", "one exit for all"} <= set(texts(figure))
    extents = [note.get_window_extent() for note in figure.axes[0].texts]
    assert len(extents) > 3
    assert not any(one.overlaps(other) for one, other in itertools.combinations(extents, 2))


def test_policies_keep_their_colours_whatever_order_they_come_in() -> None:
    frontier, source = toy(*drawn(200, 6, 3), members=(2, 4))
    both = with_gates(frontier)
    turned = replace(both, points=dict(reversed(list(both.points.items()))))
    one, other = (find(given, source, point=at(frontier, 0.8)) for given in (both, turned))
    assert list(one.curves) == list(other.curves) == ["threshold", "gates"]
    swapped = replace(one, curves=dict(reversed(list(one.curves.items()))))
    figures = [accuracy_against_cost(findings).figure for findings in (one, other, swapped)]
    looks = [{str(line.get_label()): line.get_color() for line in figure.axes[0].lines} for figure in figures]
    assert looks[0] == looks[1] == looks[2]
    assert looks[0]["threshold"] == PALETTE["blue"].light
    assert looks[0]["gates"] == PALETTE["purple"].light
    assert to_svg(figures[0]) == to_svg(figures[1]) == to_svg(figures[2])


def test_low_points_are_cut_off_and_the_axis_says_so() -> None:
    findings = found()
    low = replace(findings.alternatives[-1], accuracy=0.01)
    cut = replace(findings, alternatives=(*findings.alternatives, low))
    assert any("the low end is cut" in text for text in texts(accuracy_against_cost(cut).figure))
