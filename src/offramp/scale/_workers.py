"""Worker processes on one or many machines, through Ray; no other file uses Ray.

Jobs are plain Ray tasks, not Ray Data: each job names its rows and writes its own file, so no data flows back.
docs/evidence/scale.md compares their overheads.
"""

import logging
import os
import pickle
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import RawIOBase
from itertools import islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from time import monotonic, sleep
from typing import Any, TypeVar, final

import torch

from offramp._files import Place
from offramp.errors import InputError, MissingExtraError, OfframpError, StoreError, WorkerLostError

__all__ = ["Workers", "check_counts", "check_portable", "check_shared", "open_workers"]

Job = TypeVar("Job")
Result = TypeVar("Result")

TRIES = 20
"""Most attempts of a job whose worker or machine is lost: a job that always ends its worker (a crash in a decoder, too
little memory) must end the run."""

ANSWER_S = 10.0
"""Time that a cluster may take to answer."""

RECOUNT_EVERY_S = 5.0
"""Interval between counts of the workers: machines come and go."""

CHECK_EVERY_S = 0.5
"""Interval between checks of Ray's own processes. If one has ended, a later call to Ray ends this process without any
exception, so it must be noticed before."""

STOP_S = 30.0
"""Time that running jobs have to stop when a run ends early, so that none still writes when the caller continues; then
their workers are ended."""


@final
class Workers:
    """Processes of a cluster, each doing one job at a time. Made by `open_workers`.

    Args:
        threads: Number of torch threads per worker.
        at_most: Most workers to use; None for all of the cluster.
        gpus: Number of GPUs per worker.
        folder: A folder that all workers see, through which they get their work; without it, Ray sends the work. Ray
            ends the driver if it holds an object of a lost machine, so a cluster that is started here uses a folder.

    Attributes:
        threads: As above.
    """

    def __init__(self, threads: int, at_most: int | None, *, gpus: float = 0, folder: Path | None = None) -> None:
        self.threads = threads
        self._gpus = gpus
        self._at_most = at_most
        self._folder = folder
        self._available = 0
        self._recount_at = 0.0

    @property
    def count(self) -> int:
        """The number of workers now."""
        if monotonic() >= self._recount_at:
            self._available = _count_workers(self.threads, self._gpus)
            self._recount_at = monotonic() + RECOUNT_EVERY_S
        return self._available if self._at_most is None else min(self._available, self._at_most)

    def run(self, jobs: Iterable[Job], work: Callable[[Job], Result]) -> Iterator[tuple[Job, Result]]:
        """Run jobs on the workers, and yield each result when it is ready, in any order.

        A job whose worker or machine is lost is started again elsewhere. If the lost one still runs, two workers do
        the same job at once, so `work` must write atomically and the same each time. An error in `work` is raised
        here, and ends the run. Only a few jobs per worker run at a time, and `jobs` is read no faster than that:
        memory does not grow with their number.

        Args:
            jobs: Small jobs that can be pickled.
            work: A function that does one job. It is sent to each machine once and kept by each worker, so it may hold
                a network, as a `functools.partial` does.

        Yields:
            A job and its result.

        Raises:
            WorkerLostError: If a job ends its worker each time, or if a process of Ray itself ends, in a cluster that
                was started here.
        """
        ray = _ray()
        reference = ray.put(work) if self._folder is None else _write_work(work, self._folder)
        task = ray.remote(_do_job).options(
            num_cpus=self.threads, num_gpus=self._gpus, max_retries=TRIES - 1, retry_exceptions=False
        )
        remaining = iter(jobs)
        running: dict[Any, Job] = {}
        try:
            while True:
                _check_ray()
                for job in islice(remaining, max(0, self._most_running() - len(running))):
                    # In a list, so that Ray passes the reference: a worker that has the work need not unpickle it.
                    running[task.remote([reference], job, self.threads)] = job
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1, timeout=CHECK_EVERY_S)
                for task_id in ready:
                    job = running.pop(task_id)
                    yield job, _get_result(task_id, job)
        finally:
            _stop(list(running))

    def _most_running(self) -> int:
        """Return the number of jobs to submit: two per worker, so that none waits for the next."""
        # With `at_most`, other workers of the cluster would take the second job. Without workers, one job asks for one.
        return max(1, 2 * self.count if self._at_most is None else self.count)


