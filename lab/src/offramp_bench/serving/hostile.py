"""Attack real servers with hostile requests, and send valid ones in between.

    python -m offramp_bench.serving.hostile [--check] [--requests 100000] [--seed 0]

Two `offramp serve` processes on loopback with the settings of deploy/Dockerfile, a small image network and a small text
network. Of the requests, 90 % are changed valid ones over HTTP, 8 % over gRPC, and 2 % are made by schemathesis from
the OpenAPI document; among them are image bombs, bodies of megabytes, and clients that stop in the middle of a request.
Every 20th request is valid, and its answer is compared with that of `predict`. After every 1,000 requests the answer to
one valid request alone must be that of `predict` bit for bit, and the memory of the server is read. A server error is
any status of 500 and above except 503 and 504, which tell clients to try again; over gRPC, INTERNAL and UNKNOWN.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import aiohttp
import grpc
import numpy as np
import torch

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.model._loading import load
from offramp.model._model import EarlyExitModel
from offramp.runtime._processor import processor_name
from offramp.serve._messages import SERVICE
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.serving.attacks import Attacks, encode
from offramp_bench.serving.processes import COMMAND, wait_until_ready
from offramp_bench.serving.victims import save_images, save_texts

PORTS: dict[str, tuple[int, int]] = {"images": (9331, 9332), "texts": (9333, 9334)}
"""HTTP and gRPC."""

ROUND = 1000
"""Requests between two readings of the memory."""
SETTLED = 20_000
"""Requests after which memory must not grow."""
CONNECTIONS = 8
VALID_EVERY = 20
GRPC_SHARE, SCHEMA_SHARE = 0.08, 0.02
"""Shares of the requests over gRPC and from schemathesis."""
SCHEMA_EVERY = 20
"""Rounds between two runs of schemathesis, which sends its share all at once: each run reads the OpenAPI document."""
SLOW_CLIENTS = 4
"""Clients of each round that stop in the middle of a request; they keep their connections until the round ends."""
READY_S, ANSWER_S = 300, 120
REST_S = 3
"""Seconds without requests before memory is read: the memory of the last requests is not growth."""
CONTAINER = {"OMP_NUM_THREADS": "1", "PYTHONMALLOC": "malloc"}
"""Environment of the servers, as deploy/Dockerfile sets it."""
DOCUMENTED = (503, 504)
"""Statuses of 500 and above that tell clients to try again."""


@dataclass
class Victim:
    """A server under attack, with counts of its responses."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: IO[bytes]
    model: EarlyExitModel
    samples: list[Any]
    attacks: Attacks
    expected: list[tuple[str, float]]
    statuses: Counter[str] = field(default_factory=Counter)
    server_errors: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Requests without a response."""
    wrong: int = 0
    """Valid requests whose answers differ from those of `predict`."""
    valid: int = 0
    refused: int = 0
    """Valid requests that were refused with a documented status."""
    memory: list[tuple[int, int]] = field(default_factory=list)
    """Requests so far, and resident bytes."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{PORTS[self.name][0]}"

    def note(self, status: str, *, error: bool, request: object) -> None:
        """Count a response."""
        self.statuses[status] += 1
        if error:
            self.server_errors.append(f"{status}: {str(request)[:300]}")


@contextmanager
def victim(name: str, folder: Path, seed: int) -> Iterator[Victim]:
    """Save a model, and serve it until the end of the block."""
    samples = (save_images if name == "images" else save_texts)(folder / name)
    ports = PORTS[name]
    line = [sys.executable, "-c", COMMAND, "serve", str(folder / name), "--cost", "1.1"]
    line += ["--port", str(ports[0]), "--grpc-port", str(ports[1])]
    model = load(folder / name).at(cost=1.1)
    answers = [model.predict(np.stack([row]) if name == "images" else [row]).to_dicts()[0] for row in samples]
    expected = [(answer["label"], answer["confidence"]) for answer in answers]
    with (folder / f"{name}.log").open("w+b") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log, env=os.environ | CONTAINER)
        try:
            target = Victim(name, process, log, model, samples, Attacks(name, samples, seed), expected)
            ready = f"{target.url}/v2/health/ready"
            wait_until_ready(process, ready, within_s=READY_S, read_log=lambda: read_log(target))
            yield target
        finally:
            process.terminate()
            process.wait(60)


