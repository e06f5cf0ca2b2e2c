"""Send requests from one process, at a fixed Poisson rate or over a fixed number of connections.

python -m offramp_bench.serving.load PORT BODIES SECONDS (--rate R | --connections N) [--seed S] [--record 1]

At a fixed rate, requests do not wait for the answers to earlier ones; each connection sends its next request as soon as
it has an answer. BODIES is a file with one request body per line. Only light modules are imported, so that a window
starts at once.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

MOST_REQUESTS = 100_000
"""Largest number of requests of one run."""


async def arrive(rng: random.Random, rate: float, seconds: float, *, most: int) -> AsyncIterator[float]:
    """Wait for and yield the planned times of requests at a fixed Poisson rate.

    Args:
        rng: The random generator.
        rate: Requests per second.
        seconds: Length of the window.
        most: Largest number of requests.
    """
    begin = planned = time.perf_counter()
    for _ in range(most):
        if planned >= begin + seconds:
            return
        await asyncio.sleep(max(0.0, planned - time.perf_counter()))
        yield planned
        planned += rng.expovariate(rate)


async def generate(options: argparse.Namespace) -> dict[str, Any]:
    """Send requests for some seconds, wait for all answers, and return status, latency, time and content of each."""
    bodies = options.bodies.read_text("utf-8").splitlines()
    rng = random.Random(options.seed)
    answers: list[dict[str, Any]] = []
    url = f"http://127.0.0.1:{options.port}/predict"
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:

        async def send(planned: float) -> None:
            row = rng.randrange(len(bodies))
            answer = {"row": row, "at_s": planned - begin, "status": 0}
            answers.append(answer)
            try:
                async with session.post(url, data=bodies[row]) as response:
                    content = await response.read()
                    answer["status"] = response.status
                    if options.record and response.status == 200:
                        answer["content"] = json.loads(content)
            except aiohttp.ClientError:
                pass
            answer["s"] = time.perf_counter() - planned

        begin = time.perf_counter()
        if options.rate:
            # Latency counts from the planned time: a generator that falls behind must not hide waiting.
            arrivals = arrive(rng, options.rate, options.seconds, most=MOST_REQUESTS)
            await asyncio.gather(*[asyncio.create_task(send(planned)) async for planned in arrivals])
        else:

            async def repeat() -> None:
                while time.perf_counter() < begin + options.seconds and len(answers) < MOST_REQUESTS:
                    await send(time.perf_counter())

            await asyncio.gather(*(repeat() for _ in range(options.connections)))
        elapsed = time.perf_counter() - begin
    return {"seconds": elapsed, "answers": answers}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("port", type=int)
    options.add_argument("bodies", type=Path)
    options.add_argument("seconds", type=float)
    options.add_argument("--rate", type=float, default=0.0)
    options.add_argument("--connections", type=int, default=64)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--record", type=int, default=0)
    json.dump(asyncio.run(generate(options.parse_args())), sys.stdout)


if __name__ == "__main__":
    main()
