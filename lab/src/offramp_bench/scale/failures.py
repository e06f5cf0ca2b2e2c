"""A worker, a machine and the driver are killed in the middle of an extraction, onto a disk and into an object store.

Machines are Ray's own stand-ins for them: processes of this one, each with its own scheduler and workers. Every run is
a driver of its own, and its store is compared with what one process writes without Ray. The object store is a server of
S3 on this machine, which `scripts/object-store python -m offramp_bench.scale --only failures` brings along.
"""

import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from fsspec.core import url_to_fs

from offramp.errors import MissingExtraError
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
    with TemporaryDirectory() as folder, object_store(required=not small) as bucket:
        roots = {"disk": folder} if bucket is None else {"disk": folder, "object store": bucket}
        alone = _extract_alone(Path(folder, "alone"), rows)
        machine: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 200_000_000, "include_dashboard": False}
        cluster: Any = Cluster(initialize_head=True, head_node_args=machine)
        try:
            others = [cluster.add_node(**machine) for _ in range(MACHINES - 1)]
            cluster.wait_for_nodes()
            seconds = {
                where: _lose_each(Place(root, rows, cluster.address), cluster, others, machine)
                for where, root in roots.items()
            }
        finally:
            cluster.shutdown()
        found = {
            (where, name): _compared(f"{root}/{name.replace(' ', '-')}", alone, rows)
            for where, root in roots.items()
            for name in seconds[where]
        }
    figures = {
        where: {
            name: {**found[where, name], "seconds": took, "lost_s": took - runs["none"]}
            for name, took in runs.items()
            if name != "warming up"
        }
        for where, runs in seconds.items()
    }
    bars = [
        Bar(f"{what} after the loss of {name}, {where}", float(count), 0)
        for (where, name), counts in found.items()
        for what, count in counts.items()
        if name != "warming up"
    ]
    return {"rows": rows, "machines": MACHINES, "lost": figures}, bars


def _lose_each(place: "Place", cluster: Any, others: list[Any], machine: dict[str, Any]) -> dict[str, float]:
    """Seconds of a run with nothing lost, and with each loss."""
    seconds = {"warming up": place.run("warming up")}  # workers start, and files are read for the first time
    seconds["none"] = place.run("none")
    seconds["a worker"] = place.run("a worker", strike=_kill_a_worker)

    def remove_a_machine() -> None:
        lost = _busy(others)
        others.remove(lost)
        cluster.remove_node(lost, False)

    seconds["a machine"] = place.run("a machine", strike=remove_a_machine)
    others.append(cluster.add_node(**machine))
    cluster.wait_for_nodes()
    seconds["the driver"] = place.run_twice("the driver")
    return seconds


@contextmanager
def object_store(*, required: bool) -> Iterator[str | None]:
    """The address of an empty bucket on a server of S3, which this process and those it starts will find.

    Args:
        required: If s3fs is not installed, raise an error; else there is no bucket.
    """
    try:
        import s3fs
    except ImportError as error:
        if not required:
            say("  s3fs is not installed: the object store is left out")
            yield None
            return
        raise MissingExtraError(
            "the object store needs s3fs and a server",
            hint="run scripts/object-store python -m offramp_bench.scale --only failures",
        ) from error
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
        os.environ |= {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nobody"}
        until_s = time.monotonic() + 60
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            if server.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError("the server of S3 did not start")
            time.sleep(0.1)
        s3fs.S3FileSystem().mkdir("offramp-failures")
        yield "s3://offramp-failures"
    finally:
        server.kill()
        server.wait()


class Place:
    """A folder or address to which runs write, and the cluster they use.

    Args:
        root: A folder, or an address.
        rows: Of a run.
        address: Of the cluster.
    """

    def __init__(self, root: str, rows: int, address: str) -> None:
        self._root, self._rows, self._address = root, rows, address

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
        command = [sys.executable, "-m", "offramp_bench.scale.failures", self._store(name)]
        return subprocess.Popen([*command, str(self._rows), self._address], stdout=sys.stderr)  # figures go to stdout

    def _wait(self, driver: subprocess.Popen[bytes], name: str) -> None:
        """Until a third of the shards are there."""
        shards = _shards(self._rows)
        files, path = _files_of(self._store(name))
        while sum(file.endswith(".json") for file in files.find(f"{path}/shards")) < shards // 3:
            if driver.poll() is not None:
                raise RuntimeError(f"the run that was to lose {name} ended before it did")
            time.sleep(0.01)

    def _store(self, name: str) -> str:
        return f"{self._root}/{name.replace(' ', '-')}"


def _files_of(store: str) -> tuple[Any, str]:
    files, path = url_to_fs(store, use_listings_cache=False)
    return files, str(path)


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


def _compared(store: str, alone: dict[str, str], rows: int) -> dict[str, int]:
    ids = Store.open(store).ids()
    wanted = images(rows).read(0, rows).ids
    files, path = _files_of(store)
    written = {
        name.removeprefix(f"{path}/"): hashlib.sha256(files.cat_file(name)).hexdigest()
        for name in files.find(path)
        if not name.endswith("/.lock")
    }
    return {
        "files that differ": len({name for name in {*alone, *written} if alone.get(name) != written.get(name)}),
        "rows missing": len(np.setdiff1d(wanted, ids)),
        "rows twice": len(ids) - len(np.unique(ids)),
    }


if __name__ == "__main__":
    path, count, address = sys.argv[1:]
    extract_on_cluster(network(8), images(int(count)), path, address=address, shard_mb=_shard_mb(int(count)), **OPTIONS)
