"""Cells, results and a method of one's own, on made-up samples."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.tests.tracks.examples import TASK, load, replace_samples
from offramp.errors import InputError, UntrustedNameError
from offramp.methods import METHODS
from offramp.policy import POLICIES
from offramp_bench.page import read_results, write_page
from offramp_bench.tracks import cell, joining
from offramp_bench.tracks.bars import bars
from offramp_bench.tracks.cell import cell_files, read_cell, run_cell, save_cell, tuned_variant
from offramp_bench.tracks.contestants import CONTESTANTS, DEFAULTS, ONE_EXIT, TRAININGS, VOTES, cells_of
from offramp_bench.tracks.joining import complete_cells, join_track
from offramp_bench.tracks.results import assemble, stamp
from offramp_bench.tracks.results import read_results as read_tracks
from offramp_bench.tracks.tuning import VARIANTS, settings_of
from tests.cases import each

MINE = '''
from dataclasses import dataclass
import torch
from offramp.exits import LinearExits
from offramp.methods import FittedExits

@dataclass(frozen=True)
class Settings:
    seed: int = 0
    steps: int = 60

def fit(fit, tune, costs, settings=Settings()):
    """Linear exits by full-batch gradient descent."""
    torch.manual_seed(settings.seed)
    stages = tuple(stage for stage in range(len(fit.widths)) if stage not in fit.own_heads)
    exits = LinearExits(fit.widths, stages, fit.num_classes)
    batch = next(fit.in_order(batch_size=fit.num_samples))
    optimizer = torch.optim.Adam(exits.parameters(), lr=0.05)
    for _ in range(settings.steps):
        answers = exits(batch.features.float())
        loss = sum(torch.nn.functional.cross_entropy(answer[0], batch.labels) for answer in answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return FittedExits(exits.eval())
'''


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replace_samples(monkeypatch, tmp_path / "cells")


def test_a_cell_is_read_as_it_was_written() -> None:
    training = TRAININGS["JEI-DNN"]
    made = run_cell(TASK, training, "means", 0)
    assert read_cell(TASK, training, "means", 0) is None
    save_cell(made, cell_files(TASK, training, "means", 0))
    found = read_cell(TASK, training, "means", 0)
    assert found is not None
    assert found.figures == json.loads(json.dumps(made.figures))
    for policy, curve in made.curves.items():
        np.testing.assert_array_equal(found.curves[policy].correct, curve.correct)
        np.testing.assert_array_equal(found.curves[policy].spent, curve.spent)


def test_a_cell_of_another_definition_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    training = TRAININGS["linear"]
    save_cell(run_cell(TASK, training, "grid", 0), cell_files(TASK, training, "grid", 0))
    assert read_cell(TASK, training, "grid", 0) is not None
    with monkeypatch.context() as other:
        other.setattr(cell, "fingerprint_of", lambda _name: "other weights")
        assert read_cell(TASK, training, "grid", 0) is None
    assert read_cell(TASK, training, "grid", 0) is not None
    monkeypatch.setattr(cell, "VERSION", cell.VERSION + 1)
    assert read_cell(TASK, training, "grid", 0) is None


def test_points_are_chosen_on_tune_and_the_curve_reaches_the_first_exit() -> None:
    found = run_cell(TASK, TRAININGS["linear"], "grid", 0).curves["threshold"]
    costs = found.costs()
    assert costs.min() == pytest.approx(1 / 3, rel=0.05)  # everybody leaves after the first of three equal stages
    assert len(costs) >= 3
    assert found.correct.shape == found.spent.shape == (len(costs), 150)


def test_the_best_setting_is_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.1, 0.7])
    monkeypatch.setattr(cell, "_score", lambda *_: next(scores))
    assert tuned_variant(TASK, TRAININGS["ZTW"], "means") is VARIANTS[1]
    assert tuned_variant(TASK, TRAININGS["ZTW"], "means") is VARIANTS[1]


def test_a_setting_that_diverges_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(*_: object) -> None:
        raise InputError(expected="a finite loss", got="nan")

    monkeypatch.setattr(METHODS, "get", lambda _name: diverge)
    assert cell._score(TASK, TRAININGS["ZTW"], "means", load(TASK, "means", 0), VARIANTS[0]) == 0

    def fail(*_: object) -> None:
        raise InputError(expected="two samples", got="none")

    monkeypatch.setattr(METHODS, "get", lambda _name: fail)
    with pytest.raises(InputError, match="two samples"):
        cell._score(TASK, TRAININGS["ZTW"], "means", load(TASK, "means", 0), VARIANTS[0])


def test_every_cell_has_files_of_its_own() -> None:
    files = [cell_files(TASK, training, look, seed) for training, look in cells_of("cifar10") for seed in range(5)]
    assert len(set(files)) == len(files)


@each("name", [name for name, training in TRAININGS.items() if training.is_tuned])
def test_everybody_gets_the_same_number_of_epochs(name: str) -> None:
    training = TRAININGS[name]
    settings = settings_of(TASK, training, "means", VARIANTS[0], epochs=20, seed=0, gates=False)
    epochs = settings.warmup_epochs + settings.epochs
    assert epochs == 20
    assert 1 <= settings.warmup_epochs
    if training.joint and settings.classifier_loss != "fixed":
        assert settings.warmup_epochs <= 10  # the paper searches 1 to half of the epochs


def test_every_contestant_names_a_known_training_and_policy() -> None:
    for contestant in CONTESTANTS.values():
        assert contestant.policy in TRAININGS[contestant.training].policies(contestant.look)
        assert contestant.policy in (*POLICIES, ONE_EXIT, VOTES)
    assert all(name in CONTESTANTS for name in DEFAULTS)


class TestResults:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Results of three trainings, two seeds."""
        chosen = {name: TRAININGS[name] for name in ("linear", "ladder", "JEI-DNN")}
        chosen = {name: replace(training, footing=None) for name, training in chosen.items()}
        monkeypatch.setattr(cell, "TRAININGS", chosen)
        for module in (joining, sys.modules["offramp_bench.tracks.results"]):
            monkeypatch.setattr(module, "TRAININGS", chosen)
        kept = {name: one for name, one in CONTESTANTS.items() if one.training in chosen and one.track == "exits"}
        monkeypatch.setattr("offramp_bench.tracks.results.contestants_of", lambda _task: kept)
        monkeypatch.setattr("offramp_bench.tracks.results.DEFAULTS", {n: DEFAULTS[n] for n in DEFAULTS if n in kept})
        for training in chosen.values():
            for look in training.looks:
                complete_cells(TASK, training, look, range(2))
        folder = tmp_path / "results"
        (folder / "tracks").mkdir(parents=True)
        (folder / "tracks" / "nci1.json").write_text(json.dumps(assemble(TASK, range(2))))
        return folder

    def test_all_contestants_of_a_footing_are_compared(self, folder: Path) -> None:
        found = read_tracks(folder / "tracks")["nci1"]
        assert set(found["leads"]["ladder"]) == {
            name for name, one in CONTESTANTS.items()
            if one.track == "exits" and one.look == "means" and one.training in ("linear", "ladder", "JEI-DNN")
        } - {"ladder"}  # fmt: skip
        assert set(found["leads"]) == {"ladder", "ladder, grid", "JEI-DNN"}
        assert found["measured with"] == stamp("nci1")
        assert 0.3 < found["range"]["first_exit"] < 0.4
        made = {bar.name: bar.figure for bar in bars({"nci1": found}, ["nci1", "svhn"])}
        shares = [row["share of exits"] for row in found["contestants"].values()]
        assert made["nci1: largest share of exits on the exits track"] == max(shares)
        assert bars({"nci1": found}, ["nci1", "svhn"])[0].figure == 1

    def test_a_method_of_ones_own_joins_and_is_on_the_page(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "mine_on_track.py").write_text(MINE)
        monkeypatch.syspath_prepend(tmp_path)
        results = read_tracks(folder / "tracks")["nci1"]
        name = "mine_on_track:fit"
        joined = join_track(results, TASK, name, "means", range(2), trust=[name])
        assert set(joined["contestants"]) - set(results["contestants"]) == {name}
        assert set(joined["leads"]["ladder"][name]) == set(results["figures"])
        assert joined["contestants"][name]["figures"]["mean accuracy"] > 0.5
        (folder / "tracks" / "nci1.json").write_text(json.dumps(joined))
        page = write_page(read_results(folder), tmp_path / "page.html").read_text()
        assert name in page


def test_a_method_nobody_trusts_is_refused() -> None:
    with pytest.raises(UntrustedNameError, match="trust"):
        join_track({}, TASK, "mine_untrusted:fit", "means", range(2), trust=[])
