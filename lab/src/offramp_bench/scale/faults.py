"""A full disk, a read-only folder, a vanished input, a truncated shard: what is said, and whether the call goes on.

The disks are file systems in memory, mounted for this: even for root they can be full, or read-only.
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
    """What each fault's error says, and what differs once it is mended.

    Args:
        small: Has no effect: it is small.
    """
    if os.geteuid() != 0:  # which is who may mount; in a space of its own, anybody
        return _as_root()
    figures: dict[str, Any] = {}
    bars = []
    with TemporaryDirectory() as folder, open_workers(1):
        alone = Path(folder, "alone")
        extract(network(8), images(ROWS), alone, **OPTIONS)
        for name, fault in FAULTS.items():
            place = Path(folder, name.replace(" ", "-"))
            place.mkdir()
            told, wanted, differing = fault(place, hashes(alone))
            say(f"  {name}: {told}")
            missed = [pattern for pattern in wanted if not re.search(pattern, told)]
            figures[name] = {"told": told.replace(folder, "..."), "not_said": missed, "files_that_differ": differing}
            bars.append(Bar(f"{name}: of the file and what to do, not said", float(len(missed)), 0))
            bars.append(Bar(f"{name}: files that differ once it is mended", float(differing), 0))
    return figures, bars


def _as_root() -> tuple[dict[str, Any], list[Bar]]:
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "offramp_bench.scale", "--only", "faults", "--into", folder]
        subprocess.run(["unshare", "--map-root-user", "--mount", *command], check=True, stdout=subprocess.DEVNULL)
        found = json.loads(Path(folder, "faults.json").read_text())
    return found["figures"], [Bar(*bar) for bar in found["bars"]]


Outcome = tuple[str, tuple[str, ...], int]
"""What the error said, what it should say, and how many files differ in the end."""


def _full_disk(place: Path, alone: dict[str, str]) -> Outcome:
    with _mounted(place, "size=500k"):
        path = place / "store"
        told = _told(lambda: _extract(path))
        subprocess.run(["mount", "-o", "remount,size=50m", place], check=True)
        _extract(path)
        return (
            told,
            (re.escape(str(path)), "No space left", "make room.*run the same call again"),
            _differing(path, alone),
        )


def _read_only_folder(place: Path, alone: dict[str, str]) -> Outcome:
    with _mounted(place, "size=50m"):
        path = place / "store"
        _extract(path)
        (path / "shards" / "000002.safetensors").unlink()
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        told = _told(lambda: _extract(path))
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
        _extract(path)
        wanted = (re.escape(str(path / ".lock")), "[Rr]ead-only", "check its permission")
        return told, wanted, _differing(path, alone)


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
    told = _told(lambda: _extract(place / "store", source))
    file.write_bytes(content)
    _extract(place / "store", source)
    extract(network(8), source, place / "alone", **OPTIONS)
    return told, (re.escape(str(file)), ";"), _differing(place / "store", hashes(place / "alone"))


def _truncated_shard(place: Path, alone: dict[str, str]) -> Outcome:
    path = place / "store"
    _extract(path)
    shard = path / "shards" / "000003.safetensors"
    os.truncate(shard, shard.stat().st_size // 2)
    told = _told(lambda: Store.open(path).ids())
    _extract(path)
    return told, (re.escape(str(shard)), "run the same extraction again"), _differing(path, alone)


FAULTS: dict[str, Callable[[Path, dict[str, str]], Outcome]] = {
    "full disk": _full_disk,
    "read-only folder": _read_only_folder,
    "vanished input": _vanished_input,
    "truncated shard": _truncated_shard,
}


def _extract(path: Path, source: Source | None = None) -> None:
    extract_on_cluster(network(8), images(ROWS) if source is None else source, path, **OPTIONS)


def _told(work: Callable[[], object]) -> str:
    """The message of the error that `work` must end with."""
    try:
        work()
    except OfframpError as error:
        return str(error)
    raise RuntimeError("expected an error, there was none")


def _differing(path: Path, alone: dict[str, str]) -> int:
    written = hashes(path)
    return sum(alone.get(name) != written.get(name) for name in {*alone, *written})


@contextmanager
def _mounted(place: Path, options: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
