"""Worker processes, on this machine or many, through Ray: the one file that knows it.

Plain tasks and not Ray Data: a job here names its rows and writes its own file, so nothing flows back that would need
blocks, and docs/scale.md has what each costs.
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

from offramp.errors import InputError, MissingExtraError, OfframpError, StoreError, WorkerLostError

__all__ = ["Workers", "check_counts", "check_portable", "check_shared", "cluster"]

Job = TypeVar("Job")
Result = TypeVar("Result")

TRIES = 20
"""Times that a job is begun at most, should its worker or machine be lost each time: one that ends its worker (a crash
in a decoder, too little memory) must end the run at last."""

ANSWER_S = 10.0
"""How long a cluster may take to answer at all."""

LOOK_EVERY_S = 5.0
"""How often the number of workers is asked for anew: machines come and go."""

CHECK_EVERY_S = 0.5
"""How often to see whether Ray's own processes live. Where one is gone, some later call ends this process without any
exception: it has to be noticed before."""

STOP_S = 30.0
"""How long jobs under way are waited for when a run ends early, so that none still writes when the caller goes on; then
their workers are ended."""


@final
class Workers:
    """Processes of a cluster, each doing one job at a time; `cluster` gives them.

    Args:
        threads: Threads of torch of each.
        at_most: How many to use of the cluster's; all if None.
        folder: A folder that all workers see, for what they are sent; without it Ray sends it. Ray ends the driver
            where it holds an object of a machine that is gone, so of a cluster that is started here it holds none.
    """

    def __init__(self, threads: int, at_most: int | None, folder: Path | None = None) -> None:
        self.threads = threads
        self._at_most = at_most
        self._folder = folder
        self._found = 0
        self._look_again_at = 0.0

    @property
    def count(self) -> int:
        """How many there are now."""
        if monotonic() >= self._look_again_at:
            self._found, self._look_again_at = _count(self.threads), monotonic() + LOOK_EVERY_S
        return self._found if self._at_most is None else min(self._found, self._at_most)

    def run(self, jobs: Iterable[Job], work: Callable[[Job], Result]) -> Iterator[tuple[Job, Result]]:
        """Do jobs on the workers, giving each one's result as it ends, in any order.

        A job whose worker or machine is lost is begun again elsewhere; should the lost one still be at work, two do the
        same job at once, so what `work` writes must be whole and the same each time. An error that `work` raises ends
        the run as it is. Only a few jobs a worker are under way, and `jobs` is read no faster than that: memory does
        not grow with their number.

        Args:
            jobs: What to do, each small and able to be pickled.
            work: Does one job. Sent to each machine once and kept by each worker, so that it may carry a network: a
                `functools.partial`, say.

        Yields:
            A job and its result.

        Raises:
            WorkerLostError: If a job takes its worker down each time it is tried, or a process of Ray's own ends, of a
                cluster that was started here.
        """
        ray = _ray()
        kept = ray.put(work) if self._folder is None else _write_work(work, self._folder)
        task = ray.remote(_do).options(num_cpus=self.threads, max_retries=TRIES - 1, retry_exceptions=False)
        waiting = iter(jobs)
        running: dict[Any, Job] = {}
        try:
            while True:
                _check_ray()
                for job in islice(waiting, max(0, self._room() - len(running))):
                    # In a list, so that Ray hands over the reference: a worker that has it already need not unpickle.
                    running[task.remote([kept], job, self.threads)] = job
                if not running:
                    return
                ended, _ = ray.wait(list(running), num_returns=1, timeout=CHECK_EVERY_S)
                for task_id in ended:
                    job = running.pop(task_id)
                    yield job, _result(task_id, job)
        finally:
            _stop(list(running))

    def _room(self) -> int:
        """Jobs that may be under way: one more for each worker, so that none waits for the next."""
        # Where only some of a cluster's workers are wanted, the others would take these. Of none, one asks for a first.
        return max(1, 2 * self.count if self._at_most is None else self.count)


@contextmanager
def cluster(workers: int | None = None, address: str | None = None, *, threads: int = 1) -> Iterator[Workers]:
    """Have worker processes: of a cluster that runs already, or new ones on this machine.

    If the caller has connected Ray before, that cluster is used, and left as it is. Otherwise one that is started here
    is shut down at the end, talks to this user alone (its token is drawn at random, unless RAY_AUTH_MODE is set), and
    reports no usage statistics.

    Args:
        workers: How many to start, one for each of this machine's CPUs if left out; of a cluster that runs already, how
            many to use at most, all if left out.
        address: Of a Ray cluster, "host:port" or "auto"; without it workers are started here.
        threads: Threads of torch of each worker.

    Yields:
        The workers.

    Example:
        >>> with cluster(1) as workers:
        ...     print(sorted(workers.run([1, 2, 3], float)))
        [(1, 1.0), (2, 2.0), (3, 3.0)]
    """
    check_counts(workers, threads)
    ray = _ray()
    if ray.is_initialized():
        yield Workers(threads, workers)
        return
    with TemporaryDirectory(prefix="offramp-") as folder:
        if address is None:
            workers = workers or max(1, (os.cpu_count() or 1) // threads)
            _start(workers * threads)
        else:
            _join(address)
        try:
            yield Workers(threads, None, Path(folder)) if address is None else Workers(threads, workers)
        finally:
            ray.shutdown()


def check_counts(workers: int | None, threads: int) -> None:
    """Refuse numbers of workers and threads that are none.

    Args:
        workers: How many; as many as there are if None.
        threads: Of each.

    Example:
        >>> check_counts(0, 1)
        Traceback (most recent call last):
        offramp.errors.InputError: workers and threads must be positive, got 0 and 1
    """
    if threads < 1 or (workers is not None and workers < 1):
        raise InputError(f"workers and threads must be positive, got {workers} and {threads}")


def check_portable(**things: object) -> None:
    """Refuse what cannot be sent to a worker, naming it.

    Args:
        things: Whatever `work` will carry, by its name.

    Example:
        >>> check_portable(source=[1, 2])
        >>> check_portable(source=(number for number in [1, 2]))
        Traceback (most recent call last):
        offramp.errors.InputError: the source cannot be sent to other processes: cannot pickle 'generator' object; ...
    """
    pickler = _ray().cloudpickle.CloudPickler
    for name, thing in things.items():
        try:
            # Arrays are passed over: they can be sent, and copying them would take their size in memory again.
            pickler(_Nowhere(), protocol=5, buffer_callback=lambda buffer: None).dump(thing)
        except Exception as error:  # __reduce__ may raise anything
            raise InputError(
                f"the {name} cannot be sent to other processes: {error}; let it hold names and paths, and open files, "
                "locks and connections when first used"
            ) from error


def check_shared(file: Path) -> None:
    """Refuse to work where a file that the driver has written is not seen.

    Args:
        file: The file.

    Raises:
        StoreError: Naming this machine.

    Example:
        >>> check_shared(Path("/nowhere/plan.json"))
        Traceback (most recent call last):
        offramp.errors.StoreError: the worker on ... finds no /nowhere/plan.json; give a folder that all machines ...
    """
    if not file.exists():
        raise StoreError(
            f"the worker on {socket.gethostname()} finds no {file}; give a folder that all machines of the cluster "
            "share"
        )


def _ray() -> Any:
    """The library, imported when first used: that takes seconds, and few need it."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingExtraError("work on many workers needs Ray: pip install 'offramp[ray]'") from error
    return ray


