"""Memory is given back, though blocks in use lie between those that are free."""

import asyncio
import os
import subprocess
import sys

import pytest

from offramp.serve import _memory
from offramp.serve._memory import find_trim, trim_often
from tests.cases import each

CODE = """
from pathlib import Path
from offramp.serve._memory import find_trim

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

trim = find_trim()
blocks = [bytearray(b"x") * 50_000 for _ in range(4_000)]
kept = blocks[::100]
del blocks
before = resident()
trim()
print(before - resident())
"""


@pytest.mark.skipif(find_trim() is None, reason="the C library cannot")
def test_free_memory_is_given_back() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 100e6


THREADS = """
import threading
from pathlib import Path
from offramp.serve._memory import share_memory

SHARE

def work():
    blocks = [bytearray(50_000) for _ in range(200)]

for _ in range(16):
    started = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in started]
    [thread.join() for thread in started]
maps = Path("/proc/self/maps").read_text().splitlines()
print(sum(int(line.split("-")[0], 16) % (64 << 20) == 0 and line.split()[1] == "rw-p" for line in maps))
"""


@pytest.mark.skipif(find_trim() is None, reason="the C library cannot")
def test_threads_share_memory() -> None:
    """Arenas of threads begin at multiples of 64 MiB."""
    counts = {}
    for share in ("", "share_memory()"):
        code = THREADS.replace("SHARE", share)
        # Measured by coverage, a process has other threads and memory.
        alone = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=alone)
        counts[share] = int(ran.stdout)
    assert counts["share_memory()"] <= 2 < counts[""]


@each("has_trim", [True, False])
def test_it_is_given_back_again_and_again(monkeypatch: pytest.MonkeyPatch, has_trim: bool) -> None:
    calls: list[int] = []
    monkeypatch.setattr(_memory, "find_trim", lambda: (lambda: calls.append(1)) if has_trim else None)
    monkeypatch.setattr(_memory, "TRIM_S", 0.01)

    async def run() -> None:
        task = asyncio.create_task(trim_often())
        while has_trim and len(calls) < 3:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(run())
    assert bool(calls) is has_trim
