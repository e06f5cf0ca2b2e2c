"""`offramp inspect`: the stages of a network, as a table and as JSON."""

from pathlib import Path

import pytest

from offramp.backbone._making import make_backbone
from offramp.runtime import LatencyTable
from tests.cases import each
from tests.cli.workshop import MODELS, Shell, opened


def test_as_json_it_agrees_with_the_library(offramp: Shell) -> None:
    ran = offramp("inspect", "--model", f"{MODELS}:make", "--data", "test.npz", "--json")
    assert (ran.status, ran.err) == (0, "")
    found = ran.json
    backbone = make_backbone(f"{MODELS}:make", {})
    assert (found["network"], found["num_classes"], len(found["stages"])) == ("tiny", 3, backbone.num_exits)
    # By hand: a linear layer of a inputs and b outputs has a * b multiply-adds.
    by_hand = [16 * 256, *[256 * 256] * 3]
    assert [one["mul_adds"] for one in found["stages"]] == pytest.approx(by_hand, rel=0.01)
    assert found["mul_adds"] == pytest.approx(sum(by_hand) + 256 * 3, rel=0.01)
    assert sum(one["share"] for one in found["stages"]) == pytest.approx(1, abs=0.01)
    assert [one["features"] for one in found["stages"]] == [256] * 4
    assert [one["own_head"] for one in found["stages"]] == [False] * 3 + [True]
    leaving = [one["leaving"] for one in found["stages"]]
    assert leaving == sorted(leaving)


def test_as_a_table(offramp: Shell) -> None:
    ran = offramp("inspect", "--model", f"{MODELS}:make", "--data", "test.npz")
    assert ran.status == 0
    assert "tiny: 4 stages, 3 classes, 0.2 M Mul-Adds" in ran.out
    assert "3 *" in ran.out
    assert "Careful: no sample can leave inside stage 1, 2, 3, which is above 30% of the network's cost." in ran.told


def test_pictures(offramp: Shell) -> None:
    ran = offramp("inspect", "--model", f"{MODELS}:pictures", "--data", "images")
    assert "16 x 32 x 32" in ran.out
    assert "12.24" in ran.out


def test_texts_need_no_data(offramp: Shell) -> None:
    found = offramp.json("inspect", "--model", f"{MODELS}:texts")
    assert found["preprocessing"] == ["tokenize"]
    assert found["stages"][0]["sees"].endswith("words x 64")


def test_what_a_network_takes_may_be_unknown(offramp: Shell) -> None:
    ran = offramp("inspect", "--model", f"{MODELS}:make")
    assert ran.status == 1
    assert "does not follow from its preprocessing; give a few samples with --data" in ran.told


def test_poolings(offramp: Shell) -> None:
    found = offramp.json("inspect", "--model", f"{MODELS}:pictures", "--data", "images", "--pooling", "mean")
    assert [one["features"] for one in found["stages"]] == [16, 32, 64]
    ran = offramp("inspect", "--model", f"{MODELS}:make", "--data", "test.npz", "--pooling", "grid")
    assert ran.status == 1
    assert "pooling 'grid': expected maps N x C x H x W, got shape (2, 256); use pooling 'auto'" in ran.told


def test_an_unknown_pooling(offramp: Shell) -> None:
    ran = offramp("inspect", "--model", f"{MODELS}:make", "--data", "test.npz", "--pooling", "maen")
    assert ran.status == 1
    assert "unknown pooling 'maen'; did you mean 'mean'?" in ran.told


def test_times_are_measured_and_written(offramp: Shell, tmp_path: Path) -> None:
    out = tmp_path / "latency.json"
    line = ("inspect", "--model", f"{MODELS}:make", "--data", "test.npz", "--measure", "--batch-size", "4")
    found = offramp.json(*line, "--batch-size", "1", "--out", out)
    table = LatencyTable.load(out)
    assert (table.network, table.batch_sizes, table.exits) == ("tiny", (1, 4), "LadderExits of width 64 for 3 classes")
    assert [one["ms"] for one in found["stages"]] == [list(row) for row in table.stage]
    assert found["latency"]["full"] == list(table.full)
    ran = offramp(*line, "--method", "paper", "--exits", "2", "--out", out)
    assert "ms for 4" in ran.out, ran.told
    assert "The full network takes" in ran.told
    assert f"Written to {out}" in ran.told
    table = LatencyTable.load(out)
    assert (table.batch_sizes, table.exits, len(table.stage)) == ((4,), "LinearExits for 3 classes", 2)


def test_times_of_a_backend(offramp: Shell, tmp_path: Path) -> None:
    line = ("inspect", "--model", f"{MODELS}:make", "--data", "test.npz", "--measure", "--out", tmp_path / "times.json")
    ran = offramp(*line, "--backend", "bfloat16")
    assert ran.status == 0
    assert " with bfloat16 on " in ran.told
    assert LatencyTable.load(tmp_path / "times.json").backend == "bfloat16"
    ran = offramp(*line, "--backend", "bfloat61")
    assert ran.status == 1
    assert "unknown backend 'bfloat61'; did you mean 'bfloat16'?" in ran.told


