"""Texts and figures as HTML: escaped, with colours by name, so that a page may be light or dark."""

import json
import re
from html import escape
from importlib.resources import files
from string import Template
from typing import Any
from xml.etree import ElementTree

from offramp.report._palette import PALETTE
from offramp.report._words import clean

__all__ = ["encode_data", "inline_svg", "prose", "read_style"]

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_NAMES = {colour.light: name for name, colour in PALETTE.items()}
# DejaVu, which matplotlib measures with, is mostly on Linux only; Verdana is as wide.
_FALLBACK = "Verdana, sans-serif"

_GROUND = {"light": "#f4f6f8", "dark": "#0d0f12"}  # behind the cards


def prose(text: str) -> str:
    """Escape a text for HTML, with a no-break space before percent signs.

    Example:
        >>> prose("a < 5 %")
        'a &lt; 5&nbsp;%'
    """
    return escape(clean(text)).replace(" %", "&nbsp;%")


def encode_data(value: Any) -> str:
    r"""Return a value as JSON inside a script element: no text in it can end the element or a line of code.

    Example:
        >>> print(encode_data("</script> & \N{LINE SEPARATOR}"))
        "\u003c/script\u003e \u0026 \u2028"
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", text)


def read_style() -> str:
    """Return the style sheet of every page, light and dark.

    Example:
        >>> ":root { --paper: #ffffff;" in read_style()
        True
    """
    sheet = files("offramp.report").joinpath("page.css").read_text(encoding="utf-8")
    return Template(sheet).substitute(light=_variables("light"), dark=_variables("dark"))


def _variables(shade: str) -> str:
    """Return the colours as CSS variables."""
    colours = {name: getattr(colour, shade) for name, colour in PALETTE.items()} | {"ground": _GROUND[shade]}
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def inline_svg(svg: str, *, name: str, label: str) -> str:
    """Convert an SVG figure to an element of an HTML page, with colours by name so that dark mode can change them.

    Args:
        svg: SVG from matplotlib, drawn in the light colours of the palette.
        name: Prefix of its ids, unique on the page.
        label: Description for screen readers.

    Returns:
        An `svg` element as wide as its container.

    Example:
        >>> svg = '<svg xmlns="http://www.w3.org/2000/svg" width="1pt"><g id="a" style="fill: #0072b2"/></svg>'
        >>> inline_svg(svg, name="bars", label="bars")
        '<svg role="img" aria-label="bars" style="..."><g id="bars-a" style="fill: var(--blue)" /></svg>'
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            # Metadata names external addresses, and a style sheet would apply to the whole page.
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        element.attrib = {key.replace(_HREF, "href"): _adapt(key, text, name) for key, text in element.attrib.items()}
    attributes = {key: text for key, text in root.attrib.items() if key == "viewBox"}
    # The rules of matplotlib's style sheet.
    root.attrib = {
        **attributes,
        "role": "img",
        "aria-label": label,
        "style": "stroke-linejoin: round; stroke-linecap: butt",
    }
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _adapt(key: str, text: str, name: str) -> str:
    """Return an attribute's value with the figure's id prefix and the page's colours."""
    if key == "id":
        return f"{name}-{text}"
    if key == _HREF:
        return re.sub("^#", f"#{name}-", text)
    text = text.replace("url(#", f"url(#{name}-")
    text = re.sub("#[0-9a-f]{6}", lambda match: f"var(--{_NAMES[match[0]]})" if match[0] in _NAMES else match[0], text)
    return text.replace("'DejaVu Sans'", f"'DejaVu Sans', {_FALLBACK}")
