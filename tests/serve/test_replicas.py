"""Replicas by Ray Serve on this machine: the same answers, errors and drains as one server."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from offramp.backbone import Factory
from offramp.errors import WorkerLostError
from offramp.scale._workers import open_workers
from offramp.serve import Scheduler
from offramp.serve._replicas import Replica, format_config, serve_replicas
from offramp.serve._server import ServerSettings
from tests.cases import each
from tests.model.examples import images
from tests.serve import slow_network
from tests.serve.examples import model

SETTINGS = ServerSettings(artifact="/shared/shapes", name="shapes", backend="eager", batch_size=4, queue=8)
ROOT = Path(__file__).parents[2]


def call(port: int, path: str, body: object = None) -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        content = response.read()
        is_json = response.headers["Content-Type"] == "application/json"  # answers of Ray itself are plain text
        return response.status, json.loads(content) if is_json else content, response.headers
    finally:
        connection.close()


class TestConfig:
    @each(
        ("replicas", "scaling"),
        [
            ((2, 2), {"num_replicas": 2}),
            ((1, 4), {"autoscaling_config": {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 4}}),
        ],
    )
    def test_is_one_that_ray_takes(self, replicas: tuple[int, int], scaling: dict[str, Any]) -> None:
        settings = replace(SETTINGS, trust=("models:make",), point={"max_drop": 0.01}, deadline_ms=500.0)
        content = yaml.safe_load(format_config(settings, replicas, host="0.0.0.0", port=8080))
        config = ServeDeploySchema.model_validate(content)
        (application,) = config.applications
        assert ServerSettings(**application.args) == replace(settings, trust=["models:make"])
        (deployment,) = content["applications"][0]["deployments"]
        assert scaling.items() <= deployment.items()
        assert deployment["max_ongoing_requests"] == 12
        assert deployment["backpressure_config"] == {"status_code": 503, "retry_after_s": 1}
        assert content["http_options"] == {"host": "0.0.0.0", "port": 8080, "request_timeout_s": 10.5}


def test_health_fails_when_nothing_runs_batches() -> None:
    check: Any = Replica.check_health  # of a stand-in: the destructor of a real one needs Ray
    replica = SimpleNamespace(_scheduler=Scheduler(model()))
    with replica._scheduler:
        check(replica)
    with pytest.raises(WorkerLostError):
        check(replica)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray on this machine, whose workers can import the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
        patch.setenv("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", "200000000")
        with open_workers(2):
            yield


@pytest.fixture(scope="module")
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as place:
        return int(place.getsockname()[1])


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifacts") / "shapes"
    model().save(folder, weights=True)
    return folder


def check_answers(port: int) -> None:
    inputs = images(3, seed=3)[0]
    status, answer, _ = call(port, "/predict", {"inputs": inputs.tolist()})
    assert status == 200
    assert [entry["label"] for entry in answer["predictions"]] == list(model().predict(inputs).names)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
class TestReplicas:
    def test_answer_and_refuse_as_one_server_does(self, artifact: Path, port: int) -> None:
        settings = replace(SETTINGS, artifact=str(artifact))
        with serve_replicas(settings, (2, 2), host="127.0.0.1", port=port):
            check_answers(port)
            assert call(port, "/v2/health/ready")[:2] == (200, {"ready": True})
            assert call(port, "/v2/models/other")[0] == 404
            assert call(port, "/predict", {"inputs": ["no image"]})[0] == 400
            assert (
                call(port, "/predict", {"inputs": images(9, seed=3)[0].tolist()})[0] == 400
            )  # more than the queue holds
            hurried = {"inputs": images(1, seed=3)[0].tolist(), "deadline_ms": 1e-6}
            status, answer, headers = call(port, "/predict", hurried)
            assert (status, headers["Retry-After"]) == (503, "1"), answer

    def test_a_client_that_leaves_ends_its_request(self, port: int, tmp_path: Path) -> None:
        log = tmp_path / "log"
        slow = Factory(f"{slow_network.__name__}:make", {"log": str(log)})
        model().save(tmp_path / "slow", factory=slow, weights=True)
        settings = replace(SETTINGS, artifact=str(tmp_path / "slow"), trust=[slow.name], point={"cost": 1.0})
        body = {"inputs": images(1, seed=3)[0].tolist(), "budget": 1.0}
        with serve_replicas(settings, (1, 1), host="127.0.0.1", port=port):
            log.unlink(missing_ok=True)  # of the warm-up
            assert call(port, "/predict", body)[0] == 200
            stages = len(log.read_text().splitlines())
            log.unlink()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/predict", json.dumps(body))
            while not log.exists():
                time.sleep(0.01)
            connection.close()
            time.sleep(slow_network.STAGE_S * (stages + 1))
            assert len(log.read_text().splitlines()) < stages

    def test_that_cannot_start_end_with_the_reason(self, port: int) -> None:
        with (
            pytest.raises(WorkerLostError, match="/shared/shapes"),
            serve_replicas(SETTINGS, (1, 1), host="127.0.0.1", port=port),
        ):
            pass

    def test_a_configuration_file_runs(self, artifact: Path, port: int, tmp_path: Path) -> None:
        import ray
        from ray import serve

        file = tmp_path / "config.yaml"
        settings = replace(SETTINGS, artifact=str(artifact))
        file.write_text(format_config(settings, (1, 1), host="127.0.0.1", port=port))
        address = ray.get_runtime_context().gcs_address
        line = [str(Path(sys.executable).with_name("serve")), "run", str(file), "--address", address, "--non-blocking"]
        try:
            subprocess.run(line, check=True, timeout=120, capture_output=True)
            deadline = time.monotonic() + 120
            while call(port, "/v2/health/ready")[0] != 200:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            check_answers(port)
        finally:
            serve.delete("shapes")
