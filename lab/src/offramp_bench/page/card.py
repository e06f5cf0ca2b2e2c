"""A picture with names that show where the pointer rests, as a part of a page."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

from offramp.report._canvas import Figure, to_svg
from offramp.report._page import inline_svg, prose
from offramp.report._words import clean

__all__ = ["Picture", "card"]

_PLACES = {"d", "transform", "x", "y"}
"""Attributes cut to a hundredth of a point, less than any screen shows: most of such a file is digits."""


@dataclass(frozen=True)
class Picture:
    """A picture of the page."""

    name: str
    """What its ids begin with; letters and digits of it count, no two pictures of a page may share them."""
    caption: str
    """How to read it."""
    figure: Figure
    """Drawn in the light colours."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """What is told of things drawn, by the ids they were given."""


def card(picture: Picture) -> str:
    """The picture and its caption in a frame.

    Args:
        picture: The picture.
    """
    own = "".join(letter if letter.isalnum() else "-" for letter in picture.name)
    root = ElementTree.fromstring(inline_svg(to_svg(picture.figure), name=own, label=clean(picture.caption)))
    told = {f"{own}-{name}": title for name, title in picture.titles.items()}
    for element in root.iter("g"):
        title = told.get(element.get("id", ""))
        if title is not None:
            named = ElementTree.Element("title")
            named.text = clean(title)
            element.insert(0, named)
    for element in root.iter():
        for key in _PLACES & element.attrib.keys():
            element.set(key, re.sub(r"(\d\.\d\d)\d+", r"\1", element.attrib[key]))
    svg = ElementTree.tostring(root, encoding="unicode")
    return f'<figure class="card">\n{svg}\n<figcaption>{prose(picture.caption)}</figcaption>\n</figure>'
