"""Traffic against a reference, from files: what is told, and what a script can act on."""

import csv
from pathlib import Path

import numpy as np
import pytest

from offramp.cli.monitor import STATUSES
from tests.cases import each
from tests.cli.workshop import MODELS, Shell

TRUST = ("--trust", f"{MODELS}:make")


def write(
    file: Path,
    samples: int,
    *,
    seed: int,
    sure: float = 9,
    differs: float = 0.02,
    shadow: float = 0.3,
    point: str = "stopping 0.500 c0ffee00",
) -> Path:
    random = np.random.default_rng(seed)
    with open(file, "w", newline="") as opened:
        lines = csv.writer(opened)
        lines.writerow(["input", "label", "confidence", "exit", "cost", "point", "full", "set"])
        for row in range(samples):
            full = "" if random.random() >= shadow else "cat" if random.random() >= differs else "dog"
            confidence = round(random.beta(sure, 1), 6)
            lines.writerow([row, "cat", confidence, random.integers(0, 3), 0.5, point, full, '["cat"]'])
    return file


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("answers")
    return {
        "empty": folder / "empty.csv",
        "reference": write(folder / "reference.csv", 1000, seed=0),
        "same": write(folder / "same.csv", 1500, seed=1),
        "unsure": write(folder / "unsure.csv", 800, seed=2, sure=5),
        "differs": write(folder / "differs.csv", 800, seed=3, differs=0.3),
        "few": write(folder / "few.csv", 100, seed=4),
        "fewer": write(folder / "fewer.csv", 99, seed=5),
        "elsewhere": write(folder / "elsewhere.csv", 500, seed=6, point="stopping 0.700 c0ffee00"),
        "unknown": write(folder / "unknown.csv", 500, seed=7, point=""),
        "moving": write(folder / "moving.csv", 500, seed=8, point="budget 0.6 c0ffee00"),
    }


@each(
    ("traffic", "action", "first"),
    [
        (("same",), "keep", None),
        (("few",), "keep", None),
        (("fewer",), "wait", None),
        (("empty",), "wait", None),
        (("unknown", "same"), "keep", None),
        (("same", "unsure"), "recalibrate", "confidence"),
        (("same", "differs"), "fall back", "disagreement"),
        (("same", "unsure", "differs"), "fall back", "confidence"),
    ],
)
def test_what_is_recommended(
    offramp: Shell, files: dict[str, Path], traffic: tuple[str, ...], action: str, first: str | None
) -> None:
    line = ("monitor", *(files[name] for name in traffic), "--reference", files["reference"])
    files["empty"].write_text("input,label,confidence,exit,cost,point,set\n")
    ran = offramp(*line, "--json")
    found = ran.json
    assert found["action"] == action
    assert next(iter(found["alarms"]), None) == first
    assert ("disagreement" in found["alarms"]) == (action == "fall back")
    assert ran.status == STATUSES[action]  # type: ignore[index]
    told = offramp(*line)
    assert told.status == ran.status
    assert {"wait": "Wait:", "keep": "Keep:", "recalibrate": "Recalibrate", "fall back": "Fall back"}[
        action
    ] in told.out


def test_every_number(offramp: Shell, files: dict[str, Path]) -> None:
    found = offramp("monitor", files["same"], files["unsure"], "-r", files["reference"], "--json").json
    texts = [files[name].read_text().splitlines() for name in ("same", "unsure")]
    rows = [row for lines in texts for row in csv.DictReader(lines)]
    assert found["samples"] == found["traffic"]["samples"] == len(rows) == 2300
    assert found["traffic"]["confidence"] == pytest.approx(np.mean([float(row["confidence"]) for row in rows]))
    last = [int(row["exit"]) for row in rows[-1000:]]
    assert found["last"]["exit_shares"] == pytest.approx((np.bincount(last) / 1000).tolist())
    shadowed = [row for row in rows if row["full"]]
    assert found["traffic"]["shadowed"] == found["tests"]["disagreement"]["samples"] == len(shadowed)
    assert found["traffic"]["disagreement"] == pytest.approx(np.mean([row["full"] == "dog" for row in shadowed]))
    assert found["tests"]["confidence"]["alarm_level"] == pytest.approx(300)
    assert 1500 < found["tests"]["confidence"]["alarmed_at"] < 2300


