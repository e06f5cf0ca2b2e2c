"""Pictures are looked at by people; here: that all kinds of findings can be drawn, and that names stay names."""

import itertools
import re
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import numpy as np

from offramp.report import find
from offramp.report._answers import Sample
from offramp.report._canvas import Figure, to_png, to_svg
from offramp.report._findings import Findings
from offramp.report._palette import PALETTE
from offramp.report._pictures import (
    accuracy_against_cost,
    accuracy_by_exit,
    change_by_class,
    contact_sheet,
    evidence_over_time,
    exits_used,
    reliability_diagram,
)
from tests.cases import each
from tests.report.examples import at, drawn, found, toy, with_gates

HOSTILE = ("$x_1$ \\frac{", "<b>&amp;\"'", "nul\x00 \ud800 line\nbreak", "喵", "--> ]]>")


def texts(figure: Figure) -> list[str]:
    root = ElementTree.fromstring(to_svg(figure))
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


def every(findings: Findings) -> list[Figure]:
    drawing = (accuracy_against_cost, exits_used, accuracy_by_exit, reliability_diagram, change_by_class)
    return [draw(findings) for draw in drawing]


@each(("samples", "exits", "threshold"), [(1, 2, 0.8), (40, 2, 0.0), (60, 30, 0.8)])
def test_all_kinds_of_findings_can_be_drawn(samples: int, exits: int, threshold: float) -> None:
    for figure in every(found(samples=samples, exits=exits, classes=2, threshold=threshold)):
        assert texts(figure)


def test_names_are_written_as_they_are() -> None:
    findings = found(classes=5, names=HOSTILE)
    written = texts(change_by_class(findings))
    assert {"$x_1$ \\frac{", "<b>&amp;\"'", "nul\ufffd \ufffd line break", "喵", "--> ]]>"} <= set(written)
    assert to_png(change_by_class(findings)).startswith(b"\x89PNG")


def test_of_many_classes_the_worst_and_the_best_are_shown() -> None:
    findings = found(samples=900, classes=60, names=tuple(f"class {index}" for index in range(60)))
    known = [one for one in findings.by_class if one.samples]
    written = texts(change_by_class(findings))
    assert f"Change by class: 15 worst and 5 best of {len(known)}" in written
    shown = [text for text in written if re.fullmatch(r"class \d+", text)]
    assert shown == [one.name for one in [*known[:15], *known[-5:]]]


def test_networks_and_policies_are_named_and_labels_do_not_touch() -> None:
    frontier, source = toy(*drawn(200, 6, 3), members=(2, 4))
    findings = find(with_gates(frontier), source, point=at(frontier, 0.8))
    figure = accuracy_against_cost(findings)
    assert {"threshold", "gates", "net0", "net1", "chosen", "one exit for all"} <= set(texts(figure))
    assert "exit of net0 | net1" in texts(exits_used(findings))
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
    figures = [accuracy_against_cost(findings) for findings in (one, other, swapped)]
    looks = [{str(line.get_label()): line.get_color() for line in figure.axes[0].lines} for figure in figures]
    assert looks[0] == looks[1] == looks[2]
    assert looks[0]["threshold"] == PALETTE["blue"].light
    assert looks[0]["gates"] == PALETTE["green"].light
    assert to_svg(figures[0]) == to_svg(figures[1]) == to_svg(figures[2])


def test_pictures_leave_the_settings_of_matplotlib_alone() -> None:
    before = dict(matplotlib.rcParams)
    findings = found(samples=40)
    assert to_svg(exits_used(findings)) == to_svg(exits_used(findings))
    assert dict(matplotlib.rcParams) == before


def test_a_contact_sheet_names_answers_and_frames_wrong_ones() -> None:
    samples = [Sample(0, 1, 1, 0, 0.9), Sample(1, 0, 1, 0, 0.8)]
    images = [np.zeros((48, 24, 3), np.uint8), np.full((20, 48, 3), 200, np.uint8)]
    figure = contact_sheet(samples, images, ["cat", "dog"], title="They leave first")
    written = texts(figure)
    assert written.count("dog") == 2
    assert "is cat" in written
    assert to_svg(figure).count("<image") == 2
    assert len(figure.axes[0].lines) == 1


def test_low_points_are_cut_off_and_the_axis_says_so() -> None:
    findings = found()
    low = replace(findings.alternatives[-1], accuracy=0.01)
    cut = replace(findings, alternatives=(*findings.alternatives, low))
    assert any("the low end is cut" in text for text in texts(accuracy_against_cost(cut)))


@each(
    ("counts", "curves"),
    [
        ([100, 200], {"exit": [1.0, 0.5], "confidence": [3.0, 1e300], "disagreement": [1.0, 0.0]}),
        ([1], {"exit": [1.0]}),
        ([], {"exit": [], "confidence": []}),
    ],
)
def test_evidence_is_drawn(counts: list[int], curves: dict[str, list[float]]) -> None:
    root = ElementTree.fromstring(to_svg(evidence_over_time(counts, curves, needed=300)))
    written = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Evidence of a change", "alarm", *curves} <= set(written)
    assert not any("$" in text for text in written)
