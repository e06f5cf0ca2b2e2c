"""Fitting: what is saved, what is refused before the long work, and what an interrupted run leaves."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import offramp as library
from offramp.backbone._making import make_backbone
from offramp.cli.networks import make_network
from offramp.data import open_data
from offramp.data._dataset import StoredDataset
from offramp.features import extract
from offramp.model._model import EarlyExitModel
from offramp.runtime import LatencyTable
from tests.cases import each
from tests.cli.workshop import EXTRACTION, MODELS, NAMES, QUICK, Shell, opened, samples, stopped_after

BACKBONE = ("--model", f"{MODELS}:make")
DATA = ("--train", "train.npz", "--validation", "val.npz")
ONCE = ("--epochs", "1")


def same(one: EarlyExitModel, other: EarlyExitModel) -> bool:
    return (
        one.points.keys() == other.points.keys()
        and all(torch.equal(value, other.exits.state_dict()[name]) for name, value in one.exits.state_dict().items())
        and all(
            [point.tune_metrics for point in listed] == [point.tune_metrics for point in other.points[policy]]
            for policy, listed in one.points.items()
        )
    )


class TestSuccess:
    def test_as_a_table(self, offramp: Shell, tmp_path: Path) -> None:
        out = tmp_path / "artifact"
        ran = offramp("fit", *BACKBONE, *DATA, *ONCE, "--out", out)
        assert ran.status == 0
        assert ran.out.startswith("frontier of tiny by ")
        assert ran.told == (
            f"Saved in {out}. Next, evaluate it on samples that neither the network nor the exits were fitted on: "
            f"offramp evaluate {out} --data "
            f"TEST --report {out}-report --trust {MODELS}:make"
        )
        assert [place.name for place in tmp_path.glob("[!.]*")] == ["artifact"]  # features are thrown away

    def test_as_json_it_agrees_with_the_library(self, offramp: Shell, tmp_path: Path) -> None:
        out = tmp_path / "artifact"
        ran = offramp("fit", *BACKBONE, *DATA, *ONCE, "--out", out, "--seed", "3", "--json")
        assert (ran.status, ran.err) == (0, "")
        found = ran.json
        frontier = opened(out)
        settings = replace(QUICK, warmup_epochs=1, epochs=0, seed=3)
        backbone = make_backbone(f"{MODELS}:make", {})
        expected = library.fit(
            backbone, open_data("train.npz"), open_data("val.npz"), settings=settings, progress=False
        )
        assert same(frontier, expected)
        assert found["artifact"] == str(out)
        assert (found["network"], found["num_classes"], found["num_exits"]) == ("tiny", 3, 4)
        assert (found["preferred"], found["full_accuracy"]) == (expected.policy, expected.full_accuracy)
        assert found["provenance"] == json.loads(json.dumps(dict(expected.provenance)))
        assert found["points"] == {
            policy: [{**point.tune_metrics, "active": list(point.active)} for point in listed]
            for policy, listed in expected.points.items()
        }

    def test_sets_within_each_class(self, offramp: Shell, tmp_path: Path) -> None:
        assert offramp("fit", *BACKBONE, *DATA, *ONCE, "--out", tmp_path / "artifact", "--sets-by-class").status == 0
        shapes = {
            tuple(limits.shape)
            for listed in opened(tmp_path / "artifact").points.values()
            for point in listed
            for limits in point.conformal_thresholds.values()
        }
        assert shapes == {(4, 3)}

    def test_a_cascade(self, cascade: Path, offramp: Shell) -> None:
        found = offramp.json("inspect", cascade, "--trust", f"{MODELS}:small", "--trust", f"{MODELS}:make")["frontier"]
        assert found["network"] == "small+tiny"
        assert found["contributions"][0]["name"] == "small"

    def test_texts_bring_their_tokenizer_and_need_no_trust(self, of_texts: Path, offramp: Shell) -> None:
        found = offramp.json("inspect", of_texts)["frontier"]
        assert found["classes"] == list(NAMES)

    def test_two_classes(self, offramp: Shell, tmp_path: Path) -> None:
        for seed, name in enumerate(("train", "val")):
            inputs, labels = samples(80, seed=seed, classes=2)
            np.savez(tmp_path / f"{name}.npz", x=inputs, y=labels)
        data = ("--train", tmp_path / "train.npz", "--validation", tmp_path / "val.npz")
        found = offramp.json("fit", "-m", f"{MODELS}:make,classes=2", *data, *ONCE, "--out", tmp_path / "artifact")
        assert found["num_classes"] == 2

    def test_the_method_of_the_paper_without_weights(self, offramp: Shell, tmp_path: Path) -> None:
        out = tmp_path / "artifact"
        found = offramp.json("fit", *BACKBONE, *DATA, *ONCE, "--method", "paper", "--no-weights", "--out", out)
        assert found["provenance"]["settings"]["exits"] == "linear"
        assert not [*out.glob("backbone*")]
        assert opened(out).backbone.name == "tiny"

    @pytest.mark.filterwarnings("always::offramp.errors.GuessingWarning")
    def test_classes_by_name(self, offramp: Shell, tmp_path: Path) -> None:
        order = ("good", "bad", "dull")
        (tmp_path / "names").write_text("\n".join(order))
        for seed, name in enumerate(("train", "val")):
            inputs, labels = samples(60, seed=seed)
            np.savez(tmp_path / f"{name}.npz", x=inputs, y=np.array(order)[labels])
        data = (
            "--train",
            tmp_path / "train.npz",
            "--validation",
            tmp_path / "val.npz",
            "--classes",
            tmp_path / "names",
        )
        ran = offramp("fit", *BACKBONE, *data, *ONCE, "--out", tmp_path / "artifact", "--json")
        assert ran.json["classes"] == list(order)
        assert "Careful" not in ran.err
        # Sorted, they are not in the order of the network's outputs.
        line = ("fit", *BACKBONE, *data[:4], *ONCE, "--out", tmp_path / "other", "--json")
        ran = offramp(*line)
        assert (ran.status, ran.out) == (1, "")
        assert "no better than guessing on the validation split" in ran.told
        assert "order of the network's outputs (bad, dull, good)" in ran.told
        assert ran.told.endswith("On the command line: --anyway")
        assert not (tmp_path / "other").exists()
        ran = offramp(*line, "--anyway")
        assert ran.json["classes"] == sorted(order)
        assert "Careful: the full network is no better than guessing" in ran.told

    def test_an_artifact_that_is_there_is_replaced(self, offramp: Shell, artifact: Path, tmp_path: Path) -> None:
        out = tmp_path / "artifact"
        shutil.copytree(artifact, out)
        offramp.json("fit", *BACKBONE, *DATA, *ONCE, "--out", out, "--seed", "4")
        assert opened(out).provenance["settings"]["seed"] == 4


class TestWithoutValidation:
    def test_a_fifth_is_held_out(self, offramp: Shell, tmp_path: Path) -> None:
        ran = offramp("fit", *BACKBONE, "--train", "train.npz", *ONCE, "--out", tmp_path / "artifact", "--json")
        assert ran.status == 0
        assert (
            ran.told == "No --validation: a fifth of --train is held out. Make sure the network was not trained on it."
        )
        parts = {name: part["samples"] for name, part in ran.json["provenance"]["splits"].items()}
        assert parts == {"fit": 128, "tune": 16, "calibrate": 16}

    def test_nobody_reads_all_inputs_at_once(self, offramp: Shell, tmp_path: Path, monkeypatch: Any) -> None:
        read = StoredDataset.read
        most = []

        def counted(self: StoredDataset, start: int, stop: int) -> Any:
            most.append(stop - start)
            return read(self, start, stop)

        monkeypatch.setattr(StoredDataset, "read", counted)
        monkeypatch.setattr("offramp.model._fitting.fit", lambda *_, **__: 1 / 0)
        inputs, labels = samples(600, seed=0)
        np.savez(tmp_path / "train.npz", x=inputs, y=labels)
        ran = offramp("fit", *BACKBONE, "--train", tmp_path / "train.npz", "--out", tmp_path / "artifact")
        assert ran.status == 1
        assert max(most) <= 250

    @each("count", [1, 2, 9])
    def test_too_few(self, offramp: Shell, tmp_path: Path, count: int) -> None:
        inputs, labels = samples(count, seed=0)
        np.savez(tmp_path / "few.npz", x=inputs, y=labels)
        ran = offramp("fit", *BACKBONE, "--train", tmp_path / "few.npz", "--out", tmp_path / "artifact")
        assert ran.status == 1
        assert f"expected at least 10 samples to hold out a fifth of them, got {count}" in ran.told


class TestStore:
    def test_is_kept_and_used_again(self, offramp: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = ("--store", tmp_path / "features")
        network = make_network([f"{MODELS}:make"])
        for data in map(open_data, ("train.npz", "val.npz")):  # in Python, with a batch size of its own
            extract(network, data, tmp_path / "features" / data.name, batch_size=32, progress=False)
        monkeypatch.setattr(EXTRACTION, "_extract_batch", lambda *_: 1 / 0)  # nothing is extracted again
        offramp.json("fit", *BACKBONE, *DATA, *ONCE, *store, "--out", tmp_path / "artifact")
        assert len([*(tmp_path / "features").glob("*/manifest.json")]) == 2
        offramp.json("fit", *BACKBONE, *DATA, *ONCE, *store, "--out", tmp_path / "again")
        assert same(opened(tmp_path / "artifact"), opened(tmp_path / "again"))

    def test_of_another_network_is_refused(self, offramp: Shell, tmp_path: Path) -> None:
        store = ("--store", tmp_path / "features")
        offramp.json("fit", *BACKBONE, *DATA, *ONCE, *store, "--out", tmp_path / "first")
        ran = offramp("fit", "-m", f"{MODELS}:make,seed=1", *DATA, *ONCE, *store, "--out", tmp_path / "artifact")
        assert ran.status == 1
        assert "holds another extraction: backbone was" in ran.told
        assert "choose another path or delete this one" in ran.told

    def test_nobody_elses_files_are_removed(self, offramp: Shell, tmp_path: Path) -> None:
        mine = tmp_path / "artifact.features" / "diary.txt"
        mine.parent.mkdir()
        mine.write_text("dear diary")
        offramp.json("fit", *BACKBONE, *DATA, *ONCE, "--out", tmp_path / "artifact")
        assert [place.name for place in mine.parent.iterdir()] == ["diary.txt"]


class TestRefusedBeforeTheLongWork:
    @pytest.fixture(autouse=True)
    def no_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("offramp.model._fitting.fit", lambda *_, **__: pytest.fail("the long work began"))

    @each(
        ("out", "told"),
        [
            ("others", "others exists and is no artifact; choose another --out"),
            ("file", "file exists and is no artifact; choose another --out"),
            ("file/below", "cannot write into .*file/below: Not a directory; choose another --out"),
        ],
    )
    def test_places(self, offramp: Shell, tmp_path: Path, out: str, told: str) -> None:
        (tmp_path / "others").mkdir()
        (tmp_path / "others" / "thesis.tex").write_text("")
        (tmp_path / "file").write_text("")
        ran = offramp("fit", *BACKBONE, *DATA, "--out", tmp_path / out)
        assert ran.status == 1
        assert re.search(told, ran.told)

    def test_a_store_that_cannot_be_written(self, offramp: Shell, tmp_path: Path) -> None:
        ran = offramp("fit", *BACKBONE, *DATA, "--out", tmp_path / "artifact", "--store", "/dev/null/features")
        assert ran.status == 1
        assert "cannot write into /dev/null/features: Not a directory; choose another --store" in ran.told

    def test_validation_of_other_classes(self, offramp: Shell, tmp_path: Path) -> None:
        for name, words in (("train", NAMES), ("val", ("bad", "dull", "nice"))):
            inputs, labels = samples(30, seed=0)
            np.savez(tmp_path / f"{name}.npz", x=inputs, y=np.array(words)[labels])
        data = ("--train", tmp_path / "train.npz", "--validation", tmp_path / "val.npz")
        ran = offramp("fit", *BACKBONE, *data, "--out", tmp_path / "artifact")
        assert ran.status == 1
        assert "unknown class 'nice'; 1 of 3 label names are not classes: 'nice'; 1 of 3 classes have no" in ran.told


@each("count", [1, 2, 3])
def test_a_validation_of_hardly_any_samples(offramp: Shell, tmp_path: Path, count: int) -> None:
    inputs, labels = samples(count, seed=9)
    np.savez(tmp_path / "val.npz", x=inputs, y=labels)
    data = ("--train", "train.npz", "--validation", tmp_path / "val.npz")
    line = ("fit", *BACKBONE, *data, *ONCE, "--out", tmp_path / "artifact")
    ran = offramp(*line)
    assert ran.status == 1
    if count == 1:
        assert "expected at least 2 samples, better 1,000 or more" in ran.told
        return
    assert "even a perfect network could not pass" in ran.told
    assert offramp(*line, "--anyway").status == 0


def test_an_unknown_pooling(offramp: Shell, tmp_path: Path) -> None:
    ran = offramp("fit", *BACKBONE, *DATA, "--pooling", "gird", "--out", tmp_path / "artifact")
    assert ran.status == 1
    assert "unknown pooling 'gird'; did you mean 'grid'?" in ran.told


class TestInterrupted:
    @each(
        ("target", "count"),
        [
            ("offramp.features._extraction._extract_batch", 0),
            ("offramp.features._extraction._extract_batch", 1),
            ("offramp.methods._joint.cosine_step", 6),
            ("offramp.model._model.EarlyExitModel.save", 0),
        ],
    )
    def test_the_same_command_goes_on(
        self,
        offramp: Shell,
        artifact: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        target: str,
        count: int,
    ) -> None:
        line = ("fit", *BACKBONE, *DATA, "--epochs", "2", "--out", tmp_path / "artifact")  # as the undisturbed one was
        with stopped_after(monkeypatch, target, count):
            ran = offramp(*line)
        assert (ran.status, ran.out) == (130, "")
        assert ran.told == f"Stopped. Run the same command again: it continues from {tmp_path}/artifact.features."
        with monkeypatch.context() as patch:
            if "extract" not in target:  # that was done
                patch.setattr(EXTRACTION, "_extract_batch", lambda *_: 1 / 0)
            assert offramp(*line).status == 0
        for name in ("exits", "points", "backbone"):
            (file,) = (path.name for path in artifact.glob(f"{name}-*.safetensors"))  # named by its hash
            assert (tmp_path / "artifact" / file).read_bytes() == (artifact / file).read_bytes()
        assert not (tmp_path / "artifact.features").exists()

    def test_while_the_network_is_made(self, offramp: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        with stopped_after(monkeypatch, "offramp.cli.networks.make_backbone", 0):
            ran = offramp("fit", *BACKBONE, *DATA, "--out", "nowhere")
        assert ran.status == 130
        assert ran.told == "Stopped. Run the same command again."

    @pytest.mark.slow
    def test_by_a_real_signal(self, tmp_path: Path) -> None:
        """Ctrl-C as a terminal sends it, in the middle of the network's pass over the data."""
        module = tmp_path / "slow_models.py"
        module.write_text(
            "import time\n\nimport torch\nfrom torch import nn\n\nfrom offramp import Backbone\n\n\n"
            "class Slow(nn.Linear):\n"
            "    def forward(self, inputs):\n"
            "        if len(inputs) > 2:\n"
            "            open('running', 'w').close()\n"
            "            time.sleep(1)\n"
            "        return super().forward(inputs)\n\n\n"
            "def make():\n"
            "    torch.manual_seed(0)\n"
            "    return Backbone('slow', [Slow(16, 8), nn.Linear(8, 8)], {1: nn.Linear(8, 3)}, 3)\n"
        )
        inputs, labels = samples(3000, seed=0)
        np.savez(tmp_path / "data.npz", x=inputs, y=labels)
        line = [sys.executable, "-m", "offramp.cli", "fit", "--model", "slow_models:make", "--train", "data.npz"]
        line += ["--epochs", "1", "--out", "artifact", "--store", "store", "--anyway"]
        running = subprocess.Popen(
            line,
            cwd=tmp_path,
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
        assert err.endswith("Stopped. Run the same command again: it continues from store.\n")
        module.write_text(module.read_text().replace("time.sleep(1)", "pass"))
        subprocess.run(line, cwd=tmp_path, capture_output=True, check=True)
        assert (tmp_path / "artifact" / "manifest.json").exists()


def test_by_time(offramp: Shell, tmp_path: Path) -> None:
    file, out = tmp_path / "latency.json", tmp_path / "artifact"
    measured = offramp("inspect", "--model", f"{MODELS}:make", "--data", "test.npz", "--measure", "--out", file)
    assert measured.status == 0
    line = ("fit", *BACKBONE, *DATA, *ONCE)
    found = offramp.json(*line, "--latency", file, "--out", out)
    assert found["unit"]["full"] == pytest.approx(LatencyTable.load(file).full[0])
    frontier = opened(out)
    assert frontier.unit.full_ms == found["unit"]["full"]
    assert frontier.at(latency_ms=1000).point.tune_metrics["cost"] > 0
    ran = offramp(*line, "--latency", file, "--exits", "2", "--out", tmp_path / "other")
    assert ran.status == 1
    assert "expected a latency table of 'tiny' with 2 stages, got one of 'tiny' with 4" in ran.told
    assert "a table measured with --exits 2 needs fit --exits 2, and the other way round" in ran.told
    ran = offramp(*line, "--latency-batch-size", "4", "--out", tmp_path / "other")
    assert ran.status == 1
    assert "expected --latency FILE with --latency-batch-size" in ran.told


def test_a_copy_is_refused_before_the_long_work(
    offramp: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("offramp.model._fitting")
    monkeypatch.setattr(module, "extract", lambda *_, **__: pytest.fail("the long work began"))
    shutil.copy("train.npz", tmp_path / "copy.npz")
    data = ("--train", "train.npz", "--validation", tmp_path / "copy.npz")
    ran = offramp("fit", *BACKBONE, *data, "--out", tmp_path / "artifact")
    assert ran.status == 1
    assert "train and validation are the same samples; pass validation samples" in ran.told
