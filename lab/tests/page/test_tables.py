import re
from dataclasses import replace

from lab.tests.page.examples import ON_LINEAR, content
from offramp_bench.page import parse_results, tables
from offramp_bench.page.results import Gap, Measure, Observation
from tests.report.test_page import Page

RESULTS = parse_results(content("cifar10", "cifar10-cascade", "nci1"))


def rows(html: str) -> dict[str, list[str]]:
    """Cells of each row, by the first."""
    Page(html)
    found = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", html)]
    return {cells[0]: cells[1:] for cells in found if cells}


def test_areas() -> None:
    found = rows(tables.areas(RESULTS))
    shown = [RESULTS.tasks["nci1"].contestants[name] for name in ("offramp", "JEI-DNN", "threshold", "ZTW")]
    assert found["nci1"] == ["6,000", "80.0", *(f"{100 * one.area:.2f}" for one in shown), "ZTW"]
    assert found["cifar10-cascade"][3] == "\N{EN DASH}"


def test_differences() -> None:
    found = rows(tables.differences(RESULTS))
    one = RESULTS.tasks["nci1"].contestants["JEI-DNN"]
    ends = f"{100 * one.interval[0]:+.2f} to {100 * one.interval[1]:+.2f}"
    assert found["nci1"][:2] == [f"{100 * one.below_default:+.2f}", ends]
    assert found["cifar10-cascade"][:4] == ["\N{EN DASH}"] * 4
    assert found["cifar10-cascade"][4].startswith("+")


def test_costs() -> None:
    found = rows(tables.costs(RESULTS, "cost_at_half", "half a point less"))["cifar10"]
    task = RESULTS.tasks["cifar10"]
    assert found[0] == f"{task.contestants['offramp'].cost_at_half:.2f}"
    others = [one for one in task.contestants.values() if one.kind in ("paper", "rival")]
    assert found[3] == f"{min(one.cost_at_half for one in others if one.cost_at_half):.2f}"
    assert found[4] in {one.name for one in others}


def test_costs_show_where_somebody_else_is_cheaper() -> None:
    task = RESULTS.tasks["nci1"]
    ours, other = task.contestants["offramp"], task.contestants["ZTW"]
    for cost, lost in ((0.3, False), (0.5, True), (None, True)):
        rows = {"offramp": replace(ours, cost_at_full=cost), "ZTW": replace(other, cost_at_full=0.4)}
        changed = replace(RESULTS, tasks={"nci1": replace(task, contestants=rows)})
        html = tables.costs(changed, "cost_at_full", "all")
        assert ('<td class="wrong">0.40</td><td class="words wrong">ZTW</td>' in html) == lost


def test_tasks_claims_and_names() -> None:
    told = replace(RESULTS, tasks={"nci1": replace(RESULTS.tasks["nci1"], about="molecules")})
    assert rows(tables.about(told))["nci1"] == ["graph", "molecules"]
    found = rows(tables.claims(RESULTS))
    assert found == {name: [one.verdict] for name, one in RESULTS.observations.items()}
    assert rows(tables.pairs("t", ("x", "y"), [("a", "b")])) == {"a": ["b"]}


def test_who_is_ahead_is_told_with_how_sure() -> None:
    found = rows(tables.winners(RESULTS))
    assert found["nci1"][0] == "nobody"
    assert found["nci1"][1].startswith("offramp&#x27;s exits, stopping +0.")
    task = RESULTS.tasks["nci1"]
    sure = replace(task.contestants["ZTW"], below_default=-0.02, interval=(-0.03, -0.01))
    changed = replace(RESULTS, tasks={"nci1": replace(task, contestants={**task.contestants, "ZTW": sure})})
    html = tables.winners(changed)
    assert rows(html)["nci1"][0] == "ZTW +2.00 (95 %)"
    assert 'class="words wrong"' in html


def test_bars() -> None:
    found = [*rows(tables.bars(RESULTS)).values()]
    assert found == [["\N{MINUS SIGN}1.200", "0", "holds"], ["1.000", "0", "missed"]]


def test_figures_of_a_claim_show_what_is_noise_and_what_speaks_against_it() -> None:
    gaps = {"a": Gap(2.0, 1.0), "b": Gap(0.5, 1.0), "c": Gap(-2.0, 1.0)}
    measures = (Measure("points", gaps, ("c",), "mixed"), Measure("others", {"d": Gap(1.5, 1.0)}, (), "holds"))
    html = tables.figures(Observation("n", "c", "mixed", measures, "w"))
    assert rows(html)["points"] == ["mixed", "+2.00", "+0.50", "\N{MINUS SIGN}2.00", "\N{EN DASH}"]
    assert '<td>+2.00</td><td class="level">+0.50</td><td class="wrong">' in html


def test_what_parts_bring() -> None:
    html = tables.brought(RESULTS, "t", "exits")
    task = RESULTS.tasks["nci1"].contestants
    expected = task["ladder, paper's look"].area - task["offramp"].area
    assert rows(html)["ladder, paper&#x27;s look"][2] == tables.points(expected)
    to_paper = rows(tables.brought_to_paper(RESULTS))
    assert to_paper["full"][2] == tables.points(task["full"].area - task["JEI-DNN"].area)
    first = RESULTS.tasks["cifar10"].contestants
    both = [one["full"].area - one["JEI-DNN"].area for one in (first, task)]
    assert to_paper["full"][0] == tables.points(sum(both) / 2)
    assert "cifar10-cascade" not in tables.brought_to_paper(RESULTS)


def test_means_leave_cascades_out_and_parts_that_are_ahead_are_told() -> None:
    name, task = "offramp's exits, threshold", RESULTS.tasks["nci1"]
    ahead = replace(task.contestants[name], area=task.contestants["offramp"].area + 0.02, interval=(-0.03, -0.01))
    alone = replace(task, contestants={**task.contestants, name: ahead})
    html = tables.brought(replace(RESULTS, tasks={**RESULTS.tasks, "nci1": alone}), "t", "policy")
    first, cascade = (RESULTS.tasks[one].contestants for one in ("cifar10", "cifar10-cascade"))
    found = rows(html)["offramp&#x27;s exits, threshold"]
    assert found[0] == tables.points((first[name].area - first["offramp"].area + 0.02) / 2)
    assert found[2] == tables.points(cascade[name].area - cascade["offramp"].area)
    assert '<td class="wrong">+2.00</td>' in html


def test_coverage_is_a_mean_over_the_curve() -> None:
    curve = RESULTS.tasks["nci1"].contestants["threshold"].curve
    expected = sum(point.coverage or 0 for point in curve) / len(curve)
    assert rows(tables.coverage(RESULTS, ["threshold"]))["threshold"][1] == f"{100 * expected:.1f}"


def test_training() -> None:
    seconds, parameters = map(rows, tables.training(RESULTS))
    assert seconds["JEI-DNN"] == ["75", "\N{EN DASH}", "75"]
    assert parameters["JEI-DNN"] == ["10,050", "\N{EN DASH}", "2,050"]
    assert seconds[", ".join(ON_LINEAR)] == ["50", "\N{EN DASH}", "50"]
    assert seconds["BoostedNet"] == ["53", "\N{EN DASH}", "53"]
