from dataclasses import replace

from offramp.report import _tables as tables
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


def test_points_that_a_request_gets_have_its_options() -> None:
    findings = found()
    page = tables.points(findings, "threshold")
    requests = [entry.request["cost"] for entry in findings.frontier if entry.request]
    assert requests
    assert page.count("<td>--cost ") == len(requests)
    assert all(f"<td>--cost {cost:g}</td>" in page for cost in requests)


def test_names_are_escaped() -> None:
    findings = found()
    named = replace(findings.full, name="<i>a&b</i>\x00")
    assert "&lt;i&gt;a&amp;b&lt;/i&gt;\ufffd by itself" in tables.alternatives(replace(findings, alternatives=(named,)))
