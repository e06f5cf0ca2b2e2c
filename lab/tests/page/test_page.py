import json
import re
from pathlib import Path
from typing import Any

import pytest

import offramp_bench.page
from lab.tests.page.examples import content
from offramp.report._palette import PALETTE
from offramp_bench.page import parse_results, write_paper_page
from offramp_bench.page.page import headline
from offramp_bench.page.sections import FIVE, sections
from offramp_bench.paper.observations import observations
from tests.report.test_page import Page

HOSTILE = "<script>alert(1)</script> & \"'$5\x00"


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return content("cifar10", "cifar10-cascade", "nci1")


@pytest.fixture(scope="module")
def page(told: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = write_paper_page(parse_results(told), tmp_path_factory.mktemp("paper") / "deep" / "paper.html")
    return path.read_text(encoding="utf-8")


def test_all_sections_are_there_with_their_pictures(page: str) -> None:
    parsed = Page(page)
    assert parsed.tags.count("section") == 14 == len(sections())
    for section in sections():
        assert f'href="#{section.anchor}"' in page
    # Accuracy, calibration and sets of three tasks; of two of them coverage, three weights, convergence, exit if min;
    # depth; one graph task.
    assert parsed.tags.count("svg") == 9 + 2 * (1 + 3 + 1 + 1) + 1 + 1
    assert "has not been measured" not in parsed.text
    assert "Nothing of this" not in parsed.text


def test_claims_stand_beside_figures(page: str, told: dict[str, Any]) -> None:
    text = Page(page).text.replace("\N{NO-BREAK SPACE}", " ")
    for one in told["observations"]:
        assert text.count(f"The paper: {one['claim']}") == 1 + (one["name"] in FIVE[:3])
        assert one["why"] in text
    assert {one["name"] for one in told["observations"]} == {*FIVE, *(n for s in sections() for n in s.claims)}


def test_the_numbers_are_those_of_the_results(page: str, told: dict[str, Any]) -> None:
    text = Page(page).text.replace("\N{MINUS SIGN}", "-")
    rows = told["tasks"]["cifar10"]["contestants"]
    assert f"{100 * rows['offramp']['area']:.2f}" in text
    assert f"{100 * rows['JEI-DNN']['below default']:+.2f}" in text
    assert f"{100 * (rows['plain']['area'] - rows['JEI-DNN']['area']):+.2f}" in text
    assert f"{rows['L2W-DEN']['CPU seconds']:,.0f}" in text


def test_the_page_needs_nothing_from_outside(page: str) -> None:
    parsed = Page(page)
    assert not {"script", "link", "iframe", "object", "img"} & set(parsed.tags)
    for key, value in parsed.attributes:
        assert not key.startswith("on")
        if key in ("src", "href", "xlink:href"):
            assert value.startswith("#")
        assert "http" not in value
        assert key != "style" or not re.search(r"url\((?!#)", value)
    assert "@import" not in page
    assert "http" not in page.split("</style>")[0]


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    attributes = Page(page).attributes
    ids = [value for key, value in attributes if key == "id"]
    assert len(set(ids)) == len(ids)
    assert {value[1:] for key, value in attributes if key == "href"} <= set(ids)
    assert {text for value in re.findall(r"url\(#([^)]*)\)", page) for text in [value]} <= set(ids)


def test_colours_follow_the_reader(page: str) -> None:
    style, body = page.split("</style>", 1)
    assert not re.search("#[0-9a-f]{6}", re.sub(r'href="[^"]*"|url\([^)]*\)', "", body))
    assert "prefers-color-scheme: dark" in style
    assert set(re.findall(r"var\(--([\w-]+)\)", page)) <= {*PALETTE, "ground"}


def test_names_are_told_where_the_pointer_rests(page: str) -> None:
    svg = page[page.index('aria-label="cifar10. Further left') :]
    titles = re.findall(r"<title>(.*?)</title>", svg[: svg.index("</svg>")])
    assert {title.split(":")[0] for title in titles} >= {"offramp", "JEI-DNN", "threshold", "BoostedNet", "PTEENet"}


def test_names_of_others_are_text_and_nothing_else(told: dict[str, Any], tmp_path: Path) -> None:
    hostile = json.loads(json.dumps(told))
    task = hostile["tasks"].pop("cifar10")
    task["contestants"][HOSTILE] = task["contestants"].pop("BoostedNet")
    hostile["tasks"] = {HOSTILE: task}
    hostile["bars"][0]["name"] = HOSTILE
    for one in hostile["observations"]:
        one["claim"] = one["why"] = HOSTILE
        one["figures"][0]["what"] = HOSTILE
    page = write_paper_page(parse_results(hostile), tmp_path / "p.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "\x00" not in page
    assert HOSTILE.replace("\x00", "\N{REPLACEMENT CHARACTER}") in Page(page).text


def test_whatever_is_missing_the_page_is_written(told: dict[str, Any], tmp_path: Path) -> None:
    empty = write_paper_page(parse_results({"tasks": {}, "bars": []}), tmp_path / "empty.html")
    text = Page(empty.read_text(encoding="utf-8")).text
    assert "Nothing has been measured yet." in text
    assert text.count("The results hold no verdict on this.") == 11
    lone = json.loads(json.dumps(told))
    del lone["observations"], lone["tasks"]["cifar10"], lone["tasks"]["nci1"]  # a cascade without its last network
    Page(write_paper_page(parse_results(lone), tmp_path / "lone.html").read_text(encoding="utf-8"))
    few = json.loads(json.dumps(told))
    kept = few["tasks"]["nci1"]["contestants"]
    few["missing"] = ["svhn", "clinc150"]
    few["tasks"] = {"nci1": {**few["tasks"]["nci1"], "contestants": {"offramp": kept["offramp"]}, "decomposition": []}}
    page = write_paper_page(parse_results(few), tmp_path / "few.html").read_text(encoding="utf-8")
    text = Page(page).text.replace("\N{NO-BREAK SPACE}", " ")
    assert "The paper's method has not been measured on nci1 yet." in text
    assert "so not on this page: svhn, clinc150." in text


def test_contestants_that_came_out_the_same_are_told(told: dict[str, Any], tmp_path: Path) -> None:
    same = json.loads(json.dumps(told))
    rows = same["tasks"]["nci1"]["contestants"]
    rows["ladder, paper's look"] |= {key: rows["offramp"][key] for key in ("area", "curve")}
    same["tasks"] = {"nci1": same["tasks"]["nci1"]}
    same["observations"] = observations(same["tasks"])
    page = write_paper_page(parse_results(same), tmp_path / "page.html").read_text("utf-8")
    said = "On nci1 these came out the same, to the last digit: offramp; ladder, paper's look."
    assert said in Page(page).text.replace("\N{NO-BREAK SPACE}", " ")


def test_odd_curves_can_be_drawn(told: dict[str, Any], tmp_path: Path) -> None:
    """One point, points at one cost, below the axis or above the full cost; exits that nobody leaves at."""
    odd = json.loads(json.dumps(told))
    rows = odd["tasks"]["nci1"]["contestants"]
    point = rows["offramp"]["curve"][-1]
    rows["offramp"]["curve"] = [point]
    rows["JEI-DNN"]["curve"] = [point] * 24
    rows["threshold"]["curve"] = [[1.4, *point[1:]], [1.6, *point[1:]]]
    rows["ZTW"]["curve"] = [[0.0, 0.1, 0.0, 0.0, 1.0, 0.0], [0.01, *point[1:]]]
    for one in odd["tasks"]["nci1"]["decomposition"]:
        for exit in one["exits"]:
            exit |= {"leave": 0, "accuracy": None, "accuracy at the end": None, "ece": None}
    odd["tasks"] = {"nci1": odd["tasks"]["nci1"]}
    odd["observations"] = observations(odd["tasks"])
    Page(write_paper_page(parse_results(odd), tmp_path / "odd.html").read_text(encoding="utf-8"))


def test_headline(told: dict[str, Any]) -> None:
    said = headline(parse_results(told))
    assert "offramp is above JEI-DNN with 95 % on 2 of 2 tasks, below it on 0." in said
    assert f"Verdicts on {len(told['observations'])} claims of the paper: " in said
    assert said.endswith("1 of 2 bars hold.")


def test_the_headline_says_where_others_are_cheaper(told: dict[str, Any]) -> None:
    dear = json.loads(json.dumps(told))
    dear["tasks"]["nci1"]["contestants"]["offramp"]["cost at full - .5"] = 1.01
    said = "Somebody reaches half a point less at less cost than offramp on nci1."
    assert [said in headline(parse_results(one)) for one in (told, dear)] == [False, True]


def test_matplotlib_is_imported_by_the_canvas_alone() -> None:
    folder = Path(offramp_bench.page.__path__[0])
    for file in folder.glob("*.py"):
        assert not re.search(r"^\s*(import|from) matplotlib", file.read_text(), re.MULTILINE), file.name
