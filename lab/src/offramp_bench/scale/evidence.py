"""What docs/evidence/tables.md says of work on many workers, and the tables of docs/evidence/scale.md."""

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

**Faults.** What was said, and whether the same call goes on once it is mended:

{faults}

**Rows.** Each in a process of its own. Memory is anonymous memory of the process, and of the larger of two workers;
Ray's own processes do not count. Fit: synthetic features of 164 bytes a row, {epochs} epochs. Overlap: the ids of two
splits of as many rows each. Extraction: a CSV file of two numbers, opened and run through a tiny network on two
workers; the bytes are what a worker is sent of it for 1,000 rows.

{rows_grow}

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
    failures = found["failures"]
    return SECTION.format(
        throughput="\n".join(_throughput(found["extraction"], found.get("inference"))),
        inference=_inference(found.get("inference")),
        rows=failures["rows"],
        machines=failures["machines"],
        losses="\n".join(_losses(failures["lost"])),
        faults="\n".join(_faults(found["faults"])),
        epochs=found["rows"]["epochs"],
        rows_grow="\n".join(_rows(found["rows"])),
        base=found["forecasts"]["rows of the constants"],
        forecasts="\n".join(_checked(found["forecasts"]["checked"])),
        bars="\n".join(bars),
    )


def plan(found: dict[str, Any]) -> str:
    """The constants and forecasts of real networks, for docs/evidence/scale.md.

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


def _inference(inference: dict[str, Any] | None) -> str:
    if inference is None:
        return "Inference has not been measured since it runs on Ray Data."
    return (
        f"Inference: ResNet-20 then ResNet-56 at cost 0.4, {inference['inputs']:,} images in bfloat16 "
        f"in {inference['files']}\nfiles of {inference['seconds of a file']:.1f} s each, {inference['rounds']} rounds. "
        "Bare processes, as many, read the same files and run full batches; they write nothing."
    )


def _throughput(extraction: dict[str, Any], inference: dict[str, Any] | None) -> list[str]:
    shares = {
        "extraction, of the bare loop": extraction["share_of"]["bare"],
        "extraction, of the network alone": extraction["share_of"]["network alone"],
    }
    if inference is not None:
        for name, found in inference["throughput of bare processes"].items():
            shares[f"inference by {name}, of bare processes"] = found
    lines = ["| throughput on Ray's workers | median | range |", "|---|---|---|"]
    for name, share in shares.items():
        lines.append(f"| {name} | {share['median']:.2f} | {share['least']:.2f} to {share['most']:.2f} |")
    return lines


def _losses(lost: dict[str, Any]) -> list[str]:
    lines = [
        "| job, output | lost | seconds of the run | lost by it | files that differ | rows missing | rows twice |",
        "|---|---|---|---|---|---|---|",
    ]
    for where, runs in lost.items():
        for name, one in runs.items():
            counts = " | ".join(str(one[what]) for what in ("files that differ", "rows missing", "rows twice"))
            lines.append(f"| {where} | {name} | {one['seconds']:.1f} | {one['lost_s']:.1f} | {counts} |")
    return lines


def _rows(found: dict[str, Any]) -> list[str]:
    lines = ["| work | rows | us of CPU a row | MB | MB of a worker | bytes sent |", "|---|---|---|---|---|---|"]
    for work in ("fit", "overlap", "extract"):
        for rows, one in found.get(work, {}).items():
            worker = f"{one['peak_mb of a worker']:.0f}" if "peak_mb of a worker" in one else ""
            sent = f"{one['pickled_part_bytes']:,}" if "pickled_part_bytes" in one else ""
            lines.append(
                f"| {work} | {int(rows):,} | {one['us_a_row']:.1f} | {one['peak_mb']:.0f} | {worker} | {sent} |"
            )
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
