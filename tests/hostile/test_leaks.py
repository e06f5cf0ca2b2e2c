"""Samples of one split in another: from Python, from files and the command line, and after saving and loading."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file

import offramp
from offramp.artifact._format import read_artifact, write_artifact
from offramp.data import open_data
from offramp.errors import ArtifactError, OverlapWarning, SplitError
from offramp.features import ArraySource, StoreSource, extract
from offramp.features._ids import IdSketch
from offramp.features._source import read_ids
from offramp.features._splits import find_overlap
from offramp.methods import METHODS
from offramp.model import compare_models
from offramp.model._model import EarlyExitModel
from offramp.preprocessing._row_hashes import hash_rows
from offramp.report import find, write_report
from tests.cases import each
from tests.cli.workshop import MODELS, SOURCE, Shell, quick, samples
from tests.model.examples import PREPROCESSING, SMALL, backbone, images

NEXT = r"give '\w+' other rows, or take the shared ones out of it"
"""The next step that every refusal names."""

Data = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]

TRAIN, VALIDATION, TEST = images(200, seed=1), images(300, seed=2), images(200, seed=3)


def joined(*parts: Data) -> Data:
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def rows(data: Data, chosen: slice | npt.NDArray[Any]) -> Data:
    return data[0][chosen], data[1][chosen]


def fit(train: Data, validation: Any) -> EarlyExitModel:
    return offramp.fit(backbone(), train, validation, preprocessing=PREPROCESSING, settings=SMALL, progress=False)


@pytest.fixture(scope="module")
def fitted() -> EarlyExitModel:
    return fit(TRAIN, VALIDATION)


@pytest.fixture(scope="module", params=["fitted", "loaded"])
def frontier(
    request: pytest.FixtureRequest, fitted: EarlyExitModel, tmp_path_factory: pytest.TempPathFactory
) -> EarlyExitModel:
    if request.param == "fitted":
        return fitted
    folder = tmp_path_factory.mktemp("saved") / "artifact"
    fitted.save(folder)
    return offramp.load(folder, backbone=fitted.backbone)


def half(frontier: EarlyExitModel, name: str) -> Data:
    """The validation samples that tuned, or those that calibrated."""
    return rows(VALIDATION, frontier.splits[name].contains(hash_rows(VALIDATION[0])))


def features(frontier: EarlyExitModel, data: Data, folder: Path) -> StoreSource:
    source = ArraySource(*data, name="features")
    pooling = frontier.pooling.name
    store = extract(frontier.backbone, source, folder, poolings=(pooling,), views=(PREPROCESSING,), progress=False)
    return StoreSource(store, pooling=pooling)


BACKWARDS = slice(None, None, -1)
LEAKS = {
    "the same": TRAIN,
    "reversed": rows(TRAIN, BACKWARDS),
    "half": joined(rows(TRAIN, slice(0, 100)), rows(VALIDATION, slice(0, 100))),
    "other labels": (TRAIN[0], 2 - TRAIN[1]),
    "two of a hundred": joined(rows(TRAIN, slice(7, 9)), rows(VALIDATION, slice(0, 98))),
}


@each("leak", LEAKS)
def test_fit_refuses_validation_rows_it_is_fitted_on(leak: str) -> None:
    with pytest.raises(SplitError, match=r"other rows|not in train"):
        fit(TRAIN, LEAKS[leak])


def test_a_tensor_has_the_ids_of_its_array() -> None:
    inputs, labels = LEAKS["half"]
    with pytest.raises(SplitError, match=NEXT):
        fit(TRAIN, (torch.from_numpy(inputs), labels))


def test_up_to_one_percent_leaves_validation() -> None:
    few = joined(rows(VALIDATION, slice(0, 100)), rows(TRAIN, slice(5, 6)), rows(VALIDATION, slice(100, 199)))
    with pytest.warns(OverlapWarning, match="1 of the 200 rows of 'validation' is in 'train' too and left out of"):
        found = fit(TRAIN, few)
    splits = {name: split["samples"] for name, split in found.provenance["splits"].items()}
    assert splits == {"fit": 200, "tune": 99, "calibrate": 100}
    leaked = hash_rows(TRAIN[0][5:6])
    assert [sketch.contains(leaked).tolist() for sketch in found.splits.values()] == [[True], [False], [False]]


def test_exactly_one_percent_leaves_and_one_row_more_is_refused() -> None:
    limit = joined(rows(TRAIN, slice(0, 3)), rows(VALIDATION, slice(0, 297)))
    with pytest.warns(OverlapWarning, match="3 of the 300 rows"):
        fit(TRAIN, limit)
    with pytest.raises(SplitError, match=f"4 of the 300 rows .*row 0, which is row 0 of 'train'.*{NEXT}"):
        fit(TRAIN, joined(rows(TRAIN, slice(0, 4)), rows(VALIDATION, slice(0, 296))))


def test_rows_that_repeat_within_a_split_do_no_harm() -> None:
    """Each row of either split three times: no part shares one with another."""
    found = fit(joined(TRAIN, TRAIN, TRAIN), joined(VALIDATION, VALIDATION, VALIDATION))
    tune, calibrate = (found.splits[name].contains(hash_rows(VALIDATION[0])) for name in ("tune", "calibrate"))
    np.testing.assert_array_equal(tune, ~calibrate)
    assert {name: split["samples"] for name, split in found.provenance["splits"].items()}["fit"] == 600


@each("labelled", [True, False])
@each("name", ["fit", "tune"])
def test_recalibration_refuses_samples_that_made_the_points(
    frontier: EarlyExitModel, name: str, labelled: bool
) -> None:
    used = TRAIN if name == "fit" else half(frontier, "tune")
    for data in (used, rows(used, BACKWARDS), joined(rows(used, slice(0, 50)), rows(TEST, slice(0, 50)))):
        with pytest.raises(SplitError, match=f"rows of 'recalibrate' are in '{name}' too.*{NEXT}"):
            frontier.recalibrate(data if labelled else data[0], labelled=labelled, progress=False)
    with pytest.raises(SplitError, match=NEXT):  # all of validation: half of it has tuned
        frontier.recalibrate(VALIDATION, labelled=True, progress=False)


def test_recalibration_on_other_samples_or_those_that_calibrated(frontier: EarlyExitModel) -> None:
    assert frontier.recalibrate(half(frontier, "calibrate"), labelled=True, progress=False).points
    few = joined(rows(TEST, slice(0, 199)), rows(TRAIN, slice(3, 4)))
    with pytest.warns(OverlapWarning, match="1 of the 200 rows of 'recalibrate' is in 'fit' too"):
        found = frontier.recalibrate(few, labelled=True, progress=False)
    assert found.provenance["recalibrated"]["samples"] == 199
    assert found.points["threshold"][0].losses["accuracy"].samples.shape == (199,)


def test_evaluation_refuses_samples_that_were_used(frontier: EarlyExitModel, tmp_path: Path) -> None:
    chosen = frontier.at(cost=0.9)
    point = chosen.point
    for name, data in (("fit", TRAIN), ("tune", half(frontier, "tune")), ("calibrate", half(frontier, "calibrate"))):
        used = features(frontier, rows(data, BACKWARDS), tmp_path / name)
        for measure in (
            lambda source: frontier.evaluate(source, points=[point]).rows,
            lambda source: find(frontier, source, point=point),
            lambda source: compare_models((chosen, source), (chosen, source)),
        ):
            with pytest.raises(SplitError, match=f"rows of 'test' are in '{name}.*{NEXT}"):
                measure(used)


def test_evaluation_is_of_the_rest(frontier: EarlyExitModel, tmp_path: Path) -> None:
    """One row in two hundred was used: every figure is that of the other 199."""
    chosen = frontier.at(cost=0.9)
    point = chosen.point
    few = features(frontier, joined(rows(TRAIN, slice(9, 10)), rows(TEST, slice(0, 199))), tmp_path / "few")
    rest = features(frontier, rows(TEST, slice(0, 199)), tmp_path / "rest")
    told = "1 of the 200 rows of 'test' is in 'fit"
    with pytest.warns(OverlapWarning, match=told):
        assert frontier.evaluate(few, points=[point]).rows == frontier.evaluate(rest, points=[point]).rows
    with pytest.warns(OverlapWarning, match=told):
        assert compare_models((chosen, few), (chosen, few)).samples == 199
    with pytest.warns(OverlapWarning, match=told):
        found = find(frontier, few, point=point)
    expected = find(frontier, rest, point=point)
    assert (found.samples, found.chosen) == (199, expected.chosen)
    # Rows are those of the source that was given: pictures are looked up by them.
    assert [one.row for one in found.first] == [one.row + 1 for one in expected.first]
    source = ArraySource(*joined(rows(TRAIN, slice(9, 10)), rows(TEST, slice(0, 199))), name="few")
    assert write_report(found, tmp_path / "report", source=source).exists()


def test_samples_of_a_recalibration_are_used_too(frontier: EarlyExitModel, tmp_path: Path) -> None:
    found = frontier.recalibrate(TEST[0], progress=False)
    found.save(tmp_path / "artifact")
    found = offramp.load(tmp_path / "artifact", backbone=frontier.backbone)
    with pytest.raises(SplitError, match=f"in 'recalibrate' too.*{NEXT}"):
        found.at(cost=0.9).evaluate(features(found, TEST, tmp_path / "features"))


def test_hashed_ids_are_what_an_artifact_holds_of_the_samples(fitted: EarlyExitModel, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    saved = [file for file in tmp_path.glob("*.safetensors") if set(load_file(file)) == {"fit", "tune", "calibrate"}]
    (ranks,) = (load_file(file) for file in saved)
    assert [len(ranks[name]) for name in ("fit", "tune", "calibrate")] == [200, 150, 150]
    np.testing.assert_array_equal(ranks["fit"].numpy(), IdSketch.of([hash_rows(TRAIN[0])]).ranks)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with CSV files, a network, and an artifact fitted from them by the command line."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / f"{MODELS}.py").write_text(SOURCE)
    train, validation, test = (samples(count, seed=seed) for seed, count in enumerate((200, 300, 200)))
    files = {
        "train": train,
        "validation": validation,
        "test": test,
        "reversed": rows(train, BACKWARDS),
        "half": joined(rows(train, slice(0, 100)), rows(test, slice(0, 100))),
        "few": joined(rows(train, slice(50, 51)), rows(test, slice(0, 199))),
        "repeated": joined(train, train, train),
        "validation-reversed": rows(validation, BACKWARDS),
    }
    for name, (inputs, labels) in files.items():
        header = ",".join([*(f"x{column}" for column in range(16)), "label"])
        lines = [",".join([*map(str, row), str(label)]) for row, label in zip(inputs, labels, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder


@pytest.fixture
def command(shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    monkeypatch.chdir(shop)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setitem(METHODS._entries, "default", quick)
    path = list(sys.path)
    yield Shell(capsys)
    sys.path[:] = path
    sys.modules.pop(MODELS, None)


@pytest.fixture
def artifact(shop: Path, command: Shell) -> Path:
    if not (shop / "artifact").exists():
        ran = command("fit", "--model", f"{MODELS}:make", *FILES, "--out", "artifact", "--epochs", "1")
        assert ran.status == 0, ran.err
    return shop / "artifact"


FILES = ("--train", "train.csv", "--validation", "validation.csv")
TRUST = ("--trust", f"{MODELS}:make")
OTHER = "take the shared ones out of it"


def fit_command(validation: str, out: Path) -> tuple[object, ...]:
    data = ("--train", "train.csv", "--validation", validation)
    return ("fit", "--model", f"{MODELS}:make", *data, "--out", out, "--epochs", "1")


@each("validation", ["train", "reversed", "half"])
def test_fit_by_files_refuses_a_leak(command: Shell, validation: str, tmp_path: Path) -> None:
    ran = command(*fit_command(f"{validation}.csv", tmp_path / "out"))
    assert ran.status == 1
    assert OTHER in ran.err or "not in train" in ran.err
    assert not (tmp_path / "out").exists()


def test_fit_by_files_counts_what_it_leaves_out(command: Shell, tmp_path: Path) -> None:
    ran = command(*fit_command("few.csv", tmp_path / "out"), "--json")
    assert ran.status == 0
    assert ran.err.count("1 of the 200 rows of 'validation' is in 'train' too and left out of 'validation'") == 1
    splits = ran.json["provenance"]["splits"]
    assert splits["tune"]["samples"] + splits["calibrate"]["samples"] == 199


def test_a_fifth_held_out_of_data_that_repeats_shares_no_row(command: Shell, tmp_path: Path) -> None:
    data = ("--train", "repeated.csv", "--out", tmp_path / "out", "--epochs", "1")
    ran = command("fit", "--model", f"{MODELS}:make", *data, "--json")
    assert ran.status == 0, ran.err
    assert "left out" not in ran.err
    counts = {name: split["samples"] for name, split in ran.json["provenance"]["splits"].items()}
    assert counts == {"fit": 480, "tune": 60, "calibrate": 60}  # multiples of three: equal rows stay together


@each("data", ["train", "reversed", "half", "validation", "validation-reversed"])
def test_commands_refuse_data_that_was_used(command: Shell, artifact: Path, data: str, tmp_path: Path) -> None:
    given = ("--data", f"{data}.csv", *TRUST)
    for arguments in (
        ("evaluate", artifact, *given),
        ("evaluate", artifact, *given, "--against", artifact),
        ("recalibrate", artifact, *given, "--out", tmp_path / "new"),
        ("recalibrate", artifact, *given, "--out", tmp_path / "new", "--labelled"),
    ):
        ran = command(*arguments)
        assert ran.status == 1, arguments
        assert OTHER in ran.err, ran.err
    assert not (tmp_path / "new").exists()


def test_commands_count_what_they_leave_out(command: Shell, artifact: Path, tmp_path: Path) -> None:
    given = ("--data", "few.csv", *TRUST, "--json")
    for arguments, split in (
        (("evaluate", artifact, *given), "few.csv"),
        (("evaluate", artifact, *given, "--against", artifact), "few.csv"),
        (("recalibrate", artifact, *given, "--out", tmp_path / "new"), "recalibrate"),
    ):
        ran = command(*arguments)
        assert ran.status == 0, ran.err
        assert ran.err.count(f"1 of the 200 rows of '{split}' is in 'fit") == 1
        assert f"left out of '{split}'" in ran.err
        assert ran.json["samples"] == 199


def test_other_data_passes_without_a_word(command: Shell, artifact: Path) -> None:
    ran = command("evaluate", artifact, "--data", "test.csv", *TRUST, "--json")
    assert (ran.status, ran.json["samples"]) == (0, 200)
    assert "left out" not in ran.err


def test_files_and_arrays_meet(shop: Path, artifact: Path) -> None:
    """Python recognises samples in an array that the command line fitted from a CSV file."""
    with contextlib.chdir(shop):
        sys.path.insert(0, str(shop))
        found = offramp.load(artifact, trust=[f"{MODELS}:make"])
    with pytest.raises(SplitError, match=NEXT):
        found.recalibrate(samples(200, seed=0)[0], progress=False)
    assert found.recalibrate(samples(200, seed=2)[0], progress=False).points


@pytest.mark.data
@each(("task", "earlier", "later", "shared"), [("banking77", "train", "test", 7), ("sst2", "train", "valid", 75)])
def test_real_data_repeats_itself(data_dir: Path, task: str, earlier: str, later: str, shared: int) -> None:
    """The count is that of a Python set of texts. 75 of SST-2's 6,735 validation rows are more than 1 %."""
    first, second = (open_data(data_dir / task / f"{name}.tsv.gz") for name in (earlier, later))
    texts = {*first.read(0, len(first)).inputs}
    repeats = [row for row, text in enumerate(second.read(0, len(second)).inputs) if text in texts]
    assert len(repeats) == shared
    known = {"train": IdSketch.of([read_ids(first, progress=False)])}
    ids = read_ids(second, progress=False)
    told = f"{shared} of the {len(second):,} rows of 'test' are in 'train' too"
    if 100 * shared > len(second):
        with pytest.raises(SplitError, match=f"{told}.*{NEXT}"):
            find_overlap(ids, known, name="test")
    else:
        with pytest.warns(OverlapWarning, match=told):
            assert find_overlap(ids, known, name="test").tolist() == repeats


