"""The operating point that a command asks for."""

import json
import warnings
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest
import torch

from offramp.cli.choosing import PointOptions, read_run, warn_of_full_sets, with_point_options
from offramp.model._model import EarlyExitModel
from offramp.runtime._run_times import RunTime
from tests.cases import each
from tests.cli.workshop import MODELS, Shell, opened, samples
from tests.model.timing_examples import FULL_MS, table_of


@each(
    ("options", "told"),
    [
        ("--cost 0.001", "or more, the cost of the cheapest point, got 0.001"),
        ("--cost 0", "--cost: expected a number between 0 and 1, such as 0.6, got 0"),
        ("--cost -0.5", "--cost: expected a number between 0 and 1, such as 0.6, got -0.5"),
        ("--cost nan", "--cost: expected a number between 0 and 1, such as 0.6, got nan"),
        ("--cost inf", "--cost: expected a number between 0 and 1, such as 0.6, got inf"),
        ("--cost 60", "got 60; did you mean 0.6?"),
        ("--accuracy 93", "--accuracy: expected a number between 0 and 1, such as 0.6, got 93; did you mean 0.93?"),
        ("--accuracy 1.01", "accuracy: expected a share of right answers, such as 0.93, got 1.01"),
        ("--cost 0.5 --accuracy 0.5", "and --latency-ms, got --cost and --accuracy; keep one of them"),
        ("--cost 0.5 --latency-ms 2", "and --latency-ms, got --cost and --latency-ms; keep one of them"),
        ("--cost 0.5 --max-drop 0.1", "and --latency-ms, got --cost and --max-drop; keep one of them"),
        ("--max-drop 5", "--max-drop: expected a number between 0 and 1, such as 0.01, got 5; did you mean 0.05?"),
        ("--max-drop 0", "--max-drop: expected a number between 0 and 1, such as 0.01, got 0"),
        (
            "--max-drop 0.1 --confidence 95",
            "--confidence: expected a number between 0 and 1, such as 0.95, got 95; did you mean",
        ),
        ("--max-drop 0.1 --confidence 1", "--confidence: expected a number between 0 and 1, such as 0.95, got 1"),
        ("--confidence 0.9", "expected --max-drop with --confidence, got only --confidence 0.9; add it, or leave"),
        ("--cost 0.5 --loss brier", "expected --max-drop with --loss, got only --loss brier; add it, or leave --loss"),
        ("--max-drop 0.0001", "calibrate samples are too few to guarantee a loss (accuracy) of at most 0.0001"),
        ("--latency-ms 2", "expected --latency FILE with --latency-ms, got none; make the file with offramp inspect"),
        ("--latency nowhere.json --latency-ms 2", "cannot read nowhere.json"),
        ("--latency test.npz --latency-ms 2", "give a file written by offramp inspect --measure --out FILE"),
        ("--latency-batch-size 16", "expected --latency FILE with --latency-batch-size, got only"),
        ("--policy treshold", "unknown policy of this model 'treshold'; did you mean 'threshold'? Known: stopping"),
        ("--policy treshold --cost 0.5", "did you mean 'threshold'?"),
    ],
)
def test_refused(offramp: Shell, artifact: Path, tmp_path: Path, options: str, told: str) -> None:
    line = ("--data", "test.npz", "--trust", f"{MODELS}:make", *options.split())
    ran = offramp("predict", artifact, *line, "--out", tmp_path / "a.csv")
    assert (ran.status, ran.out) == (1, "")
    assert told in ran.told
    assert "unexpected error" not in ran.told
    assert not any(tmp_path.iterdir())


def test_options_are_those_of_the_library() -> None:
    taken = signature(EarlyExitModel.at).parameters
    assert set(vars(PointOptions())) == set(taken) - {"self", "bound"}


def test_a_verb_has_one_option_per_field() -> None:
    values: list[object] = []

    @with_point_options
    def command(place: str, point_options: PointOptions, last: int = 3) -> None:
        values.extend((place, point_options, last))

    assert list(signature(command).parameters) == ["place", *vars(PointOptions()), "last"]
    command(place="here", cost=0.5, policy="gates")
    assert values == ["here", PointOptions(cost=0.5, policy="gates"), 3]


def test_a_share_in_percent_is_refused(offramp: Shell, artifact: Path) -> None:
    ran = offramp("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", "--accuracy", "93")
    assert (ran.status, ran.out) == (1, "")
    assert "did you mean 0.93?" in ran.told


def test_budgets_that_cannot_be_met_tell_where_to_look(offramp: Shell, artifact: Path) -> None:
    ran = offramp("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", "--cost", "0.001")
    assert ran.told.endswith(f"all points: offramp inspect {artifact} --trust {MODELS}:make")
    assert "settings=" not in ran.told


