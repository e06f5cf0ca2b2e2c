"""Batch inference by many workers: the answers of one process, one part per block, whatever is lost or damaged."""

import os
import shutil
import signal
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet

import offramp
from offramp.errors import BudgetError, InputError, StoreError, UnknownNameError
from offramp.features import ArraySource
from offramp.features._source import Rows
from offramp.scale import predict_on_cluster
from offramp.scale._parts import fingerprint
from offramp.scale._predict import JobSummary
from tests.cases import each, refuses
from tests.model.cascade_examples import FEW, pair, vectors

ROWS = 230
OPTIONS: dict[str, Any] = {"batch_size": 8, "block_rows": 40, "progress": False}
"""6 parts, the last of 30 rows."""


@cache
def frontier() -> offramp.EarlyExitModel:
    return offramp.fit(pair(), vectors(300, seed=1), vectors(200, seed=2), settings=FEW, progress=False)


def network() -> offramp.EarlyExitModel:
    return frontier().at(cost=0.5, policy="threshold")


def dialled() -> offramp.EarlyExitModel:
    """Return a model all of whose points are settings: the dearer the more accurate."""
    given = frontier().at(cost=1.1, policy="threshold")
    points = [
        replace(point, tune_metrics={**point.tune_metrics, "accuracy": point.tune_metrics["cost"] / 2})
        for point in given.points["threshold"]
        if point.classifier == given.point.classifier
    ]
    return replace(given, chosen=points[-1], points={"threshold": points})


def source(rows: int = ROWS) -> ArraySource:
    return ArraySource(*vectors(rows, seed=3), name="new")


def predicted(folder: Path, given: Any = None, **options: Any) -> JobSummary:
    return predict_on_cluster(network(), source() if given is None else given, folder, **{**OPTIONS, **options})


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.parquet"))}


