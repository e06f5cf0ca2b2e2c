"""The drawings of the concepts: well-formed, with a title, readable, in the colours of the reports."""

import re
from pathlib import Path
from xml.etree import ElementTree

from offramp.report._palette import PALETTE

ROOT = Path(__file__).parents[2]
CONCEPTS = ROOT / "docs" / "concepts"
DRAWN = ("cascades", "exits-and-policies", "frontier-and-cost", "guarantees", "life-of-a-batch", "splits")
SMALLEST = 13
"""Pixels of text at a width of 720."""
TINTS = 0.12
"""Share of a colour in the fill of a box."""


def read(name: str) -> ElementTree.Element:
    return ElementTree.fromstring((CONCEPTS / f"{name}.svg").read_text())  # ours


def tint(colour: str) -> str:
    parts = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - TINTS * (255 - part)):02x}" for part in parts)


def test_well_formed_with_a_title_and_a_description() -> None:
    assert {file.stem for file in CONCEPTS.glob("*.svg")} == set(DRAWN)
    for name in DRAWN:
        root = read(name)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        for part in ("title", "desc"):
            found = root.find(f"{{http://www.w3.org/2000/svg}}{part}")
            assert found is not None, name
            assert found.text, name


def test_text_is_large_enough_and_inside() -> None:
    for name in DRAWN:
        root = read(name)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        assert width == 720
        for text in root.iter("{http://www.w3.org/2000/svg}text"):
            size = float(text.get("font-size", root.attrib["font-size"]))
            assert size >= SMALLEST, (name, text.text)
            assert 0 < float(text.attrib["x"]) < width, (name, text.text)
            assert size < float(text.attrib["y"]) < height, (name, text.text)


def test_colours_are_those_of_the_reports() -> None:
    light = {colour.light for colour in PALETTE.values()}
    for name in DRAWN:
        used = set(re.findall(r"#[0-9a-f]{6}", (CONCEPTS / f"{name}.svg").read_text()))
        assert used <= light | {tint(colour) for colour in light}, name


def test_every_page_shows_its_drawing_and_describes_it() -> None:
    for name in DRAWN:
        page = (CONCEPTS / f"{name}.md").read_text()
        assert re.search(rf"!\[[^\]]{{30,}}\]\({name}\.svg\)", page), name
        assert 250 <= len(re.findall(r"\w[\w'.-]*", page)) <= 620, name
