"""The times of a model on every backend, and the recommendation that follows from them."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from offramp.cli.console import print_table, print_text
from offramp.runtime._run_times import RunTime, fastest

if TYPE_CHECKING:
    from offramp.runtime import LatencyTable

__all__ = ["describe_recommendation", "print_recommendation"]


def describe_recommendation(table: "LatencyTable") -> dict[str, Any] | None:
    """Return the recommended runs as JSON content; None if no runs were measured."""
    if table.fastest_run is None:
        return None
    single = fastest(table.runs, batch_size=table.batch_sizes[0])
    return {"latency": None if single is None else asdict(single), "throughput": asdict(table.fastest_run)}


def print_recommendation(table: "LatencyTable") -> None:
    """Print the runs as a table, and one sentence for each recommendation; nothing if no runs were measured."""
    smallest = table.batch_sizes[0]
    single, best = fastest(table.runs, batch_size=smallest), table.fastest_run
    if single is None or best is None:
        return
    rows = [
        [
            run.backend,
            f"{run.batch_size}",
            f"{run.exits}",
            f"{run.ms:.3g}",
            f"{run.least_ms:.3g} to {run.most_ms:.3g}",
            f"{run.speedup:.2f}",
            f"{1000 / run.ms:,.0f}",
            run.note,
        ]
        for run in table.runs
    ]
    columns = ["backend", "batch", "exits", "ms per sample", "range", "times as fast", "samples per s", ""]
    print_table("Whole runs on this machine; times as fast as the full network on the same backend", columns, rows)
    one = "one request at a time" if smallest == 1 else f"batches of {smallest}"
    print_text(f"Recommended for {one}: {single.backend} with {single.exits} exits, {_figures(single)}.")
    print_text(
        f"Recommended for throughput: {best.backend} in batches of {best.batch_size}, {_figures(best)}, "
        f"{1000 / best.ms:,.0f} samples per second."
    )
    fewer = next((run for run in table.runs if run.exits < single.exits and run.backend == single.backend), None)
    if fewer is not None and fewer.most_ms < single.least_ms:
        print_text(
            f"Hardly any sample takes {single.exits - fewer.exits} of the exits; without them, {fewer.backend} takes "
            f"{fewer.ms:.3g} ms per sample. Decisions would change, so fit again, with --latency or fewer --exits."
        )


def _figures(run: RunTime) -> str:
    return f"{run.ms:.3g} ms per sample ({run.speedup:.1f} times as fast as the full network)"
