"""What docs/evidence.md says of work on many workers, and the tables of docs/scale.md."""

from typing import Any

__all__ = ["plan", "section"]

SECTION = """## Many workers: `offramp_bench.scale`
Ray on this machine's two cores. Speeds are shares, both sides timed in turns; medians and ranges over the rounds.

{throughput}

Extraction: random images through ResNet-20, rich features. The bare loop runs the network in as many processes and
pools the same features; it neither checks, nor writes, nor hashes. Of what is lost to it, Ray's own processes take 4 to
5 % of the cores and hashing the shards 4 % (this processor has no instructions for it); the rest is writing, and the
start and the end of a run of a dozen seconds. Inference: ResNet-20 then ResNet-56 at cost .4,
{inputs:,} images in bfloat16; the bare engine answers batches of 64 in as many processes.{budgets}

**Losses.** {rows:,} inputs on a cluster of {machines} machines (Ray's own stand-ins: processes of this one, each with
its own scheduler). Something is killed when a third of the shards are there; the driver's run is started again.

{losses}

**Faults.** What was said, and whether the same call goes on once it is mended:

{faults}

**Rows.** Synthetic features of 164 bytes a row, one epoch of classifiers and one of gates, each fit in a process of its
own: {fits}. The most is taken after the
last epoch, where points are chosen on the rows held out: candidates are held, and how many there are depends on which
exits are kept. In a run that was watched the epochs of 10^7 rows took 250 to 257 MB.

**Forecasts.** Constants from {base:,} rows and one worker; CPU time of driver and workers foretold and measured:

{forecasts}

{bars}
"""


def section(found: dict[str, Any], bars: list[str]) -> str:
    """The section.

    Args:
        found: What the benchmark printed.
        bars: Its bars as a table.
    """
    failures, inference = found["failures"], found["inference"]
    spent = inference["spent of budgets"].items()
    budgets = " ".join(f"A job with a budget of {float(asked):g} spent {cost:.4f}." for asked, cost in spent)
    return SECTION.format(
        throughput="\n".join(_throughput(found["extraction"], inference)),
        inputs=inference["inputs"],
        budgets=f"\n{budgets}" if budgets else "",
        rows=failures["rows"],
        machines=failures["machines"],
        losses="\n".join(_losses(failures["lost"])),
        faults="\n".join(_faults(found["faults"])),
        fits="; ".join(
            f"{int(rows):,} rows {one['us_a_row']:.1f} us of CPU a row, {one['peak_mb']:.0f} MB at most"
            for rows, one in found["rows"]["rows"].items()
        ),
        base=found["forecasts"]["rows of the constants"],
        forecasts="\n".join(_checked(found["forecasts"]["checked"])),
        bars="\n".join(bars),
    )


def plan(found: dict[str, Any]) -> str:
    """The constants and forecasts of real networks, for docs/scale.md.

    Args:
        found: What the benchmark printed.
    """
    lines = []
    for name, told in found["forecasts"]["networks"].items():
        one = told["constants"]
        lines += [
            f"{name}: {1e3 * one['row_s']:.1f} ms of CPU a row ({1 / one['row_s']:,.0f} inputs a second and core), "
            f"{one['row_bytes']:,} bytes a row in the store, {one['input_bytes']:,} read; a worker takes "
            f"{one['worker_s']:.1f} s of CPU to begin, the driver {1e3 * one['driver_shard_s']:.1f} ms a shard of "
            f"{one['shard_rows']:,} rows.",
            "",
            "| inputs | workers | hours | core-hours of the workers | price at .04 a core-hour | store | what limits |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in told["forecasts"]:
            lines.append(
                f"| 10^{len(str(row['rows'])) - 1} | {row['workers']:,} | {_short(row['hours'])} | "
                f"{_short(row['worker_cpu_s'] / 3600)} | {_short(row['price'])} | "
                f"{row['store_bytes'] / 1e12:,.2f} TB | {row['bottleneck']} |"
            )
        lines.append("")
    return "\n".join(lines).strip()


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def _throughput(extraction: dict[str, Any], inference: dict[str, Any]) -> list[str]:
    shares = {
        "extraction, of the bare loop": extraction["share_of"]["bare"],
        "extraction, of the network alone": extraction["share_of"]["network alone"],
    }
    for name, found in inference["throughput of the cluster, of"].items():
        shares[f"inference, of the {name.replace('bare', 'bare engine')}"] = found
    lines = ["| throughput on Ray's workers | median | range |", "|---|---|---|"]
    for name, share in shares.items():
        lines.append(f"| {name} | {share['median']:.2f} | {share['least']:.2f} to {share['most']:.2f} |")
    return lines


def _losses(lost: dict[str, Any]) -> list[str]:
    lines = [
        "| lost | seconds of the run | lost by it | files that differ | rows missing | rows twice |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in lost.items():
        counts = " | ".join(str(one[what]) for what in ("files that differ", "rows missing", "rows twice"))
        lines.append(f"| {name} | {one['seconds']:.1f} | {one['lost_s']:.1f} | {counts} |")
    return lines


def _faults(faults: dict[str, Any]) -> list[str]:
    lines = ["| fault | what is said | files that differ in the end |", "|---|---|---|"]
    for name, one in faults.items():
        lines.append(f"| {name} | {one['told'].replace('|', '/')} | {one['files_that_differ']} |")
    return lines


def _checked(checked: list[dict[str, Any]]) -> list[str]:
    lines = ["| rows | workers | foretold, s | measured, s | off by |", "|---|---|---|---|---|"]
    for one in checked:
        foretold = one["foretold worker CPU s"] + one["foretold driver CPU s"]
        measured = one["worker CPU s"] + one["driver CPU s"]
        lines.append(
            f"| {one['rows']:,} | {one['workers']} | {foretold:.1f} | {measured:.1f} | {100 * one['off']:+.1f} % |"
        )
    return lines
