"""The report: one self-contained HTML page, its figures as files, and the findings as JSON."""

import json
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from offramp.errors import InputError
from offramp.features import Source
from offramp.report import _tables as tables
from offramp.report._findings import Findings
from offramp.report._palette import PALETTE
from offramp.report._words import cautions, clean, notes, verdict

if TYPE_CHECKING:
    from offramp.report._pictures import Picture

__all__ = ["inline_svg", "prose", "style", "write_report"]

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_NAMES = {colour.light: name for name, colour in PALETTE.items()}
# DejaVu, which matplotlib measures with, is mostly on Linux only; Verdana is as wide.
_FALLBACK = "Verdana, sans-serif"

_GROUND = {"light": "#f4f6f8", "dark": "#0d0f12"}  # behind the cards


def write_report(findings: Findings, folder: str | Path, *, source: Source | None = None) -> Path:
    """Write `report.html`, `pictures/` (SVG and PNG) and `findings.json`.

    The page needs no network, script or other file, and follows the reader's choice of light or dark.

    Args:
        findings: The findings.
        folder: Folder to write; files of an earlier report are replaced.
        source: The source that the features were extracted from, with the same rows, to show images or texts that
            leave first and last; none are shown if left out.

    Returns:
        The path of the page.

    Raises:
        MissingExtraError: Without matplotlib.
    """
    # Imported here: findings do not need matplotlib, figures do.
    from offramp.report._canvas import to_png, to_svg
    from offramp.report._pictures import draw_findings, draw_samples

    # More rows are possible: rows that the model was fitted on may have been left out.
    if source is not None and len(source) < findings.samples:
        raise InputError(
            f"'{source.name}'",
            expected=f"at least {findings.samples} rows, as in the findings",
            got=f"{len(source)}",
            hint="give the source that the features were extracted from, with all rows",
        )
    folder = Path(folder)
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for old in (f"leave-{group}.{kind}" for group in ("first", "last") for kind in ("svg", "png")):
        (folder / "pictures" / old).unlink(missing_ok=True)  # this report may have none

    def card(picture: "Picture") -> str:
        svg = to_svg(picture.figure)
        (folder / "pictures" / f"{picture.name}.svg").write_text(svg, encoding="utf-8")
        (folder / "pictures" / f"{picture.name}.png").write_bytes(to_png(picture.figure))
        return _card(picture, svg)

    cards = [card(picture) for picture in draw_findings(findings)]
    samples = [part if isinstance(part, str) else card(part) for part in draw_samples(findings, source)]
    content = json.dumps(findings.to_json(), indent=1, allow_nan=False)
    (folder / "findings.json").write_text(content + "\n", encoding="utf-8")
    page = folder / "report.html"
    page.write_text(_page(findings, cards, samples), encoding="utf-8")
    return page


def _card(picture: "Picture", svg: str) -> str:
    drawn = inline_svg(svg, name=picture.name, label=picture.caption)
    return f'<figure class="card">\n{drawn}\n<figcaption>{prose(picture.caption)}</figcaption>\n</figure>'


def _page(findings: Findings, cards: list[str], samples: list[str]) -> str:
    items = [f'<li class="warning">{prose(warning)}</li>' for warning in cautions(findings)]
    items += [f"<li>{prose(note)}</li>" for note in notes(findings)]
    policies = sorted(findings.curves, key=lambda policy: policy != findings.policy)
    numbers = [tables.alternatives(findings), tables.exits(findings)]
    numbers += [tables.coverage(findings)] if findings.coverage else []
    numbers += [tables.points(findings, policy) for policy in policies]
    template = files("offramp.report").joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=prose(findings.name),
        of=prose(f"Early exits of {findings.network}, decided by {findings.policy}"),
        style=style(),
        verdict=prose(verdict(findings)),
        notes="\n".join(items),
        cards="\n".join(cards),
        samples="\n".join(samples),
        numbers="\n".join(numbers),
    )


def prose(text: str) -> str:
    """Escape a text for HTML, with a no-break space before percent signs.

    Example:
        >>> prose("a < 5 %")
        'a &lt; 5&nbsp;%'
    """
    return escape(clean(text)).replace(" %", "&nbsp;%")


def style() -> str:
    """Return the style sheet of every page, light and dark.

    Example:
        >>> ":root { --paper: #ffffff;" in style()
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
        >>> drawn = '<svg xmlns="http://www.w3.org/2000/svg" width="1pt"><g id="a" style="fill: #0072b2"/></svg>'
        >>> inline_svg(drawn, name="bars", label="bars")
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
