import json
import re
from xml.etree import ElementTree

import pytest

from offramp.report._canvas import to_svg
from offramp.report._chart import accuracy_against_cost
from offramp.report._markup import encode_data, inline_svg
from offramp.report._palette import PALETTE
from tests.cases import each
from tests.report.examples import found


def test_data_of_a_script_stays_data() -> None:
    hostile = {"</script><script>alert(1)</script>": ["<!-- --> ]]>", "a & b", "\u2028\u2029", '"; alert(1); "', "喵"]}
    shown = encode_data(hostile)
    assert json.loads(shown) == hostile
    assert not re.search("[<>&\u2028\u2029]", shown)


@pytest.fixture(scope="module")
def drawn_svg() -> str:
    return to_svg(accuracy_against_cost(found()).figure)


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
    assert {"paper", "ink", "grey", "blue"} <= used
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
