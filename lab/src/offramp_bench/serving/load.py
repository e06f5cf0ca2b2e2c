"""One load generator process: requests at a held Poisson rate, whether or not answers come, or as fast as they come.

python -m offramp_bench.serving.load PORT BODIES SECONDS (--rate R | --connections N) [--seed S] [--record 1]

BODIES is a file with one request body per line. Nothing heavy is imported: a window starts at once.
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
"""Requests of one run at most."""


async def arrive(rng: random.Random, rate: float, seconds: float, *, most: int) -> AsyncIterator[float]:
    """Yield the planned times of requests at a held Poisson rate, each when it has come.

    Args:
        rng: The random generator.
        rate: Requests per second.
        seconds: Length of the window.
        most: Number of requests at most.
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
    found: list[dict[str, Any]] = []
    url = f"http://127.0.0.1:{options.port}/predict"
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:

        async def send(planned: float) -> None:
            row = rng.randrange(len(bodies))
            answer = {"row": row, "at_s": planned - begin, "status": 0}
            found.append(answer)
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
            # From the planned time: a generator that falls behind must not hide waiting.
            arrivals = arrive(rng, options.rate, options.seconds, most=MOST_REQUESTS)
            await asyncio.gather(*[asyncio.create_task(send(planned)) async for planned in arrivals])
        else:

            async def repeat() -> None:
                while time.perf_counter() < begin + options.seconds and len(found) < MOST_REQUESTS:
                    await send(time.perf_counter())

            await asyncio.gather(*(repeat() for _ in range(options.connections)))
        elapsed = time.perf_counter() - begin
    return {"seconds": elapsed, "answers": found}


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
