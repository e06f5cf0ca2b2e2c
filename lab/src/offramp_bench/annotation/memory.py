"""Peak memory of a job with 10,000 and with 1,000,000 embeddings."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import offramp
from offramp_bench.bars import Bar, say
from offramp_bench.store import peak_memory_mb

__all__ = ["memory"]

ROWS = (10_000, 1_000_000)
"""Embeddings of the small and of the large job."""

WIDTH, CLASSES = 64, 4
"""Width of an embedding, and number of classes."""


def memory() -> tuple[dict[str, Any], list[Bar]]:
    """Measure both jobs, each in a fresh process."""
    peaks = []
    with TemporaryDirectory() as folder:
        path = Path(folder)
        for rows in ROWS:
            generator = np.random.default_rng(0)
            embeddings = np.lib.format.open_memmap(
                path / f"{rows}.npy", mode="w+", dtype=np.float32, shape=(rows, WIDTH)
            )
            for start in range(0, rows, 10_000):
                embeddings[start : start + 10_000] = generator.normal(size=(min(rows - start, 10_000), WIDTH))
            embeddings.flush()
            del embeddings
            peaks.append(peak_memory_mb([sys.executable, "-m", __name__, str(path / f"{rows}.npy")]))
            say(f"memory: {rows:,} embeddings, {peaks[-1]:.0f} MB")
    growth = peaks[1] / peaks[0] - 1
    return {"rows": ROWS, "peak_mb": peaks, "growth": growth}, [Bar("growth of peak memory", growth, 0.10)]


def _answer(rows: Any) -> Any:
    """Return classes that a linear model can learn for all but a few rows."""
    return (np.asarray(rows)[:, :CLASSES] + 0.02 * np.asarray(rows)[:, CLASSES : 2 * CLASSES] ** 3).argmax(1)


def run_job(file: str) -> None:
    """Annotate the embeddings of a file."""
    last = offramp.callable_model(_answer, CLASSES, name="expensive", batch_size=1000)
    members = offramp.cascade(offramp.encoder(), last)
    with TemporaryDirectory() as store:
        job = offramp.annotate(
            np.load(file, mmap_mode="r"), members, label_budget=500, max_drop=0.05, store=store, progress=False
        )
    print(job.bill, file=sys.stderr)


if __name__ == "__main__":
    run_job(sys.argv[1])