@contextmanager
def open_workers(
    workers: int | None = None, address: str | None = None, *, threads: int = 1, gpus: float = 0
) -> Iterator[Workers]:
    """Start worker processes on this machine, or use those of a running cluster.

    If the caller has connected Ray before, that cluster is used and left running. A cluster that is started here is
    shut down at the end, accepts only this user (by a random token, unless RAY_AUTH_MODE is set), and reports no usage
    statistics.

    Args:
        workers: Number of workers to start, by default one per CPU; of a running cluster, the most to use, by default
            all.
        address: Address of a Ray cluster, "host:port" or "auto"; by default workers are started here.
        threads: Number of torch threads per worker.
        gpus: Number of GPUs per worker, Ray's `num_gpus`: 1, or 0.5 for two workers on one. Ray shows a worker no other
            GPUs than its own. Those of this machine are Ray's to find.

    Yields:
        The workers.

    Example:
        >>> with open_workers(1) as workers:
        ...     print(sorted(workers.run([1, 2, 3], float)))
        [(1, 1.0), (2, 2.0), (3, 3.0)]
    """
    check_counts(workers, threads, gpus=gpus)
    ray = _ray()
    if ray.is_initialized():
        yield Workers(threads, workers, gpus=gpus)
        return
    with TemporaryDirectory(prefix="offramp-") as folder:
        if address is None:
            workers = workers or max(1, (os.cpu_count() or 1) // threads)
            _start(workers * threads)
        else:
            _join(address)
        try:
            at_most, shared = (None, Path(folder)) if address is None else (workers, None)
            yield Workers(threads, at_most, gpus=gpus, folder=shared)
        finally:
            ray.shutdown()


def check_counts(workers: int | None, threads: int, *, gpus: float = 0) -> None:
    """Refuse numbers of workers and threads below 1, and of GPUs that Ray cannot give; None stands for all workers."""
    if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise InputError("gpus", expected="0, a share of a GPU, or a whole number per worker", got=gpus)
    if threads < 1 or (workers is not None and workers < 1):
        raise InputError("workers and threads", expected="at least 1 each", got=f"{workers} and {threads}")


def check_portable(**things: object) -> None:
    """Refuse objects, given by name, that cannot be sent to a worker."""
    pickler = _ray().cloudpickle.CloudPickler
    for name, thing in things.items():
        try:
            # Arrays are skipped: they can be sent, and copying them would double their memory.
            pickler(_NullFile(), protocol=5, buffer_callback=lambda _: None).dump(thing)
        except Exception as error:  # __reduce__ may raise anything
            raise InputError(
                f"the {name} cannot be sent to other processes: {error}",
                hint="let it hold names and paths, and open files, locks and connections when first used",
            ) from error


def check_shared(file: Place) -> None:
    """Refuse to work on a machine that does not see a file that the driver wrote."""
    if not file.exists():
        raise StoreError(
            f"the worker on {socket.gethostname()} does not see {file}",
            hint="give a folder that all machines of the cluster share",
        )


def _ray() -> Any:
    """Import Ray when first used, as that takes seconds."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingExtraError("work on many workers needs Ray", hint="pip install 'offramp[ray]'") from error
    return ray


def _count_workers(threads: int, gpus: float) -> int:
    """Count the workers of so many threads and GPUs that the machines of the cluster have room for."""
    machines = [node["Resources"] for node in _ray().nodes() if node["Alive"]]
    cpus = [int(machine.get("CPU", 0)) for machine in machines]
    workers = sum(count // threads for count in cpus)
    if not workers and any(cpus):
        raise InputError(
            "threads",
            expected=f"at most {max(cpus)}, the CPUs of the largest machine",
            got=f"{threads}",
            hint="give fewer threads",
        )
    if not gpus:
        return workers
    gpus_by_machine = [machine.get("GPU", 0) for machine in machines]
    workers = sum(min(count // threads, int(free / gpus)) for count, free in zip(cpus, gpus_by_machine, strict=True))
    if not workers and any(cpus):
        most_gpus = max(free for count, free in zip(cpus, gpus_by_machine, strict=True) if count >= threads)
        raise InputError(
            "gpus",
            expected=f"at most {most_gpus:g} per worker, the GPUs that Ray has on the largest machine with {threads} "
            f"CPU{'s' * (threads > 1)}",
            got=f"{gpus:g}",
            hint="use machines with GPUs, or leave gpus out to work on CPUs",
        )
    return workers


class _NullFile(RawIOBase):
    """A file that discards its content."""

    def write(self, content: Any) -> int:
        return memoryview(content).nbytes


def _start(processors: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "RAY_AUTH_MODE" not in os.environ:
        # Ray would write a token into the home folder; one in the environment reaches only its own processes. It stays
        # there for later clusters, as Ray reads it once per process.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        _ray().init(
            "local", num_cpus=processors, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False
        )
    except Exception as error:  # Ray raises no specific type; it gives its processes 30 s
        raise WorkerLostError(
            f"Ray did not start on this machine: {error}", hint="if the machine is busy, try again when it is less so"
        ) from error


def _join(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        if port.isdigit() and "://" not in host:  # Ray would try for minutes
            socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
        _ray().init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at '{address}': {error}",
            hint="start one with `ray start --head`, or leave the address out to start workers on this machine",
        ) from error


def _do_job(references: list[Any], job: Job, threads: int) -> Any:
    """Do one job, in a worker."""
    torch.set_num_threads(threads)  # Ray sets only OMP_NUM_THREADS, which torch may have read before
    return _load_work(references[0])(job)


def _write_work(work: object, folder: Path) -> Path:
    """Write the work into a folder of its own, arrays as files that all workers map."""
    place = Path(mkdtemp(dir=folder))
    buffers: list[pickle.PickleBuffer] = []
    (place / "work").write_bytes(_ray().cloudpickle.dumps(work, protocol=5, buffer_callback=buffers.append))
    for number, buffer in enumerate(buffers):
        (place / str(number)).write_bytes(buffer.raw())
    return place


def _read_work(place: Path) -> Callable[[Any], Any]:
    """Read work that `_write_work` wrote."""
    buffers: list[Any] = []
    for number in range(len(list(place.iterdir())) - 1):
        with open(place / str(number), "rb") as file:
            empty = not os.fstat(file.fileno()).st_size
            buffers.append(b"" if empty else mmap(file.fileno(), 0, access=ACCESS_READ))
    work: Callable[[Any], Any] = pickle.loads((place / "work").read_bytes(), buffers=buffers)
    return work


@lru_cache(maxsize=1)
def _load_work(reference: Any) -> Callable[[Any], Any]:
    """Load the work, once per worker."""
    try:
        work: Callable[[Any], Any] = _read_work(reference) if isinstance(reference, Path) else _ray().get(reference)
    except Exception as error:  # unpickling runs any code
        raise InputError(
            f"a worker cannot load its work: {str(error).partition(chr(10))[0]}",
            hint="install the same packages on each machine, and your own modules too, or start the run from their "
            "folder",
        ) from error
    return work


def _get_result(task_id: Any, job: object) -> Any:
    """Return the result of a job, or raise its error."""
    ray = _ray()
    try:
        return ray.get(task_id)
    except ray.exceptions.RayTaskError as error:
        # The message of an own error is enough; other errors need their traceback.
        raise error.cause from None if isinstance(error.cause, OfframpError) else error
    except ray.exceptions.RayError as error:
        machine_lost = isinstance(error, ray.exceptions.LocalRayletDiedError | ray.exceptions.NodeDiedError)
        _check_ray(wait_s=ANSWER_S if machine_lost else 0)  # Ray reports the loss before its process has ended
        raise WorkerLostError(
            f"job {job} was lost with its worker {TRIES} times: {str(error).splitlines()[0]}",
            hint="try it in one process, with smaller batches or with fewer workers: its inputs may crash a library or "
            "need too much memory",
        ) from error


def _check_ray(*, wait_s: float = 0) -> None:
    """Raise an error if a process that Ray needs has ended; only processes that were started here are checked.

    Args:
        wait_s: Seconds to wait for a process that is about to end.
    """
    until = monotonic() + wait_s
    while not _ended_processes() and monotonic() < until:
        sleep(0.05)
    if processes := _ended_processes():
        raise WorkerLostError(
            f"Ray's own process {' and '.join(processes)} has ended, and with it all workers: it was killed, or the "
            "machine is out of memory",
            hint="run the same call again, with fewer workers if memory is short; finished work is kept",
        )


def _ended_processes() -> list[str]:
    """List Ray's processes that were started here and have ended, by a private interface, as there is no public one."""
    node = getattr(_ray()._private.worker, "_global_node", None)
    ended = {kind for kind, _ in node.dead_processes()} if node is not None else set()
    return sorted(ended & {"gcs_server", "raylet"})


def _stop(running: list[Any]) -> None:
    """Cancel running jobs; end the workers of those that do not stop."""
    ray = _ray()
    if _ended_processes():
        return
    for by_force in (False, True):
        if not (running and ray.is_initialized()):
            return
        for task in running:
            ray.cancel(task, force=by_force)
        _, running = ray.wait(running, num_returns=len(running), timeout=STOP_S)
