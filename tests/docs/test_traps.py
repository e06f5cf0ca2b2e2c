"""docs/traps.md has three lines for each trap; all new pages link to pages that exist."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    DOCS / "traps.md",
    DOCS / "paper-to-code.md",
    *(DOCS / "concepts").glob("*.md"),
    *(DOCS / "tutorial").glob("*.md"),
]


def anchors(page: Path) -> set[str]:
    """The headings of a page as the site and code hosts name them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_trap_has_its_three_lines() -> None:
    traps = (DOCS / "traps.md").read_text().split("\n### ")[1:]
    assert len(traps) > 30
    for trap in traps:
        assert re.findall(r"^\* \*\*(You see|Why|Do)\*\*", trap, flags=re.MULTILINE) == ["You see", "Why", "Do"], trap


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page.read_text()):
            place = (page.parent / target) if target else page
            assert place.is_file(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(place), f"{page.name} links to {target}#{anchor}"
