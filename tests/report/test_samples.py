import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from offramp.features import ArraySource
from offramp.report._answers import Sample
from offramp.report._findings import Findings
from offramp.report._samples import show_samples
from tests.report.examples import found
from tests.report.test_page import Page


def labelled(findings: Findings) -> list[int]:
    """Labels of all rows, as far as the findings know them."""
    known = {sample.row: sample.label for sample in (*findings.first, *findings.last)}
    return [known.get(row, 0) for row in range(findings.samples)]


def of(samples: Sequence[Sample]) -> Findings:
    """Findings of two classes with hostile names, in which these samples leave first and none leaves last."""
    return replace(found(samples=40, exits=2, classes=2, names=("<i>" * 30, "a&b")), first=tuple(samples), last=())


def test_texts_are_escaped_cut_and_unfold() -> None:
    findings = found(samples=60, exits=2, classes=2)
    texts = np.array([f"<u>text {row}</u>" + "y" * 400 * (row % 2) for row in range(60)])
    shown = show_samples(findings, ArraySource(texts, labelled(findings), name="t"))
    Page(shown)
    assert "<u>" not in shown
    assert "…" in shown
    assert "y" * 300 not in shown
    for sample in (*findings.first, *findings.last):
        assert f"&lt;u&gt;text {sample.row}&lt;/u&gt;" in shown
    assert shown.count("<summary>18 more</summary>") == 2
    assert shown.count("<li") == 48


def test_wrong_answers_are_marked_with_the_true_class_and_names_are_escaped() -> None:
    samples = [Sample(0, 1, 1, 0, 0.9), Sample(1, 0, 1, 0, 0.8)]
    images = np.zeros((40, 8, 8, 3), np.uint8)
    shown = show_samples(of(samples), ArraySource(images, [1, 0] + [0] * 38, name="t"))
    Page(shown)
    assert shown.count('<li class="wrong">') == 1
    assert re.findall('<span class="answer">([^<]*)</span>', shown) == [
        "a&amp;b",
        "a&amp;b; is " + "&lt;i&gt;" * 19 + "&lt;i…",
    ]
    assert shown.count('src="data:image/png;base64,iVBORw0') == 2
    assert 'alt="row 0, answered a&amp;b at exit 0 with confidence 90.0' in shown
    assert "The first 2 of these rows, not selected by hand; 1 are right" in shown


def test_without_samples_to_show_the_page_says_why() -> None:
    findings = found(samples=40, exits=2, classes=2)
    assert "written without their source" in show_samples(findings, None)
    numbers = ArraySource(np.zeros((40, 5)), labelled(findings), name="t")
    assert "neither images nor texts" in show_samples(findings, numbers)
    together = found(samples=40, exits=2, classes=2, threshold=0.0)
    shown = show_samples(together, ArraySource(np.array(["x"] * 40), labelled(together), name="t"))
    assert "All inputs leave at exit 0" in shown
