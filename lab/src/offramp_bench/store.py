"""Check the feature store: constant memory, resuming after any kill, detection of every changed byte, and speed.

    python -m offramp_bench.store [--check] [--quick]

Results go to stdout as JSON, progress to stderr.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.errors import CorruptFileError
from offramp.features import StoreSource, extract, split_by_id
from offramp.features._source import Rows
from offramp.features._store import Store
from offramp.methods._settings import DEFAULT
from offramp.model import fit_features
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.cifar import PREPROCESSING, cifar10, resnet
from offramp_bench.row_ids import row_ids

LARGEST_GROWTH = 0.10
"""Largest growth of peak memory with ten times the rows; not 0, because allocators are not exact."""

SAMPLING_S = 0.005
"""Time between two measurements of a process's memory."""


@dataclass(frozen=True)
class Size:
    """Sizes of a run of the benchmark."""

    rows: tuple[int, int]
    """Rows of the small and the large extraction."""
    batch_size: int
    """Rows per batch. glibc keeps the freed memory of some batches, more the longer it runs, up to a limit: the small
    case must have many batches, or this shows as growth. (With MALLOC_MMAP_THRESHOLD_=1000000, glibc keeps none; then
    5,000 and 15,000 rows in batches of 250 both take 243 MB.)"""
    shard_mb: float
    """Size of a shard: smaller than the small store, so that the shard bounds the memory."""
    buffer_mb: float
    """Size of the buffer: smaller than the small store, for the same reason."""
    kill_rows: int
    """Rows of the extraction that is killed."""
    kills: int
    """Number of kills while the process is working."""
    speed_mb: int
    """Size of the features of each store whose reading is timed."""


FULL = Size(rows=(5_000, 50_000), batch_size=100, shard_mb=16, buffer_mb=16, kill_rows=5_000, kills=20, speed_mb=400)
QUICK = Size(rows=(500, 5_000), batch_size=50, shard_mb=2, buffer_mb=2, kill_rows=1_000, kills=3, speed_mb=100)


def job(name: str, path: Path, rows: int, batch_size: int, mb: float) -> list[str]:
    """Return the command of a new process: "extract" (`mb` per shard), "shuffle" or "fit" (`mb` of buffer)."""
    return [sys.executable, "-m", "offramp_bench.store", "--job", name, str(path), str(rows), str(batch_size), str(mb)]


def run_job(name: str, path: str, rows: str, batch_size: str, mb: str) -> None:
    torch.set_num_threads(1)  # while other work runs, two threads mostly wait for each other
    if name == "extract":
        backbone, source = resnet(20), cifar10("train", rows=int(rows))
        print("ready", flush=True)
        extract(
            backbone,
            source,
            path,
            poolings=("auto",),
            views=(PREPROCESSING,),
            batch_size=int(batch_size),
            shard_mb=float(mb),
            progress=False,
        )
        return
    if name == "fit":
        fit_from(Store.open(path), int(batch_size), float(mb))
        return
    batches = StoreSource(Store.open(path), pooling="auto", buffer_mb=float(mb))
    for epoch in range(2):
        epoch_batches = batches.shuffled(batch_size=int(batch_size), seed=0, epoch=epoch)
        assert sum(batch.labels.shape[0] for batch in epoch_batches) == int(rows)


def fit_from(store: Store, batch_size: int, buffer_mb: float) -> None:
    """Fit the default on all rows of a store except 200 to tune and 200 to calibrate."""
    tune, calibrate = split_by_id(store.ids(), [200, 200])
    rest = np.setdiff1d(np.arange(store.num_rows), np.concatenate([tune, calibrate]))
    fit, *held_out = (
        StoreSource(store, pooling="auto", rows=rows, buffer_mb=buffer_mb) for rows in (rest, tune, calibrate)
    )
    settings = replace(DEFAULT, warmup_epochs=2, epochs=1, batch_size=batch_size)
    fit_features(resnet(20), fit, *held_out, example=torch.zeros(1, 3, 32, 32), pooling="auto", settings=settings)


