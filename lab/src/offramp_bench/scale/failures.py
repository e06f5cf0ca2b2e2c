"""Recovery from the loss of a worker, a machine or the driver during a job, on a disk and in an object store.

The jobs are an extraction and an inference over files. Machines are simulated by Ray: processes on this one, each with
its own scheduler and workers. Every run is a driver of its own, and its output is compared with that of one process
without Ray. The object store is an S3 server on this machine, which
`scripts/object-store python -m offramp_bench.scale --only failures` installs.
"""

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

from offramp.errors import MissingExtraError
from offramp_bench.bars import Bar, say
from offramp_bench.scale.jobs import JOBS, Job
from offramp_bench.scale.processes import descendants

MACHINES = 3

PATIENCE_S = 1_800.0
"""Time that a run may take before it counts as hanging."""

WORKERS = ("ray::_do", "ray::Map")
"""Ray's names for workers that extract, and for those that answer files."""


def failures(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Count what is missing, doubled or different after each loss, and measure the time it took.

    Args:
        small: Use fewer rows.
    """
    # Set before Ray is imported: it reads these once, and would write a token into the home folder.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    from ray.cluster_utils import Cluster

    rows = 2_000 if small else 20_000
    with TemporaryDirectory() as folder, object_store(required=not small) as bucket:
        roots = {"disk": folder} if bucket is None else {"disk": folder, "object store": bucket}
        machine: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 200_000_000, "include_dashboard": False}
        cluster: Any = Cluster(initialize_head=True, head_node_args=machine)
        losses, bars = {}, []
        try:
            others = [cluster.add_node(**machine) for _ in range(MACHINES - 1)]
            cluster.wait_for_nodes()
            for name, kind in JOBS.items():
                for where, root in roots.items():
                    local = Path(folder, f"{name} alone")
                    local.mkdir(exist_ok=True)
                    job = kind(f"{root}/{name}", rows, local)
                    job.prepare()
                    say(f"  {name}, {where}")
                    runs = _lose_each(Runs(name, job, cluster.address), cluster, others, machine)
                    losses[f"{name}, {where}"] = runs
                    bars += _bars(f"{name}, {where}", runs)
        finally:
            cluster.shutdown()
    return {"rows": rows, "machines": MACHINES, "lost": losses}, bars


def _bars(title: str, runs: dict[str, dict[str, float]]) -> list[Bar]:
    return [
        Bar(f"{what} after the loss of {loss}, {title}", figures[what], 0)
        for loss, figures in runs.items()
        for what in ("files that differ", "rows missing", "rows twice")
    ]


def _lose_each(runs: "Runs", cluster: Any, others: list[Any], machine: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Time a run with nothing lost and with each loss, and count what is wrong afterwards."""
    runs.run("warming up")  # workers start, and files are read for the first time
    seconds = {"none": runs.run("none"), "a worker": runs.run("a worker", strike=_kill_a_worker)}

    def remove_a_machine() -> None:
        machine_at_work = _busy(others)
        others.remove(machine_at_work)
        cluster.remove_node(machine_at_work, False)

    seconds["a machine"] = runs.run("a machine", strike=remove_a_machine)
    others.append(cluster.add_node(**machine))
    cluster.wait_for_nodes()
    seconds["the driver"] = runs.run_twice("the driver")
    return {
        loss: {**runs.job.compare(loss), "seconds": took, "lost_s": took - seconds["none"]}
        for loss, took in seconds.items()
    }


@contextmanager
def object_store(*, required: bool) -> Iterator[str | None]:
    """Yield the address of an empty bucket on an S3 server, for this process and those it starts.

    Args:
        required: Raise an error if s3fs is not installed, instead of yielding None.
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
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nobody",
    }
    before = {name: os.environ.get(name) for name in environment}
    try:
        os.environ |= environment
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
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        s3fs.S3FileSystem.clear_instance_cache()  # cached instances would keep using this server


class Runs:
    """Runs of a job, each by a driver of its own.

    Args:
        name: Name of the job.
        job: The job.
        address: Address of the cluster.
    """

    def __init__(self, name: str, job: Job, address: str) -> None:
        self.job = job
        self._name, self._address = name, address

    def run(self, name: str, strike: Callable[[], object] | None = None) -> float:
        """Return the seconds of a run to its end; `strike` is called when a third of the shards or files are there."""
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
        """Return the seconds of a run whose driver is killed, and of the same call once more."""
        began = time.perf_counter()
        driver = self._start(name)
        self._wait(driver, name)
        driver.kill()
        driver.wait()
        return time.perf_counter() - began + self.run(name)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        job = (self._name, self.job.root, str(self.job.folder), str(self.job.rows), name, self._address)
        return subprocess.Popen([sys.executable, "-m", "offramp_bench.scale.jobs", *job], stdout=sys.stderr)

    def _wait(self, driver: subprocess.Popen[bytes], name: str) -> None:
        """Wait until a third of the shards or files are there."""
        while self.job.count(name) < self.job.units // 3:
            if driver.poll() is not None:
                raise RuntimeError(f"the run that was to lose {name} ended before it did")
            time.sleep(0.01)


def _kill_a_worker() -> None:
    """Kill a worker in the middle of a job, as the system does when memory runs out."""
    worker, _ = _at_work()
    os.kill(worker, signal.SIGKILL)


def _busy(machines: list[Any]) -> Any:
    """Return one of the machines that is in the middle of a job."""
    by_scheduler = {machine.all_processes["raylet"][0].process.pid: machine for machine in machines}
    _, scheduler = _at_work(by_scheduler)
    return by_scheduler[scheduler]


def _at_work(schedulers: Container[int] | None = None) -> tuple[int, int]:
    """Return a worker in the middle of a job, and the scheduler that started it.

    Args:
        schedulers: The scheduler is among these; any if left out.
    """
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        for process in descendants():
            if process.command.startswith(WORKERS) and (schedulers is None or process.parent in schedulers):
                return process.number, process.parent
        time.sleep(0.01)
    raise RuntimeError("no worker was at work for a minute")