def test_a_budget_that_cannot_be_met_speaks_no_python(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    line = ("--data", "test.npz", "--trust", f"{MODELS}:make", "--out", tmp_path / "a.csv")
    ran = offramp("predict", artifact, *line, "--budget", "0.001")
    assert ran.status == 1
    assert "raise the budget, or fit smaller exits, such as the paper's" in ran.told


@each("policy", ["stopping", "threshold", None])
def test_nothing_asked_for_is_what_the_library_takes(offramp: Shell, artifact: Path, policy: str | None) -> None:
    model = opened(artifact)
    with warnings.catch_warnings(record=True) as caught:  # 60 calibrate samples guarantee little, or nothing
        warnings.simplefilter("always")
        chosen = model.at(policy=policy)
    options = [] if policy is None else ["--policy", policy]
    ran = offramp("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *options, "--json")
    found = json.loads(ran.out)
    assert found["policy"] == chosen.point.policy
    assert all(f"{artifact.name}: {warning.message}" in ran.told for warning in caught)
    assert bool(caught) == (chosen.point.guarantee is None)
    chosen = offramp.json(
        "evaluate",
        artifact,
        *(
            "--data",
            "test.npz",
            "--trust",
            f"{MODELS}:make",
            *options,
            "--accuracy",
            chosen.point.tune_metrics["accuracy"],
        ),
    )
    assert found["chosen"] == chosen["chosen"]


def test_a_guarantee_that_nobody_asked_for_is_told(
    offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.model._choose.MAX_DROP", 0.4)
    monkeypatch.setattr("offramp.model._choose.CONFIDENCE", 0.8)
    expected = opened(artifact).at().point.guarantee
    line = ("--data", "test.npz", "--trust", f"{MODELS}:make", "--out", tmp_path / "a.csv")
    ran = offramp("predict", artifact, *line)
    assert f"{artifact.name}: took the cheapest point with this guarantee: {expected}" in ran.told
    assert f"Guaranteed: {expected}." in ran.told
    coarse = offramp("predict", artifact, *line[:-1], tmp_path / "b.csv", "--backend", "bfloat16")
    assert "nothing is guaranteed" in coarse.told


@each("loss", ["accuracy", "disagreement"])
@each("command", ["evaluate", "predict"])
def test_for_a_promise(offramp: Shell, artifact: Path, tmp_path: Path, command: str, loss: str) -> None:
    options = ("--max-drop", "0.4", "--confidence", "0.8", "--loss", loss)
    out = ("--out", tmp_path / "answers.csv") if command == "predict" else ("--report", tmp_path / "report")
    ran = offramp(command, artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *options, *out)
    assert ran.status == 0
    expected = opened(artifact).at(max_drop=0.4, confidence=0.8, loss=loss).point.guarantee
    assert expected is not None
    assert f"Guaranteed: {expected}." in " ".join((ran.out + ran.told).split())
    if command == "evaluate":
        page = (tmp_path / "report" / "report.html").read_text()
        assert "Guaranteed by Learn then Test: with 80&nbsp;% confidence it" in page
        assert "It assumes that samples to come are drawn as" in page
        told = json.loads((tmp_path / "report" / "findings.json").read_text())["guarantee"]
        assert (told["loss"], told["samples"]) == (loss, expected.samples)


def test_a_coarser_backend_is_promised_nothing(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    options = ("--max-drop", "0.4", "--confidence", "0.8", "--backend", "bfloat16", "--out", tmp_path / "answers.csv")
    ran = offramp("predict", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *options)
    assert ran.status == 0
    assert "nothing is guaranteed: the network was calibrated in its own precision, and 'bfloat16'" in ran.told


def test_a_backend_that_is_slow_here(
    offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.runtime._processor.find_missing_instructions", lambda kind: ("amx_bf16",))
    line = ("--data", "test.npz", "--trust", f"{MODELS}:make", "--backend", "bfloat16", "--out", tmp_path / "a.csv")
    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=UserWarning)
        ran = offramp("predict", artifact, *line)
    assert ran.status == 0
    assert "bfloat16 is slower than float32 on this processor: it has no instructions for it (amx_bf16)" in ran.told
    assert "Promised:" not in ran.told


@each("command", ["evaluate", "predict"])
def test_by_milliseconds(offramp: Shell, artifact: Path, tmp_path: Path, command: str) -> None:
    model = opened(artifact)
    table_of(model, full=(FULL_MS,)).save(tmp_path / "latency.json")
    timed = model.with_latency(table_of(model))
    options = ("--latency", tmp_path / "latency.json", "--latency-ms", "6")
    out = ("--out", tmp_path / "answers.csv") if command == "predict" else ()
    line = (command, artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *options, *out)
    chosen = timed.at(latency_ms=6.0)
    if command == "evaluate":
        found = offramp.json(*line)
        assert found["policy"] == chosen.point.policy
        assert found["chosen"]["relative_cost"] < 1
        assert found["unit"] == {"name": "ms", "full": pytest.approx(FULL_MS)}
        assert found["mean_cost"] == pytest.approx(FULL_MS * found["chosen"]["relative_cost"])
    else:
        found = offramp.json(*line)
        expected = float(chosen.predict(samples(90, seed=2)[0]).relative_cost.mean())
        assert found["cost"] == pytest.approx(expected, rel=1e-3)
        assert (found["unit"]["full"], found["mean_cost"]) == pytest.approx((FULL_MS, FULL_MS * found["cost"]))
    ran = offramp(*line)
    assert ran.status == 0
    shown = " of 10 ms) on average" if command == "predict" else "ms per sample on average, 10 ms for the full network"
    assert shown in (ran.told if command == "predict" else ran.out)
    assert command == "predict" or "share of time" in ran.out
    assert "were measured on 'an abacus', this machine is" in ran.told
    assert "times were measured with backend" not in ran.told
    ran = offramp(*line[: -len(out) or None], *out, "--latency-batch-size", "2")
    assert ran.status == 1
    assert "within those measured, (1,), got 2; measure it too: offramp inspect" in ran.told
    assert "--measure --batch-size 2" in ran.told


def test_predict_warns_of_times_of_another_backend(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    table_of(opened(artifact)).save(tmp_path / "latency.json")
    line = ("predict", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", "--backend", "bfloat16")
    told = "the times were measured with backend 'eager', but 'bfloat16' is going to run"
    ran = offramp(*line, "--latency", tmp_path / "latency.json", "--latency-ms", "6", "--out", tmp_path / "one.csv")
    assert ran.status == 0
    assert told in ran.told
    assert "offramp inspect --measure --backend bfloat16" in ran.told
    assert told not in offramp(*line, "--out", tmp_path / "other.csv").told  # no times were asked for


def test_predict_takes_backend_and_batch_size_from_the_file(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    run = RunTime("eager", 16, 3, ms=1.0, least_ms=1.0, most_ms=1.0, full_ms=2.0)
    table = table_of(opened(artifact), backend="bfloat16", runs=(run, replace(run, batch_size=1, ms=2.0)))
    table.save(tmp_path / "latency.json")
    latency = tmp_path / "latency.json"
    assert read_run(latency, None, None) == ("bfloat16", 16)
    assert read_run(latency, "eager", 4) == ("eager", 4)
    assert read_run(None, None, None) == (None, None)
    replace(table, backend="OwnBackend", runs=()).save(tmp_path / "other.json")
    assert read_run(tmp_path / "other.json", None, None) == (None, None)
    line = ("predict", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", "--latency", latency)
    ran = offramp(*line, "--out", tmp_path / "answers.csv")
    assert ran.status == 0
    assert f"{latency} recommends batches of 16 on 'bfloat16'" in ran.told
    assert "times were measured with backend" not in ran.told


def test_milliseconds_that_cannot_be_met(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    table_of(opened(artifact)).save(tmp_path / "latency.json")
    options = ("--latency", tmp_path / "latency.json", "--latency-ms", "0.1")
    ran = offramp("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *options)
    assert ran.status == 1
    assert "ms or more, the cost of the cheapest point, got 0.1 ms" in ran.told


def test_files_measured_on_a_busy_machine_are_warned_of(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    table_of(opened(artifact), sum_ratio=(0.5,)).save(tmp_path / "latency.json")
    line = ("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make")
    assert "stages add up to 0.50 of" in offramp(*line, "--latency", tmp_path / "latency.json").told


@pytest.mark.usefixtures("offramp")
def test_classes_that_are_in_every_set(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = opened(artifact)
    points = model.points[model.policy]

    def told(thresholds: torch.Tensor) -> str:
        last = replace(points[-1], conformal_thresholds={0.05: thresholds})
        warn_of_full_sets(replace(model, points={**model.points, model.policy: [*points[:-1], last]}))
        return capsys.readouterr().err

    by_class = torch.tensor([[0.5, 0.6, float("inf")], [0.5, float("inf"), float("inf")]])
    assert "2 of 3 classes are in every prediction set of miscoverage 0.05" in told(by_class)
    assert "at least 19 per class" in told(by_class)
    assert told(torch.full((2, 3), 0.5)) == ""
    assert told(torch.tensor([0.5, float("inf")])) == ""  # of exits, not of classes