def test_texts_are_timed_by_their_lengths(offramp: Shell, tmp_path: Path) -> None:
    out = tmp_path / "latency.json"
    ran = offramp("inspect", "--model", f"{MODELS}:texts", "--data", "texts-test.tsv", "--measure", "--out", out)
    assert ran.status == 0
    assert len(LatencyTable.load(out).others) >= 1


@each("more", [("--out", "latency.json"), ("--batch-size", "4"), ("--backend", "onnx")])
def test_nothing_is_written_that_was_not_measured(offramp: Shell, more: tuple[str, ...]) -> None:
    ran = offramp("inspect", "--model", f"{MODELS}:make", "--data", "test.npz", *more)
    assert ran.status == 1
    assert f"{more[0]} without --measure; add --measure" in ran.told


@each("busy", [True, False])
def test_times_that_do_not_add_up_are_warned_of(offramp: Shell, monkeypatch: pytest.MonkeyPatch, busy: bool) -> None:
    table = LatencyTable("eager", 1, (1,), *(((1.0,),) * 4,) * 4, full=(1.0,), sum_ratio=(1.41 if busy else 1.1,))
    monkeypatch.setattr("offramp.runtime.measure_latency", lambda *arguments, **options: table)
    line = ("inspect", "--model", f"{MODELS}:make", "--data", "test.npz", "--measure")
    told = "the machine was busy: stages add up to 1.41 of the full network's time; measure again when it is idle"
    assert (told in offramp(*line).told) == busy
    assert (told in offramp(*line, "--json").told) == busy


class TestArtifact:
    TRUST = ("--trust", f"{MODELS}:make")

    def test_its_points(self, offramp: Shell, artifact: Path) -> None:
        ran = offramp("inspect", artifact, *self.TRUST)
        frontier = opened(artifact)
        assert (ran.status, ran.err) == (0, "")
        assert ran.out.startswith(str(frontier.frontier))
        assert f"the full network: {100 * frontier.full_accuracy:.2f} %; samples: " in ran.out
        assert "160 to fit" in ran.out

    def test_its_points_as_json(self, offramp: Shell, artifact: Path) -> None:
        ran = offramp("inspect", artifact, *self.TRUST, "--json")
        frontier = opened(artifact)
        assert (ran.status, ran.err) == (0, "")
        found = ran.json["frontier"]
        assert found["points"] == {
            policy: [{**point.tune_metrics, "active": list(point.active)} for point in listed]
            for policy, listed in frontier.points.items()
        }
        assert found["preferred"] == frontier.policy
        assert found["contributions"] == [vars(one) for one in frontier.contributions]

    def test_its_stages_too(self, offramp: Shell, artifact: Path, tmp_path: Path) -> None:
        line = ("inspect", artifact, *self.TRUST, "--data", "test.npz")
        ran = offramp(*line)
        assert "tiny: 4 stages, 3 classes" in ran.out
        assert str(opened(artifact).frontier) in ran.out
        found = offramp.json(*line, "--measure", "--backend", "eager", "--out", tmp_path / "latency.json")
        assert found["frontier"]["network"] == found["network"] == "tiny"
        assert found["recommended"] is None
        assert opened(artifact).with_latency(LatencyTable.load(tmp_path / "latency.json")).unit.full_ms is not None

    def test_the_fastest_backend_and_batch_size(
        self, offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("offramp.model._backend_times._usable_backends", lambda _: ["eager"])
        out = tmp_path / "times.json"
        line = ("inspect", artifact, *self.TRUST, "--data", "test.npz", "--measure", "--out", out)
        found = offramp.json(*line)
        table = LatencyTable.load(out)
        assert table.batch_sizes == (1, 8, 64)
        assert found["latency"]["runs"] == [vars(run) for run in table.runs]
        recommended = found["recommended"]
        own = [run for run in table.runs if not run.note]
        assert [run.batch_size for run in own] == [1, 8, 64]
        assert recommended["latency"] == vars(own[0])
        assert recommended["throughput"] == vars(min(own, key=lambda run: run.ms))
        ran = offramp(*line, "--batch-size", "4")
        assert "Recommended for batches of 4: eager with " in ran.out, ran.told
        assert "Recommended for throughput: eager in batches of 4, " in ran.out
        ran = offramp(
            "predict", artifact, *self.TRUST, "--data", "test.npz", "--latency", out, "--out", tmp_path / "a.csv"
        )
        assert ran.status == 0
        assert f"{out} recommends batches of 4 on 'eager'" in ran.told

    @each(
        ("more", "told"),
        [
            (("--model", f"{MODELS}:make"), "expected an artifact, or a network with --model, got both"),
            (("--exits", "2"), "expected --exits with --model"),
            (("--pooling", "mean"), "expected --pooling with --model"),
            (("--measure",), "--measure of an artifact without --data"),
        ],
    )
    def test_what_is_refused(self, offramp: Shell, artifact: Path, more: tuple[str, ...], told: str) -> None:
        ran = offramp("inspect", artifact, *self.TRUST, *more)
        assert (ran.status, ran.out) == (1, "")
        assert told in ran.told

    def test_neither(self, offramp: Shell) -> None:
        assert "expected an artifact, or a network with --model, got neither" in offramp("inspect").told
