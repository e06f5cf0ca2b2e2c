"""Write docs/evidence/tables.md, its pictures and the figures of README and other pages from the committed results.

    python -m offramp_bench.evidence

The results were written by `python -m offramp_bench.NAME > lab/results/NAME.json`.
"""

import json
from pathlib import Path
from statistics import median
from typing import Any

from offramp.report._canvas import to_svg
from offramp_bench import headline
from offramp_bench import readme_picture as readme
from offramp_bench.annotation.tables import measured_block
from offramp_bench.guarantees import evidence as guarantees
from offramp_bench.guarantees.tables import BLOCKS
from offramp_bench.marks import replace_marked
from offramp_bench.page import read_results
from offramp_bench.page.panels import draw_track
from offramp_bench.paper import evidence as paper
from offramp_bench.paper.tasks import COMPARED
from offramp_bench.places import RESULTS, ROOT
from offramp_bench.runtime import evidence as runtime
from offramp_bench.scale import efficientnet, large
from offramp_bench.scale import evidence as scale
from offramp_bench.tracks.bars import bars as bars_of_tracks
from offramp_bench.tracks.results import read_results as read_tracks

EVIDENCE = ROOT / "docs" / "evidence"

MARK = "evidence"

PICTURED = {
    "policy": "on the default's exits",
    "exits": "the default's features",
    "open": "the default as it is shipped",
}
"""The footing that the picture of a track shows."""


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


def track_bars() -> list[str]:
    """Return the missed bars of the tracks as a table, and the number of those that hold."""
    all_bars = bars_of_tracks(read_tracks(), COMPARED)
    rows = ["| missed on the tracks | measured | at most |", "|---|---|---|"]
    rows += [f"| {bar.name} | {bar.figure:g} | {bar.at_most:g} |" for bar in all_bars if not bar.held]
    held = sum(bar.held for bar in all_bars)
    return [*rows, "", f"{held} of {len(all_bars)} bars hold."]


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


PAGE = """# All tables of the evidence

Written by `python -m offramp_bench.evidence` from `lab/results`, which hold what the benchmarks printed. Everything
was measured on a two-core CPU without a GPU; speeds are ratios, both sides timed in one run. Exits are those of the
default as it is shipped, except in three places: prediction sets, "What learning a frontier costs" and, but for MiniLM
from raw texts, "Whether time is saved". There they were fitted by the default of version 0.1.0a1: they were not
distilled and read up to 2,048 means per stage, and gates were trained.

{paper}

{track_bars}

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
answers stay identical, what was changed is not used to answer (provenance, an unknown field or file).

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
            "frontier_time",
            "store",
            "costs",
            "artifact",
            "runtime",
            "guarantees",
            "scale",
        )
    }
    return PAGE.format(
        runtime=runtime.section(figures["runtime"], bars(figures["runtime"])),
        paper=paper.section(read_results(RESULTS)),
        track_bars="\n".join(track_bars()),
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
    """Return the results of all tasks that have every seed."""
    return headline.complete(read_tracks())


def _three_numbers() -> str:
    return headline.numbers(results("runtime")["texts"], results("serving-int8"), results("annotation"))


def table_pictures() -> dict[Path, str]:
    """Return the pictures of the page of all tables, by their files."""
    return {
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
