"""The section of docs/evidence/tables.md about many workers, and the tables of docs/evidence/scale.md."""

from typing import Any

__all__ = ["plan", "section"]

SECTION = """## Many workers: `offramp_bench.scale`
Ray on this machine's two cores. Speeds are shares, both sides timed in turns; medians and ranges over the rounds.

{throughput}

Extraction: random images through ResNet-20, rich features. The bare loop runs the network in as many processes and
pools the same features; it neither checks, nor writes, nor hashes. Of what is lost to it, Ray's own processes take 4 to
5 % of the cores and hashing the shards 4 % (this processor has no instructions for it); the rest is writing, and the
start and the end of a run of a dozen seconds. {inference}

**Losses.** {rows:,} inputs on a cluster of {machines} machines (Ray's own stand-ins: processes of this one, each with
its own scheduler). Something is killed when a third of the shards or files are there; the driver's run is started
again.

{losses}

**Faults.** The error message, and whether the same call continues after the repair:

{faults}

**Rows.** Each in a process of its own. Memory is anonymous memory of the process, and of the larger of two workers;
Ray's own processes do not count. Fit: synthetic features of 164 bytes a row, {epochs} epochs. Overlap: the ids of two
splits of as many rows each. Extraction: a CSV file of two numbers, opened and run through a tiny network on two
workers; the bytes are what a worker is sent of it for 1,000 rows.

{rows_grow}

**Forecasts.** Constants from {base:,} rows and one worker; CPU time of driver and workers predicted and measured:

{forecasts}

{bars}
"""


def section(figures: dict[str, Any], bars: list[str]) -> str:
    """Return the section of docs/evidence/tables.md.

    Args:
        figures: The figures that the benchmark printed.
        bars: Its bars as a table.
    """
    failures = figures["failures"]
    return SECTION.format(
        throughput="\n".join(_throughput(figures["extraction"], figures["inference"])),
        inference=_inference(figures["inference"]),
        rows=failures["rows"],
        machines=failures["machines"],
        losses="\n".join(_losses(failures["lost"])),
        faults="\n".join(_faults(figures["faults"])),
        epochs=figures["rows"]["epochs"],
        rows_grow="\n".join(_rows(figures["rows"])),
        base=figures["forecasts"]["rows of the constants"],
        forecasts="\n".join(_forecasts(figures["forecasts"]["checked"])),
        bars="\n".join(bars),
    )


def plan(figures: dict[str, Any]) -> str:
    """Return the constants and forecasts of real networks, for docs/evidence/scale.md.

    Args:
        figures: The figures that the benchmark printed.
    """
    lines = []
    for name, network in figures["forecasts"]["networks"].items():
        constants = network["constants"]
        lines += [
            f"{name}: {1e3 * constants['row_s']:.1f} ms of CPU a row "
            f"({1 / constants['row_s']:,.0f} inputs a second and core), {constants['row_bytes']:,} bytes a row in "
            f"the store, {constants['input_bytes']:,} read; a worker takes {constants['worker_s']:.1f} s of CPU to "
            f"begin, the driver {1e3 * constants['driver_shard_s']:.1f} ms a shard of "
            f"{constants['shard_rows']:,} rows.",
            "",
            "| inputs | workers | hours | core-hours of the workers | price at .04 a core-hour | store | what limits |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in network["forecasts"]:
            lines.append(
                f"| 10^{len(str(row['rows'])) - 1} | {row['workers']:,} | {_short(row['hours'])} | "
                f"{_short(row['worker_cpu_s'] / 3600)} | {_short(row['price'])} | "
                f"{row['store_bytes'] / 1e12:,.2f} TB | {row['bottleneck']} |"
            )
        lines.append("")
    return "\n".join(lines).strip()


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def _inference(inference: dict[str, Any]) -> str:
    return (
        f"Inference: ResNet-20 then ResNet-56 at cost 0.4, {inference['inputs']:,} images in bfloat16 "
        f"in {inference['files']}\nfiles of {inference['seconds of a file']:.1f} s each, {inference['rounds']} rounds. "
        "Bare processes, as many, read the same files and run full batches; they write nothing."
    )


def _throughput(extraction: dict[str, Any], inference: dict[str, Any]) -> list[str]:
    shares = {
        "extraction, of the bare loop": extraction["share_of"]["bare"],
        "extraction, of the network alone": extraction["share_of"]["network alone"],
        "extraction, by processor time, of the bare loop": extraction["processor_share_of"]["bare"],
    }
    for name, share in inference["throughput of bare processes"].items():
        shares[f"inference by {name}, of bare processes"] = share
    lines = ["| throughput on Ray's workers | median | range |", "|---|---|---|"]
    for name, share in shares.items():
        lines.append(f"| {name} | {share['median']:.2f} | {share['least']:.2f} to {share['most']:.2f} |")
    return lines


def _losses(runs_by_job: dict[str, Any]) -> list[str]:
    lines = [
        "| job, output | lost | seconds of the run | lost by it | files that differ | rows missing | rows twice |",
        "|---|---|---|---|---|---|---|",
    ]
    for where, runs in runs_by_job.items():
        for name, run in runs.items():
            counts = " | ".join(str(run[what]) for what in ("files that differ", "rows missing", "rows twice"))
            lines.append(f"| {where} | {name} | {run['seconds']:.1f} | {run['lost_s']:.1f} | {counts} |")
    return lines


def _rows(figures: dict[str, Any]) -> list[str]:
    lines = ["| work | rows | us of CPU a row | MB | MB of a worker | bytes sent |", "|---|---|---|---|---|---|"]
    for work in ("fit", "overlap", "extract"):
        for rows, row in figures.get(work, {}).items():
            worker = f"{row['peak_mb of a worker']:.0f}" if "peak_mb of a worker" in row else ""
            sent = f"{row['pickled_part_bytes']:,}" if "pickled_part_bytes" in row else ""
            lines.append(
                f"| {work} | {int(rows):,} | {row['us_a_row']:.1f} | {row['peak_mb']:.0f} | {worker} | {sent} |"
            )
    return lines


def _faults(faults: dict[str, Any]) -> list[str]:
    lines = ["| fault | message | files that differ in the end |", "|---|---|---|"]
    for name, fault in faults.items():
        lines.append(f"| {name} | {fault['message'].replace('|', '/')} | {fault['files_that_differ']} |")
    return lines


def _forecasts(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| rows | workers | predicted, s | measured, s | off by |", "|---|---|---|---|---|"]
    for row in rows:
        forecast_s = row["predicted worker CPU s"] + row["predicted driver CPU s"]
        actual_s = row["worker CPU s"] + row["driver CPU s"]
        lines.append(
            f"| {row['rows']:,} | {row['workers']} | {forecast_s:.1f} | {actual_s:.1f} | {100 * row['off']:+.1f} % |"
        )
    return lines
