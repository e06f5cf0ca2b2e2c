"""A picture as part of a page: colours by name, so that dark mode can change them, and ids of its own."""

import re
from xml.etree import ElementTree

from offramp.report.palette import PALETTE

__all__ = ["inline_svg"]

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_NAMES = {colour.light: name for name, colour in PALETTE.items()}
# DejaVu, which pictures are measured with, is on few machines but Linux; Verdana is as wide.
_FALLBACK = "Verdana, sans-serif"


def inline_svg(svg: str, *, name: str, label: str) -> str:
    """Make an SVG file of ours a part of an HTML page.

    Args:
        svg: What matplotlib wrote, drawn in the light colours of the palette.
        name: What its ids begin with; no other picture of the page may have it.
        label: What it shows, for those who do not see it.

    Returns:
        An `svg` element that is as wide as its place.

    Example:
        >>> drawn = '<svg xmlns="http://www.w3.org/2000/svg" width="1pt"><g id="a" style="fill: #0072b2"/></svg>'
        >>> inline_svg(drawn, name="bars", label="bars")
        '<svg role="img" aria-label="bars" style="..."><g id="bars-a" style="fill: var(--blue)" /></svg>'
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            # Metadata names outside addresses, and a style sheet would be the whole page's.
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        element.attrib = {key.replace(_HREF, "href"): _own(key, text, name) for key, text in element.attrib.items()}
    kept = {key: text for key, text in root.attrib.items() if key == "viewBox"}
    # What matplotlib's style sheet says of everything.
    root.attrib = {**kept, "role": "img", "aria-label": label, "style": "stroke-linejoin: round; stroke-linecap: butt"}
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _own(key: str, text: str, name: str) -> str:
    """The value of an attribute with the picture's own ids and the page's colours."""
    if key == "id":
        return f"{name}-{text}"
    if key == _HREF:
        return re.sub("^#", f"#{name}-", text)
    text = text.replace("url(#", f"url(#{name}-")
    text = re.sub("#[0-9a-f]{6}", lambda found: f"var(--{_NAMES[found[0]]})" if found[0] in _NAMES else found[0], text)
    return text.replace("'DejaVu Sans'", f"'DejaVu Sans', {_FALLBACK}")
