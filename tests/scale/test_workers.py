"""Jobs on workers: each done once whatever is lost, errors unchanged, and only a few jobs at a time."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from types import ModuleType

import numpy as np
import pytest
import ray
import torch

from offramp.errors import CorruptFileError, InputError, MissingExtraError, StoreError, WorkerLostError
from offramp.scale._workers import Workers, check_portable, open_workers
from tests.cases import each


def test_every_job_once(workers: Workers) -> None:
    assert sorted(workers.run(range(20), lambda job: job**2)) == [(job, job**2) for job in range(20)]


def test_no_jobs(workers: Workers) -> None:
    assert list(workers.run([], float)) == []


def test_results_come_as_they_end(workers: Workers, tmp_path: Path) -> None:
    def wait_for_the_others(job: int) -> int:
        (tmp_path / str(job)).touch()
        while job == 0 and len(list(tmp_path.iterdir())) < 4:
            time.sleep(0.02)
        return job

    came = [job for job, _ in workers.run(range(4), wait_for_the_others)]
    assert came[0] != 0
    assert sorted(came) == [0, 1, 2, 3]


def test_jobs_are_read_no_faster_than_they_are_done(workers: Workers) -> None:
    read = []

    def endless() -> Iterator[int]:
        for job in count():
            read.append(job)
            yield job

    running = workers.run(endless(), float)
    for done in range(1, 10):
        next(running)
        assert len(read) <= done + 2 * workers.count
    running.close()  # type: ignore[attr-defined]


@each(
    "raised",
    [
        InputError("row 5 is black"),
        CorruptFileError("a.bin is torn"),
        OSError(28, "No space left", "b.bin"),
        KeyError(5),
    ],
)
def test_an_error_arrives_as_it_is(workers: Workers, raised: Exception) -> None:
    def work(job: int) -> None:
        if job == 3:
            raise raised

    with pytest.raises(type(raised)) as caught:
        list(workers.run(range(100), work))
    assert type(caught.value) is type(raised)
    assert str(caught.value) == str(raised)


def test_nothing_is_under_way_after_an_error(workers: Workers, tmp_path: Path) -> None:
    def work(job: int) -> None:
        if job == 0:
            raise StoreError("the disk is full")
        time.sleep(3)
        (tmp_path / str(job)).touch()

    with pytest.raises(StoreError):
        list(workers.run(range(5), work))
    ended = list(tmp_path.iterdir())  # a job may come to its end, if it is told to stop just as it starts
    time.sleep(4)
    assert list(tmp_path.iterdir()) == ended
    assert len(ended) < 4


def test_a_job_is_begun_again_when_its_worker_is_lost(workers: Workers, tmp_path: Path) -> None:
    def work(job: int) -> int:
        if job == 5 and not (tmp_path / "lost").exists():
            (tmp_path / "lost").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return job

    assert sorted(workers.run(range(10), work)) == [(job, job) for job in range(10)]
    assert (tmp_path / "lost").exists()


def test_a_job_that_takes_every_worker_down_ends_the_run(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Workers.__module__], "TRIES", 1)
    with pytest.raises(WorkerLostError, match=r"job 7 was lost with its worker 1 times.*smaller batches"):
        list(workers.run([7], lambda job: os.kill(os.getpid(), signal.SIGKILL)))


def test_work_is_loaded_once_a_worker(workers: Workers, tmp_path: Path) -> None:
    class Work:
        def __setstate__(self, state: dict[str, Path]) -> None:
            self.__dict__ = state
            with open(state["log"], "a") as file:
                file.write(f"{os.getpid()}\n")

        def __init__(self) -> None:
            self.log = tmp_path / "log"

        def __call__(self, job: int) -> int:
            return os.getpid()

    did = {process for _, process in workers.run(range(30), Work())}
    loaded = (tmp_path / "log").read_text().split()
    assert sorted(map(int, loaded)) == sorted(did)


@pytest.mark.usefixtures("_ray")
def test_threads_are_set() -> None:
    with open_workers(threads=2) as workers:
        assert workers.count == 1
        assert {threads for _, threads in workers.run(range(3), lambda job: torch.get_num_threads())} == {2}


@pytest.mark.usefixtures("_ray")
def test_no_machine_has_so_many_threads() -> None:
    with (
        open_workers(threads=3) as workers,
        pytest.raises(InputError, match=r"at most 2, .* got 3; give fewer threads"),
    ):
        list(workers.run([1], float))


@pytest.mark.usefixtures("_ray")
def test_a_job_that_does_not_hear_is_ended(workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Workers.__module__], "STOP_S", 2.0)

    def work(job: int) -> None:
        if job == 0:
            while not (tmp_path / "pid").exists():
                time.sleep(0.02)
            raise StoreError("the disk is full")
        (tmp_path / "pid").write_text(str(os.getpid()))
        while True:
            with suppress(KeyboardInterrupt):
                time.sleep(600)

    with pytest.raises(StoreError):
        list(workers.run(range(2), work))
    worker = Path("/proc", (tmp_path / "pid").read_text())
    waited_until = time.monotonic() + 60
    while worker.exists() and time.monotonic() < waited_until:
        time.sleep(0.1)
    assert not worker.exists()


@pytest.mark.usefixtures("workers")
def test_only_some_of_the_workers(tmp_path: Path) -> None:
    def alone(job: int) -> bool:
        place = tmp_path / "here"
        place.mkdir()  # fails if another is at work
        time.sleep(0.1)
        place.rmdir()
        return True

    with open_workers(1) as workers:
        assert workers.count == 1
        assert len(list(workers.run(range(5), alone))) == 5


@each("wrong", [{"workers": 0}, {"workers": -1}, {"threads": 0}])
def test_not_positive(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="at least 1 each"), open_workers(**wrong):  # type: ignore[arg-type]
        pass


def test_a_cluster_of_the_caller_is_left_running(workers: Workers) -> None:
    with open_workers(1):
        pass
    assert ray.is_initialized()


def test_a_module_that_workers_do_not_have(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made_here_alone")
    exec("def work(job): return job", module.__dict__)
    monkeypatch.setitem(sys.modules, "made_here_alone", module)
    with pytest.raises(InputError, match=r"cannot load its work: .*made_here_alone.*; install the same packages"):
        list(workers.run([1], module.work))


def test_what_cannot_be_sent_is_named() -> None:
    check_portable(array=np.zeros(3), function=partial(max, 3), network=torch.nn.Linear(2, 2))
    with pytest.raises(
        InputError, match=r"the backbone cannot be sent to other processes: .*lock.*; let it hold names"
    ):
        check_portable(source=[1], backbone=Lock())


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'offramp\[ray\]'"), open_workers():
        pass


ENDLESS = """
import os, signal, sys, time
from itertools import count
from pathlib import Path
from offramp.scale._workers import open_workers

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background would ignore
place = Path(sys.argv[1], "pid")
with open_workers(1) as workers:
    for job, _ in workers.run(count(), lambda job: place.write_text(str(os.getpid()))):
        print("one done", flush=True)
        time.sleep(600 if job == 3 else 0)
"""


@pytest.mark.slow
def test_interrupted_it_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(ENDLESS), str(tmp_path)]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "one done\n"
    driver.send_signal(signal.SIGINT)
    _, told = driver.communicate(timeout=120)
    assert "\nKeyboardInterrupt" in told  # Ray may write more after it
    worker = Path("/proc", (tmp_path / "pid").read_text())
    waited_until = time.monotonic() + 60
    while worker.exists() and time.monotonic() < waited_until:
        time.sleep(0.1)
    assert not worker.exists()


@pytest.mark.slow
def test_no_cluster_at_the_address() -> None:
    program = "from offramp.scale._workers import open_workers\nwith open_workers(address='127.0.0.1:9'): pass"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert "InputError: no Ray cluster answers at '127.0.0.1:9'" in ran.stderr
    assert "ray start --head" in ran.stderr
