"""The report: one self-contained HTML page, its figures as files, and the findings as JSON."""

import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from offramp.errors import InputError
from offramp.features import Source
from offramp.report import _slider as slider
from offramp.report import _tables as tables
from offramp.report._findings import Findings
from offramp.report._markup import inline_svg, prose, read_style
from offramp.report._network import draw_network, list_exits
from offramp.report._palette import PALETTE, policy_colours
from offramp.report._samples import show_samples
from offramp.report._words import headline, list_cautions, list_facts, list_notes

if TYPE_CHECKING:
    from offramp.report._chart import Chart
    from offramp.report._pictures import Picture

__all__ = ["write_report"]

COMMAND = "offramp predict MODEL --data INPUTS --out answers.csv"
"""Command to which the options of a point are added."""

_ROWS_REM = 20  # height of the drawing of the network, shared by its exits
_LONG = 24  # characters of a headline that is set smaller


def write_report(
    findings: Findings, folder: str | Path, *, source: Source | None = None, command: str = COMMAND
) -> Path:
    """Write `report.html`, `pictures/` (SVG and PNG) and `findings.json`.

    The page needs no network and no other file, and follows the reader's choice of light or dark. Without scripts it
    shows the chosen point; with them, a slider shows the other points of the frontier.

    Args:
        findings: The findings.
        folder: Folder to write; files of an earlier report are replaced.
        source: The source that the features were extracted from, with the same rows, to show images or texts that
            leave first and last; none are shown if left out.
        command: Command of the saved model, to which the page adds the options of a point.

    Returns:
        The path of the page.

    Raises:
        MissingExtraError: Without matplotlib.
    """
    # Imported here: findings do not need matplotlib, figures do.
    from offramp.report._canvas import to_png, to_svg
    from offramp.report._chart import NARROW, WIDE, accuracy_against_cost
    from offramp.report._pictures import draw_findings

    # More rows are possible: rows that the model was fitted on may have been left out.
    if source is not None and len(source) < findings.samples:
        raise InputError(
            f"'{source.name}'",
            expected=f"at least {findings.samples} rows, as in the findings",
            got=f"{len(source)}",
            hint="give the source that the features were extracted from, with all rows",
        )
    samples = show_samples(findings, source)
    charts = [accuracy_against_cost(findings, size) for size in (WIDE, NARROW)]
    cards = []
    pictures = Path(folder) / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    for picture in draw_findings(findings):
        svg = to_svg(picture.figure)
        (pictures / f"{picture.name}.svg").write_text(svg, encoding="utf-8")
        (pictures / f"{picture.name}.png").write_bytes(to_png(picture.figure))
        cards.append(_card(picture, svg))
    (pictures / "accuracy-against-cost.svg").write_text(to_svg(charts[0].figure), encoding="utf-8")
    (pictures / "accuracy-against-cost.png").write_bytes(to_png(charts[0].figure))
    content = json.dumps(findings.to_json(), indent=1, allow_nan=False)
    (Path(folder) / "findings.json").write_text(content + "\n", encoding="utf-8")
    page = Path(folder) / "report.html"
    page.write_text(_page(findings, charts, cards, samples, command), encoding="utf-8")
    return page


def _card(picture: "Picture", svg: str) -> str:
    element = inline_svg(svg, name=picture.name, label=picture.caption)
    return f'<figure class="card">\n{element}\n<figcaption>{prose(picture.caption)}</figcaption>\n</figure>'


def _page(findings: Findings, charts: "list[Chart]", cards: list[str], samples: str, command: str) -> str:
    from offramp.report._canvas import to_svg

    index = slider.find_chosen(findings)
    saving = headline(findings.chosen.relative_cost, findings.unit)
    colours = policy_colours(findings.curves)
    warnings, remarks = list_cautions(findings), list_notes(findings)
    caveat, *others = *warnings, *remarks
    kinds = [' class="warning"' if other in warnings else "" for other in others]
    items = [f"<li{kind}>{prose(other)}</li>" for kind, other in zip(kinds, others, strict=True)]
    policies = sorted(findings.curves, key=lambda policy: policy != findings.policy)
    numbers = [tables.alternatives(findings), tables.exits(findings)]
    numbers += [tables.coverage(findings)] if findings.coverage else []
    numbers += [tables.points(findings, policy) for policy in policies]
    caption = (
        f"Costs are {findings.cost_kind}. Left is cheaper, up is more accurate; the band is the 95 % interval of "
        f"{findings.policy}. A cross or square above a curve is a simpler alternative with higher accuracy."
    )
    wide, narrow = (
        inline_svg(to_svg(chart.figure), name=name, label=f"Accuracy against cost. {caption}")
        for chart, name in zip(charts, ("wide", "narrow"), strict=True)
    )
    template = files("offramp.report").joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        {name: prose(text) for name, text in slider.describe_point(findings, index, command).items()},
        policy=slider.write_content_policy(),
        title=prose(findings.name),
        headline=prose(saving),
        long=" long" if len(saving) > _LONG else "",
        of=prose(
            f"{findings.name}: early exits of {findings.network}, decided by {findings.policy}, measured on "
            f"{findings.samples:,} samples"
        ),
        style=read_style(),
        colour=next(name for name, colour in PALETTE.items() if colour == colours[findings.policy]),
        row=f"{min(3.2, max(1.4, _ROWS_REM / len(list_exits(findings)))):.2f}rem",
        facts="\n".join(
            f'<div><dt>{prose(name)}</dt><dd class="value">{prose(value)}</dd>'
            f'<dd class="quiet">{prose(detail)}</dd></div>'
            for name, value, detail in list_facts(findings)
        ),
        caveat=prose(f"{caveat} {len(others)} more {'note' if len(others) == 1 else 'notes'}"),
        warned=" warned" if warnings else "",
        notes="\n".join(items),
        wide=wide,
        narrow=narrow,
        caption=prose(caption),
        count=len(findings.frontier),
        value=index + 1,
        network=draw_network(findings, findings.frontier[index]),
        samples=samples,
        cards="\n".join(cards),
        numbers="\n".join(numbers),
        script=slider.write_script(slider.collect_data(findings, charts, command)),
    )
