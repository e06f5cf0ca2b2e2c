from dataclasses import replace

from offramp.report import _tables as tables
from offramp.report._answers import Sample
from tests.report.examples import found


def test_the_chosen_point_is_in_its_table_once() -> None:
    findings = found()
    page = tables.points(findings, "threshold")
    assert page.count('<tr class="chosen">') == 1
    inside = replace(findings, curves={"threshold": (*findings.curves["threshold"], findings.chosen)})
    assert tables.points(inside, "threshold") == page
    other = replace(findings, policy="gates", curves={**findings.curves, "gates": ()})
    assert "chosen" not in tables.points(other, "threshold")


def test_exits_of_several_networks_are_told_apart() -> None:
    findings = found(threshold=2.0)
    page = tables.exits(findings)
    assert "network</th>" not in page
    assert page.count("\N{EN DASH}") == 9  # nobody leaves at three exits: three figures each
    first, *rest = findings.exits
    assert ">other</td>" in tables.exits(replace(findings, exits=(replace(first, network="other"), *rest)))


def test_texts_and_classes_are_escaped_and_cut() -> None:
    samples = (Sample(0, 0, 1, 2, 0.9), Sample(1, 1, 1, 2, 0.8))
    page = tables.texts("t", samples, ["<script>x</script>\x00", "y" * 1000], ["<i>", "a&b"])
    assert "<script>" not in page
    assert "&lt;script&gt;x&lt;/script&gt;\ufffd" in page
    assert '<td class="words wrong">a&amp;b, is &lt;i&gt;</td>' in page
    assert "y" * 299 + "…" in page
    assert "y" * 300 not in page
