"""Write docs/evidence/tables.md, its pictures and the figures of README and other pages from the committed results.

    python -m offramp_bench.evidence

The results were written by `python -m offramp_bench.NAME > lab/results/NAME.json`.
"""

import json
from pathlib import Path
from statistics import fmean, median
from typing import Any

from offramp.report._canvas import Figure, in_style, to_svg
from offramp.report._palette import PALETTE
from offramp_bench import headline
from offramp_bench import readme_picture as readme
from offramp_bench.annotation.tables import measured_block
from offramp_bench.guarantees import evidence as guarantees
from offramp_bench.guarantees.tables import BLOCKS
from offramp_bench.marks import replace_marked
from offramp_bench.page import read_results
from offramp_bench.page.panels import draw_track
from offramp_bench.paper import evidence as paper
from offramp_bench.places import RESULTS, ROOT
from offramp_bench.runtime import evidence as runtime
from offramp_bench.scale import efficientnet, large
from offramp_bench.scale import evidence as scale
from offramp_bench.tracks.results import BEGUN
from offramp_bench.tracks.results import read_results as read_tracks

EVIDENCE = ROOT / "docs" / "evidence"

MARK = "evidence"

PICTURED = {
    "policy": "on the default's exits",
    "exits": "the default's features",
    "open": "the default as it is shipped",
}
"""The footing that the picture of a track shows."""

CURVES = {
    "cascade": ("cascade: ResNet-20, then ResNet-56, exits in both", "green", "-"),
    "default": ("an earlier default: ladder on a 4 x 4 grid, policy as tune prefers", "blue", "-"),
    "paper threshold": ("linear exits on the mean, global threshold", "gold", "--"),
    "paper gates": ("linear exits on the mean, gates; few epochs", "purple", "-"),
}
"""The curves of the picture, with their text in the legend, colour and dashes; the table shows all curves."""


def results(name: str) -> dict[str, Any]:
    """Return the results of a benchmark."""
    loaded: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return loaded


def bars(figures: dict[str, Any]) -> list[str]:
    """Return the bars of a benchmark as a table."""
    rows = ["| what | measured | at most | |", "|---|---|---|---|"]
    for bar in figures["bars"]:
        rows.append(
            f"| {bar['name']} | {bar['figure']:.3f} | {bar['at_most']:g} | {'held' if bar['held'] else '**missed**'} |"
        )
    return rows