def free_ports() -> tuple[int, int]:
    """Return two free ports."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        return first.getsockname()[1], second.getsockname()[1]


def read_log(target: Victim) -> str:
    """Return what a server has printed."""
    return Path(target.log.name).read_text("utf-8", "replace")


async def attack_http(target: Victim, count: int) -> None:
    """Send changed requests over some connections, and valid ones among them."""
    numbers = iter(range(count))

    async def work(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            if number % VALID_EVERY == 0:
                await _ask_valid(session, target, number // VALID_EVERY % len(target.samples), exact=False)
                continue
            request = target.attacks.next()
            status, _ = await _send(session, target, request.method, request.path, request.body, request.headers)
            error = status >= 500 and status not in DOCUMENTED
            description = (request.method, request.path[:200], request.headers, request.body[:200])
            target.note(str(status), error=error, request=description)

    async with _session() as session:
        await asyncio.gather(*(work(session) for _ in range(CONNECTIONS)))


def _session() -> aiohttp.ClientSession:
    # One request per connection: the server may close an idle one while the generator is busy with its next request.
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(force_close=True), timeout=aiohttp.ClientTimeout(ANSWER_S)
    )


async def _send(
    session: aiohttp.ClientSession, target: Victim, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, bytes]:
    """Return the status and the body of a response; 0 if there is none."""
    try:
        async with session.request(method, target.url + path, data=body, headers=headers) as response:
            return response.status, await response.read()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        if isinstance(error, ValueError):  # a request that the client itself does not send
            return 1, b""
        target.lost.append(f"{type(error).__name__} {error}: {method} {path[:100]} {len(body)} bytes, {body[:100]!r}")
        say(f"no response: {target.lost[-1]}")
        return 0, b""


async def _ask_valid(session: aiohttp.ClientSession, target: Victim, row: int, *, exact: bool) -> None:
    sample = target.samples[row]
    body = json.dumps({"inputs": [sample if isinstance(sample, str) else encode(sample)]}).encode()
    status, answer = await _send(session, target, "POST", "/predict", body, {})
    target.valid += 1
    target.note(str(status), error=status >= 500 and status not in DOCUMENTED, request="valid")
    if status in DOCUMENTED:
        target.refused += 1
    elif status != 200:
        target.wrong += 1
    else:
        (prediction,) = json.loads(answer)["predictions"]
        label, confidence = target.expected[row]
        shown = prediction["confidence"]
        close = shown == confidence if exact else abs(shown - confidence) <= 1e-4
        target.wrong += prediction["label"] != label or not close


def attack_grpc(target: Victim, count: int) -> None:
    """Send changed messages over gRPC."""
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{PORTS[target.name][1]}", options=options) as channel:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")  # without a serializer: messages are bytes
        for _ in range(count):
            message = target.attacks.next_message()
            try:
                infer(message, timeout=ANSWER_S)
                target.note("OK", error=False, request="")
            except grpc.RpcError as error:
                code = error.code()
                failed = code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
                if code == grpc.StatusCode.UNAVAILABLE:
                    target.lost.append(f"{error.details()}: {message[:100]!r}")
                target.note(code.name, error=failed, request=(error.details(), message[:200]))


def attack_schema(target: Victim, count: int, seed: int) -> int:
    """Send requests that schemathesis makes from the OpenAPI document; return their number."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from schemathesis.core.result import Ok

    schema = schemathesis.openapi.from_url(f"{target.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    sent = 0
    for operation in operations:
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @seeded(seed)
            @settings(
                max_examples=max(1, count // (2 * len(operations))),
                phases=[Phase.generate],
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                nonlocal sent
                sent += 1
                response = case.call(base_url=target.url, timeout=ANSWER_S)
                status = response.status_code
                failed = status >= 500 and status not in DOCUMENTED
                target.note(str(status), error=failed, request=(case.method, case.path, str(case.body)[:200]))

            try:
                ask()
            except Exception as error:  # such as an operation that has no invalid requests
                say(f"schemathesis, {operation.label}, {mode}: {type(error).__name__}: {str(error)[:200]}")
    return sent


@contextmanager
def slow_clients(target: Victim, draw: np.random.Generator) -> Iterator[int]:
    """Open connections that stop in the middle of a request; yield their number."""
    starts = [
        b"",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nX-Long: ",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n\r\n{" + b" " * 100_000,
        b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
        b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 200,
        b"X" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"X-Flood: 1\r\n" * 20_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ]
    with ExitStack() as stack:
        for _ in range(SLOW_CLIENTS):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", PORTS[target.name][0]), timeout=10))
            try:
                client.sendall(starts[int(draw.integers(len(starts)))])
            except OSError:
                pass  # the server has closed it already
        yield SLOW_CLIENTS


def read_memory(process: "subprocess.Popen[bytes]") -> int:
    """Return the resident bytes of a process; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    except (OSError, StopIteration):
        return 0


def attack(targets: list[Victim], requests: int, seed: int) -> int:
    """Attack servers in turns; return the number of requests."""
    sent, turn = 0, 0
    draw = np.random.default_rng(seed)
    begin = time.monotonic()
    while sent < requests:
        target = targets[turn % len(targets)]
        size = min(ROUND, requests - sent)
        with slow_clients(target, draw) as slow:
            by_grpc = round(GRPC_SHARE * size)
            by_http = max(0, size - slow - by_grpc)
            asyncio.run(attack_http(target, by_http))
            attack_grpc(target, by_grpc)
            sent += slow + by_http + by_grpc
        if turn % SCHEMA_EVERY < len(targets):
            sent += attack_schema(target, round(SCHEMA_SHARE * SCHEMA_EVERY * size), seed + turn)
        asyncio.run(_ask_alone(target, turn % len(target.samples)))
        sent += 1
        time.sleep(REST_S)
        target.memory.append((sent, read_memory(target.process)))
        turn += 1
        say(
            f"{sent} requests, {time.monotonic() - begin:.0f} s; {target.name}: {target.memory[-1][1] / 1e6:.0f} MB, "
            f"{len(target.server_errors)} server errors, {len(target.lost)} lost, {target.wrong} wrong"
        )
        if any(other.process.poll() is not None for other in targets):
            break
    return sent


async def _ask_alone(target: Victim, row: int) -> None:
    async with _session() as session:
        await _ask_valid(session, target, row, exact=True)


def growth(memory: list[tuple[int, int]]) -> float:
    """Return the relative growth of memory since the first reading after SETTLED requests; NaN with fewer requests."""
    sizes = [size for sent, size in memory if sent >= SETTLED]
    return max(sizes) / sizes[0] - 1 if sizes else float("nan")


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--requests", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=0)
    arguments = options.parse_args()
    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        targets = [stack.enter_context(victim(name, folder, arguments.seed)) for name in PORTS]
        begin = time.monotonic()
        sent = attack(targets, arguments.requests, arguments.seed)
        seconds = time.monotonic() - begin
        exit_codes = [target.process.poll() for target in targets]
        logs = {target.name: read_log(target) for target in targets}
    figures: dict[str, Any] = {
        "processor": processor_name(),
        "requests": sent,
        "seconds": seconds,
        "seed": arguments.seed,
    }
    bars = [Bar("servers that ended", sum(code is not None for code in exit_codes), 0)]
    if arguments.requests >= 2 * SETTLED:
        bars.append(Bar("requests below those asked for", max(0, arguments.requests - sent), 0))
    for target in targets:
        figures[target.name] = {
            "statuses": dict(target.statuses.most_common()),
            "server_errors": target.server_errors[:20],
            "lost": target.lost[:20],
            "valid": {"asked": target.valid, "wrong": target.wrong, "refused": target.refused},
            "memory_mb": [(at, round(size / 1e6, 1)) for at, size in target.memory],
            "log": logs[target.name][-2000:],
        }
        bars += [
            Bar(f"{target.name}: server errors", len(target.server_errors), 0),
            Bar(f"{target.name}: tracebacks in the log", logs[target.name].count("Traceback"), 0),
            Bar(f"{target.name}: requests without a response", len(target.lost), 0),
            Bar(f"{target.name}: valid requests answered unlike predict", target.wrong, 0),
        ]
        if arguments.requests >= 2 * SETTLED:
            bars.append(Bar(f"{target.name}: growth of memory from request 20,000 on", growth(target.memory), 0.05))
    return report(figures, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
