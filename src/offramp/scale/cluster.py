"""Worker processes, on this machine or many, through Ray: the one file that knows it.

Plain tasks and not Ray Data: a job here names its rows and writes its own file, so nothing flows back that would need
blocks, and docs/scale.md has what each costs.
"""

import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import RawIOBase
from itertools import islice
from pathlib import Path
from time import monotonic
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

STOP_S = 30.0
"""How long jobs under way are waited for when a run ends early, so that none still writes when the caller goes on; then
their workers are ended."""


@final
class Workers:
    """Processes of a cluster, each doing one job at a time; `cluster` gives them.

    Args:
        threads: Threads of torch of each.
        at_most: How many to use of the cluster's; all if None.
    """

    def __init__(self, threads: int, at_most: int | None) -> None:
        self.threads = threads
        self._at_most = at_most
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
        """
        ray = _ray()
        kept = ray.put(work)
        task = ray.remote(_do).options(num_cpus=self.threads, max_retries=TRIES - 1, retry_exceptions=False)
        waiting = iter(jobs)
        running: dict[Any, Job] = {}
        try:
            while True:
                for job in islice(waiting, max(0, self._room() - len(running))):
                    # In a list, so that Ray hands over the reference: a worker that has it already need not unpickle.
                    running[task.remote([kept], job, self.threads)] = job
                if not running:
                    return
                (ended,), _ = ray.wait(list(running), num_returns=1)
                job = running.pop(ended)
                yield job, _result(ended, job)
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
    if address is None:
        workers = workers or max(1, (os.cpu_count() or 1) // threads)
        _start(workers * threads)
    else:
        _join(address)
    try:
        yield Workers(threads, None if address is None else workers)
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


@lru_cache(maxsize=1)
def _work(kept: Any) -> Callable[[Any], Any]:
    """The work, once a worker."""
    ray = _ray()
    try:
        work: Callable[[Any], Any] = ray.get(kept)
    except ray.exceptions.RayError as error:
        raise InputError(
            f"a worker cannot load what it was sent: {str(error).splitlines()[0]}; each machine needs the same "
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
        raise WorkerLostError(
            f"job {job} was lost with its worker {TRIES} times: {str(error).splitlines()[0]}; its inputs may crash a "
            "library or need more memory than there is: try them in one process, smaller batches or fewer workers"
        ) from error


def _stop(running: list[Any]) -> None:
    ray = _ray()
    for by_force in (False, True):  # asked first; what does not hear it is ended with its worker
        if not (running and ray.is_initialized()):
            return
        for task in running:
            ray.cancel(task, force=by_force)
        _, running = ray.wait(running, num_returns=len(running), timeout=STOP_S)