def _count(threads: int) -> int:
    """Workers of so many threads that the machines of the cluster have room for."""
    processors = [int(node["Resources"].get("CPU", 0)) for node in _ray().nodes() if node["Alive"]]
    found = sum(count // threads for count in processors)
    if not found and any(processors):
        raise InputError(
            f"a worker of {threads} threads needs as many CPUs on one machine, the largest of the cluster has "
            f"{max(processors)}; give fewer threads"
        )
    return found


class _Nowhere(RawIOBase):
    """A file that keeps nothing."""

    def write(self, content: Any) -> int:
        return memoryview(content).nbytes


def _start(processors: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "RAY_AUTH_MODE" not in os.environ:
        # Ray asks for a token and would write one into the home folder; one in the environment reaches its own
        # processes alone. It stays there for later clusters: Ray reads it once a process.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        _ray().init(
            "local", num_cpus=processors, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False
        )
    except Exception as error:  # Ray has no type of its own for it, and gives its processes 30 s
        raise WorkerLostError(
            f"Ray did not start on this machine: {error}; if it is busy, run the same again when it is less so"
        ) from error


def _join(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        if port.isdigit():  # Ray would ask for minutes
            socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
        _ray().init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at '{address}': {error}; start one with `ray start --head`, or leave the address "
            "out to start workers on this machine"
        ) from error


def _do(kept: list[Any], job: Job, threads: int) -> Any:
    """What a worker does with a job."""
    torch.set_num_threads(threads)  # Ray sets OMP_NUM_THREADS alone, and torch may have been asked before
    return _work(kept[0])(job)


def _write_work(work: object, folder: Path) -> Path:
    """Write what workers are to do into a folder of its own; arrays as files that all of them map."""
    place = Path(mkdtemp(dir=folder))
    buffers: list[pickle.PickleBuffer] = []
    (place / "work").write_bytes(_ray().cloudpickle.dumps(work, protocol=5, buffer_callback=buffers.append))
    for number, buffer in enumerate(buffers):
        (place / str(number)).write_bytes(buffer.raw())
    return place


def _read_work(place: Path) -> Callable[[Any], Any]:
    """Read what `_write_work` wrote."""
    buffers: list[Any] = []
    for number in range(len(list(place.iterdir())) - 1):
        with open(place / str(number), "rb") as file:
            empty = not os.fstat(file.fileno()).st_size
            buffers.append(b"" if empty else mmap(file.fileno(), 0, access=ACCESS_READ))
    work: Callable[[Any], Any] = pickle.loads((place / "work").read_bytes(), buffers=buffers)
    return work


@lru_cache(maxsize=1)
def _work(kept: Any) -> Callable[[Any], Any]:
    """The work, once a worker."""
    try:
        work: Callable[[Any], Any] = _read_work(kept) if isinstance(kept, Path) else _ray().get(kept)
    except Exception as error:  # loading runs the code of whoever wrote the work
        raise InputError(
            f"a worker cannot load what it was sent: {str(error).partition(chr(10))[0]}; each machine needs the same "
            "packages, and your own modules installed or in the folder the run is started from"
        ) from error
    return work


def _result(ended: Any, job: object) -> Any:
    ray = _ray()
    try:
        return ray.get(ended)
    except ray.exceptions.RayTaskError as error:
        # Of its own the message says all; of others one wants to know where they come from.
        raise error.cause from None if isinstance(error.cause, OfframpError) else error
    except ray.exceptions.RayError as error:
        machine_lost = isinstance(error, ray.exceptions.LocalRayletDiedError | ray.exceptions.NodeDiedError)
        _check_ray(wait_s=ANSWER_S if machine_lost else 0)  # it tells of its end before it ends
        raise WorkerLostError(
            f"job {job} was lost with its worker {TRIES} times: {str(error).splitlines()[0]}; its inputs may crash a "
            "library or need more memory than there is: try them in one process, smaller batches or fewer workers"
        ) from error


def _check_ray(*, wait_s: float = 0) -> None:
    """Refuse to go on where a process is gone that Ray cannot do without.

    Of a cluster that was joined, Ray's processes are not ours to watch.

    Args:
        wait_s: Seconds that one which is about to end may take.
    """
    until = monotonic() + wait_s
    while not _lost_processes() and monotonic() < until:
        sleep(0.05)
    if lost := _lost_processes():
        raise WorkerLostError(
            f"Ray's own process {' and '.join(lost)} has ended, and with it all workers: it was killed, or the machine "
            "is out of memory; what is done is kept: run the same call again, with fewer workers if memory is short"
        )


def _lost_processes() -> list[str]:
    """List Ray's processes that were started here and have ended; by private names, as Ray has no public ones."""
    node = getattr(_ray()._private.worker, "_global_node", None)
    ended = {kind for kind, _ in node.dead_processes()} if node is not None else set()
    return sorted(ended & {"gcs_server", "raylet"})


def _stop(running: list[Any]) -> None:
    ray = _ray()
    if _lost_processes():
        return
    for by_force in (False, True):  # asked first; what does not hear it is ended with its worker
        if not (running and ray.is_initialized()):
            return
        for task in running:
            ray.cancel(task, force=by_force)
        _, running = ray.wait(running, num_returns=len(running), timeout=STOP_S)
