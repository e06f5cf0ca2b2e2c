"""A server that is started from the command line, asked over HTTP, and ended by a signal."""

import csv
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import yaml

from offramp.serve._messages import MESSAGES, SERVICE
from offramp.serve._server import ServerSettings
from tests.cases import each
from tests.cli.workshop import MODELS, Shell, samples

TRUST = ("--trust", f"{MODELS}:make")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as place:
        port: int = place.getsockname()[1]
        return port


def ask(port: int, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_a_process_serves_and_ends(offramp: Shell, workshop: Path, artifact: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers.csv"
    assert offramp("predict", artifact, "--data", "test.npz", "--cost", "0.9", "--out", answers, *TRUST).status == 0
    with answers.open() as file:
        expected = [(int(row["exit"]), float(row["confidence"])) for row in csv.DictReader(file)][:4]
    port = free_port()
    admin_port = free_port()
    line = [sys.executable, "-m", "offramp.cli", "serve", str(artifact), "--cost", "0.9", "--port", str(port), *TRUST]
    line += ["--admin-port", str(admin_port), "--shadow", "0.5", "--log-requests"]
    with (tmp_path / "log").open("w+") as log:
        server = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, cwd=workshop)
        try:
            deadline = time.monotonic() + 120
            while True:
                assert server.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline
                try:
                    if ask(port, "/v2/health/ready")[0] == 200:
                        break
                except OSError:
                    time.sleep(0.1)
            inputs = samples(90, seed=2)[0][:4]
            status, found = ask(port, "/predict", {"inputs": np.asarray(inputs).tolist()})
            assert status == 200, found
            for row, (exit, confidence) in zip(found["predictions"], expected, strict=True):
                assert row["exit"] == exit
                assert row["confidence"] == pytest.approx(confidence, abs=1e-4)
            status, found = ask(admin_port, "/swap", {"artifact": artifact.name})
            assert status == 200, found
            assert ask(port, "/predict", {"inputs": np.asarray(inputs).tolist()})[0] == 200
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
        finally:
            server.kill()
            server.wait()
    log_text = (tmp_path / "log").read_text()
    entries = [json.loads(entry) for entry in log_text.splitlines() if entry.startswith("{")]
    assert [entry["artifact"] for entry in entries if "artifact" in entry] == [artifact.name]  # of the swap
    requests = [entry for entry in entries if "route" in entry]
    assert [(entry["route"], entry["status"], entry["samples"]) for entry in requests] == [("predict", 200, 4)] * 2
    assert "Operating point: threshold, relative cost 0." in log_text
    assert f"Serving '{artifact.name}' on http://127.0.0.1:{port}" in log_text
    assert "Stopped: what was accepted is answered." in log_text


def test_two_servers_cannot_have_one_port(offramp: Shell, artifact: Path) -> None:
    port = str(free_port())
    ran = offramp("serve", artifact, "--port", port, "--admin-port", port, *TRUST)
    assert ran.status == 1
    assert f"--admin-port: expected another port than --port, got {port} for both" in ran.told


def test_a_port_that_is_taken_is_told_at_once(offramp: Shell, artifact: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = offramp("serve", artifact, "--port", port, *TRUST)
        assert ran.status == 1
        assert "choose another --port" in ran.told
        ran = offramp("serve", artifact, "--port", str(free_port()), "--grpc-port", port, *TRUST)
        assert ran.status == 1
        assert "choose another --grpc-port" in ran.told
        ran = offramp("serve", artifact, "--port", str(free_port()), "--admin-port", port, *TRUST)
        assert ran.status == 1
        assert "choose another --admin-port" in ran.told


@each(
    ("line", "words"),
    [
        (("--backend", "onx"), "did you mean 'onnx'"),
        (("--cost", "1e-9"), "no operating point is within the budget"),
        (("--shadow", "0.1"), "--admin-port"),
        (("--replicas", "0"), "--replicas"),
        (("--replicas", "4:1"), "--replicas"),
        (("--replicas", "two"), "--replicas"),
        (("--replicas", "2", "--grpc-port", "8081"), "--grpc-port or --replicas"),
        (("--cluster", "head:6379"), "--replicas with --cluster"),
    ],
)
def test_wrong_options_end_before_anything_listens(
    offramp: Shell, artifact: Path, line: tuple[str, ...], words: str
) -> None:
    ran = offramp("serve", artifact, *line, *TRUST)
    assert ran.status == 1
    assert words in ran.told


def test_a_configuration_for_a_cluster(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    ran = offramp("serve", artifact, "--cost", "0.9", "--replicas", "1:4", "--write-config", file, *TRUST)
    assert ran.status == 0, ran.told
    (application,) = yaml.safe_load(file.read_text())["applications"]
    settings = ServerSettings(**application["args"])
    assert (settings.artifact, settings.name, settings.backend) == (str(artifact), artifact.name, "eager")
    assert (settings.point, settings.trust) == ({"cost": 0.9}, [TRUST[1]])
    assert application["deployments"][0]["autoscaling_config"]["max_replicas"] == 4


def test_without_the_extra(offramp: Shell, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "offramp.serve._connections", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ran = offramp("serve", artifact, *TRUST)
    assert ran.status == 1
    assert "offramp[serve]" in ran.told


def test_traces_without_the_extra(offramp: Shell, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "offramp.serve._traces", raising=False)
    ran = offramp("serve", artifact, "--port", str(free_port()), "--traces", *TRUST)
    assert ran.status == 1
    assert "offramp[traces]" in ran.told


@pytest.mark.slow
def test_answers_over_grpc_until_it_is_told_to_stop(workshop: Path, artifact: Path) -> None:
    ports = free_port(), free_port()
    line = [sys.executable, "-m", "offramp.cli", "serve", str(artifact), "--cost", "0.9", "--name", "shapes"]
    line += ["--trust", f"{MODELS}:make", "--port", str(ports[0]), "--grpc-port", str(ports[1])]
    server = subprocess.Popen(line, cwd=workshop, env={**os.environ, "PYTHONWARNINGS": "default"})
    try:
        with grpc.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
            infer = channel.unary_unary(
                f"/{SERVICE}/ModelInfer",
                request_serializer=MESSAGES["ModelInferRequest"].SerializeToString,
                response_deserializer=MESSAGES["ModelInferResponse"].FromString,
            )
            numbers = np.zeros((2, 16), np.float32)
            tensor = {"name": "input", "datatype": "FP32", "shape": numbers.shape}
            request = MESSAGES["ModelInferRequest"](
                model_name="shapes", inputs=[tensor], raw_input_contents=[numbers.tobytes()]
            )
            response = infer(request, timeout=120, wait_for_ready=True)
            assert list(response.outputs[0].shape) == [2]
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()


@pytest.mark.slow
def test_a_replica_serves_and_ends(workshop: Path, artifact: Path) -> None:
    port = free_port()
    line = [sys.executable, "-m", "offramp.cli", "serve", str(artifact), "--port", str(port), "--replicas", "1", *TRUST]
    environment = {**os.environ, "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": "200000000"}
    server = subprocess.Popen(line, cwd=workshop, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stderr is not None
        said: list[str] = []
        while not any("Serving" in text for text in said):
            said.append(server.stderr.readline())
            assert said[-1], "".join(said)
        status, found = ask(port, "/predict", {"inputs": np.asarray(samples(90, seed=2)[0][:4]).tolist()})
        assert (status, len(found["predictions"])) == (200, 4), found
        server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=60)
        assert server.returncode == 0
        assert "Stopped" in rest
    finally:
        server.kill()
        server.wait()
