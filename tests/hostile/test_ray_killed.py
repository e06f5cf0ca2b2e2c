"""Ray's own processes, killed under a running job: an error of ours, and the same call works again."""

import subprocess
import sys

import pytest

DRIVER = """
import os, signal, subprocess, sys, time
import ray
from offramp.errors import WorkerLostError
from offramp.scale._workers import open_workers


def work(job):
    time.sleep(0.2)
    return job


def kill(kind):
    processes = ray._private.worker._global_node.all_processes
    if kind == "agent":  # Ray's raylet starts it, and ends with it
        raylet = processes["raylet"][0].process.pid
        listed = subprocess.run(["ps", "--ppid", str(raylet), "-o", "pid=,args="], capture_output=True, text=True)
        process = next(int(line.split()[0]) for line in listed.stdout.splitlines() if "Agent" in line)
    else:
        process = processes[kind][0].process.pid
    os.kill(process, signal.SIGKILL)


def run(jobs, kind=None):
    done = []
    with open_workers(1) as workers:
        for job, _ in workers.run(range(jobs), work):
            done.append(job)
            if kind and len(done) == 3:
                kill(kind)
    return sorted(done)


try:
    run(2000, sys.argv[1])
except WorkerLostError as error:
    print(f"lost: {error}", flush=True)
assert run(6) == list(range(6))
print("again", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("kinds", [("raylet",), ("gcs_server", "agent")])
def test_is_an_error_that_says_to_run_the_same_call_again(kinds: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", DRIVER]
    # Side by side: most of it is waiting.
    drivers = [
        subprocess.Popen([*command, kind], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for kind in kinds
    ]
    for kind, driver in zip(kinds, drivers, strict=True):
        out, told = driver.communicate(timeout=500)
        assert driver.returncode == 0, (kind, told)
        lost, again = (line for line in out.splitlines() if line.startswith(("lost: ", "again")))  # Ray prints too
        assert lost.startswith("lost: Ray's own process "), kind
        assert "run the same call again" in lost, kind
        assert again == "again", kind
