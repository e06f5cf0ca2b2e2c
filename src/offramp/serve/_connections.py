"""Connections of HTTP clients: limits on what uvicorn does not limit."""

import asyncio
from typing import Any

from offramp.errors import MissingExtraError

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:
    raise MissingExtraError("serving needs uvicorn and httptools", hint="pip install 'offramp[serve]'") from error

__all__ = ["LimitedProtocol"]

HEADER_BYTES = 64 * 2**10
"""Bytes that a client may send without a request or a part of a body: headers, trailers, sizes of chunks."""

REQUEST_S = 10.0
"""Seconds without a request after which a connection is closed, whatever the client sends."""

RESPONSE_S = 30.0
"""Seconds after which a connection is closed whose client does not take its response."""

FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 of uvicorn, which itself waits for ever for a request and takes headers of any size.

    uvicorn's `limit_concurrency` is the number of connections from which on others are refused.
    """

    _timer: asyncio.TimerHandle
    _silent_bytes = 0
    _has_part = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(REQUEST_S, transport.abort)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            transport.write(FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
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

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._timer.cancel()
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._restart(REQUEST_S)
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._restart(RESPONSE_S)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._timer.cancel()
        super().resume_writing()

    def _restart(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.transport.abort)
