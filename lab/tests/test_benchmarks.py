"""The benchmarks run, their bars can be missed, and the pages of evidence match the committed results."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from offramp_bench.bars import Bar, report
from offramp_bench.evidence import (
    networks,
    page,
    readme_pictures,
    results,
    table_pictures,
    track_pictures,
    with_calls,
    with_claims,
    with_guarantees,
    with_headline,
    with_plan,
)
from offramp_bench.guarantees.tables import BLOCKS
from offramp_bench.places import RESULTS
from tests.cases import each

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.data
@pytest.mark.slow
def test_the_store_keeps_its_promises_at_a_small_size() -> None:
    command = [sys.executable, "-m", "offramp_bench.store", "--check", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_workers_keep_their_promises_at_a_small_size(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "offramp_bench.scale", "--check", "--small", "--into", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_missed_bar_is_reported_and_ends_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    bars = [Bar("low enough", 1.0, 1.0), Bar("too high", 1.1, 1.0)]
    assert report({"figure": 3}, bars, check=True) == 1
    assert report({}, bars, check=False) == 0
    assert report({}, bars[:1], check=True) == 0
    assert report({}, [Bar("not a number", float("nan"), 1.0)], check=True) == 1
    output = capsys.readouterr()
    assert "MISSED  too high" in output.err
    printed = json.loads(output.out[: output.out.index("\n}\n") + 2])
    assert printed["figure"] == 3
    assert not printed["held"]


def test_the_evidence_is_what_the_results_say() -> None:
    assert page() == (ROOT / "docs" / "evidence" / "tables.md").read_text(), "run python -m offramp_bench.evidence"
    assert networks(results("architectures")) == (ROOT / "docs" / "reference" / "networks.md").read_text(), (
        "run python -m offramp_bench.evidence"
    )
    for file, picture in (table_pictures() | track_pictures() | readme_pictures()).items():
        assert picture == file.read_text(), "run python -m offramp_bench.evidence"
    pages: dict[str, Callable[[str], str]] = {
        "README.md": with_headline,
        "docs/evidence/index.md": with_claims,
        "docs/evidence/scale.md": with_plan,
        "docs/evidence/annotation.md": with_calls,
    }
    pages |= {name: partial(with_guarantees, name) for name in BLOCKS}
    for name, filled in pages.items():
        document = (ROOT / name).read_text()
        assert filled(document) == document, "run python -m offramp_bench.evidence"


def test_the_picture_of_speeds_names_every_point_but_those_of_earlyon() -> None:
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", table_pictures()[ROOT / "docs" / "evidence" / "runtime.svg"])
    names = [row["name"] for row in results("runtime")["alternatives"]["images"]]
    for name in (name for name in names if not name.startswith("earlyon")):
        label = name.removeprefix("offramp ").removeprefix("ResNet-56, ").removesuffix(" float32")
        assert texts.count(label) == 2, name  # batches of 1 and of 64


@each(
    "name",
    [
        "architectures",
        "artifact",
        "costs",
        "frontier_time",
        "runtime",
        "scale",
        "store",
    ],
)
def test_committed_results_agree_with_their_own_bars(name: str) -> None:
    found = json.loads((RESULTS / f"{name}.json").read_text())
    assert found["bars"]
    for bar in found["bars"]:
        assert bar["held"] == (bar["figure"] <= bar["at_most"])
    assert found["held"] == all(bar["held"] for bar in found["bars"])