@each(
    ("name", "ranks"),
    [
        ("fit", torch.tensor([[1, 2]])),
        ("fit", torch.tensor([1.0, 2.0])),
        ("fit", torch.tensor([1, 2], dtype=torch.int32)),
        ("fit", torch.empty(0, dtype=torch.int64)),
        ("fit", torch.tensor([-1, 2])),
        ("fit", torch.tensor([2, 1])),
        ("fit", torch.tensor([1, 1])),
        ("fit", torch.arange(2**16 + 1)),
        ("test", torch.tensor([1, 2])),
    ],
)
def test_saved_ids_out_of_range_are_refused(
    fitted: EarlyExitModel, tmp_path: Path, name: str, ranks: torch.Tensor
) -> None:
    fitted.save(tmp_path / "whole")
    artifact = read_artifact(tmp_path / "whole")
    tensors = {**artifact.tensors, "splits": {name: ranks}}
    write_artifact(tmp_path / "changed", artifact.content.value, tensors)
    with pytest.raises(ArtifactError, match=f"tensor '{name}': expected .*save the model again"):
        offramp.load(tmp_path / "changed", backbone=fitted.backbone)


def test_an_artifact_without_saved_ids_is_read(fitted: EarlyExitModel, tmp_path: Path) -> None:
    """A model can be saved without hashes of its samples, and loaded again."""
    replace(fitted, splits={}).save(tmp_path)
    assert not offramp.load(tmp_path, backbone=fitted.backbone).splits