def test_looking_again_with_more_files_goes_on(offramp: Shell, files: dict[str, Path]) -> None:
    """The first part is judged as before: an alarm does not depend on when one looks."""
    once = offramp("monitor", files["unsure"], "-r", files["reference"], "--json").json
    again = offramp("monitor", files["unsure"], files["same"], "-r", files["reference"], "--json").json
    assert once["tests"]["confidence"]["alarmed_at"] == again["tests"]["confidence"]["alarmed_at"]


def test_a_promise(offramp: Shell, files: dict[str, Path]) -> None:
    line = ("monitor", files["differs"], "-r", files["reference"], "--max-disagreement")
    assert offramp(*line, "0.5").status == STATUSES["keep"]
    assert offramp(*line, "0.05").status == STATUSES["fall back"]


def test_a_promise_that_nothing_looks_into(offramp: Shell, files: dict[str, Path], tmp_path: Path) -> None:
    full = write(tmp_path / "full.csv", 200, seed=9, shadow=0)
    assert (
        "--max-disagreement was not tested"
        in offramp("monitor", full, "-r", files["reference"], "--max-disagreement", "0.05").told
    )
    assert (
        "looked into"
        not in offramp("monitor", files["same"], "-r", files["reference"], "--max-disagreement", "0.05").told
    )


def test_a_word_of_a_point_that_moves(offramp: Shell, files: dict[str, Path]) -> None:
    told = "Careful: {} was answered with --budget: the operating point moved, and so did the exits taken"
    assert told.format(files["moving"]) in offramp("monitor", files["moving"], "-r", files["moving"]).told
    assert "budget" not in offramp("monitor", files["same"], "-r", files["reference"]).told


@each("suffix", [".svg", ".png"])
def test_a_picture(offramp: Shell, files: dict[str, Path], tmp_path: Path, suffix: str) -> None:
    picture = tmp_path / f"evidence{suffix}"
    ran = offramp("monitor", files["same"], "-r", files["reference"], "--picture", picture)
    assert ran.status == 0
    assert picture.stat().st_size > 1000
    assert f"Picture: {picture}" in ran.told


def test_a_word_of_a_small_reference(offramp: Shell, files: dict[str, Path]) -> None:
    ran = offramp("monitor", files["same"], "-r", files["few"])
    assert "Careful: a reference of 100 samples shows only large changes; use 1,000 or more" in ran.told


def test_from_answers_to_a_recommendation(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    for name, data in (("reference", "val.npz"), ("traffic", "full.npz")):
        line = ("--data", data, "--cost", "0.6", "--shadow", "0.5", "--out", tmp_path / f"{name}.csv")
        assert offramp("predict", artifact, *line, *TRUST).status == 0
    found = offramp("monitor", tmp_path / "traffic.csv", "-r", tmp_path / "reference.csv", "--json").json
    assert (found["action"], found["samples"], found["reference"]["samples"]) == ("wait", 90, 120)
    assert found["traffic"]["shadowed"] > 20
    other = ("--data", "full.npz", "--policy", "threshold", "--out", tmp_path / "other.csv")
    assert offramp("predict", artifact, *other, *TRUST).status == 0
    ran = offramp("monitor", tmp_path / "other.csv", "-r", tmp_path / "reference.csv")
    assert ran.status == 1
    assert "expected answers at one operating point, got 'threshold 0." in ran.told


@each(
    ("line", "told"),
    [
        (("same", "-r", "none"), "cannot read none: No such file or directory; give a .csv or .jsonl file that"),
        (("same", "-r", "empty"), "expected reference samples to compare with, got none; 1,000 or more are best"),
        (("same", "elsewhere", "-r", "reference"), "got 'stopping 0.500 c0ffee00' in"),
        (("same", "elsewhere", "-r", "reference"), "make a reference with the artifact and options of the traffic"),
        (
            ("same", "-r", "reference", "--picture", "a.gif"),
            "expected a name that ends with .svg or .png, got 'a.gif'",
        ),
        (("same", "-r", "reference", "--false-alarm", "5"), "expected a false-alarm rate between 0 and 1, got 5.0"),
        (
            ("same", "-r", "reference", "--max-disagreement", "0"),
            "expected max_disagreement between 0 and 1, got 0.0",
        ),
    ],
)
def test_what_is_refused(
    offramp: Shell, files: dict[str, Path], tmp_path: Path, line: tuple[str, ...], told: str
) -> None:
    places = {**files, "empty": tmp_path / "empty.csv"}
    places["empty"].write_text("input,label,confidence,exit,cost,set\n")
    ran = offramp("monitor", *(places.get(word, word) for word in line))
    assert ran.status == 1
    assert not ran.out
    assert told in ran.told
