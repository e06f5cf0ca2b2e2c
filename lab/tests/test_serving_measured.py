"""The table of measured servers is that of the committed results."""

from offramp_bench.serving.measured import PAGE, make_page, read_checks


def test_a_missed_bar_is_named() -> None:
    bars = [{"name": "late", "figure": 0.25, "at_most": 0.01, "held": False}]
    page = make_page("<!-- measured --><!-- /measured -->", {"overload": {"processor": "a processor", "bars": bars}})
    assert "| `overload` | late | 0.25 | 0.01 | **missed** |" in page
    assert "Processor: a processor." in page
    assert "Not measured to the end yet: `hostile`, `int8`, `peer`, `replicas`, `serve`." in page


def test_the_page_is_that_of_the_committed_results() -> None:
    page = PAGE.read_text("utf-8")
    assert make_page(page, read_checks()) == page
