"""A worker, a machine and the driver are killed in the middle of an extraction.

Machines are Ray's own stand-ins for them: processes of this one, each with its own scheduler and workers. Every run is
a driver of its own, and its store is compared with what one process writes without Ray.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from offramp.features import extract
from offramp.features._store import Store
from offramp.scale import extract_on_cluster
from offramp_bench.bars import Bar, say
from offramp_bench.scale.processes import descendants
from offramp_bench.scale.work import VIEWS, hashes, images, network

MACHINES = 3

PATIENCE_S = 1_800.0
"""How long a run may take before it counts as hanging."""

OPTIONS: dict[str, Any] = {"views": VIEWS, "batch_size": 125, "threads": 1, "progress": False}


def failures(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """What is missing, doubled or different after each loss, and the time it took.

    Args:
        small: Fewer rows.
    """
    # Before Ray is imported: it reads these once, and would write a token into the home folder.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    from ray.cluster_utils import Cluster

    rows = 2_000 if small else 20_000
    with TemporaryDirectory() as folder:
        alone = _extract_alone(Path(folder, "alone"), rows)
        machine: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 200_000_000, "include_dashboard": False}
        cluster: Any = Cluster(initialize_head=True, head_node_args=machine)
        try:
            others = [cluster.add_node(**machine) for _ in range(MACHINES - 1)]
            cluster.wait_for_nodes()
            place = Place(Path(folder), rows, cluster.address)
            seconds = {"warming up": place.run("warming up")}  # workers start, and files are read for the first time
            seconds["none"] = place.run("none")
            seconds["a worker"] = place.run("a worker", strike=_kill_a_worker)
            seconds["a machine"] = place.run("a machine", strike=lambda: cluster.remove_node(_busy(others), False))
            cluster.add_node(**machine)
            cluster.wait_for_nodes()
            seconds["the driver"] = place.run_twice("the driver")
        finally:
            cluster.shutdown()
        found = {name: _compared(Path(folder, name), alone, rows) for name in seconds}
    figures = {
        name: {**found[name], "seconds": seconds[name], "lost_s": seconds[name] - seconds["none"]}
        for name in seconds
        if name != "warming up"
    }
    bars = [
        Bar(f"{what} after the loss of {name}", float(count), 0)
        for name in figures
        for what, count in found[name].items()
    ]
    return {"rows": rows, "machines": MACHINES, "lost": figures}, bars


class Place:
    """Where runs write, and the cluster they use."""

    def __init__(self, folder: Path, rows: int, address: str) -> None:
        self._folder, self._rows, self._address = folder, rows, address

    def run(self, name: str, strike: Callable[[], object] | None = None) -> float:
        """Seconds of a run to its end, struck when a third of the shards are there."""
        began = time.perf_counter()
        driver = self._start(name)
        if strike is not None:
            self._wait(driver, name)
            strike()
        if driver.wait(PATIENCE_S):
            raise RuntimeError(f"the run that lost {name} ended with {driver.returncode}")
        say(f"  lost {name}: {time.perf_counter() - began:.1f} s")
        return time.perf_counter() - began

    def run_twice(self, name: str) -> float:
        """Seconds of a run whose driver is killed, and of the same call once more."""
        began = time.perf_counter()
        driver = self._start(name)
        self._wait(driver, name)
        driver.kill()
        driver.wait()
        return time.perf_counter() - began + self.run(name)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "offramp_bench.scale.failures", str(self._folder / name)]
        return subprocess.Popen([*command, str(self._rows), self._address], stdout=sys.stderr)  # figures go to stdout

    def _wait(self, driver: subprocess.Popen[bytes], name: str) -> None:
        """Until a third of the shards are there."""
        shards = _shards(self._rows)
        while len(list(self._folder.glob(f"{name}/shards/*.json"))) < shards // 3:
            if driver.poll() is not None:
                raise RuntimeError(f"the run that was to lose {name} ended before it did")
            time.sleep(0.01)


def _shards(rows: int) -> int:
    return 24 if rows >= 20_000 else 8


def _extract_alone(path: Path, rows: int) -> dict[str, str]:
    extract(network(8), images(rows), path, shard_mb=_shard_mb(rows), **OPTIONS)
    return hashes(path)


def _shard_mb(rows: int) -> float:
    return rows * 7_228 / 1e6 / _shards(rows)  # bytes of a row of this network


def _kill_a_worker() -> None:
    """A worker in the middle of a job, as the system would for want of memory."""
    worker, _ = _at_work()
    os.kill(worker, signal.SIGKILL)


def _busy(machines: list[Any]) -> Any:
    """One of the machines, in the middle of a job."""
    by_scheduler = {machine.all_processes["raylet"][0].process.pid: machine for machine in machines}
    _, scheduler = _at_work(by_scheduler)
    return by_scheduler[scheduler]


def _at_work(schedulers: Container[int] | None = None) -> tuple[int, int]:
    """A worker in the middle of a job, and the scheduler that started it.

    Args:
        schedulers: One of these; any if left out.
    """
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        for process in descendants():
            if process.command.startswith("ray::_do") and (schedulers is None or process.parent in schedulers):
                return process.number, process.parent
        time.sleep(0.01)
    raise RuntimeError("no worker was at work for a minute")


def _compared(path: Path, alone: dict[str, str], rows: int) -> dict[str, int]:
    ids = Store.open(path).ids()
    wanted = images(rows).read(0, rows).ids
    written = hashes(path)
    return {
        "files that differ": len({name for name in {*alone, *written} if alone.get(name) != written.get(name)}),
        "rows missing": len(np.setdiff1d(wanted, ids)),
        "rows twice": len(ids) - len(np.unique(ids)),
    }


if __name__ == "__main__":
    path, count, address = sys.argv[1:]
    extract_on_cluster(network(8), images(int(count)), path, address=address, shard_mb=_shard_mb(int(count)), **OPTIONS)
