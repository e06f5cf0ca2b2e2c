"""Extraction: what is kept, and what remains of one that was interrupted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from offramp.data import open_data
from offramp.features import Store, extract
from offramp.trunk import make_trunk
from tests.cli.workshop import MODELS, Shell, samples, stopped_after

TRUNK = ("--trunk", f"{MODELS}:make")


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_as_a_sentence(offramp: Shell, tmp_path: Path) -> None:
    ran = offramp("extract", *TRUNK, "--data", "test.npz", "--store", tmp_path)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith(f"90 rows of test.npz in {tmp_path}/test-")
    assert ran.out.endswith(" kB\n")


def test_as_json_it_agrees_with_the_library(offramp: Shell, tmp_path: Path) -> None:
    found = offramp.json("extract", *TRUNK, "--data", "test.npz", "--store", tmp_path / "a")
    data = open_data("test.npz")
    store = extract(make_trunk(f"{MODELS}:make", {}), data, tmp_path / "b" / data.name, progress=False)
    assert found["store"] == str(tmp_path / "a" / data.name)
    assert found["rows"] == store.num_rows == 90
    assert found["widths"] == list(store.widths("rich"))
    assert found["bytes"] == sum(map(len, content(tmp_path / "b").values()))
    assert content(tmp_path / "a") == content(tmp_path / "b")


@pytest.mark.parametrize("data", ["one", "batch"])
def test_one_sample_and_batches_of_one(offramp: Shell, tmp_path: Path, data: str) -> None:
    inputs, labels = samples(1 if data == "one" else 3, seed=0)
    np.savez(tmp_path / "few.npz", x=inputs, y=labels)
    line = ("--data", tmp_path / "few.npz", "--store", tmp_path / "store", "--batch-size", "1", "--threads", "1")
    assert offramp.json("extract", *TRUNK, *line)["rows"] == len(labels)


def test_what_was_asked_for_differently_is_refused(offramp: Shell, tmp_path: Path) -> None:
    line = ("extract", *TRUNK, "--data", "test.npz", "--store", tmp_path)
    offramp.json(*line)
    ran = offramp(*line, "--pooling", "mean")
    assert ran.status == 1
    assert "holds another extraction: poolings was {'rich'" in ran.told


def test_a_broken_shard_is_made_again(offramp: Shell, tmp_path: Path) -> None:
    line = ("extract", *TRUNK, "--data", "test.npz", "--store", tmp_path)
    place = Path(offramp.json(*line)["store"])
    before = content(place)
    next(place.glob("shards/*.safetensors")).write_bytes(b"broken")
    offramp.json(*line)
    assert content(place) == before


@pytest.mark.parametrize("count", [0, 1, 4])
def test_interrupted_it_goes_on_to_the_same_bytes(
    offramp: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    line = ("extract", *TRUNK, "--data", "test.npz", "--batch-size", "10", "--store")
    monkeypatch.setitem(cast(dict[str, Any], extract.__kwdefaults__), "shard_mb", 0.05)  # several shards
    with stopped_after(monkeypatch, "offramp.features.extract._extract_batch", count):
        ran = offramp(*line, tmp_path / "a")
    assert (ran.status, ran.out) == (130, "")
    assert ran.told == "Stopped. Run the same command again: it goes on where it stopped."
    assert offramp(*line, tmp_path / "a").status == 0
    assert offramp(*line, tmp_path / "b").status == 0
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert Store.open(next((tmp_path / "a").iterdir())).plan.num_shards > 2


@pytest.mark.slow
def test_by_workers_the_same_bytes(offramp: Shell, tmp_path: Path) -> None:
    line = ("extract", *TRUNK, "--data", "test.npz", "--threads", "1", "--batch-size", "10", "--store")
    offramp.json(*line, tmp_path / "a")
    assert offramp.json(*line, tmp_path / "b", "--workers", "1")["rows"] == 90
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_workers_are_asked_for_in_one_call(offramp: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def by_workers(*given: Any, workers: int | None, address: str | None, **options: Any) -> Store:
        asked.update(workers=workers, address=address)
        return extract(*given, **options)

    monkeypatch.setattr("offramp.scale.extract_on_cluster", by_workers)
    line = ("extract", *TRUNK, "--data", "test.npz", "--store", tmp_path)
    offramp.json(*line, "--workers", "3")
    assert asked == {"workers": 3, "address": None}
    offramp.json(*line, "--cluster", "head:6379")
    assert asked == {"workers": None, "address": "head:6379"}
    assert offramp(*line, "--workers", "0").status == 2


@pytest.mark.slow
def test_a_real_interrupt(tmp_path: Path) -> None:
    """Ctrl-C as a terminal sends it, in the middle of the network's pass over the data."""
    module = tmp_path / "slow_models.py"
    module.write_text(
        "import time\n\nimport torch\nfrom torch import nn\n\nfrom offramp import Trunk\n\n\n"
        "class Slow(nn.Linear):\n"
        "    def forward(self, inputs):\n"
        "        if len(inputs) > 2:\n"
        "            open('running', 'w').close()\n"
        "            time.sleep(0.05)\n"
        "        return super().forward(inputs)\n\n\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return Trunk('slow', [Slow(16, 8), nn.Linear(8, 8)], {1: nn.Linear(8, 3)}, 3)\n"
    )
    inputs, labels = samples(3000, seed=0)
    np.savez(tmp_path / "data.npz", x=inputs, y=labels)
    line = [sys.executable, "-m", "offramp.cli", "extract", "--trunk", "slow_models:make", "--data", "data.npz"]
    line += ["--batch-size", "10", "--store", "store"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen(
        line,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Who runs the tests in the background may have Ctrl-C ignored, and so would have whatever they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "running").exists():
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    finally:
        running.kill()
    assert (running.returncode, out) == (130, "")
    assert err.strip() == "Stopped. Run the same command again: it goes on where it stopped."
    module.write_text(module.read_text().replace("time.sleep(0.05)", "pass"))
    again = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert again.stdout.startswith("3,000 rows of data.npz in store/data-")


def test_what_was_extracted_with_other_settings_serves_fit(offramp: Shell, tmp_path: Path) -> None:
    kept = ("--store", tmp_path / "store", "--exits", "2")
    for data in ("train.npz", "val.npz"):
        offramp.json("extract", *TRUNK, "--data", data, "--batch-size", "32", *kept)
    before = sorted(place for place in (tmp_path / "store").rglob("*") if place.is_file())
    written = {place: place.read_bytes() for place in before}
    line = ("--train", "train.npz", "--validation", "val.npz", "--out", tmp_path / "artifact", "--epochs", "1")
    found = offramp.json("fit", *TRUNK, *line, *kept)
    assert found["num_exits"] == 2
    assert all(place.read_bytes() == content for place, content in written.items())
