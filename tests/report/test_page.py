import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from offramp.errors import InputError
from offramp.features import ArraySource
from offramp.report import find, write_report
from offramp.report._canvas import to_svg
from offramp.report._findings import Findings
from offramp.report._page import inline_svg
from offramp.report._palette import PALETTE
from offramp.report._pictures import accuracy_against_cost, draw_samples
from tests.cases import each, refuses
from tests.report.examples import at, drawn, found, toy

NAMES = ("<script>alert(1)</script>", "\" onload='x' $5 {}", "喵 & co", "--> http://evil.example/\x00")
VOID = {"meta", "br", "img", "link", "hr", "input"}
PICTURES = ["accuracy-against-cost", "accuracy-by-exit", "change-by-class", "exits-used", "reliability"]


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of images with hostile names all over."""
    logits, labels = drawn(80, 3, 4)
    frontier, source = toy(logits, labels)
    findings = find(frontier, source, point=at(frontier, 0.8), classes=NAMES, name=NAMES[0])
    images = np.random.default_rng(0).integers(0, 255, (80, 8, 8, 3)).astype(np.uint8)
    folder = tmp_path_factory.mktemp("report") / "deep" / "er"
    assert (
        write_report(findings, folder, source=ArraySource(images, labels.numpy(), name="t")) == folder / "report.html"
    )
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_everything_is_written(folder: Path) -> None:
    names = sorted([*PICTURES, "leave-first", "leave-last"])
    assert sorted(path.name for path in folder.iterdir()) == ["findings.json", "pictures", "report.html"]
    assert sorted(path.stem for path in folder.glob("pictures/*.svg")) == names
    assert sorted(path.stem for path in folder.glob("pictures/*.png")) == names
    assert json.loads((folder / "findings.json").read_text())["classes"] == list(NAMES)


def test_the_page_is_well_formed_and_says_what_it_shows(page: str) -> None:
    parsed = Page(page)
    assert parsed.tags.count("svg") == 7
    assert [value for key, value in parsed.attributes if key == "role"].count("img") == 7
    assert all(value for key, value in parsed.attributes if key == "aria-label")
    assert parsed.tags.count("figcaption") == 7
    assert "cost (counted Mul-Adds) it is right" in parsed.text
    assert "Operating points of threshold" in parsed.text


def test_the_page_needs_nothing_from_outside(page: str) -> None:
    parsed = Page(page)
    assert not {"script", "link", "iframe", "object"} & set(parsed.tags)
    for key, value in parsed.attributes:
        assert not key.startswith("on")
        if key in ("src", "href", "xlink:href"):
            assert value.startswith(("data:image/png;base64,", "#"))
        assert key == "aria-label" or "http" not in value
        assert key != "style" or not re.search(r"url\((?!#)", value)
    assert "@import" not in page
    assert "http" not in page.split("</style>")[0]


def test_names_are_text_and_nothing_else(page: str) -> None:
    parsed = Page(page)
    assert "<script>" not in page
    assert "\x00" not in page
    assert NAMES[0] in parsed.text
    assert "喵 & co" in parsed.text


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
    svg = (folder / "pictures" / "exits-used.svg").read_text(encoding="utf-8")
    assert "var(" not in svg
    assert PALETTE["blue"].light in svg


def labelled(findings: Findings) -> list[int]:
    """Labels of all rows, as far as the findings know them."""
    known = {sample.row: sample.label for sample in (*findings.first, *findings.last)}
    return [known.get(row, 0) for row in range(findings.samples)]


def test_texts_become_tables() -> None:
    findings = found(samples=60, exits=2, classes=2)
    texts = np.array([f"<u>text {row}</u>" for row in range(60)])
    shown = list(draw_samples(findings, ArraySource(texts, labelled(findings), name="t")))
    assert len(shown) == 2
    for part, samples in zip(shown, (findings.first, findings.last), strict=True):
        assert isinstance(part, str)
        assert "<u>" not in part
        assert all(f"&lt;u&gt;text {sample.row}&lt;/u&gt;" in part for sample in samples)
        Page(part)


def test_without_samples_to_show_the_page_says_why() -> None:
    findings = found(samples=40, exits=2, classes=2)
    (why,) = draw_samples(findings, None)
    assert "written without their source" in str(why)
    (why,) = draw_samples(findings, ArraySource(np.zeros((40, 5)), labelled(findings), name="t"))
    assert "neither images nor texts" in str(why)
    together = found(samples=40, exits=2, classes=2, threshold=0.0)
    _, why = draw_samples(together, ArraySource(np.array(["x"] * 40), labelled(together), name="t"))
    assert "All samples leave at exit 0" in str(why)


def test_samples_of_an_earlier_report_do_not_stay(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "leave-first.svg").write_text("old")
    write_report(found(samples=30, exits=2, classes=2), tmp_path)
    assert sorted(path.stem for path in tmp_path.glob("pictures/*.svg")) == PICTURES


def test_a_source_of_other_samples_is_refused(tmp_path: Path) -> None:
    with refuses(InputError, problem="'t'", expected="at least 300 rows", got="60"):
        write_report(found(), tmp_path, source=ArraySource(np.zeros(60), [0] * 60, name="t"))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def drawn_svg() -> str:
    return to_svg(accuracy_against_cost(found()))


def test_the_palette_has_no_colour_twice() -> None:
    for shade in ("light", "dark"):
        colours = [getattr(colour, shade) for colour in PALETTE.values()]
        assert len(set(colours)) == len(colours)
        assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@each("shade", ["light", "dark"])
def test_text_and_marks_stand_out(shade: str) -> None:
    colours = {name: getattr(colour, shade) for name, colour in PALETTE.items()}
    for name in ("ink", "muted", "orange", "blue", "green", "purple"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name  # WCAG AA of text
    assert contrast(colours["grey"], colours["paper"]) >= 3 * 0.99  # of marks


def test_every_colour_is_a_variable(drawn_svg: str) -> None:
    inlined = inline_svg(drawn_svg, name="one", label="what it shows")
    used = {name for name, colour in PALETTE.items() if colour.light in drawn_svg}
    assert {"paper", "ink", "muted", "blue"} <= used
    assert set(re.findall(r"var\(--(\w+)\)", inlined)) == used
    assert not re.search(r"(?<!\()#[0-9a-fA-F]{3,8}\b(?![^<]*</text>)", re.sub(r'href="#[^"]*"', "", inlined))


def test_ids_are_its_own_and_references_lead_somewhere(drawn_svg: str) -> None:
    one, other = (inline_svg(drawn_svg, name=name, label="") for name in ("one", "other"))
    ids = re.findall(r'\bid="([^"]+)"', one)
    assert ids
    assert len(set(ids)) == len(ids)
    assert not set(ids) & set(re.findall(r'\bid="([^"]+)"', other))
    assert set(re.findall(r'href="#([^"]+)"', one)) | set(re.findall(r"url\(#([^)]+)\)", one)) <= set(ids)


def test_nothing_of_the_file_leaks_into_the_page(drawn_svg: str) -> None:
    inlined = inline_svg(drawn_svg, name="one", label='<b> & "quoted"')
    root = ElementTree.fromstring(inlined)
    assert (root.get("role"), root.get("aria-label")) == ("img", '<b> & "quoted"')
    assert set(root.attrib) == {"viewBox", "role", "aria-label", "style"}
    assert "<style" not in inlined
    assert "<!--" not in inlined
    assert "http" not in inlined
