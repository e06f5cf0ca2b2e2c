"""Connections that send nothing, too much, or take no answer: closed, while others are answered."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest

from offramp.serve import Scheduler, _connections
from offramp.serve._connections import HEADER_BYTES, LimitedProtocol
from offramp.serve._requests import Limits
from tests.cases import each
from tests.model.examples import images
from tests.serve.examples import Waiting, model
from tests.serve.test_app import call, serving

START = b"POST /predict HTTP/1.1\r\nHost: x\r\n"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
WAIT_S = 0.5
MOST_REQUESTS = 4


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with limiting(Scheduler(model())) as port:
        yield port


@contextmanager
def limiting(scheduler: Scheduler) -> Iterator[int]:
    """Run a server with short times in a thread, and yield its port."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_connections, "REQUEST_S", WAIT_S)
        patch.setattr(_connections, "IDLE_S", 4 * WAIT_S)
        patch.setattr(_connections, "RESPONSE_S", WAIT_S)
        http = partial(LimitedProtocol, waiting=set(), most_requests=MOST_REQUESTS)
        options = {"http": http, "ws": "none", "loop": "asyncio", "limit_concurrency": 8}
        limits = Limits(body_s=WAIT_S, body_bytes=200_000)
        with serving(scheduler, limits, uvicorn_options=options) as port:
            yield port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def read_all(client: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    received = b""
    try:
        while data := client.recv(2**16):
            received += data
    except ConnectionResetError:
        pass
    return received


def seconds_until_closed(client: socket.socket, data: bytes, *, pause_s: float = 0.0) -> float:
    """Send some data again and again, until the server closes the connection or 30 s are over."""
    begin = time.monotonic()
    while time.monotonic() < begin + 30:
        try:
            client.sendall(data)
        except OSError:
            break
        time.sleep(pause_s)
    return time.monotonic() - begin


@each("start", [b"", START, LIVE, LIVE + START])
def test_a_connection_without_a_request_is_closed(port: int, start: bytes) -> None:
    begin = time.monotonic()
    with connect(port) as client:
        client.sendall(start)
        received = read_all(client)
    assert received.count(b"HTTP/1.1 200") == start.count(LIVE)
    assert WAIT_S / 2 < time.monotonic() - begin < 10


def test_a_client_that_sends_its_headers_slowly_is_closed(port: int) -> None:
    with connect(port) as client:
        client.sendall(START)
        assert seconds_until_closed(client, b"X-Slow: 1\r\n", pause_s=0.02) < 10


@each("kind", ["one long header", "many headers", "a long address", "trailers"])
def test_headers_are_limited(port: int, kind: str) -> None:
    chunked = START + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    parts = {
        "one long header": (START + b"X-Long: ", b"a"),
        "many headers": (START, b"X-Many: 1\r\n"),
        "a long address": (b"GET /", b"a"),
        "trailers": (chunked, b"X-Late: 1\r\n"),
    }
    first, more = parts[kind]
    with connect(port) as client:
        client.sendall(first)
        time.sleep(0.05)
        sent = 0
        try:
            while sent < 100 * HEADER_BYTES:
                client.sendall(more * (2**14 // len(more)))
                sent += 2**14
        except OSError:
            pass
        assert sent < 100 * HEADER_BYTES
    assert call(port, "/v2/health/live")[0] == 200


def test_a_body_that_never_ends_is_closed_after_its_refusal(port: int) -> None:
    with connect(port) as client:
        client.sendall(START + b"Transfer-Encoding: chunked\r\n\r\n")
        assert seconds_until_closed(client, b"1000\r\n" + b" " * 4096 + b"\r\n") < 10


def test_a_body_that_is_missing_after_a_refusal_is_awaited_for_a_short_time(port: int) -> None:
    begin = time.monotonic()
    with connect(port) as client:
        client.sendall(START + b"Content-Length: 999999999\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 413")
    assert WAIT_S / 2 < time.monotonic() - begin < 3 * WAIT_S


def test_a_client_that_takes_no_answers_is_closed(port: int) -> None:
    with socket.socket() as client:
        client.settimeout(30)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        assert seconds_until_closed(client, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 100) < 25


def test_the_time_that_a_request_waits_for_a_busy_server_counts(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"inputs": images(1, seed=3)[0].tolist(), "deadline_ms": 500}
    assert call(port, "/predict", {**body, "deadline_ms": 60_000})[0] == 200
    monkeypatch.setattr(_connections, "time", SimpleNamespace(monotonic=lambda: time.monotonic() - 1))
    status, answer = call(port, "/predict", body)
    assert status == 503
    assert "for so busy a server, got 500 ms" in answer["error"]


def test_requests_beyond_those_that_queue_and_batch_hold_are_refused_unread() -> None:
    let = threading.Event()
    given = model()
    scheduler = Scheduler(given.on(Waiting(given, let)), max_batch=1)
    body = {"inputs": images(1, seed=3)[0].tolist()}
    with limiting(scheduler) as port, connect(port) as slow, ThreadPoolExecutor() as pool:
        slow.sendall(START + b"Content-Length: 2\r\n\r\n")  # does not count
        time.sleep(0.1)
        held = [pool.submit(call, port, "/predict", body) for _ in range(MOST_REQUESTS)]
        while len(scheduler) < MOST_REQUESTS - 1:  # one of them runs
            time.sleep(0.01)
        with connect(port) as client:
            client.sendall(START + b"Content-Length: 2\r\n\r\n" + b"{}" + LIVE)
            received = b""
            while not received.endswith(b'{"live":true}'):
                received += client.recv(2**16)
        assert received.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in received
        assert b"too many requests" in received
        assert received.count(b"HTTP/1.1 200") == 1
        let.set()
        assert [answer.result()[0] for answer in held] == [200] * MOST_REQUESTS


def test_requests_in_a_row_are_answered_in_order(port: int) -> None:
    with connect(port) as client:
        client.sendall(LIVE * 50)
        received = b""
        while received.count(b'{"live":true}') < 50:
            received += client.recv(2**16)
    assert received.count(b"HTTP/1.1 200") == 50


def test_connections_are_limited(port: int) -> None:
    clients = [connect(port) for _ in range(7)]
    time.sleep(0.1)
    with connect(port) as client:
        client.sendall(START + b"Content-Length: 2\r\n\r\n{}")
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in answer
    assert b"connection: close" in answer
    assert call(port, "/v2/health/live")[0] == 200  # probes are answered
    clients[0].sendall(START + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
    assert read_all(clients[0]).startswith(b"HTTP/1.1 400")  # those within the limit are read
    for client in clients:
        client.close()
    time.sleep(0.1)
    assert call(port, "/v2/health/live")[0] == 200


@each(
    "start",
    [b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nBad\r\n\r\n", b"\x00" * 100],
)
def test_what_is_not_http_is_refused(port: int, start: bytes) -> None:
    with connect(port) as client:
        client.sendall(start)
        assert read_all(client)[:12] in (b"HTTP/1.1 400", b"")


def test_an_upgrade_is_not_taken(port: int) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x", "Sec-WebSocket-Version": "13"}
    assert call(port, "/v2/health/live", headers=headers)[0] == 200
