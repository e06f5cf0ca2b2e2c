"""Errors from a full disk, a read-only folder, a missing input and a truncated shard, and recovery from them.

The disks are file systems in memory, mounted for this test: they can be full or read-only even for root.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from offramp.data import open_data
from offramp.errors import OfframpError
from offramp.features import Source, extract
from offramp.features._store import Store
from offramp.scale import extract_on_cluster
from offramp.scale._workers import open_workers
from offramp_bench.bars import Bar, say
from offramp_bench.scale.work import VIEWS, hashes, images, network

OPTIONS: dict[str, Any] = {"views": VIEWS, "batch_size": 25, "shard_mb": 0.2, "threads": 1, "progress": False}

ROWS = 200


def faults(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Check the error of each fault, and the files after the fault is repaired.

    Args:
        small: Has no effect.
    """
    if os.geteuid() != 0:  # only root may mount; in a namespace of its own, any user
        return _as_root()
    figures: dict[str, Any] = {}
    bars = []
    with TemporaryDirectory() as folder, open_workers(1):
        alone = Path(folder, "alone")
        extract(network(8), images(ROWS), alone, **OPTIONS)
        for name, fault in FAULTS.items():
            place = Path(folder, name.replace(" ", "-"))
            place.mkdir()
            message, patterns, differing = fault(place, hashes(alone))
            say(f"  {name}: {message}")
            missing = [pattern for pattern in patterns if not re.search(pattern, message)]
            figures[name] = {
                "message": message.replace(folder, "..."),
                "missing_in_message": missing,
                "files_that_differ": differing,
            }
            bars.append(Bar(f"{name}: parts missing from the message (the file, what to do)", float(len(missing)), 0))
            bars.append(Bar(f"{name}: files that differ after the repair", float(differing), 0))
    return figures, bars


def _as_root() -> tuple[dict[str, Any], list[Bar]]:
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "offramp_bench.scale", "--only", "faults", "--into", folder]
        subprocess.run(["unshare", "--map-root-user", "--mount", *command], check=True, stdout=subprocess.DEVNULL)
        results = json.loads(Path(folder, "faults.json").read_text())
    return results["figures"], [Bar(*bar) for bar in results["bars"]]


Outcome = tuple[str, tuple[str, ...], int]
"""Message of the error, patterns that it should match, and number of files that differ in the end."""


def _full_disk(place: Path, alone: dict[str, str]) -> Outcome:
    with _mount(place, "size=500k"):
        path = place / "store"
        message = _error_message(lambda: _extract(path))
        subprocess.run(["mount", "-o", "remount,size=50m", place], check=True)
        _extract(path)
        return (
            message,
            (re.escape(str(path)), "No space left", "make room.*run the same call again"),
            _count_differing(path, alone),
        )


def _read_only_folder(place: Path, alone: dict[str, str]) -> Outcome:
    with _mount(place, "size=50m"):
        path = place / "store"
        _extract(path)
        (path / "shards" / "000002.safetensors").unlink()
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        message = _error_message(lambda: _extract(path))
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
        _extract(path)
        patterns = (re.escape(str(path / ".lock")), "[Rr]ead-only", "check its permission")
        return message, patterns, _count_differing(path, alone)


def _vanished_input(place: Path, alone: dict[str, str]) -> Outcome:
    pixels = images(ROWS).read(0, ROWS).inputs
    for row in range(ROWS):
        file = place / "data" / f"class {row % 10}" / f"{row:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[row]).save(file)
    source = open_data(place / "data")
    file = place / "data" / "class 7" / "137.png"
    content = file.read_bytes()
    file.unlink()
    message = _error_message(lambda: _extract(place / "store", source))
    file.write_bytes(content)
    _extract(place / "store", source)
    extract(network(8), source, place / "alone", **OPTIONS)
    return message, (re.escape(str(file)), ";"), _count_differing(place / "store", hashes(place / "alone"))


def _truncated_shard(place: Path, alone: dict[str, str]) -> Outcome:
    path = place / "store"
    _extract(path)
    shard = path / "shards" / "000003.safetensors"
    os.truncate(shard, shard.stat().st_size // 2)
    message = _error_message(lambda: Store.open(path).ids())
    _extract(path)
    return message, (re.escape(str(shard)), "run the same extraction again"), _count_differing(path, alone)


FAULTS: dict[str, Callable[[Path, dict[str, str]], Outcome]] = {
    "full disk": _full_disk,
    "read-only folder": _read_only_folder,
    "vanished input": _vanished_input,
    "truncated shard": _truncated_shard,
}


def _extract(path: Path, source: Source | None = None) -> None:
    extract_on_cluster(network(8), images(ROWS) if source is None else source, path, **OPTIONS)


def _error_message(work: Callable[[], object]) -> str:
    """Return the message of the error that `work` must raise."""
    try:
        work()
    except OfframpError as error:
        return str(error)
    raise RuntimeError("expected an error, there was none")


def _count_differing(path: Path, alone: dict[str, str]) -> int:
    written = hashes(path)
    return sum(alone.get(name) != written.get(name) for name in {*alone, *written})


@contextmanager
def _mount(place: Path, options: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
