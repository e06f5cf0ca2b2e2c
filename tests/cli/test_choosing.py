"""The operating point that a command asks for."""

import json
from pathlib import Path

import pytest

from tests.cli.workshop import MODELS, Shell, opened, samples
from tests.frontier.timing_examples import BARE_MS, table_of


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ("--cost 0.001", "no point costs 0.001 or less; the cheapest costs 0.1"),
        ("--cost 0", "expected --cost as a share of 1, such as 0.6, got 0"),
        ("--cost -0.5", "expected --cost as a share of 1, such as 0.6, got -0.5"),
        ("--cost nan", "expected --cost as a share of 1, such as 0.6, got nan"),
        ("--cost inf", "expected --cost as a share of 1, such as 0.6, got inf"),
        ("--cost 60", "got 60: did you mean 0.6?"),
        ("--accuracy 93", "expected --accuracy as a share of 1, such as 0.6, got 93: did you mean 0.93?"),
        ("--accuracy 1.01", "no point reaches accuracy 1.0100 on the tune split; the best has 0."),
        ("--cost 0.5 --accuracy 0.5", "or --latency-ms, got --cost and --accuracy; leave one"),
        ("--cost 0.5 --latency-ms 2", "or --latency-ms, got --cost and --latency-ms; leave one"),
        ("--cost 0.5 --max-drop 0.1", "or --latency-ms, got --cost and --max-drop; leave one"),
        ("--max-drop 5", "expected --max-drop as a share of 1, such as 0.01, got 5: did you mean 0.05?"),
        ("--max-drop 0", "expected --max-drop as a share of 1, such as 0.01, got 0"),
        ("--max-drop 0.1 --confidence 95", "expected --confidence as a share of 1, such as 0.95, got 95: did you mean"),
        ("--max-drop 0.1 --confidence 1", "expected --confidence as a share of 1, such as 0.95, got 1"),
        ("--confidence 0.9", "expected --max-drop with --confidence, got only --confidence 0.9; add it, or leave"),
        ("--cost 0.5 --loss brier", "expected --max-drop with --loss, got only --loss brier; add it, or leave --loss"),
        ("--max-drop 0.0001", "calibrate samples are too few to promise a loss (accuracy) of at most 0.0001"),
        ("--latency-ms 2", "expected --latency FILE with --latency-ms, got none; offramp inspect --measure --out FILE"),
        ("--latency nowhere.json --latency-ms 2", "cannot read nowhere.json"),
        ("--latency test.npz --latency-ms 2", "give a file of offramp inspect --measure --out FILE"),
        ("--latency-batch-size 16", "expected --latency FILE with --latency-batch-size, got only"),
        ("--policy treshold", "unknown policy of this frontier 'treshold'; did you mean 'threshold'? Known: gates"),
        ("--policy treshold --cost 0.5", "did you mean 'threshold'?"),
    ],
)
def test_refused(offramp: Shell, artifact: Path, tmp_path: Path, wish: str, told: str) -> None:
    line = ("--data", "test.npz", "--trust", f"{MODELS}:make", *wish.split())
    ran = offramp("predict", artifact, *line, "--out", tmp_path / "a.csv")
    assert (ran.status, ran.out) == (1, "")
    assert told in ran.told
    assert "not foreseen" not in ran.told
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("verb", ["evaluate", "compare"])
def test_refused_by_every_verb(offramp: Shell, artifact: Path, verb: str) -> None:
    others = [artifact] if verb == "compare" else []
    ran = offramp(verb, artifact, *others, "--data", "test.npz", "--trust", f"{MODELS}:make", "--accuracy", "93")
    assert (ran.status, ran.out) == (1, "")
    assert "did you mean 0.93?" in ran.told


def test_budgets_that_cannot_be_met_tell_where_to_look(offramp: Shell, artifact: Path) -> None:
    ran = offramp("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", "--cost", "0.001")
    assert ran.told.endswith(f"More points: offramp frontier {artifact} --trust {MODELS}:make")
    assert "settings=" not in ran.told