def table(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(folder).to_pylist()
    return rows


class Struck:
    """A source whose reader is struck once, in the middle."""

    def __init__(self, place: Path, strike: Any) -> None:
        self._source, self._place, self._strike = source(), place, strike
        self.name = self._source.name

    def __len__(self) -> int:
        return len(self._source)

    def read(self, start: int, stop: int) -> Rows:
        if start == 88 and not self._place.exists():
            self._place.touch()
            self._strike()
        return self._source.read(start, stop)


class Named:
    """A source that has names for its rows."""

    name = "named"

    def __len__(self) -> int:
        return 50

    def read(self, start: int, stop: int) -> Rows:
        return source(50).read(start, stop)

    def keys(self, start: int, stop: int) -> list[str]:
        return [f"image-{row}.png" for row in range(start, stop)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, _ray: None) -> Path:
    """Of an undisturbed job."""
    return predicted(tmp_path_factory.mktemp("whole")).folder


@pytest.mark.usefixtures("_ray")
class TestOnWorkers:
    def test_answers_are_those_of_one_process(self, whole: Path) -> None:
        answer = network().predict(source().read(0, ROWS).inputs)
        found = table(whole)
        assert [row["input"] for row in found] == [str(row) for row in range(ROWS)]
        assert [row["exit"] for row in found] == answer.exits.tolist()
        assert len(set(answer.exits.tolist())) > 1
        assert [row["label"] for row in found] == answer.labels.tolist()
        np.testing.assert_allclose([row["probabilities"] for row in found], answer.probabilities, atol=1e-5)
        np.testing.assert_allclose([row["cost"] for row in found], answer.relative_cost)
        sets = [list(map(bool, row)) for row in answer.prediction_sets[0.05].tolist()]
        assert [[label in row["set"] for label in range(3)] for row in found] == sets

    def test_one_part_per_block(self, whole: Path) -> None:
        assert sorted(contents(whole)) == [f"part-{part:09d}.parquet" for part in range(6)]
        counts = [parquet.read_metadata(whole / name).num_rows for name in sorted(contents(whole))]
        assert counts == [40] * 5 + [30]

    def test_going_on_makes_the_same_bytes_and_nothing_twice(self, whole: Path, tmp_path: Path) -> None:
        folder = shutil.copytree(whole, tmp_path / "job")
        (folder / "part-000000001.parquet").unlink()
        (folder / "_job" / "part-000000002.json").unlink()
        torn = folder / "part-000000004.parquet"
        torn.write_bytes(torn.read_bytes()[:-100])
        (folder / "part-000000003.parquet.0123.tmp").write_bytes(b"of a writer that was killed")
        kept = {part: os.stat(folder / f"part-{part:09d}.parquet").st_ino for part in (0, 3, 5)}
        summary = predicted(folder)
        assert contents(folder) == contents(whole)
        assert summary.reused == 3
        assert len(table(folder)) == ROWS
        for part, inode in kept.items():
            assert os.stat(folder / f"part-{part:09d}.parquet").st_ino == inode, "answered again"

    def test_a_worker_is_lost(self, whole: Path, tmp_path: Path) -> None:
        given = Struck(tmp_path / "struck", lambda: os.kill(os.getpid(), signal.SIGKILL))
        predicted(tmp_path / "job", given)
        assert (tmp_path / "struck").exists()
        assert contents(tmp_path / "job") == contents(whole)

    def test_an_error_names_the_rows_and_the_job_goes_on_after_it(self, whole: Path, tmp_path: Path) -> None:
        def strike() -> None:
            raise InputError("row 90 is black; take it out")

        given = Struck(tmp_path / "struck", strike)
        with pytest.raises(InputError, match=r"^rows 80 to 119 of 'new': row 90 is black; take it out$"):
            predicted(tmp_path / "job", given)
        assert not (tmp_path / "job" / "_job" / "finished.json").exists()
        predicted(tmp_path / "job", given)
        assert contents(tmp_path / "job") == contents(whole)

    @each(
        ("change", "expected", "got"),
        [
            ({"batch_size": 4}, "batch_size 8", "4"),
            ({"block_rows": 48}, "block_rows 40", "48"),
            ({"miscoverage": 0.1}, "miscoverage 0.05", "0.1"),
            ({"classes": ("a", "b", "c")}, "classes []", "['a', 'b', 'c']"),
            ({"backend": "bfloat16"}, "backend 'eager'", "'bfloat16'"),
            ({"given": source(60)}, "num_rows 230", "60"),
        ],
    )
    def test_answers_of_another_job_are_refused(self, change: Any, expected: str, got: str, whole: Path) -> None:
        with refuses(StoreError, problem="another job", expected=expected, got=got):
            predicted(whole, **change)

    def test_another_network_is_refused(self, whole: Path) -> None:
        other = frontier().at(cost=1.1, policy="threshold")
        with refuses(StoreError, expected="network '"):
            predict_on_cluster(other, source(), whole, **OPTIONS)

    @each("kind", ["bfloat16", "onnx"])
    @pytest.mark.filterwarnings("ignore:.* is slower than float32:offramp.errors.OfframpWarning")
    def test_points_tuned_on_a_backend_run_on_it(self, kind: str, tmp_path: Path) -> None:
        tuned = frontier().with_backend(kind, vectors(200, seed=2), progress=False).at(cost=0.5)
        with refuses(InputError, got=f"tuned on the backend '{kind}'"):
            predict_on_cluster(tuned, source(), tmp_path, **OPTIONS, backend="eager")
        predict_on_cluster(tuned, source(), tmp_path, **OPTIONS)
        assert [row["exit"] for row in table(tmp_path)] == tuned.predict(vectors(ROWS, seed=3)[0]).exits.tolist()

    @each("rows", [1, 8, 40, 41])
    def test_few_rows(self, rows: int, tmp_path: Path) -> None:
        summary = predicted(tmp_path, source(rows))
        assert (summary.rows, summary.parts) == (rows, -(-rows // 40))
        assert [row["exit"] for row in table(tmp_path)] == network().predict(vectors(rows, seed=3)[0]).exits.tolist()

    def test_batches_of_one(self, tmp_path: Path) -> None:
        predicted(tmp_path, source(50), batch_size=1, block_rows=20)
        assert [row["exit"] for row in table(tmp_path)] == network().predict(vectors(50, seed=3)[0]).exits.tolist()

    def test_names_of_inputs_and_classes(self, tmp_path: Path) -> None:
        predicted(tmp_path, Named(), classes=["cat", "dog", "bird"])
        found = table(tmp_path)
        assert [row["input"] for row in found] == [f"image-{row}.png" for row in range(50)]
        labels = network().predict(vectors(50, seed=3)[0]).labels.tolist()
        assert [row["label"] for row in found] == [("cat", "dog", "bird")[label] for label in labels]

    @each("share", [0.3, 0.7])
    def test_a_budget_is_kept_over_the_job(self, share: float, tmp_path: Path) -> None:
        given = dialled()
        budget = given.dial.cheapest + share * (given.dial.most_expensive - given.dial.cheapest)
        options = {**OPTIONS, "batch_size": 16, "block_rows": 64, "budget": budget}
        summary = predict_on_cluster(given, source(6400), tmp_path, **options)
        assert summary.cost == pytest.approx(budget, rel=0.02)
        found = table(tmp_path)
        assert np.mean([row["cost"] for row in found]) == pytest.approx(summary.cost)
        again = predict_on_cluster(given, source(6400), tmp_path, **options)
        assert again.reused == 100
        assert again.cost == pytest.approx(summary.cost)

    def test_a_budget_interrupted_keeps_what_is_there(self, tmp_path: Path) -> None:
        given = dialled()
        budget = (given.dial.cheapest + given.dial.most_expensive) / 2
        options = {**OPTIONS, "budget": budget, "block_rows": 16}
        predict_on_cluster(given, source(800), tmp_path, **options)
        before = contents(tmp_path)
        for part in range(25, 50):
            (tmp_path / "_job" / f"part-{part:09d}.json").unlink()
        summary = predict_on_cluster(given, source(800), tmp_path, **options)
        assert summary.reused == 25
        assert list(contents(tmp_path).items())[:25] == list(before.items())[:25]
        assert summary.cost == pytest.approx(budget, rel=0.05)


def test_wrong_arguments_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for options, expected, got in (
        ({"miscoverage": 0.07}, "calibrated (0.05, 0.1)", "0.07"),
        ({"batch_size": 0}, "at least 1", "0 and"),
        ({"block_rows": -1}, "at least 1", "8 and -1"),
        ({"classes": ["a"]}, "3 names", "1"),
        ({"given": source(0)}, "at least one row", "none"),
    ):
        with refuses(InputError, expected=expected, got=got):
            predicted(tmp_path / "job", **options)
    with pytest.raises(UnknownNameError, match="did you mean 'eager'"):
        predicted(tmp_path / "job", backend="eagre")
    with refuses(BudgetError, got="1e-06"):
        predict_on_cluster(dialled(), source(), tmp_path / "job", budget=1e-6, **OPTIONS)
    with refuses(InputError, got="a model from model.on(...)", hint="backend="):
        predict_on_cluster(network().on("eager"), source(), tmp_path / "job", **OPTIONS)
    assert not (tmp_path / "job").exists()


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.parquet").write_bytes(b"mine")
    with refuses(StoreError, problem="is not the folder of a job"):
        predicted(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.parquet"]


def test_what_cannot_be_sent_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the source cannot be sent to other processes"):
        predicted(tmp_path / "job", Struck(tmp_path / "struck", (one for one in [1])))


def test_a_fingerprint_knows_what_answers_depend_on() -> None:
    given = dialled()
    seen = {fingerprint(given, all_points=all_points) for all_points in (False, True)}
    point = given.point
    for changed in (
        replace(given, chosen=replace(point, temperatures=1.01 * point.temperatures)),
        replace(given, chosen=replace(point, parameters={"threshold": torch.tensor(0.4321)})),
        replace(given, points={"threshold": given.points["threshold"][:-1]}),
        replace(given, exits=_nudged(given.exits)),
    ):
        seen.add(fingerprint(changed, all_points=True))
    assert len(seen) == 6
    assert fingerprint(replace(given), all_points=True) == fingerprint(given, all_points=True)


def _nudged(exits: Any) -> Any:
    other = deepcopy(exits)
    with torch.no_grad():
        next(other.parameters()).add_(1e-3)
    return other
