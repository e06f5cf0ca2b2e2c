import json
import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from offramp.errors import InputError
from offramp.features import ArraySource
from offramp.report import find, write_report
from offramp.report._chart import NARROW, WIDE, accuracy_against_cost
from offramp.report._findings import Findings
from offramp.report._markup import prose
from offramp.report._network import draw_network
from offramp.report._palette import PALETTE
from offramp.report._slider import collect_data, describe_point, find_chosen
from offramp.report._words import headline, list_cautions, list_facts, list_notes
from tests.cases import refuses
from tests.report.examples import at, drawn, found, toy

NAMES = ("<script>alert(1)</script>", "\" onload='x' $5 {}", "喵 & co", "--> http://evil.example/\x00")
VOID = {"meta", "br", "img", "link", "hr", "input"}
PICTURES = ["accuracy-against-cost", "accuracy-by-exit", "change-by-class", "reliability"]


class Page(HTMLParser):
    """Checks that every tag is closed in order, and keeps tags, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(key, value or "") for key, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(key, value or "") for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


LOGITS, LABELS = drawn(80, 3, 4)


def scripts(page: str) -> list[str]:
    """The data and the script of a page."""
    return re.findall("<script[^>]*>(.*?)</script>", page, re.DOTALL)


@pytest.fixture(scope="module")
def findings() -> Findings:
    """Findings with hostile names all over."""
    frontier, source = toy(LOGITS, LABELS)
    return find(frontier, source, point=at(frontier, 0.8), classes=NAMES, name=NAMES[0])


@pytest.fixture(scope="module")
def folder(findings: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of images."""
    images = np.random.default_rng(0).integers(0, 255, (80, 8, 8, 3)).astype(np.uint8)
    folder = tmp_path_factory.mktemp("report") / "deep" / "er"
    source = ArraySource(images, LABELS.numpy(), name="t")
    assert write_report(findings, folder, source=source, command="run me") == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_everything_is_written(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["findings.json", "pictures", "report.html"]
    assert sorted(path.stem for path in folder.glob("pictures/*.svg")) == PICTURES
    assert sorted(path.stem for path in folder.glob("pictures/*.png")) == PICTURES
    assert json.loads((folder / "findings.json").read_text())["classes"] == list(NAMES)


def test_the_page_is_well_formed_and_says_what_it_shows(page: str) -> None:
    parsed = Page(page)
    assert parsed.tags.count("svg") == 5  # the chart twice: wide, and for phones
    assert [value for key, value in parsed.attributes if key == "role"].count("img") == 5
    assert all(value for key, value in parsed.attributes if key in ("aria-label", "alt"))
    assert parsed.tags.count("img") == len([key for key, _ in parsed.attributes if key == "alt"]) > 24
    assert parsed.tags.count("figcaption") == parsed.tags.count("figure") == 5
    assert "Operating points of threshold" in parsed.text


def test_the_headline_comes_first_and_the_caveats_unfold(page: str, findings: Findings) -> None:
    parsed = Page(page)
    assert parsed.tags.index("h1") < parsed.tags.index("dl") < parsed.tags.index("details") < parsed.tags.index("h2")
    shown = headline(findings.chosen.relative_cost, findings.unit)
    assert f'<h1 class="saving">{prose(shown)}</h1>' in page
    assert re.findall("<h2>(.*)</h2>", page)[:2] == ["Frontier", "Inputs that leave first and last"]
    folded = page[page.index("<details") : page.index("</details>")]
    first, *others = *list_cautions(findings), *list_notes(findings)
    assert prose(first) in folded
    assert all(f">{prose(other)}</li>" in folded for other in others)


def test_a_single_note_is_one_note(findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for count, text in ((1, "1 more note<"), (2, "2 more notes<")):
        monkeypatch.setattr("offramp.report._page.list_cautions", lambda _: ())
        monkeypatch.setattr("offramp.report._page.list_notes", lambda _, count=count: ("note.",) * (count + 1))
        assert text in write_report(findings, tmp_path).read_text(encoding="utf-8")


def test_figures_of_the_page_are_those_of_the_findings(page: str, findings: Findings) -> None:
    for name, value, detail in list_facts(findings):
        assert f'<dt>{prose(name)}</dt><dd class="value">{prose(value)}</dd>' in page
        assert prose(detail) in page
    for figure in (findings.full.accuracy, findings.chosen.accuracy, findings.chosen.relative_cost):
        assert f"{100 * figure:.1f}\N{NO-BREAK SPACE}%" in page[: page.index("</dl>")]


def test_without_its_script_the_page_shows_the_chosen_point(page: str, findings: Findings) -> None:
    still = page[: page.index("<script")]
    index = find_chosen(findings)
    for name, text in describe_point(findings, index, "run me").items():
        assert re.search(f'id="{name}"[^>]*>{re.escape(prose(text))}<', still), name
    assert draw_network(findings, findings.frontier[index]) in still
    assert '<div id="slide" hidden>' in still  # a slider that nothing would follow is not shown
    assert still.count("<tr") > len(findings.frontier)


def test_the_slider_has_a_label_and_its_output_is_announced(page: str, findings: Findings) -> None:
    assert '<label for="point">' in page
    (slider,) = re.findall("<input[^>]*>", page)
    ends = {name: int(re.findall(f'{name}="([0-9]+)"', slider)[0]) for name in ("min", "max", "value")}
    assert 'type="range" id="point"' in slider
    assert ends == {"min": 1, "max": len(findings.frontier), "value": find_chosen(findings) + 1}
    assert '<output for="point" aria-live="polite">' in page


def test_the_page_needs_nothing_from_outside(page: str) -> None:
    parsed = Page(page)
    assert not {"link", "iframe", "object", "form"} & set(parsed.tags)
    for key, value in parsed.attributes:
        assert not key.startswith("on")
        if key in ("src", "href", "xlink:href"):
            assert value.startswith(("data:image/png;base64,", "#"))
        assert key in ("aria-label", "alt") or "http" not in value or value == "Content-Security-Policy"
        assert key != "style" or not re.search(r"url\((?!#)", value)
    assert "@import" not in page
    for word in ("fetch", "XMLHttpRequest", "import(", "innerHTML", "eval", "http"):
        assert word not in scripts(page)[1], word


def test_the_policy_lets_in_the_one_script_and_nothing_else(page: str) -> None:
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    digest = b64encode(sha256(scripts(page)[1].encode()).digest()).decode()
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_the_data_of_the_script_is_the_frontier(page: str, findings: Findings) -> None:
    data = json.loads(scripts(page)[0])
    charts = [accuracy_against_cost(findings, size) for size in (WIDE, NARROW)]
    assert data == json.loads(json.dumps(collect_data(findings, charts, "run me")))


def test_names_are_text_and_nothing_else(page: str) -> None:
    parsed = Page(page)
    assert page.count("<script") == parsed.tags.count("script") == 2
    assert "\x00" not in page
    assert NAMES[0] in parsed.text
    assert "喵 & co" in parsed.text
    assert not re.search("[<>&\u2028]", scripts(page)[0])


def test_ids_are_unique_and_colours_follow_the_reader(page: str) -> None:
    ids = [value for key, value in Page(page).attributes if key == "id"]
    assert len(ids) > 100
    assert len(set(ids)) == len(ids)
    style, body = page.split("</style>", 1)
    assert not re.search("#[0-9a-f]{6}", re.sub(r'href="[^"]*"|url\([^)]*\)', "", body))
    assert "prefers-color-scheme: dark" in style
    for name, colour in PALETTE.items():
        assert f"--{name}: {colour.light};" in style
        assert f"--{name}: {colour.dark};" in style
    assert set(re.findall(r"var\(--([\w-]+)\)", page)) <= {*PALETTE, "ground"}


def test_pictures_on_disk_keep_the_light_colours(folder: Path) -> None:
    svg = (folder / "pictures" / "accuracy-against-cost.svg").read_text(encoding="utf-8")
    assert "var(" not in svg
    assert PALETTE["blue"].light in svg


def test_a_source_of_other_samples_is_refused(tmp_path: Path) -> None:
    with refuses(InputError, problem="'t'", expected="at least 300 rows", got="60"):
        write_report(found(), tmp_path, source=ArraySource(np.zeros(60), [0] * 60, name="t"))
    assert not list(tmp_path.iterdir())
