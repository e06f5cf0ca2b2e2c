"""The picture of evidence can be drawn of long, short and endless fortunes."""

from xml.etree import ElementTree

from offramp.report.canvas import to_svg
from offramp.report.evidence import evidence_over_time
from tests.cases import each


@each(
    ("counts", "curves"),
    [
        ([100, 200], {"exit": [1.0, 0.5], "confidence": [3.0, 1e300], "disagreement": [1.0, 0.0]}),
        ([1], {"exit": [1.0]}),
        ([], {"exit": [], "confidence": []}),
    ],
)
def test_drawn(counts: list[int], curves: dict[str, list[float]]) -> None:
    root = ElementTree.fromstring(to_svg(evidence_over_time(counts, curves, needed=300)))
    written = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Evidence of a change", "alarm", *curves} <= set(written)
    assert not any("$" in text for text in written)