def quality(figures: dict[str, Any]) -> list[str]:
    """Return the table of changes of accuracy by cost, one row per curve."""
    curves = figures["curves"]
    names = [name for name in curves if name != "budgets"]
    costs = [row["asked"] for row in curves["default threshold"]]
    lines = [
        "| relative cost asked | " + " | ".join(f"{cost:g}" for cost in costs) + " |",
        "|---|" + "---|" * len(costs),
    ]
    for name in names:
        by_cost = {row["asked"]: row["change"] for row in curves[name]}
        cells = [f"{100 * by_cost[cost]['mean']:+.2f}" for cost in costs]
        if "with L2" not in name:  # these have one rotation only
            cells = [f"{cell} ± {100 * by_cost[cost]['sd']:.2f}" for cell, cost in zip(cells, costs, strict=True)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def budgets(figures: dict[str, Any]) -> list[str]:
    """Return the table of costs on test by budget."""
    rows = figures["curves"]["budgets"]
    return [
        "| `choose(cost=...)` | " + " | ".join(f"{row['asked']:g}" for row in rows) + " |",
        "|---|" + "---|" * len(rows),
        "| on test, mean | " + " | ".join(f"{row['cost']['mean']:.3f}" for row in rows) + " |",
        "| lowest rotation | " + " | ".join(f"{row['cost']['min']:.3f}" for row in rows) + " |",
        "| highest rotation | " + " | ".join(f"{row['cost']['max']:.3f}" for row in rows) + " |",
    ]


def times(figures: dict[str, Any]) -> list[str]:
    """Return the table of times of fits, in passes of the full network."""
    lines = ["| fit | passes, median | range |", "|---|---|---|"]
    for name, ratios in figures["in_passes"].items():
        lines.append(f"| {name} | {median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |")
    return lines


def store(figures: dict[str, Any]) -> list[str]:
    """Return the tests of the feature store."""
    memory, resuming, corruption = figures["memory"], figures["resuming"], figures["corruption"]
    small, large = memory["rows"]
    lines = [f"| peak anonymous memory, MB | {small:,} rows | {large:,} rows | growth |", "|---|---|---|---|"]
    for name in ("extract", "shuffle", "fit"):
        peaks = memory[name]["peak_mb"]
        lines.append(f"| {name} | {peaks[0]:.0f} | {peaks[1]:.0f} | {100 * memory[name]['growth']:+.1f} % |")
    lines += [
        "",
        f"Killed {resuming['kills']} times at random moments of an extraction of {resuming['rows']:,} rows and "
        f"resumed: {'every file identical' if resuming['identical'] else '**files differ**'} to an undisturbed one's. "
        f"One byte flipped in each of {corruption['files']} files, one at a time: "
        f"{corruption['files'] - len(corruption['missed'])} refused by name.",
    ]
    return lines


def costs(figures: dict[str, Any]) -> list[str]:
    """Return the paper's two tables of costs as counted, and the cells that differ."""
    names = [name for name in figures if name.startswith("T2T-ViT")]
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    tables = [figures[name] for name in names]
    rows = {
        "parameters at 1,000 classes": [table["network"] for table in tables],
        "leaving at the first exit, Mul-Adds": [table["base"][0] for table in tables],
        "every exit farther": [table["base"][1] - table["base"][0] for table in tables],
        "all the way": [table["base"][-1] for table in tables],
        "a classifier": [table["classifiers"][0] for table in tables],
        "a gate": [table["gates"][0] for table in tables],
        "trainable parameters": [table["trainable"] for table in tables],
    }
    lines += [
        f"| {row} | " + " | ".join(f"{number:,.0f}" for number in numbers) + " |" for row, numbers in rows.items()
    ]
    lines += [
        "",
        f"{figures['cells'] - len(figures['differing'])} of the {figures['cells']} cells of the paper's tables are "
        "these figures as it prints them. The others:",
        "",
        "| cell | paper | counted | why |",
        "|---|---|---|---|",
    ]
    for cell in figures["differing"]:
        place = f"{cell['network']}, {cell['row']}, exit {cell['exit']}"
        lines.append(f"| {place} | {cell['paper']} | {cell['counted']:,.0f} | {cell['reason'] or '**unknown**'} |")
    return lines


def few(figures: dict[str, Any], cascade: dict[str, Any]) -> list[str]:
    """Return the table of changes of accuracy of the cascade, with few exits and with all."""
    curves = {"four exits": figures["curves"]["few exits"], "all exits": cascade["curves"]["cascade"]}
    costs = [row["asked"] for row in figures["curves"]["few exits"]]
    lines = [
        "| relative cost asked | " + " | ".join(f"{cost:g}" for cost in costs) + " |",
        "|---|" + "---|" * len(costs),
    ]
    for name, rows in curves.items():
        by_cost = {row["asked"]: row for row in rows}
        lines.append(f"| {name} | " + " | ".join(_change(by_cost[cost]) for cost in costs) + " |")
    return lines


def cascades(figures: dict[str, Any]) -> list[str]:
    """Return the tables of changes of accuracy of the cascade and of the smaller networks alone."""
    curves = figures["curves"]
    costs = [row["asked"] for row in curves["cascade threshold"]]
    lines = [
        "| relative cost asked | " + " | ".join(f"{cost:g}" for cost in costs) + " |",
        "|---|" + "---|" * len(costs),
    ]
    for name in ("cascade", "cascade threshold", "cascade gates"):
        by_cost = {row["asked"]: row for row in curves[name]}
        lines.append(f"| {name} | " + " | ".join(_change(by_cost[cost]) for cost in costs) + " |")
    lines += ["", "| network | its relative cost | its change | the cascade's at that cost |", "|---|---|---|---|"]
    for static, row in zip(figures["static"], curves["cascade instead of static"], strict=True):
        cells = [f"{static['cost']:.3f}", _change(static), f"{_change(row)} (spends {row['cost']['mean']:.3f})"]
        lines.append(f"| ResNet-{static['layers']} | " + " | ".join(cells) + " |")
    first = figures["rotations"][0]
    gains = {name: gain for name, gain, _ in first["contributions"]}
    member = next(iter(gains))
    shares = sorted({rotation["share of ResNet-20 in the average"] for rotation in figures["rotations"]})
    kept = sorted({rotation["active exits"] for rotation in figures["rotations"]})
    lines += [
        "",
        f"In the final answer ResNet-20 has a share of {' or '.join(f'{share:.1f}' for share in shares)}, as tune says."
        f" `{member}` brings {100 * gains[member]:+.1f} points of mean accuracy over all budgets (tune, first "
        "rotation)."
        f" Of {len(gains)} exits, {kept[0]} to {kept[-1]} are kept.",
    ]
    return lines


def texts(figures: dict[str, Any]) -> list[str]:
    """Return the table of costs and changes of accuracy of the text encoders."""
    lines = ["| | asked | spends on test | change of accuracy |", "|---|---|---|---|"]
    for task, rows in figures["texts"].items():
        for row in rows:
            requested = f"{row['asked']:g}" if row["asked"] else "the cheapest"
            lines.append(f"| {task} | {requested} | {row['cost']['mean']:.3f} | {_change(row)} |")
    return lines


def artifacts(figures: dict[str, Any]) -> list[str]:
    """Return the tests of artifacts: loading in new processes, and changed files."""
    trips, mutations = figures["round_trips"], figures["mutations"]
    same = [trip["name"] for trip in trips if trip["identical"]]
    lines = [
        f"Loaded in a new process, {len(same)} of {len(trips)} frontiers gave identical answers ({'; '.join(same)}).",
        "",
        f"| {mutations['count']:,} changed artifacts | refused by name | identical answers | other |",
        "|---|---|---|---|",
    ]
    for kind, row in mutations["kinds"].items():
        lines.append(f"| {kind} | {row['refused']} | {row['identical']} | {row['different'] + row['other']} |")
    lines += ["", f"The slowest took {1e3 * mutations['slowest_s']:.0f} ms."]
    return lines


def _change(row: dict[str, Any]) -> str:
    return f"{100 * row['change']['mean']:+.2f} ± {100 * row['change']['sd']:.2f}"


def networks(figures: dict[str, Any]) -> str:
    """Return the page of networks that can be cut."""
    lines = [NETWORKS]
    for passed, title in ((True, "Cut, and true to the contract"), (False, "Not")):
        rows = [row for row in figures["networks"] if row["passed"] == passed]
        lines += [f"## {title} ({len(rows)})", ""]
        if passed:
            lines += [
                "| library | network | blocks | stages | largest stage | captured by |",
                "|---|---|---|---|---|---|",
            ]
            lines += [
                f"| {row['library']} | {row['name']} | {row['blocks']} | {row['stages']} | "
                f"{100 * row['largest_share']:.0f} % | {row['captured_by'] or 'its adapter'} |"
                for row in rows
            ]
        else:
            lines += ["| library | network | why |", "|---|---|---|"]
            lines += [f"| {row['library']} | {row['name']} | {row['reason'].replace('|', '/')} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


NETWORKS = """# Networks that can be cut

Written by `python -m offramp_bench.evidence` from what `offramp-bench run architectures` wrote: `offramp.split` (or the
library's adapter) on networks with random weights, each backbone held to the contract of
`offramp.testing.check_backbone`. Captured by torch.fx, the stages equal the network bit for bit; by torch.export,
within rounding. `blocks` is how many blocks the network's authors repeat; text encoders have one stage more, their
embeddings. A stage may cost more than 30 % where no cut inside it was found. What is not listed has not been tried;
`offramp.split` says itself what it cannot do.
"""


@in_style
def draw(frontier: dict[str, Any], cascade: dict[str, Any]) -> Figure:
    """Draw accuracy against cost."""
    figure = Figure(figsize=(9.3, 5.6), layout="constrained")
    axes = figure.add_subplot()
    full = [rotation["full accuracy"] for rotation in frontier["rotations"]]
    level = 100 * sum(full) / len(full)
    ink = PALETTE["ink"].light
    axes.axhline(level, color=PALETTE["muted"].light, linewidth=0.8)
    for name, (label, colour, style) in CURVES.items():
        curves = cascade["curves"] if name == "cascade" else frontier["curves"]
        rows = sorted(curves[name], key=lambda row: row["asked"])
        costs = [row["cost"]["mean"] for row in rows]
        accuracies = [level + 100 * row["change"]["mean"] for row in rows]
        spread = [100 * row["change"]["sd"] for row in rows]
        axes.errorbar(
            costs, accuracies, yerr=spread, label=label, color=PALETTE[colour].light, linestyle=style, capsize=2
        )
    alone = [(static["cost"], level + 100 * static["change"]["mean"]) for static in cascade["static"]]
    axes.plot(*zip(*alone, strict=True), linestyle="", marker="s", color=ink, label="ResNet-20, -32, -44 alone")
    axes.plot([1], [level], linestyle="", marker="o", color=ink, label=f"the full ResNet-56, {level:.1f} %")
    axes.set(xlabel="relative cost (Mul-Adds over the full network's)", ylabel="accuracy on test, %", ylim=(70, 95.5))
    figure.legend(loc="outside lower center", ncols=2)
    return figure


PAGE = """# All tables of the evidence

Written by `python -m offramp_bench.evidence` from `lab/results`, which hold what the benchmarks printed. Everything
was measured on a two-core CPU without a GPU; speeds are ratios, both sides timed in one run. "Every rival" and
"Promises", except prediction sets, were measured with the default as it is shipped. The other sections that fit a
default used that of version 0.1.0a1: exits that were not distilled, up to 2,048 means per stage, gates, and optimal
stopping where no policy is named.

## Accuracy against cost: `offramp_bench.frontier_quality`
ResNet-56 on CIFAR-10. The network has memorised the 50,000 train images; classifiers and gates are fitted there. The
10,000 test images are split by id into tune (2,000), calibrate (3,000) and test (5,000), in five rotations. Points are
chosen on tune; figures are on test, means over the rotations, each a fit of its own. The same 10,000 images serve all
rotations, so the spread is not an interval over fresh data.

![accuracy against cost](frontier.svg)

Change of accuracy against the full network ({full:.2f} %), in points, mean ± standard deviation over rotations:

{quality}

These figures are of an earlier default (pooling `auto`; policy: {preferred}), not of what is shipped, whose figures are
in "Every rival" below. The paper's exits had fewer epochs than the paper gives them: their rows are not the paper's
achievement. Where the gates' row is below the threshold's on the same
exits, a plain threshold is the better policy there. The paper's exits are fitted without its L2 penalty of 5e-4, which
is too strong for raw channel means; the rows "with L2" have it (first rotation alone).

Budgets, chosen on 2,000 tune images; a single rotation may lie farther off than the mean, as two samples of images do:

{budgets}

{quality_bars}

## A cheaper network first, and texts: `offramp_bench.cascade`
Figures of the same earlier default.
ResNet-20 before ResNet-56, same data and rotations. Costs and changes of accuracy are relative to ResNet-56 alone.

{cascades}

all-MiniLM-L6-v2, tuned to CLINC150 and to Banking77, exits from the embeddings on (the default, its ladder wider).
Exits are fitted on the rows the encoder was tuned on and half of the train rows it has not seen; the other half tunes
and calibrates, in rotations; figures are on the official test rows, the same in all rotations. Budgets are set on train
rows: where test rows are harder, they cost more than was asked. Width, dropout and batch size of these exits were
settled while looking at test figures of one split; the budget of the bars is the same for both.

{texts}

{cascade_bars}

## Fewer exits: `offramp_bench.few_exits`
The same cascade with four exits instead of 36: at the end of ResNet-20, and after each third of ResNet-56. Which stages
keep their exits (of the same earlier default) was settled after looking at three choices on the first rotation's test
images, and not tuned further.

{few}

{few_bars}

{paper}
{guarantees}
{runtime}
{scale}
## What learning a frontier costs: `offramp_bench.frontier_time`
From a store on disk to measured points, 45,000 samples, in passes of the full float32 network over the same samples.
Extraction itself is one pass for each view, and is not in these figures (the default takes two views).

{times}

{time_bars}

## The feature store: `offramp_bench.store`

{store}

{store_bars}

## Saved frontiers: `offramp_bench.artifact`
Whatever is in the folder, `offramp.load` refuses it by name or gives the same answers, and touches nothing else. Where
answers stay identical, what was changed is not used to answer (provenance, a field or a file nobody knows).

{artifacts}

{artifact_bars}

## The paper's cost tables: `offramp_bench.costs`
T2T-ViT-7 for 10 classes and T2T-ViT-14 for 100 at 224 x 224, by the paper's rule: one a multiply-add, layer norms 5 an
element, the final one at every exit. Its counter is 7,020 too high on the T2T module, where it goes by rounded numbers;
cells are compared with that added.

{costs}

{cost_bars}
"""


def page() -> str:
    """Return docs/evidence/tables.md."""
    figures = {
        name: results(name)
        for name in (
            "frontier_quality",
            "frontier_time",
            "store",
            "costs",
            "cascade",
            "few_exits",
            "artifact",
            "runtime",
            "guarantees",
            "scale",
        )
    }
    rotations = figures["frontier_quality"]["rotations"]
    return PAGE.format(
        full=100 * fmean(rotation["full accuracy"] for rotation in rotations),
        quality="\n".join(quality(figures["frontier_quality"])),
        preferred=", ".join(sorted({rotation["preferred"] for rotation in rotations})),
        budgets="\n".join(budgets(figures["frontier_quality"])),
        quality_bars="\n".join(bars(figures["frontier_quality"])),
        cascades="\n".join(cascades(figures["cascade"])),
        texts="\n".join(texts(figures["cascade"])),
        cascade_bars="\n".join(bars(figures["cascade"])),
        few="\n".join(few(figures["few_exits"], figures["cascade"])),
        few_bars="\n".join(bars(figures["few_exits"])),
        runtime=runtime.section(figures["runtime"], bars(figures["runtime"])),
        paper=paper.section(read_results(RESULTS)),
        guarantees=guarantees.section(figures["guarantees"]),
        scale=scale.section(figures["scale"], bars(figures["scale"])),
        times="\n".join(times(figures["frontier_time"])),
        time_bars="\n".join(bars(figures["frontier_time"])),
        store="\n".join(store(figures["store"])),
        store_bars="\n".join(bars(figures["store"])),
        artifacts="\n".join(artifacts(figures["artifact"])),
        artifact_bars="\n".join(bars(figures["artifact"])),
        costs="\n".join(costs(figures["costs"])),
        cost_bars="\n".join(bars(figures["costs"])),
    )


def with_headline(readme: str) -> str:
    """Return the README with the present figures between its marks."""
    numbers = _three_numbers()
    others = headline.alternatives(_complete_tasks(), results("runtime")["alternatives"])
    return replace_marked(replace_marked(readme, f"{MARK}: numbers", numbers), f"{MARK}: alternatives", others)


def with_claims(overview: str) -> str:
    """Return the overview of the evidence with the present figures between its marks."""
    numbers = _three_numbers().replace("(docs/evidence/", "(")
    filled = replace_marked(overview, f"{MARK}: numbers", numbers)
    return replace_marked(filled, f"{MARK}: behind", paper.describe_shortfalls(read_results(RESULTS)))


def _complete_tasks() -> dict[str, Any]:
    """Return the results of all tasks that have every seed, those without rivals among them."""
    return headline.complete(read_tracks(BEGUN) | read_tracks())


def _three_numbers() -> str:
    return headline.numbers(results("runtime")["texts"], results("serving-int8"), results("annotation"))


def table_pictures() -> dict[Path, str]:
    """Return the pictures of the page of all tables, by their files."""
    return {
        EVIDENCE / "frontier.svg": to_svg(draw(results("frontier_quality"), results("cascade"))),
        EVIDENCE / "runtime.svg": to_svg(runtime.draw(results("runtime"))),
    }


def track_pictures() -> dict[Path, str]:
    """Return the picture of each track, by its file."""
    tracks = read_results(RESULTS)
    return {
        EVIDENCE / f"{track}-track.svg": to_svg(draw_track(tracks.footings(track)[title]))
        for track, title in PICTURED.items()
    }


def readme_pictures() -> dict[Path, str]:
    """Return the pictures of the README, wide and narrow: a text task, if one was measured, and an image task."""
    tasks = _complete_tasks()
    first = next(name for name in ("banking77", "clinc150", "superpixels") if name in tasks)
    shown = (first, "cifar10-t2t")
    return {readme.PICTURE: readme.draw(tasks, shown), readme.NARROW: readme.draw(tasks, shown, narrow=True)}


def with_plan(document: str) -> str:
    """Return docs/evidence/scale.md with the present figures between its marks."""
    for name, content in (
        (MARK, scale.plan(results("scale"))),
        (f"{MARK}: large networks", large.make_table(results("scale-large"))),
        (f"{MARK}: EfficientNet", efficientnet.make_table(results("scale-efficientnet"))),
    ):
        document = replace_marked(document, name, content)
    return document


def with_guarantees(page: str, document: str) -> str:
    """Return a page about guarantees with the present figures between its marks.

    Args:
        page: Path of the page, a key of `BLOCKS`.
        document: Its content.
    """
    figures = results("guarantees")
    for name, (part, block) in BLOCKS[page].items():
        document = replace_marked(document, f"{MARK}: {name}", block(figures[part]))
    return document


def with_calls(document: str) -> str:
    """Return the page about called models with the present figures between its marks.

    Args:
        document: Its content.
    """
    return replace_marked(document, MARK, measured_block(results("annotation")))


if __name__ == "__main__":
    for file, picture in (table_pictures() | track_pictures() | readme_pictures()).items():
        file.write_text(picture)
    (ROOT / "docs" / "reference" / "networks.md").write_text(networks(results("architectures")))
    (ROOT / "docs" / "evidence" / "tables.md").write_text(page())
    for name, filled in (
        ("README.md", with_headline),
        ("docs/evidence/index.md", with_claims),
        ("docs/evidence/scale.md", with_plan),
        ("docs/evidence/annotation.md", with_calls),
    ):
        (ROOT / name).write_text(filled((ROOT / name).read_text()))
    for name in BLOCKS:
        (ROOT / name).write_text(with_guarantees(name, (ROOT / name).read_text()))
