"""Workers with GPUs, on a cluster that only claims to have one: what Ray is asked for, and what is said without any."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from offramp.errors import InputError
from offramp.scale import extract_on_cluster
from offramp.scale._workers import _count_workers, open_workers
from tests.cases import each, refuses
from tests.features.examples import CLEAN, images, small_resnet

CLAIMED = """
import os, sys
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)  # read on import
import ray, torch
from offramp.errors import InputError
from offramp.scale import extract_on_cluster
from offramp.scale._workers import open_workers
from tests.features.examples import CLEAN, images, small_resnet

def devices(job):
    return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_gpu_ids()

ray.init("local", num_cpus=3, num_gpus=1, include_dashboard=False, log_to_driver=False)
with open_workers() as workers:
    assert workers.count == 3
    assert [found[1] for _, found in workers.run([1], devices)] == [[]], "a worker that asks for none gets none"
for gpus, count in ((1, 1), (0.5, 2)):
    with open_workers(gpus=gpus) as workers:
        assert workers.count == count, workers.count
        assert all(found == ("0", [0]) for _, found in workers.run(range(4), devices))
for gpus in (2, 1):
    try:
        extract_on_cluster(small_resnet(), images(5), sys.argv[1], views=(CLEAN,), gpus=gpus, progress=False)
    except InputError as error:
        print(error)
    else:
        raise AssertionError("no GPU, and no error")
"""


@pytest.mark.slow
@pytest.mark.skipif("__import__('torch').cuda.is_available()", reason="has a GPU: nothing is refused")
def test_workers_ask_for_what_is_given_and_say_what_is_missing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CLAIMED, str(tmp_path / "store")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert (
        "gpus: expected at most 1 per worker, the GPUs that Ray has on the largest machine with 1 CPU, got 2"
        in ran.stdout
    )
    assert "expected a worker whose torch can use its GPU, got torch" in ran.stdout


@pytest.mark.usefixtures("_ray")
def test_no_machine_has_a_gpu(tmp_path: Path) -> None:
    with refuses(InputError, problem="gpus", expected="at most 0 per worker", hint="leave gpus out"):
        extract_on_cluster(small_resnet(), images(5), tmp_path, views=(CLEAN,), gpus=1, progress=False)


def test_no_machine_has_both_the_gpus_and_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    machines: list[dict[str, float]] = [{"CPU": 4}, {"CPU": 1, "GPU": 2}]
    nodes = [{"Alive": True, "Resources": machine} for machine in machines]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    assert _count_workers(1, 1) == 1
    with refuses(InputError, problem="gpus", expected="at most 0 per worker", got="1", hint="leave gpus out"):
        _count_workers(2, 1)
    nodes[1]["Resources"] = {"GPU": 2}
    with refuses(InputError, problem="gpus", expected="at most 0 per worker", got="0.5"):
        _count_workers(1, 0.5)
    nodes[0]["Resources"] = {}  # a cluster whose machines are still to come
    assert _count_workers(1, 1) == 0


@each("gpus", [-1, 1.5])
def test_shares_that_ray_cannot_give(gpus: float) -> None:
    with refuses(InputError, problem="gpus", expected="a share of a GPU, or a whole number"), open_workers(gpus=gpus):
        pass