def peak_memory_mb(command: Sequence[str]) -> float:
    """Return the peak anonymous memory of a command in MB: its own memory, without the page cache that it maps.

    The memory is measured from outside, for any command; a peak shorter than `SAMPLING_S` may be missed.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak_kb = 0
    while process.poll() is None:
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        except OSError:  # the process has just ended
            continue
        peak_kb = max([peak_kb, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))])
        time.sleep(SAMPLING_S)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return peak_kb / 1e3


def measure_memory(size: Size, folder: Path) -> dict[str, Any]:
    """Measure the peak memory of extraction, shuffling and fitting, with few rows and with ten times as many."""
    results: dict[str, Any] = {"rows": size.rows, "shard_mb": size.shard_mb, "buffer_mb": size.buffer_mb}
    results["store_mb"] = []
    peaks: dict[str, list[float]] = {"extract": [], "shuffle": [], "fit": []}
    for rows in size.rows:
        path = folder / f"memory-{rows}"
        for name, mb in (("extract", size.shard_mb), ("shuffle", size.buffer_mb), ("fit", size.buffer_mb)):
            peaks[name].append(peak_memory_mb(job(name, path, rows, size.batch_size, mb)))
            say(f"memory: {name} {rows} rows: {peaks[name][-1]:.0f} MB")
        results["store_mb"].append(sum((path / file).stat().st_size for file in _files(path)) / 1e6)
        shutil.rmtree(path)
    for name, (small, large) in peaks.items():
        results[name] = {"peak_mb": [small, large], "growth": large / small - 1}
    return results


def measure_resuming(size: Size, folder: Path) -> dict[str, Any]:
    """Kill and resume an extraction at random moments, and compare all files with those of an undisturbed one."""
    undisturbed, disturbed = folder / "undisturbed", folder / "disturbed"
    shard_mb = 1  # many shards, so that kills fall into writing too
    process = _start(job("extract", undisturbed, size.kill_rows, size.batch_size, shard_mb))
    began = time.monotonic()
    process.wait()
    undisturbed_s = time.monotonic() - began
    moments = random.Random(0)
    kills = completed = 0
    differing: list[str] = []
    while kills < size.kills:
        process = _start(job("extract", disturbed, size.kill_rows, size.batch_size, shard_mb))
        try:
            # At most a tenth of the work, so that most kills come while the store is incomplete.
            process.wait(moments.uniform(0, undisturbed_s / min(10, size.kills)))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            say(f"resuming: kill {kills} of {size.kills}, {len(_files(disturbed))} files")
            continue
        differing += _differences(undisturbed, disturbed, process.returncode)
        completed += 1
        shutil.rmtree(disturbed)
    process = _start(job("extract", disturbed, size.kill_rows, size.batch_size, shard_mb))
    process.wait()
    differing += _differences(undisturbed, disturbed, process.returncode)
    return {
        "rows": size.kill_rows,
        "files": len(_files(undisturbed)),
        "kills": kills,
        "completed": completed + 1,
        "differing": differing,
        "identical": not differing,
    }


def measure_corruption(size: Size, folder: Path) -> dict[str, Any]:
    """Change one random byte of each file in turn; reading everything must raise an error that names the file."""
    path = folder / "undisturbed"
    places = random.Random(0)
    missed = []
    files = _files(path)
    for file in files:
        original = (path / file).read_bytes()
        corrupt = bytearray(original)
        corrupt[places.randrange(len(corrupt))] ^= places.randrange(1, 256)
        (path / file).write_bytes(corrupt)
        try:
            store = Store.open(path)
            for shard in range(store.plan.num_shards):
                store.shard(shard)
            missed.append(str(file))
        except CorruptFileError as error:
            if str(file) not in str(error):
                missed.append(str(file))
        (path / file).write_bytes(original)
    say(f"corruption: {len(files) - len(missed)} of {len(files)} refused")
    return {"files": len(files), "missed": missed}


class _Numbers:
    """Random rows of a given width, generated as they are read."""

    def __init__(self, rows: int, width: int) -> None:
        self.name = f"random-{width}"
        self._rows = rows
        self._width = width

    def __len__(self) -> int:
        return self._rows

    def read(self, start: int, stop: int) -> Rows:
        numbers = torch.rand(stop - start, self._width, generator=torch.Generator().manual_seed(start))
        return Rows(numbers, np.arange(start, stop) % 10, row_ids(self.name, range(start, stop)))


class _Passing(Backbone):
    """A backbone whose only stage returns its input."""

    def __init__(self, width: int) -> None:
        super().__init__("passing", [nn.Identity()], {0: nn.Linear(width, 10)}, 10)

    def representation(self, hidden: Hidden, stage: int) -> Tensor:
        assert isinstance(hidden, Tensor)
        return hidden


def measure_speed(size: Size, folder: Path) -> list[dict[str, Any]]:
    """Measure the GB of 16-bit features per second that `shuffled` returns on one thread, from the page cache."""
    results = []
    torch.set_num_threads(1)
    for width in (1_000, 16_000):
        rows = size.speed_mb * 10**6 // (2 * width)
        store = extract(_Passing(width), _Numbers(rows, width), folder / f"speed-{width}", poolings=("mean",))
        source = StoreSource(store, pooling="mean")
        gigabytes = rows * width * 2 / 1e9
        for batch_size in (250, 1000):
            epochs = [_time(source.shuffled(batch_size=batch_size, seed=0, epoch=epoch)) for epoch in range(6)][1:]
            wall_s, cpu_s = min(epoch[0] for epoch in epochs), min(epoch[1] for epoch in epochs)
            results.append(
                {
                    "row_kb": width * 2 / 1e3,
                    "rows": rows,
                    "batch_size": batch_size,
                    "gb_per_s": gigabytes / wall_s,
                    "gb_per_cpu_s": gigabytes / cpu_s,
                    "ms_per_batch": 1e3 * wall_s * batch_size / rows,
                }
            )
            say(f"speed: {width * 2} B rows, batches of {batch_size}: {results[-1]['gb_per_s']:.2f} GB/s")
        shutil.rmtree(folder / f"speed-{width}")
    return results


def _time(batches: Iterator[Any]) -> tuple[float, float]:
    """Return the wall and processor seconds of exhausting an iterator."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for _ in batches:
        pass
    return time.perf_counter() - wall_s, time.process_time() - cpu_s


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a job and wait until it has imported everything, so that kills interrupt its work."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _files(path: Path) -> list[Path]:
    files = (file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))  # without locks
    return sorted(file.relative_to(path) for file in files)


