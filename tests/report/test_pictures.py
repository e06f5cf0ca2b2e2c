"""Pictures are looked at by people; here: that all kinds of findings can be drawn, and that names stay names."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib

from offramp.report import find
from offramp.report._canvas import Figure, to_png, to_svg
from offramp.report._findings import Findings
from offramp.report._palette import PALETTE
from offramp.report._pictures import accuracy_by_exit, change_by_class, evidence_over_time, reliability_diagram
from tests.cases import each
from tests.report.examples import at, drawn, found, toy, with_gates

HOSTILE = ("$x_1$ \\frac{", "<b>&amp;\"'", "nul\x00 \ud800 line\nbreak", "喵", "--> ]]>")


def texts(figure: Figure) -> list[str]:
    root = ElementTree.fromstring(to_svg(figure))
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


def every(findings: Findings) -> list[Figure]:
    drawing = (accuracy_by_exit, reliability_diagram, change_by_class)
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
    assert f"Change by class: 15 worst, 5 best of {len(known)}" in written
    shown = [text for text in written if re.fullmatch(r"class \d+", text)]
    assert shown == [one.name for one in [*known[:15], *known[-5:]]]


def test_colours_mean_the_same_in_every_picture() -> None:
    frontier, source = toy(*drawn(200, 6, 3), members=(2, 4))
    findings = find(with_gates(frontier), source, point=at(frontier, 0.8))
    gates = replace(findings, policy="gates")
    assert any(row.change is not None and row.change < 0 for row in findings.by_class)
    for given, own, other in ((findings, "blue", "purple"), (gates, "purple", "blue")):
        for figure in every(given):
            assert PALETTE[own].light in to_svg(figure)
            assert PALETTE[other].light not in to_svg(figure)
        losses = [PALETTE["orange"].light in to_svg(figure) for figure in every(given)]
        assert losses == [False, False, True]  # orange is a loss, in changes by class
    figure = accuracy_by_exit(findings)
    assert "exit of net0 | net1" in texts(figure)
    colours = {str(line.get_label()): line.get_color() for line in figure.axes[0].lines}
    assert colours["full network, on the same samples"] == PALETTE["ink"].light
    assert colours["exit, on all samples"] == PALETTE["grey"].light


def test_pictures_leave_the_settings_of_matplotlib_alone() -> None:
    before = dict(matplotlib.rcParams)
    findings = found(samples=40)
    assert to_svg(accuracy_by_exit(findings)) == to_svg(accuracy_by_exit(findings))
    assert dict(matplotlib.rcParams) == before


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