@pytest.mark.parametrize("policy", ["stopping", "threshold", "gates", None])
def test_nothing_asked_for_is_the_cheapest_that_keeps_the_accuracy(
    offramp: Shell, artifact: Path, policy: str | None
) -> None:
    frontier = opened(artifact)
    listed = frontier.points[policy or frontier.preferred]
    best = max(point.promised["accuracy"] for point in listed)
    least = min(best, frontier.full_accuracy - 0.005)
    expected = next(point.promised for point in listed if point.promised["accuracy"] >= least)
    wish = [] if policy is None else ["--policy", policy]
    found = offramp.json("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *wish)
    assert found["policy"] == (policy or frontier.preferred)
    chosen = frontier.choose(accuracy=least, policy=policy).point
    assert chosen.promised == expected


@pytest.mark.parametrize("loss", ["accuracy", "disagreement"])
@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_for_a_promise(offramp: Shell, artifact: Path, tmp_path: Path, verb: str, loss: str) -> None:
    wish = ("--max-drop", "0.4", "--confidence", "0.8", "--loss", loss)
    out = ("--out", tmp_path / "answers.csv") if verb == "predict" else ("--report", tmp_path / "report")
    ran = offramp(verb, artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *wish, *out)
    assert ran.status == 0
    expected = opened(artifact).choose(max_drop=0.4, confidence=0.8, loss=loss).point.guarantee
    assert expected is not None
    assert f"Promised: {expected}." in " ".join((ran.out + ran.told).split())
    if verb == "evaluate":
        page = (tmp_path / "report" / "report.html").read_text()
        assert "Promised by Learn then Test: with 80&nbsp;% confidence it" in page
        assert "It assumes that samples to come are drawn as" in page
        told = json.loads((tmp_path / "report" / "findings.json").read_text())["guarantee"]
        assert (told["loss"], told["samples"]) == (loss, expected.samples)


def test_a_coarser_backend_is_promised_nothing(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    wish = ("--max-drop", "0.4", "--confidence", "0.8", "--backend", "bfloat16", "--out", tmp_path / "answers.csv")
    ran = offramp("predict", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *wish)
    assert ran.status == 0
    assert "nothing is promised: the network was calibrated in its own precision, and 'bfloat16'" in ran.told
    assert "Promised:" not in ran.told


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_by_milliseconds(offramp: Shell, artifact: Path, tmp_path: Path, verb: str) -> None:
    frontier = opened(artifact)
    table_of(frontier, whole=(BARE_MS,)).save(tmp_path / "latency.json")
    timed = frontier.timed(table_of(frontier))
    wish = ("--latency", tmp_path / "latency.json", "--latency-ms", "6")
    out = ("--out", tmp_path / "answers.csv") if verb == "predict" else ()
    line = (verb, artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *wish, *out)
    chosen = timed.choose(latency_ms=6.0)
    if verb == "evaluate":
        found = offramp.json(*line)
        assert found["policy"] == chosen.point.policy
        assert found["chosen"]["relative_cost"] < 1
        assert found["bare_ms"] == pytest.approx(BARE_MS)
        assert found["ms"] == pytest.approx(BARE_MS * found["chosen"]["relative_cost"])
    else:
        found = offramp.json(*line)
        expected = float(chosen.predict(samples(90, seed=2)[0]).relative_cost.mean())
        assert found["cost"] == pytest.approx(expected, rel=1e-3)
        assert (found["bare_ms"], found["ms"]) == pytest.approx((BARE_MS, BARE_MS * found["cost"]))
    ran = offramp(*line)
    assert ran.status == 0
    shown = " of 10 ms) on average" if verb == "predict" else "ms a sample on average, 10 ms the network without exits"
    assert shown in (ran.told if verb == "predict" else ran.out)
    assert verb == "predict" or "share of time" in ran.out
    assert "are those of 'an abacus', this machine is" in ran.told
    assert "times are those of backend" not in ran.told
    ran = offramp(*line[: -len(out) or None], *out, "--latency-batch-size", "2")
    assert ran.status == 1
    assert "expected a batch size within those measured, (1,), got 2; measure that too: offramp inspect" in ran.told
    assert "--measure --batch-size 2" in ran.told


def test_predict_warns_of_times_of_another_backend(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    table_of(opened(artifact)).save(tmp_path / "latency.json")
    line = ("predict", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", "--backend", "bfloat16")
    told = "the times are those of backend 'eager', and 'bfloat16' computes"
    ran = offramp(*line, "--latency", tmp_path / "latency.json", "--latency-ms", "6", "--out", tmp_path / "one.csv")
    assert ran.status == 0
    assert told in ran.told
    assert "offramp inspect --measure --backend bfloat16" in ran.told
    assert told not in offramp(*line, "--out", tmp_path / "other.csv").told  # no times were asked for


def test_milliseconds_that_cannot_be_met(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    table_of(opened(artifact)).save(tmp_path / "latency.json")
    wish = ("--latency", tmp_path / "latency.json", "--latency-ms", "0.1")
    ran = offramp("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *wish)
    assert ran.status == 1
    assert "no point costs 0.1 ms or less; the cheapest costs 1." in ran.told


def test_files_measured_on_a_busy_machine_are_warned_of(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    table_of(opened(artifact), adds_up=(0.5,)).save(tmp_path / "latency.json")
    line = ("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make")
    assert "stages add up to 0.50 of" in offramp(*line, "--latency", tmp_path / "latency.json").told
