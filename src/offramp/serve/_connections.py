"""Connections of HTTP clients: limits on what uvicorn does not limit."""

import asyncio
import time
from functools import partial
from typing import Any

from offramp.errors import MissingExtraError
from offramp.serve._requests import BUSY, RECEIVED, Limits
from offramp.serve._server import DRAIN_S

try:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:
    raise MissingExtraError("serving needs uvicorn and httptools", hint="pip install 'offramp[serve]'") from error

__all__ = ["LimitedProtocol", "run_app"]

HEADER_BYTES = 64 * 2**10
"""Bytes that a client may send without a request or a part of a body: headers, trailers, sizes of chunks."""

REQUEST_S = 10.0
"""Seconds after which a connection is closed whose request has not come, whatever the client sends."""

FULL_S = 1.0
"""The same for a connection beyond the limit: enough to be told to try again."""

IDLE_S = 120.0
"""Seconds without a request after which a connection that had one is closed: longer than proxies and clients keep
theirs, as a request on a connection that is being closed is lost."""

GRACE_S = 0.2
"""Seconds to read what came while the server was busy, before a connection is closed."""

RESPONSE_S = 30.0
"""Seconds after which a connection is closed whose client does not take its response."""


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 of uvicorn, which itself waits for ever for a request and takes headers of any size.

    uvicorn's `limit_concurrency` is the number of connections from which on others are refused.

    Args:
        arguments: Arguments of uvicorn.
        waiting: Connections of the server whose requests are received and not answered, for all of them to share.
        most_requests: Requests to predict that are answered at once; others are refused before they are read, so that
            a server with too many of them spends its time on answers.
        named: Arguments of uvicorn.
    """

    def __init__(self, *arguments: Any, waiting: set[object], most_requests: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waiting, self._most_requests = waiting, most_requests

    _request_timer: asyncio.TimerHandle | None = None
    _response_timer: asyncio.TimerHandle | None = None
    _silent_bytes = 0
    _is_idle = _is_extra = False
    _has_part = False
    _running: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._is_extra = self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency
        self._await_request(FULL_S if self._is_extra else REQUEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.discard(self)
        _cancel(self._request_timer)
        _cancel(self._response_timer)
        if self._running is not None:  # uvicorn notifies only the last of several pipelined requests
            self._running.disconnected = not self._running.response_complete
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._has_part = False
        super().data_received(data)
        self._silent_bytes = 0 if self._has_part else self._silent_bytes + len(data)
        if self._silent_bytes > HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers are too large.")

    def on_headers_complete(self) -> None:
        self._has_part = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_part = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.scope["state"][RECEIVED] = time.monotonic()
        if self.cycle.response_complete:  # refused before it was read
            self._await_request(IDLE_S)
            self._is_idle = True
        elif self.scope["method"] == "POST":
            self._waiting.add(self)
        super().on_message_complete()

    def on_message_begin(self) -> None:
        if self._is_idle:
            self._is_idle = False
            self._await_request(REQUEST_S)
        super().on_message_begin()

    def _start_asgi_task(self, cycle: Any, _app: Any) -> None:
        _cancel(self._request_timer)
        self._is_idle = False
        self._running = cycle
        cycle.scope["state"][RECEIVED] = time.monotonic()  # it may have waited for requests before it
        is_busy = self._is_extra or len(self._waiting) >= self._most_requests
        if cycle.scope["method"] == "POST":
            cycle.scope["state"][BUSY] = is_busy
            if not cycle.more_body:
                self._waiting.add(self)
        if self._is_extra or (is_busy and cycle.waiting_for_100_continue):  # whose body may come or not
            cycle.keep_alive = False
        super()._start_asgi_task(cycle, self.app)  # without uvicorn's own refusal, which probes of health would get

    def on_response_complete(self) -> None:
        self._waiting.discard(self)
        self._is_idle = not self._running.more_body
        self._await_request(IDLE_S if self._is_idle else REQUEST_S)
        super().on_response_complete()
        if self.pipeline:  # uvicorn reads on after each response, and so collects ever more requests
            self.flow.pause_reading()

    def _await_request(self, seconds: float) -> None:
        """Close the connection if no request comes in time."""
        _cancel(self._request_timer)
        self._request_timer = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        # A request that came while the event loop was busy is read first.
        self._request_timer = self.loop.call_later(GRACE_S, self.transport.abort)

    def pause_writing(self) -> None:
        self._response_timer = self.loop.call_later(RESPONSE_S, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        _cancel(self._response_timer)
        super().resume_writing()


def run_app(app: Any, *, host: str, port: int, limits: Limits, most_requests: int) -> None:
    """Answer requests by an application until a signal ends it.

    Args:
        app: The application.
        host: Address to listen on.
        port: Port.
        limits: Limits of the server.
        most_requests: Requests to predict that are answered at once, such as those that fill queue and batch.
    """
    uvicorn.run(
        app,
        host=host,
        port=port,
        http=partial(LimitedProtocol, waiting=set(), most_requests=most_requests),  # type: ignore[arg-type]
        ws="none",
        loop="asyncio",  # uvloop accepts one connection per turn: under load new ones wait for half a minute
        limit_concurrency=limits.connections,
        timeout_keep_alive=int(2 * IDLE_S),  # the timer here comes first
        access_log=False,
        log_level="error",
        timeout_graceful_shutdown=DRAIN_S,
    )


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
