import re
from dataclasses import replace
from itertools import pairwise

import pytest

from offramp.report import find
from offramp.report._network import draw_network, list_exits, list_flows
from tests.report.examples import at, drawn, found, toy
from tests.report.test_page import Page


def test_what_does_not_leave_goes_on() -> None:
    findings = found(exits=5)
    exits = list_exits(findings)
    assert exits == (0, 1, 2, 3, 4)
    for entry in findings.frontier:
        flows = list_flows(entry, exits)
        assert flows[0].before == 1
        assert [here.share for here in flows] == pytest.approx([entry.measured.exit_shares[exit] for exit in exits])
        for here, after in pairwise(flows):
            assert here.before - here.share == pytest.approx(after.before, abs=1e-6)
        assert flows[-1].before == pytest.approx(flows[-1].share, abs=1e-6)


def test_exits_that_a_point_does_not_use_are_told_apart() -> None:
    frontier, source = toy(*drawn(100, 4, 3))
    findings = find(frontier, source, point=at(frontier, 0.8, active=(1, 3)))
    chosen = next(entry for entry in findings.frontier if entry.measured is findings.chosen)
    assert [here.text == "unused" for here in list_flows(chosen, list_exits(findings))] == [True, False, True, False]
    alone = replace(findings, frontier=(chosen,))
    stages = re.findall('class="name">([^<]*)<', draw_network(alone, chosen))
    assert stages == ["stages 0\N{EN DASH}1", "stages 2\N{EN DASH}3"]


def test_networks_are_named_once_and_escaped() -> None:
    frontier, source = toy(*drawn(100, 6, 3), members=(2, 4))
    findings = find(frontier, source, point=at(frontier, 0.8))
    findings = replace(findings, networks=("<b>", "<b>", *findings.networks[2:]))
    drawing = draw_network(findings, findings.frontier[0])
    Page(drawing)
    assert re.findall('class="member">([^<]*)<', drawing) == ["&lt;b&gt;", "net1"]
    assert drawing.count('class="exit"') == 6
