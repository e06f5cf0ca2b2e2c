import json
import shutil
import subprocess
from pathlib import Path

import pytest

from offramp.report._chart import NARROW, WIDE, accuracy_against_cost
from offramp.report._findings import Findings
from offramp.report._network import list_exits, list_flows
from offramp.report._slider import collect_data, describe_point, find_chosen, write_script
from offramp.report._words import headline
from tests.report.examples import found

PAGE = """
const source = require("fs").readFileSync(0, "utf8").split("\\0");
const elements = {}, marker = () => ({at: {}, setAttribute(name, value) { this.at[name] = value; }});
const part = () => ({style: {}, textContent: ""});
const get = (id) => elements[id] ??= {textContent: "", hidden: true, addEventListener(_, run) { this.moved = run; }};
get("frontier").textContent = source[0];
const data = JSON.parse(source[0]), markers = [marker(), marker()];
const exits = data.points[0].exits.map(() => {
  const parts = {".flow": part(), ".ramp span": part(), ".share": part()};
  return {parts, querySelector: (name) => parts[name]};
});
globalThis.document = {getElementById: get, querySelectorAll: (name) => name.startsWith(".chart") ? markers : exits};
globalThis.location = {hash: "#point=2"};
globalThis.history = {replaceState: (_, __, hash) => { location.hash = hash; }};
let changed = null;
globalThis.addEventListener = (_, run) => { changed = run; };
new Function(source[1])();
const seen = () => ({
  value: Number(elements.point.value), hidden: elements.slide.hidden, hash: location.hash,
  texts: Object.fromEntries(Object.keys(data.points[0].texts).map((id) => [id, elements[id].textContent])),
  positions: markers.map((one) => [one.at.x, one.at.y]),
  exits: exits.map(({parts: {".flow": flow, ".ramp span": ramp, ".share": share}}) =>
    [flow.style.width, ramp.style.width, share.textContent]),
});
const states = [seen()];
elements.point.value = "1"; elements.point.moved(); states.push(seen());
for (const hash of ["#point=999", "#point=x"]) { location.hash = hash; changed(); states.push(seen()); }
console.log(JSON.stringify(states));
"""
"""A page of stand-ins for elements: opened at point 2, slid to point 1, then sent to points that are not there."""


@pytest.fixture(scope="module")
def findings() -> Findings:
    return found()


def data_of(findings: Findings) -> dict[str, object]:
    charts = [accuracy_against_cost(findings, size) for size in (WIDE, NARROW)]
    data: dict[str, object] = json.loads(json.dumps(collect_data(findings, charts, "run me")))
    return data


def test_texts_are_figures_of_the_point(findings: Findings) -> None:
    for index, entry in enumerate(findings.frontier):
        texts = describe_point(findings, index, "run me")
        assert texts["summary"].startswith(headline(entry.measured.relative_cost, findings.unit))
        assert f"{100 * entry.measured.accuracy:.1f}" in texts["accuracy"]
        assert f"{100 * entry.measured.relative_cost:.1f}" in texts["cost"]
        assert texts["index"].startswith(f"Point {index + 1} of {len(findings.frontier)}")
        assert texts["index"].endswith("chosen one") == (index == find_chosen(findings))
        if entry.request:
            cost = entry.request["cost"]
            assert texts["command"] == f"run me \\\n  --cost {cost:g}"
            assert texts["call"] == f"model.at(cost={cost:g})"
        else:
            assert texts["command"] == texts["call"] != ""


def test_positions_and_shares_are_those_of_the_frontier(findings: Findings) -> None:
    charts = [accuracy_against_cost(findings, size) for size in (WIDE, NARROW)]
    data = collect_data(findings, charts, "run me")
    exits = list_exits(findings)
    for point, entry in zip(data["points"], findings.frontier, strict=True):
        for row, here in zip(point["exits"], list_flows(entry, exits), strict=True):
            assert row[:2] == pytest.approx([100 * here.before, 100 * here.share], abs=0.01)
    for chart, positions in enumerate(zip(*(point["positions"] for point in data["points"]), strict=True)):
        assert list(positions) == list(charts[chart].positions)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_script_shows_what_the_data_holds(findings: Findings, tmp_path: Path) -> None:
    data = data_of(findings)
    source = write_script(data).split("<script>")[1].removesuffix("</script>")
    (tmp_path / "page.cjs").write_text(PAGE)
    ran = subprocess.run(
        ["node", tmp_path / "page.cjs"],
        input=f"{json.dumps(data)}\0{source}",
        capture_output=True,
        text=True,
        check=True,
    )
    points = data["points"]
    assert isinstance(points, list)
    indices = (1, 0, len(points) - 1, find_chosen(findings))
    hashes = ("#point=2", "#point=1", "#point=999", "#point=x")
    for state, index, hash_ in zip(json.loads(ran.stdout), indices, hashes, strict=True):
        assert state["value"] == index + 1
        assert state["hash"] == hash_
        assert not state["hidden"]
        assert state["texts"] == points[index]["texts"]
        assert state["positions"] == points[index]["positions"]
        exits = points[index]["exits"]
        assert state["exits"] == [[f"{before:g}%", f"{share:g}%", text] for before, share, text in exits]
