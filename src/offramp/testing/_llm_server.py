"""A local server that speaks the protocol of OpenAI's chat completions: to try cascades without spending anything."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from offramp.errors import InputError

__all__ = ["LLMServer", "serve_llm"]

FAILURES = ("rate_limit", "server_error", "reset", "malformed", "slow")
"""Kinds of failure that can be asked for."""


@dataclass
class LLMServer:
    """A server that is running, and what it was asked."""

    base_url: str
    """Address for `offramp.llm(base_url=...)`."""
    asked: list[str] = field(default_factory=list)
    """Texts of all requests, in the order they came."""
    answered: list[str] = field(default_factory=list)
    """Texts whose answer was sent in full."""


@contextmanager
def serve_llm(
    classify: Callable[[str], str],
    *,
    delay_s: float = 0.0,
    failures: Mapping[str, float] | None = None,
    retry_after_s: float = 0.05,
    slow_s: float = 5.0,
    tokens: Callable[[str], int] = lambda text: len(text) // 4 + 20,
    seed: int = 0,
) -> Iterator[LLMServer]:
    """Serve a function as a language model on the loopback address, while in this context.

    Args:
        classify: A text to the name of its class.
        delay_s: Seconds that every answer takes.
        failures: Share of requests for each kind of failure: "rate_limit" (429 with `Retry-After`), "server_error"
            (500), "reset" (the connection is closed), "malformed" (an answer that is no class), "slow" (it takes
            `slow_s`).
        retry_after_s: Seconds of `Retry-After`.
        slow_s: Seconds that a slow answer takes.
        tokens: Number of input tokens of a text.
        seed: Seed of the failures.

    Yields:
        The server.

    Example:
        >>> import os
        >>> os.environ.setdefault("OPENAI_API_KEY", "none")  # doctest: +SKIP
        >>> with serve_llm(lambda text: "cat" if "purr" in text else "dog") as server:
        ...     server.base_url.startswith("http://127.0.0.1:")
        True
    """
    unknown = set(failures or {}) - set(FAILURES)
    if unknown:
        raise InputError("failures", expected=", ".join(FAILURES), got=sorted(unknown))
    draw, lock = random.Random(seed), threading.Lock()
    record = LLMServer("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = request["messages"][-1]["content"]
            with lock:
                record.asked.append(text)
                number = draw.random()
            failure = ""
            for kind, share in (failures or {}).items():
                if number < share:
                    failure = kind
                    break
                number -= share
            time.sleep(slow_s if failure == "slow" else delay_s)
            if failure == "reset":
                self.close_connection = True
                return
            if failure in ("rate_limit", "server_error"):
                status = 429 if failure == "rate_limit" else 500
                headers = {"Retry-After": str(retry_after_s)} if failure == "rate_limit" else {}
                self._send(status, {"error": {"message": failure}}, headers)
                return
            content = "no class" if failure == "malformed" else json.dumps({"class": classify(text)})
            self._send(200, _completion(request, content, tokens(text)), {})
            if failure != "malformed":
                with lock:
                    record.answered.append(text)

        def _send(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
            payload = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: Any) -> None:
            """Say nothing of clients that went away."""

    server = Server(("127.0.0.1", 0), Handler)
    record.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield record
    finally:
        server.shutdown()
        server.server_close()


def _completion(request: Mapping[str, Any], content: str, tokens: int) -> dict[str, Any]:
    """Return the body of a chat completion."""
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": content},
    }
    if request.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": content, "logprob": -0.05, "bytes": None, "top_logprobs": []}]}
    return {
        "id": "chatcmpl-local",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [choice],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5},
    }
