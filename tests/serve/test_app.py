"""A real server on loopback: answers are those of `predict`, and wrong requests end with what is wrong."""

import base64
import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
import uvicorn
from PIL import Image

from offramp.serve import Scheduler
from offramp.serve._app import create_app
from offramp.serve._requests import Limits
from tests.cases import each
from tests.model.examples import images
from tests.serve.examples import Waiting, model

LIMITS = Limits(samples=8, body_bytes=200_000, body_s=1.0, pixels=2_000_000)
INFER = "/v2/models/shapes/infer"


@contextmanager
def serving(
    scheduler: Scheduler,
    limits: Limits = LIMITS,
    *,
    uvicorn_options: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Iterator[int]:
    """Run a server in a thread, and yield its port."""
    app = create_app(scheduler, name="shapes", limits=limits, **options)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, **uvicorn_options))
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # else the system takes megabytes of answers
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(Scheduler(model())) as port:
        yield port


def call(port: int, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, data, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def encode(image: Any) -> str:
    file = BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def bomb(side: int) -> str:
    file = BytesIO()
    Image.new("1", (side, side)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def tensors(answer: dict[str, Any]) -> dict[str, Any]:
    return {output["name"]: np.array(output["data"]).reshape(output["shape"]) for output in answer["outputs"]}


class TestPredict:
    @each("kind", ["pixels", "files"])
    def test_answers_as_predict_does(self, port: int, kind: str) -> None:
        inputs = images(3, seed=3)[0]
        values = inputs.tolist() if kind == "pixels" else [encode(image) for image in inputs]
        status, answer = call(port, "/predict", {"inputs": values, "sets": 0.1})
        expected = model().predict(inputs)
        assert status == 200
        assert [entry["label"] for entry in answer["predictions"]] == list(expected.names)
        for entry, row in zip(answer["predictions"], expected.to_dicts(), strict=True):
            assert entry["confidence"] == row["confidence"]  # bit for bit: one request alone
            assert entry["prediction_set"] == row["prediction_sets"][0.1]
            assert entry["exit"] == row["exit"]
        assert answer["point"]["guarantee"]["at_most"] == 0.5

    @each("bad", ["not base64", base64.b64encode(b"no image").decode(), None, [[1, 2], [3]]])
    def test_one_bad_input_has_its_error_alone(self, port: int, bad: Any) -> None:
        good = images(2, seed=3)[0]
        status, answer = call(port, "/predict", {"inputs": [encode(good[0]), bad, encode(good[1])]})
        assert status == 200, answer
        first, marked, second = answer["predictions"]
        expected = model().predict(good)
        assert [first["label"], second["label"]] == list(expected.names)
        assert set(marked) == {"error"}
        assert answer["point"]["policy"] == "threshold"

    def test_pixels_are_counted_over_all_images(self, port: int) -> None:
        status, answer = call(port, "/predict", {"inputs": [bomb(1000)] * 3})
        assert status == 200, answer
        assert ["error" in entry for entry in answer["predictions"]] == [False, False, True]
        assert "pixels" in answer["predictions"][2]["error"]

    def test_images_of_several_sizes_are_answered_or_marked_one_by_one(self, port: int) -> None:
        sizes = [images(1, seed=3)[0][0], np.zeros((48, 40, 3), np.uint8), np.zeros((2, 2), np.uint8)]
        status, answer = call(port, "/predict", {"inputs": [encode(image) for image in sizes]})
        assert status == 200, answer
        assert answer["predictions"][0]["label"] == model().predict(sizes[0][None]).names[0]

    def test_settings_are_of_one_request(self, port: int) -> None:
        inputs = images(4, seed=3)[0]
        budget = model().dial.cheapest
        _, answer = call(port, "/predict", {"inputs": inputs.tolist(), "budget": budget})
        costs = [entry["relative_cost"] for entry in answer["predictions"]]
        assert costs == pytest.approx(model().predict(inputs, budget=budget).relative_cost.tolist())
        assert answer["point"]["cost"] == pytest.approx(budget)
        assert "prediction_set" not in answer["predictions"][0]

    @each(
        ("body", "status", "words"),
        [
            (b"no json", 400, "JSON"),
            (b"[1]", 400, "JSON object"),
            (b"[" * 100_000, 400, "JSON"),
            (b'{"inputs": [NaN]}', 400, "NaN"),
            ({}, 400, "inputs"),
            ({"inputs": []}, 400, "at least one"),
            ({"inputs": ["x"] * 9}, 400, "at most 8"),
            ({"inputs": ["not base64"]}, 400, "base64"),
            ({"inputs": [[1, 2, 3]]}, 400, "N x H x W x C"),
            ({"inputs": [["a" * 60_000, *[""] * 30_000]]}, 400, "numbers"),  # as an array it would take gigabytes
            ({"inputs": [bomb(4000)]}, 400, "pixels"),
            (b'{"inputs": ["a"], "\\ud800": 1}', 400, "unknown setting"),
            ({"inputs": ["a"], "x" * 100_000: 1}, 400, "unknown setting"),
            ({"inputs": [[[[0, 0, 0]] * 32] * 32], "budgt": 1}, 400, "budget"),
            ({"inputs": [[[[0, 0, 0]] * 32] * 32], "budget": 1e-9}, 400, "budget"),
            ({"inputs": [[[[0, 0, 0]] * 32] * 32], "sets": 0.3}, 400, "calibrated"),
            (b" " * 200_001, 413, "200,000"),
        ],
    )
    def test_wrong_requests_are_refused(self, port: int, body: Any, status: int, words: str) -> None:
        found, answer = call(port, "/predict", body)
        assert (found, words in answer["error"]) == (status, True), answer

    def test_a_body_without_a_length_is_limited_too(self, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/predict", iter([b" " * 100_000] * 3), encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()

    def test_a_slow_body_is_given_up(self, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            assert client.recv(100).startswith(b"HTTP/1.1 408")


class TestProtocol:
    def test_health_and_metadata(self, port: int) -> None:
        assert call(port, "/v2/health/live")[0] == 200
        assert call(port, "/v2/health/ready") == (200, {"ready": True})
        assert call(port, "/v2/models/shapes/ready")[0] == 200
        assert call(port, "/v2")[1]["name"] == "offramp"
        status, metadata = call(port, "/v2/models/shapes")
        assert status == 200
        assert metadata["inputs"] == [{"name": "image", "datatype": "UINT8", "shape": [-1, -1, -1, -1]}]
        assert {"name": "probabilities", "datatype": "FP32", "shape": [-1, 3]} in metadata["outputs"]
        assert call(port, "/v2/models/other")[0] == 404
        assert call(port, "/v2/models/other/infer", {})[0] == 404

    @each("binary", [False, True])
    def test_tensors_in_json_and_binary(self, port: int, binary: bool) -> None:
        inputs = images(3, seed=3)[0]
        tensor: dict[str, Any] = {"name": "image", "datatype": "UINT8", "shape": list(inputs.shape)}
        body: Any = {"id": "42", "inputs": [tensor], "parameters": {"sets": 0.05, "binary_data_output": True}}
        headers = {}
        if binary:
            tensor["parameters"] = {"binary_data_size": inputs.nbytes}
            header = json.dumps(body).encode()
            headers["Inference-Header-Content-Length"] = str(len(header))
            body = header + inputs.tobytes()
        else:
            tensor["data"] = inputs.flatten().tolist()
        status, answer = call(port, INFER, body, headers)
        assert status == 200, answer
        expected, found = model().predict(inputs), tensors(answer)
        assert answer["id"] == "42"
        assert found["label"].tolist() == list(expected.names)
        assert torch.equal(torch.tensor(found["probabilities"], dtype=torch.float32), expected.probabilities)
        assert found["prediction_set"].tolist() == expected.prediction_sets[0.05].tolist()
        assert "confidence" in answer["parameters"]["guarantee"]

    def test_halves_of_characters_come_back(self, port: int) -> None:
        tensor = {"name": "image", "datatype": "UINT8", "shape": [1, 32, 32, 3], "data": [0] * 3072}
        status, answer = call(port, INFER, {"id": "\ud800", "inputs": [tensor]})
        assert (status, answer["id"]) == (200, "\ud800")

    def test_a_client_that_leaves_while_it_sends(self, port: int, caplog: pytest.LogCaptureFixture) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        time.sleep(0.2)
        assert call(port, "/v2/health/live")[0] == 200
        assert "Traceback" not in caplog.text

    def test_files_as_binary_bytes_and_named_outputs(self, port: int) -> None:
        files = [base64.b64decode(encode(image)) for image in images(2, seed=3)[0]]
        data = b"".join(struct.pack("<I", len(file)) + file for file in files)
        tensor = {"name": "image", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(data)}}
        header = json.dumps({"inputs": [tensor], "outputs": [{"name": "exit"}]}).encode()
        status, answer = call(port, INFER, header + data, {"Inference-Header-Content-Length": str(len(header))})
        assert status == 200, answer
        assert list(tensors(answer)) == ["exit"]
        assert tensors(answer)["exit"].tolist() == model().predict(images(2, seed=3)[0]).exits.tolist()

    @each(
        ("change", "words"),
        [
            ({"shape": [2, 32, 32, 3]}, "numbers"),
            ({"shape": [-1]}, "shape"),
            ({"shape": "x"}, "shape"),
            ({"shape": [2**40]}, "shape"),
            ({"datatype": "FP8"}, "datatype"),
            ({"datatype": ["FP32"]}, "datatype"),
            ({"data": None}, "data"),
            ({"shape": [2**31 - 1, 2**31 - 1, 2**31 - 1, 0], "data": []}, "shape"),
            ({"data": ["a" * 60_000, *[""] * 3071]}, "numbers"),
            ({"data": ["a"] * 3072}, "numbers"),
            ({"data": [300] * 3072}, "out of range"),
            ({"data": [0.5] * 3072}, "numbers"),
            ({"name": 3}, "names"),
            ({"parameters": {"binary_data_size": 5}}, "binary_data_size"),
        ],
    )
    def test_wrong_tensors_are_refused(self, port: int, change: dict[str, Any], words: str) -> None:
        tensor = {"name": "image", "datatype": "UINT8", "shape": [1, 32, 32, 3], "data": [0] * 3072, **change}
        status, answer = call(port, INFER, {"inputs": [tensor]})
        assert (status, words in answer["error"]) == (400, True), answer

    @each(
        "body",
        [
            {"inputs": 3},
            {"inputs": [3]},
            {"inputs": [{"name": "image", "datatype": "UINT8", "shape": [0, 3], "data": []}]},
            {"inputs": [{"name": "i", "datatype": "BYTES", "shape": [2], "data": ["one"]}]},
            {"inputs": [{"name": "i", "datatype": "BYTES", "shape": [1], "data": [3]}]},
            {"inputs": [{"name": "i", "datatype": "FP32", "shape": [1], "data": [1]}], "parameters": 3},
        ],
    )
    def test_wrong_bodies_are_refused(self, port: int, body: Any) -> None:
        status, answer = call(port, INFER, body)
        assert status == 400, answer

    @each("length", ["-1", "x", "99999", "\u0661"])
    def test_wrong_lengths_are_refused(self, port: int, length: str) -> None:
        headers = {"Inference-Header-Content-Length": length.encode().decode("latin-1")}
        assert call(port, INFER, b"{}", headers)[0] == 400


class TestLoad:
    def test_a_full_queue_and_a_client_that_is_gone(self) -> None:
        let = threading.Event()
        given = model()
        backend = Waiting(given, let)
        scheduler = Scheduler(given.on(backend), max_batch=1, max_queue=1)
        body = {"inputs": images(1, seed=3)[0].tolist()}
        with serving(scheduler) as port:
            answers: list[tuple[int, Any]] = []
            first = threading.Thread(target=lambda: answers.append(call(port, "/predict", body)))
            first.start()
            assert backend.started.wait(60)
            gone = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            gone.request("POST", "/predict", json.dumps(body))
            while len(scheduler) == 0:
                time.sleep(0.01)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/predict", json.dumps(body))
            refused = connection.getresponse()
            assert refused.status == 503
            assert refused.headers["Retry-After"] == "1"
            connection.close()
            gone.close()
            while len(scheduler):  # its place is given back at once
                time.sleep(0.01)
            let.set()
            first.join()
            assert answers[0][0] == 200

    def test_a_deadline_that_passes_in_the_queue(self) -> None:
        let = threading.Event()
        given = model()
        backend = Waiting(given, let)
        body = {"inputs": images(1, seed=3)[0].tolist()}
        answers: dict[str, tuple[int, Any]] = {}

        def ask(name: str, at: int, **settings: float) -> threading.Thread:
            thread = threading.Thread(target=lambda: answers.update({name: call(at, "/predict", {**body, **settings})}))
            thread.start()
            return thread

        scheduler = Scheduler(given.on(backend), max_batch=1)
        with serving(scheduler) as port:
            first = ask("first", port)
            assert backend.started.wait(60)
            late = ask("late", port, deadline_ms=50)
            while len(scheduler) == 0:
                time.sleep(0.01)
            time.sleep(0.1)
            let.set()
            first.join()
            late.join()
        assert answers["first"][0] == 200
        assert answers["late"][0] == 504
        assert "deadline" in answers["late"][1]["error"]

    def test_requests_in_progress_are_answered_before_the_end(self) -> None:
        let = threading.Event()
        given = model()
        backend = Waiting(given, let)
        body = {"inputs": images(1, seed=3)[0].tolist()}
        answers: list[tuple[int, Any]] = []
        with serving(Scheduler(given.on(backend))) as port:
            caller = threading.Thread(target=lambda: answers.append(call(port, "/predict", body)))
            caller.start()
            assert backend.started.wait(60)
            threading.Timer(0.2, let.set).start()
        caller.join()
        assert answers[0][0] == 200
