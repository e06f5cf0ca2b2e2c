"""The report: one page that needs nothing else, and its pictures and figures as files."""

import json
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from offramp.errors import InputError
from offramp.features import Source
from offramp.report import tables
from offramp.report.findings import Findings
from offramp.report.inline import inline_svg
from offramp.report.palette import PALETTE
from offramp.report.words import cautions, clean, notes, verdict

if TYPE_CHECKING:
    from offramp.report.gallery import Picture

__all__ = ["prose", "style", "write_report"]

_GROUND = {"light": "#f4f6f8", "dark": "#0d0f12"}  # behind the cards


def write_report(findings: Findings, folder: str | Path, *, source: Source | None = None) -> Path:
    """Write `report.html`, `pictures/` (SVG and PNG) and `findings.json`.

    The page needs no network, no script and no other file, and follows the reader's choice of light or dark.

    Args:
        findings: What to report.
        folder: Where; made if it is not there, files of an earlier report are replaced.
        source: What the findings' features were extracted from, rows in the same order: to show images or texts that
            leave first and last. None are shown if left out.

    Returns:
        Where the page is.

    Raises:
        MissingExtraError: Without matplotlib.
    """
    # Here and not above: findings can be had without matplotlib, pictures cannot.
    from offramp.report import gallery
    from offramp.report.canvas import to_png, to_svg

    # More rows are possible: some may have been left out, as the frontier was made from them.
    if source is not None and len(source) < findings.samples:
        raise InputError(
            f"'{source.name}' has {len(source)} rows, the findings are of {findings.samples} samples; give the source "
            "that the features were extracted from, all of its rows"
        )
    folder = Path(folder)
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for old in (f"leave-{who}.{kind}" for who in ("first", "last") for kind in ("svg", "png")):
        (folder / "pictures" / old).unlink(missing_ok=True)  # this report may have none

    def card(picture: "Picture") -> str:
        svg = to_svg(picture.figure)
        (folder / "pictures" / f"{picture.name}.svg").write_text(svg, encoding="utf-8")
        (folder / "pictures" / f"{picture.name}.png").write_bytes(to_png(picture.figure))
        return _card(picture, svg)

    cards = [card(picture) for picture in gallery.pictures(findings)]
    samples = [part if isinstance(part, str) else card(part) for part in gallery.samples(findings, source)]
    told = json.dumps(findings.to_json(), indent=1, allow_nan=False)
    (folder / "findings.json").write_text(told + "\n", encoding="utf-8")
    page = folder / "report.html"
    page.write_text(_page(findings, cards, samples), encoding="utf-8")
    return page


def _card(picture: "Picture", svg: str) -> str:
    drawn = inline_svg(svg, name=picture.name, label=picture.caption)
    return f'<figure class="card">\n{drawn}\n<figcaption>{prose(picture.caption)}</figcaption>\n</figure>'


def _page(findings: Findings, cards: list[str], samples: list[str]) -> str:
    told = [f'<li class="warning">{prose(warning)}</li>' for warning in cautions(findings)]
    told += [f"<li>{prose(note)}</li>" for note in notes(findings)]
    policies = sorted(findings.curves, key=lambda policy: policy != findings.policy)
    numbers = [tables.instead(findings), tables.exits(findings)]
    numbers += [tables.coverage(findings)] if findings.coverage else []
    numbers += [tables.points(findings, policy) for policy in policies]
    template = files("offramp.report").joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=prose(findings.name),
        of=prose(f"Early exits of {findings.network}, decided by {findings.policy}"),
        style=style(),
        verdict=prose(verdict(findings)),
        notes="\n".join(told),
        cards="\n".join(cards),
        samples="\n".join(samples),
        numbers="\n".join(numbers),
    )


def prose(text: str) -> str:
    """A text as HTML, its percent signs kept with their numbers.

    Args:
        text: Any.

    Example:
        >>> prose("a < 5 %")
        'a &lt; 5&nbsp;%'
    """
    return escape(clean(text)).replace(" %", "&nbsp;%")


def style() -> str:
    """The style sheet of every page, light and dark.

    Example:
        >>> ":root { --paper: #ffffff;" in style()
        True
    """
    sheet = files("offramp.report").joinpath("page.css").read_text(encoding="utf-8")
    return Template(sheet).substitute(light=_variables("light"), dark=_variables("dark"))


def _variables(shade: str) -> str:
    """The colours as CSS variables."""
    colours = {name: getattr(colour, shade) for name, colour in PALETTE.items()} | {"ground": _GROUND[shade]}
    return " ".join(f"--{name}: {value};" for name, value in colours.items())
