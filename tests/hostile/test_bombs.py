"""Small files that unpack to large ones: refused with what to do, before memory is taken."""

import gzip
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from offramp.data import open_data
from offramp.errors import InputError
from tests.cases import each, refuses

OPENER = """
import json, resource, sys
from offramp.data import open_data
from offramp.errors import InputError

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

small, large = json.loads(sys.argv[1])
for file in small:
    open_data(file).read(0, 1)  # what is imported on the way does not count
before, told = peak(), []
for file in large:
    try:
        open_data(file).read(0, 1)
        told.append(None)
    except InputError as error:
        told.append(str(error))
print(json.dumps({"told": told, "grown": peak() - before}))
"""


def bomb(folder: Path, name: str, *, megabytes: int) -> Path:
    """Write a file of a kind that unpacks to so many megabytes."""
    path = folder / f"{megabytes}-{name}"
    if name.endswith(".csv.gz"):
        line = {"long": b"x" * 999_999, "rows": b"x,y,0\n" * 166_666, "empty": b"\n" * 999_999}[name.split(".")[0]]
        with gzip.open(path, "wb") as file:
            file.write(b"text,kind,label\n" + (b"" if b"," in line else b"0,1,"))
            for _ in range(megabytes):
                file.write(line)
    elif name == "image":
        path.mkdir()
        side = int((megabytes * 1e6 / 3) ** 0.5)
        Image.new("RGB", (side, side)).save(path / "black.png")
    else:
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({megabytes * 10**6},), }}\n".encode()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
            for _ in range(megabytes):
                file.write(bytes(10**6))
    return path


KINDS = ("long.csv.gz", "rows.csv.gz", "empty.csv.gz", "image", "zeros.npz")


@pytest.mark.parametrize(
    ("limit", "megabytes"),
    [
        pytest.param({"OFFRAMP_MAX_BYTES": "50000000"}, (80, 80, 80, 60, 80), marks=pytest.mark.slow),
        pytest.param({}, (400, 400, 400, 250, 1000), marks=pytest.mark.long),  # the default
    ],
)
def test_is_refused_with_the_next_step_and_little_memory(
    tmp_path: Path, limit: dict[str, str], megabytes: tuple[int, ...]
) -> None:
    large = [bomb(tmp_path, name, megabytes=size) for name, size in zip(KINDS, megabytes, strict=True)]
    for place in large:
        files = [place] if place.is_file() else [*place.iterdir()]
        assert sum(file.stat().st_size for file in files) < 2 * 10**6
    small = [bomb(tmp_path, name, megabytes=1) for name in KINDS if name != "empty.csv.gz"]
    given = json.dumps([[str(place) for place in places] for places in (small, large)])
    command = [sys.executable, "-c", OPENER, given]
    ran = subprocess.run(command, env={**os.environ, **limit}, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    for name, told in zip(KINDS, found["told"], strict=True):
        assert told is not None, name
        assert "set the environment variable OFFRAMP_MAX_BYTES=" in told, name
    assert found["grown"] < (40 if limit else 100) * 10**6


@each("name", ["long.csv.gz", "rows.csv.gz", "image", "zeros.npz"])
def test_the_limit_can_be_lowered_and_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = bomb(tmp_path, name, megabytes=5 if name.startswith("rows") else 30)
    assert len(open_data(path).read(0, 1).ids) == 1
    monkeypatch.setenv("OFFRAMP_MAX_BYTES", "20000000")
    with pytest.raises(InputError, match="OFFRAMP_MAX_BYTES=") as caught:
        open_data(path).read(0, 1)
    monkeypatch.setenv("OFFRAMP_MAX_BYTES", str(caught.value).split("OFFRAMP_MAX_BYTES=")[1].split(";")[0])
    assert len(open_data(path).read(0, 1).ids) == 1


@each("given", ["many", "0", "-5", ""])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("OFFRAMP_MAX_BYTES", given)
    with refuses(InputError, problem="OFFRAMP_MAX_BYTES", expected="a number of bytes"):
        open_data(bomb(tmp_path, "zeros.npz", megabytes=1))


def test_what_compresses_as_samples_do_is_not_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_MAX_BYTES", "1000")
    rows = np.random.default_rng(0).integers(0, 256, (20_000, 10))
    lines = "\n".join(["text,label", *(f"{' '.join(map(str, row))},{row[0] % 2}" for row in rows)])
    with gzip.open(tmp_path / "many.csv.gz", "wt") as file:
        file.write(lines)
    assert len(open_data(tmp_path / "many.csv.gz")) == 20_000
