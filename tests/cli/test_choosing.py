"""The operating point that a command asks for."""

import json
import warnings
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest
import torch

from offramp.cli.choosing import Wish, asking, warn_of_full_sets
from offramp.frontier import Frontier
from tests.cases import each
from tests.cli.workshop import MODELS, Shell, opened, samples
from tests.frontier.timing_examples import FULL_MS, table_of


@each(
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


def test_a_wish_is_what_the_library_takes() -> None:
    taken = signature(Frontier.choose).parameters
    assert set(vars(Wish())) == set(taken) - {"self", "bound"}


def test_a_verb_has_an_option_a_field() -> None:
    given: list[object] = []

    @asking
    def verb(place: str, wish: Wish, last: int = 3) -> None:
        given.extend((place, wish, last))

    assert list(signature(verb).parameters) == ["place", *vars(Wish()), "last"]
    verb(place="here", cost=0.5, policy="gates")
    assert given == ["here", Wish(cost=0.5, policy="gates"), 3]


def test_a_share_in_percent_is_refused(offramp: Shell, artifact: Path) -> None:
    ran = offramp("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", "--accuracy", "93")
    assert (ran.status, ran.out) == (1, "")
    assert "did you mean 0.93?" in ran.told


def test_budgets_that_cannot_be_met_tell_where_to_look(offramp: Shell, artifact: Path) -> None:
    ran = offramp("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", "--cost", "0.001")
    assert ran.told.endswith(f"More points: offramp inspect {artifact} --trust {MODELS}:make")
    assert "settings=" not in ran.told


def test_a_budget_that_cannot_be_met_speaks_no_python(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    line = ("--data", "test.npz", "--trust", f"{MODELS}:make", "--out", tmp_path / "a.csv")
    ran = offramp("predict", artifact, *line, "--budget", "0.001")
    assert ran.status == 1
    assert "ask for that or more, or fit smaller exits, such as the paper's" in ran.told


@each("policy", ["stopping", "threshold", "gates", None])
def test_nothing_asked_for_is_what_the_library_takes(offramp: Shell, artifact: Path, policy: str | None) -> None:
    frontier = opened(artifact)
    with pytest.warns(UserWarning, match="no guarantee") as caught:  # 60 calibrate samples
        network = frontier.choose(policy=policy)
    wish = [] if policy is None else ["--policy", policy]
    ran = offramp("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *wish, "--json")
    found = json.loads(ran.out)
    assert found["policy"] == network.point.policy
    assert f"{artifact.name}: {caught[0].message}" in ran.told
    chosen = offramp.json(
        "evaluate",
        artifact,
        *("--data", "test.npz", "--trust", f"{MODELS}:make", *wish, "--accuracy", network.point.promised["accuracy"]),
    )
    assert found["chosen"] == chosen["chosen"]


def test_a_guarantee_that_nobody_asked_for_is_told(
    offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.frontier.default.MAX_DROP", 0.4)
    monkeypatch.setattr("offramp.frontier.default.CONFIDENCE", 0.8)
    expected = opened(artifact).choose().point.guarantee
    line = ("--data", "test.npz", "--trust", f"{MODELS}:make", "--out", tmp_path / "a.csv")
    ran = offramp("predict", artifact, *line)
    assert f"{artifact.name}: took the cheapest point with this guarantee: {expected}" in ran.told
    assert f"Promised: {expected}." in ran.told
    coarse = offramp("predict", artifact, *line[:-1], tmp_path / "b.csv", "--backend", "bfloat16")
    assert "nothing is promised" in coarse.told


@each("loss", ["accuracy", "disagreement"])
@each("verb", ["evaluate", "predict"])
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


def test_a_backend_that_is_slow_here(
    offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.runtime.processor.missing_instructions", lambda kind: ("amx_bf16",))
    line = ("--data", "test.npz", "--trust", f"{MODELS}:make", "--backend", "bfloat16", "--out", tmp_path / "a.csv")
    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=UserWarning)
        ran = offramp("predict", artifact, *line)
    assert ran.status == 0
    assert "bfloat16 is slower than float32 on this processor: it has no instructions for it (amx_bf16)" in ran.told
    assert "Promised:" not in ran.told


@each("verb", ["evaluate", "predict"])
def test_by_milliseconds(offramp: Shell, artifact: Path, tmp_path: Path, verb: str) -> None:
    frontier = opened(artifact)
    table_of(frontier, whole=(FULL_MS,)).save(tmp_path / "latency.json")
    timed = frontier.timed(table_of(frontier))
    wish = ("--latency", tmp_path / "latency.json", "--latency-ms", "6")
    out = ("--out", tmp_path / "answers.csv") if verb == "predict" else ()
    line = (verb, artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *wish, *out)
    chosen = timed.choose(latency_ms=6.0)
    if verb == "evaluate":
        found = offramp.json(*line)
        assert found["policy"] == chosen.point.policy
        assert found["chosen"]["relative_cost"] < 1
        assert found["full_ms"] == pytest.approx(FULL_MS)
        assert found["ms"] == pytest.approx(FULL_MS * found["chosen"]["relative_cost"])
    else:
        found = offramp.json(*line)
        expected = float(chosen.predict(samples(90, seed=2)[0]).relative_cost.mean())
        assert found["cost"] == pytest.approx(expected, rel=1e-3)
        assert (found["full_ms"], found["ms"]) == pytest.approx((FULL_MS, FULL_MS * found["cost"]))
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


@pytest.mark.usefixtures("offramp")
def test_classes_that_are_in_every_set(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frontier = opened(artifact)
    points = frontier.points[frontier.preferred]

    def told(thresholds: torch.Tensor) -> str:
        last = replace(points[-1], conformal_thresholds={0.05: thresholds})
        warn_of_full_sets(replace(frontier, points={**frontier.points, frontier.preferred: [*points[:-1], last]}))
        return capsys.readouterr().err

    by_class = torch.tensor([[0.5, 0.6, float("inf")], [0.5, float("inf"), float("inf")]])
    assert "2 of 3 classes are in every prediction set of miscoverage 0.05" in told(by_class)
    assert "19 a class are the least" in told(by_class)
    assert told(torch.full((2, 3), 0.5)) == ""
    assert told(torch.tensor([0.5, float("inf")])) == ""  # of exits, not of classes