def _differences(expected: Path, other: Path, returned: int) -> list[str]:
    """Describe differences of two stores: a failed process, files of only one, and numbers of bytes that differ."""
    differences = [f"the process returned {returned}"] if returned else []
    for name in sorted({*_files(expected), *_files(other)}):
        if not (expected / name).exists() or not (other / name).exists():
            differences.append(f"{name}: in one store alone")
            continue
        pair = [np.frombuffer((folder / name).read_bytes(), np.uint8) for folder in (expected, other)]
        if len(pair[0]) != len(pair[1]):
            differences.append(f"{name}: {len(pair[0])} and {len(pair[1])} bytes")
        elif (pair[0] != pair[1]).any():
            differences.append(f"{name}: {int((pair[0] != pair[1]).sum())} of {len(pair[0])} bytes")
    return differences


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--quick", action="store_true", help="fewer rows and kills")
    options.add_argument("--job", nargs=5, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.job:
        run_job(*arguments.job)
        return 0
    size = QUICK if arguments.quick else FULL
    with tempfile.TemporaryDirectory(prefix="offramp-store-") as name:
        folder = Path(name)
        results: dict[str, Any] = {
            "size": asdict(size),
            "memory": measure_memory(size, folder),
            "resuming": measure_resuming(size, folder),
            "corruption": measure_corruption(size, folder),
            "speed": measure_speed(size, folder),
        }
    bars = [
        Bar(f"{name}: growth of peak memory", results["memory"][name]["growth"], LARGEST_GROWTH)
        for name in ("extract", "shuffle", "fit")
    ]
    small_store_mb = results["memory"]["store_mb"][0]
    bars += [
        Bar("largest buffer over the small store", max(size.shard_mb, size.buffer_mb) / small_store_mb, 1.0),
        Bar("stores that differ after kills", float(not results["resuming"]["identical"]), 0.0),
        Bar("changed bytes that went unseen", float(len(results["corruption"]["missed"])), 0.0),
    ]
    return report(results, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
