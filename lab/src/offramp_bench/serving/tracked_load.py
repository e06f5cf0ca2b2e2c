"""Send requests from one process, send failed ones again, and write one row per request.

python -m offramp_bench.serving.tracked_load PORT MODEL TENSORS SECONDS --rate R [--seed S]

TENSORS is a file with one input of the Open Inference Protocol per line. Requests are sent at a fixed Poisson rate. A
row has the time at which the request was sent, the time and status of each failure, the time of the answer, the first
label in it, and the number of answers with the id of the request.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp

from offramp_bench.serving.load import arrive

MOST_REQUESTS = 20_000
"""Largest number of requests of one run."""

PAUSE_S, MOST_TRIES = 0.1, 100
"""Seconds between the attempts of a request, and the largest number of attempts."""


async def generate(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Send requests for some seconds, wait for all answers, and return one row per request."""
    tensors = [json.loads(line) for line in options.tensors.read_text("utf-8").splitlines()]
    rng = random.Random(options.seed)
    received: Counter[str] = Counter()
    url = f"http://127.0.0.1:{options.port}/v2/models/{options.model}/infer"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def send(number: int) -> dict[str, Any]:
            body = json.dumps({"id": str(number), "inputs": [rng.choice(tensors)]})
            row: dict[str, Any] = {"id": number, "sent": time.time(), "failures": [], "answered": None, "label": None}
            for _ in range(MOST_TRIES):
                status, answer = 0, {}
                try:
                    async with session.post(url, data=body) as response:
                        status = response.status
                        if status == 200:
                            answer = await response.json()
                            received[answer["id"]] += 1
                except aiohttp.ClientError:
                    status = 0
                if status == 200 and answer["id"] == str(number):
                    return {**row, "answered": time.time(), "label": answer["outputs"][0]["data"][0]}
                row["failures"].append([time.time(), status])
                await asyncio.sleep(PAUSE_S)
            return row

        tasks: list[asyncio.Task[dict[str, Any]]] = []
        async for _ in arrive(rng, options.rate, options.seconds, most=MOST_REQUESTS):
            tasks.append(asyncio.create_task(send(len(tasks))))
        return [{**row, "answers": received[str(row["id"])]} for row in await asyncio.gather(*tasks)]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("port", type=int)
    options.add_argument("model")
    options.add_argument("tensors", type=Path)
    options.add_argument("seconds", type=float)
    options.add_argument("--rate", type=float, default=20.0)
    options.add_argument("--seed", type=int, default=0)
    json.dump(asyncio.run(generate(options.parse_args())), sys.stdout)


if __name__ == "__main__":
    main()
