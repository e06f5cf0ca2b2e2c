"""Columns in, columns out: the answers of `predict`, in every container, in other processes, with bad rows marked."""

import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from PIL import Image

import offramp
from offramp.backbone import Factory
from offramp.errors import ArtifactError, BudgetError, InputError, StoreError, UnknownNameError, UntrustedNameError
from offramp.model._predictor import Predictor
from tests.cases import each, refuses
from tests.model import cascade_examples, text_examples
from tests.model.artifact_examples import averaged, of_texts, resnet, texts
from tests.model.examples import images

PAIR = "tests.model.cascade_examples:pair"
TEXTS = "tests.model.text_examples:backbone"
BERT = "tests.model.artifact_examples:bert"
NAMES = ("label", "confidence", "exit", "cost", "set", "error")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> offramp.EarlyExitModel:
    """A model on twelve numbers, at a point where samples leave at several exits."""
    return saved(averaged().at(cost=0.5, policy="threshold"), tmp_path_factory.mktemp("vectors"), PAIR)


def saved(model: offramp.EarlyExitModel, folder: Path, factory: str | None = None) -> offramp.EarlyExitModel:
    model.save(folder, factory=None if factory is None else Factory(factory), weights=factory is None)
    return offramp.load(folder, trust=() if factory is None else (factory,))


def inputs(count: int = 150) -> Any:
    return cascade_examples.vectors(count, seed=3)[0]


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of columns of any kind, as plain values."""
    if isinstance(batch, dict):
        batch = pandas.DataFrame({name: list(column) for name, column in batch.items()})
    if isinstance(batch, pandas.DataFrame):
        batch = pyarrow.Table.from_pandas(batch, preserve_index=False)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def batch_of(kind: str, given: Any) -> Any:
    """Return vectors with their row numbers as columns."""
    ids = np.arange(len(given))
    if kind == "arrays":
        return {"id": ids, "x": given}
    if kind == "lists":
        return {"id": ids.tolist(), "x": given.tolist()}
    if kind == "frame":
        return pandas.DataFrame({"id": ids, "x": list(given)}, index=ids + 5)
    column = pyarrow.array(list(given), pyarrow.list_(pyarrow.float32()))
    if kind == "tensors":
        column = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(inputs())[: len(given)]
    made = pyarrow.RecordBatch if kind == "record batch" else pyarrow.Table
    return made.from_arrays([pyarrow.array(ids), column], names=["id", "x"])


KINDS = ("arrays", "lists", "frame", "table", "tensors", "record batch")


class TestColumns:
    @each("kind", KINDS)
    def test_of_each_kind_have_the_answers_of_predict(self, vectors: offramp.EarlyExitModel, kind: str) -> None:
        batch, expected = batch_of(kind, inputs()), vectors.predict(inputs())
        answers = vectors.predictor(column="x", keep=["id"], batch_size=150, trust=[PAIR])(batch)
        assert type(answers) is type(batch)
        rows = rows_of(answers)
        assert list(rows[0]) == ["id", *NAMES]
        assert [row["id"] for row in rows] == list(range(150))
        assert len(set(expected.exits.tolist())) > 1
        for name, column in (
            ("label", expected.labels),
            ("exit", expected.exits),
            ("confidence", expected.probabilities.amax(1)),
            ("cost", expected.relative_cost),
        ):
            assert [row[name] for row in rows] == column.tolist(), name  # bit for bit: the batch is the same
        sets = [list(members.nonzero().flatten().tolist()) for members in expected.prediction_sets[0.05]]
        assert [list(row["set"]) for row in rows] == sets
        assert {row["error"] for row in rows} == {""}

    @each("kind", KINDS)
    @each("count", [0, 1])
    def test_of_no_rows_and_of_one(self, vectors: offramp.EarlyExitModel, kind: str, count: int) -> None:
        batch = batch_of(kind, inputs()[:count])
        if kind == "lists" and not count:
            batch = {"id": [], "x": []}
        answers = vectors.predictor(column="x", keep=["id"], trust=[PAIR])(batch)
        assert type(answers) is type(batch)
        assert [row["label"] for row in rows_of(answers)] == vectors.predict(inputs()[:1]).labels.tolist()[:count]
        if kind == "table":
            assert [str(field.type) for field in answers.schema] == [
                *("int64", "int64", "float", "int32", "double", "list<item: int64>", "string")
            ]

    def test_late_stages_run_full_batches(self, vectors: offramp.EarlyExitModel) -> None:
        given = inputs(144)
        answers = vectors.predictor(column="x", batch_size=16, trust=[PAIR])({"x": given})
        expected = vectors.predict_many(np.array_split(given, 9))
        assert answers["confidence"].tolist() == expected.probabilities.amax(1).tolist()  # bit for bit
        assert answers["exit"].tolist() == vectors.predict(given).exits.tolist()

    def test_the_only_column_and_all_probabilities(self, vectors: offramp.EarlyExitModel) -> None:
        predictor = vectors.predictor(keep=["id"], probabilities=True, miscoverage=0.1, trust=[PAIR])
        expected = vectors.predict(inputs())
        for kind in ("arrays", "frame", "table"):
            rows = rows_of(predictor(batch_of(kind, inputs())))
            found = torch.tensor([row["probabilities"] for row in rows])
            torch.testing.assert_close(found, expected.probabilities)
            sets = [members.nonzero().flatten().tolist() for members in expected.prediction_sets[0.1]]
            assert [list(row["set"]) for row in rows] == sets

    @each("kind", KINDS)
    def test_the_inputs_are_kept_once(self, vectors: offramp.EarlyExitModel, kind: str) -> None:
        predictor = vectors.predictor(column="x", keep=["x", "id", "x"], trust=[PAIR])
        assert list(rows_of(predictor(batch_of(kind, inputs(3))))[0]) == ["x", "id", *NAMES]

    def test_an_iterator_of_batches(self, vectors: offramp.EarlyExitModel) -> None:
        predictor = vectors.predictor(column="x", keep=["id"], trust=[PAIR])
        parts = predictor(batch_of("frame", part) for part in np.array_split(inputs(), 3))
        assert isinstance(parts, Iterator)
        assert pandas.concat(parts)["exit"].tolist() == vectors.predict(inputs()).exits.tolist()

    def test_a_budget(self, vectors: offramp.EarlyExitModel) -> None:
        budget = (vectors.dial.cheapest + vectors.dial.most_expensive) / 2
        answers = vectors.predictor(column="x", budget=budget, batch_size=150, trust=[PAIR])({"x": inputs()})
        expected = vectors.predict(inputs(), budget=budget)
        assert answers["cost"].tolist() == expected.relative_cost.tolist()
        assert answers["exit"].tolist() == expected.exits.tolist()

    @each("request_", [{"cost": 1.1, "policy": "threshold"}, {}])
    @pytest.mark.filterwarnings("ignore:.*guarantee:offramp.errors.OfframpWarning")
    def test_another_point_than_the_saved_one(self, vectors: offramp.EarlyExitModel, request_: Any) -> None:
        other = vectors.at(**request_)
        answers = other.predictor(column="x", batch_size=150, trust=[PAIR])({"x": inputs()})
        assert answers["exit"].tolist() == other.predict(inputs()).exits.tolist()
        assert answers["exit"].tolist() != vectors.predict(inputs()).exits.tolist()


@cache
def text_model(folder: Path) -> offramp.EarlyExitModel:
    return saved(text_examples.fitted().at(cost=1.1), folder, TEXTS)


class TestInputs:
    @each("kind", ["list", "array", "U", "frame", "table"])
    def test_texts(self, kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
        raw: list[Any] = list(text_examples.RAW)
        model = text_model(tmp_path_factory.getbasetemp() / "texts")
        batch = {
            "list": {"text": raw},
            "array": {"text": np.array(raw, dtype=object)},
            "U": {"text": np.array(raw)},
            "frame": pandas.DataFrame({"text": raw}),
            "table": pyarrow.table({"text": raw}),
        }[kind]
        expected = model.predict(raw)
        rows = rows_of(model.predictor(batch_size=len(raw), trust=[TEXTS])(batch))
        assert [row["label"] for row in rows] == list(expected.names)
        assert [row["exit"] for row in rows] == expected.exits.tolist()
        names = [[text_examples.CLASSES[at] for at in members.nonzero()] for members in expected.prediction_sets[0.05]]
        assert [row["set"] for row in rows] == names

    def test_a_text_that_is_missing(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        model = text_model(tmp_path_factory.getbasetemp() / "texts")
        raw = [None, *text_examples.RAW[:7], None]
        for batch in (
            {"text": raw},
            pandas.DataFrame({"text": raw}),
            pandas.DataFrame({"text": pandas.array(raw, "string")}),
            pyarrow.table({"text": raw}),
        ):
            rows = rows_of(model.predictor(trust=[TEXTS])(batch))
            assert [bool(row["error"]) for row in rows] == [text is None for text in raw]
            assert (rows[0]["label"], rows[0]["exit"], list(rows[0]["set"])) == ("", -1, [])
            assert "empty" in rows[0]["error"]
            assert [row["label"] for row in rows[1:-1]] == list(model.predict(raw[1:-1]).names)

    def test_several_columns_as_a_mapping(self, tmp_path: Path) -> None:
        model = saved(of_texts().at(cost=1.1), tmp_path, BERT)
        tokens = texts(20, seed=3)[0]
        expected = model.predict(tokens)
        predictor = model.predictor(column=["input_ids", "attention_mask"], trust=[BERT])
        ragged = {name: [list(row) for row in column] for name, column in tokens.items()}
        lengths = tokens["attention_mask"].sum(1)
        for name, column in ragged.items():
            ragged[name] = [row[:length] for row, length in zip(column, lengths, strict=True)]
        assert predictor(tokens)["label"].tolist() == expected.labels.tolist()
        for batch in (pyarrow.table(ragged), pandas.DataFrame(ragged)):
            rows = rows_of(predictor(batch))
            assert [row["label"] for row in rows] == expected.labels.tolist()
            np.testing.assert_allclose([row["confidence"] for row in rows], expected.probabilities.amax(1), atol=1e-5)

    def test_images_as_arrays_lists_and_files(self, tmp_path: Path) -> None:
        model, pixels = saved(resnet().at(cost=1.1), tmp_path), images(12, seed=3)[0]
        expected = model.predict(pixels)
        files = []
        for image in pixels:
            file = BytesIO()
            Image.fromarray(image).save(file, "png")
            files.append(file.getvalue())
        predictor = model.predictor()
        for batch in (
            {"image": pixels},
            {"image": list(pixels)},
            pandas.DataFrame({"image": list(pixels)}),
            pyarrow.table({"image": pixels.tolist()}),
            pyarrow.table({"image": files}),
            pandas.DataFrame({"image": files}),
        ):
            assert [row["label"] for row in rows_of(predictor(batch))] == expected.labels.tolist()
        torn = {"image": [*files[:2], files[2][:50], *files[3:]]}
        rows = rows_of(predictor(torn))
        assert [row["label"] for row in rows] == [*expected.labels[:2], -1, *expected.labels[3:]]
        assert "cannot be decoded as an image" in rows[2]["error"]


class TestBadRows:
    def test_are_marked_and_the_others_answered(self, vectors: offramp.EarlyExitModel) -> None:
        given: list[Any] = list(inputs(20))
        given[3], given[7], given[8], given[19] = np.full(12, np.nan, np.float32), None, np.ones(11, np.float32), "text"
        expected = vectors.predict(inputs(20))
        answers = vectors.predictor(column="x", batch_size=6, trust=[PAIR])({"x": given})
        bad = [3, 7, 8, 19]
        assert [row for row in range(20) if answers["error"][row]] == bad
        assert answers["label"][bad].tolist() == [-1] * 4
        assert [answers["set"][row] for row in bad] == [[]] * 4
        good = [row for row in range(20) if row not in bad]
        assert answers["label"][good].tolist() == expected.labels[good].tolist()
        assert answers["exit"][good].tolist() == expected.exits[good].tolist()
        np.testing.assert_allclose(answers["cost"][good], expected.relative_cost[good])

    def test_alone(self, vectors: offramp.EarlyExitModel) -> None:
        predictor = vectors.predictor(column="x", trust=[PAIR])
        for given in ([None], [None, None], ["text"], np.full((2, 12), np.inf, np.float32), np.ones((3, 11))):
            answers = predictor({"x": given})
            assert all(answers["error"])
            assert answers["label"].tolist() == [-1] * len(given)

    def test_lists_that_are_no_numbers(self, vectors: offramp.EarlyExitModel) -> None:
        given: list[Any] = inputs(6).tolist()
        bad: dict[int, Any] = {1: [1.0, None], 3: [{"a": 1}], 4: [2**70] * 12}
        answers = vectors.predictor(column="x", trust=[PAIR])({"x": [bad.get(row, given[row]) for row in range(6)]})
        assert [row for row in range(6) if answers["error"][row]] == [*bad]
        assert [answers["error"][row].rpartition("got ")[2] for row in bad] == ["a missing value", "dict", "int"]
        assert answers["label"][[0, 2, 5]].tolist() == vectors.predict(inputs(6)[[0, 2, 5]]).labels.tolist()

    @each("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), StoreError("gone")])
    def test_a_failed_machine_is_no_bad_row(
        self, vectors: offramp.EarlyExitModel, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        predictor = vectors.predictor(column="x", trust=[PAIR])
        predictor({"x": inputs(2)})

        def fail(*arguments: Any, **options: Any) -> None:
            raise error

        monkeypatch.setattr(offramp.EarlyExitModel, "prepare", fail)
        with pytest.raises(type(error)):
            predictor({"x": inputs(2)})

    @each("kind", ["onnx", "bfloat16"])
    @pytest.mark.filterwarnings("ignore:.* is slower than float32:offramp.errors.OfframpWarning")
    def test_first_on_a_backend(self, vectors: offramp.EarlyExitModel, kind: str) -> None:
        predictor = vectors.predictor(column="x", backend=kind, trust=[PAIR])
        assert all(predictor({"x": [None, "text"]})["error"])
        answers = predictor({"x": ["text", *inputs(20)]})
        expected = vectors.on(kind, example=inputs(2)).predict(inputs(20))
        assert answers["label"].tolist() == [-1, *expected.labels.tolist()]


class TestProcesses:
    def test_a_predictor_is_small(self, vectors: offramp.EarlyExitModel) -> None:
        assert len(pickle.dumps(vectors.predictor(column="x", keep=["id"]))) < 2_000

    def test_a_spawned_pool(self, vectors: offramp.EarlyExitModel) -> None:
        predictor = vectors.predictor(column="x", keep=["id"], threads=1, trust=[PAIR])
        batches = [batch_of("arrays", part) for part in np.array_split(inputs(), 5)]
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            answers = pool.map(predictor, batches)
        exits = np.concatenate([answer["exit"] for answer in answers])
        assert exits.tolist() == vectors.predict(inputs()).exits.tolist()

    def test_the_artifact_is_loaded_once(
        self, vectors: offramp.EarlyExitModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from offramp.model import _loading

        loads, load = [], _loading.load

        def count(*given: Any, **options: Any) -> offramp.EarlyExitModel:
            loads.append(given)
            return load(*given, **options)

        monkeypatch.setattr(_loading, "load", count)
        predictor = vectors.predictor(column="x", batch_size=7, trust=[PAIR])
        for one in (predictor, predictor, pickle.loads(pickle.dumps(predictor)), Predictor(**vars(predictor))):
            one({"x": inputs(3)})
        assert len(loads) == 1

    def test_neither_pandas_nor_pyarrow_is_imported(self, vectors: offramp.EarlyExitModel, tmp_path: Path) -> None:
        (tmp_path / "predictor").write_bytes(pickle.dumps(vectors.predictor(column="x", trust=[PAIR])))
        np.save(tmp_path / "x.npy", inputs(4))
        code = (
            "import pickle, sys, numpy; from pathlib import Path; import torch\n"
            "class Refuse:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name.split('.')[0] in ('pandas', 'pyarrow'): raise ImportError(name)\n"
            "sys.meta_path.insert(0, Refuse())\n"
            "predictor = pickle.loads(Path('predictor').read_bytes())\n"
            "print(predictor({'x': numpy.load('x.npy')})['label'].tolist())\n"
        )
        path = [str(Path(offramp.__file__).parents[1]), str(Path(__file__).parents[2])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        command = [sys.executable, "-c", code]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == str(vectors.predict(inputs(4)).labels.tolist())


class TestArtifacts:
    def test_a_model_that_is_not_saved_as_it_is(self, vectors: offramp.EarlyExitModel, tmp_path: Path) -> None:
        fitted = replace(averaged()).at(cost=0.5)  # a copy: other tests save the model itself
        data = cascade_examples.vectors(80, seed=7)
        for model in (
            fitted,
            replace(vectors, classes=("a", "b", "c")),
            vectors.recalibrate(data, labelled=True, progress=False),
        ):
            with refuses(ArtifactError, expected="saved or loaded", got="changed since", hint="model.save(path)"):
                model.predictor()
        fitted.save(tmp_path, factory=Factory(PAIR))
        answers = fitted.predictor(column="x", trust=[PAIR])({"x": inputs(5)})
        assert answers["label"].tolist() == fitted.predict(inputs(5)).labels.tolist()
        with refuses(InputError, got="model.on(...)", hint="predictor(backend=...)"):
            vectors.on("eager").predictor()

    def test_a_folder_that_the_process_does_not_see(self, vectors: offramp.EarlyExitModel, tmp_path: Path) -> None:
        with refuses(ArtifactError, problem="sees no artifact", hint="artifact='s3://"):
            vectors.predictor(artifact=tmp_path / "gone", trust=[PAIR])({"x": inputs(1)})

    def test_another_artifact_in_its_place(self, vectors: offramp.EarlyExitModel, tmp_path: Path) -> None:
        assert vectors.saved is not None
        shutil.copytree(vectors.saved.folder, tmp_path / "a")
        model = offramp.load(tmp_path / "a", trust=[PAIR])
        predictor = model.predictor(trust=[PAIR])
        model.at(cost=1.1).save(tmp_path / "a", factory=Factory(PAIR))
        with refuses(ArtifactError, expected="made for", got="another one", hint="make a new predictor"):
            predictor({"x": inputs(1)})

    def test_an_address(self, vectors: offramp.EarlyExitModel, tmp_path: Path) -> None:
        assert vectors.saved is not None
        shutil.copytree(vectors.saved.folder, tmp_path / "a b")
        for address in (f"file://{vectors.saved.folder}", f"file://{tmp_path}/a%20b"):
            predictor = vectors.predictor(artifact=address, trust=[PAIR])
            assert predictor({"x": inputs(5)})["label"].tolist() == vectors.predict(inputs(5)).labels.tolist()
        with refuses(ArtifactError, problem="file:///gone", hint="check the address"):
            vectors.predictor(artifact="file:///gone", trust=[PAIR])({"x": inputs(1)})
        with refuses(InputError, problem="fsspec cannot open nothing://gone"):
            vectors.predictor(artifact="nothing://gone", trust=[PAIR])({"x": inputs(1)})

    def test_code_and_networks_that_are_not_given(self, vectors: offramp.EarlyExitModel, tmp_path: Path) -> None:
        with pytest.raises(UntrustedNameError, match="trust"):
            vectors.predictor()({"x": inputs(1)})
        model = averaged().at(cost=0.5)
        model.save(tmp_path)
        with refuses(ArtifactError, hint="weights=True"):
            model.predictor()({"x": inputs(1)})


class TestRefusals:
    @each(
        ("batch", "expected", "got"),
        [
            ({"id": [1], "y": [2]}, "the column x", "columns id, y"),
            ({"x": [1]}, "the column id", "columns x"),
            ({}, "the columns x, id", "no columns"),
            (pandas.DataFrame({"y": [1]}), "the columns x, id", "columns y"),
            (pandas.DataFrame({0: [1], 1: [2]}), "the columns x, id", "columns 0, 1"),
            (pyarrow.table({"y": [1]}), "the columns x, id", "columns y"),
            ({"x": [1, 2, 3], "id": [1]}, "one length", "{'x': 3, 'id': 1}"),
            (np.ones((2, 12)), "a batch as columns", "ndarray"),
            (["a"], "a batch as columns", "list"),
        ],
    )
    def test_of_batches(self, vectors: offramp.EarlyExitModel, batch: Any, expected: str, got: str) -> None:
        predictor = vectors.predictor(column="x", keep=["id"], trust=[PAIR])
        with refuses(InputError, expected=expected, got=got):
            predictor(batch)

    def test_of_several_columns_without_a_name(self, vectors: offramp.EarlyExitModel) -> None:
        with refuses(InputError, expected="one column", got="a, b", hint="column="):
            vectors.predictor(trust=[PAIR])({"a": [1], "b": [2]})

    @each(
        ("options", "error", "fields"),
        [
            ({"miscoverage": 0.07}, InputError, {"expected": "calibrated (0.05, 0.1)", "got": "0.07"}),
            ({"batch_size": 0}, InputError, {"problem": "batch_size", "got": "0"}),
            ({"threads": 0}, InputError, {"problem": "threads", "got": "0"}),
            ({"budget": 1e-6}, BudgetError, {"got": "1e-06"}),
            ({"backend": "eagre"}, UnknownNameError, {}),
            ({"backend": "int8"}, InputError, {"got": "int8", "hint": "with_backend"}),
            ({"backend": "onnx", "device": "cuda"}, InputError, {"expected": "no device", "got": "cuda"}),
            ({"keep": ["label"]}, InputError, {"problem": "keep", "got": "label", "hint": "rename"}),
            ({"keep": "id"}, InputError, {"problem": "keep", "hint": "['id']"}),
            ({"artifact": Path("hf://owner/name")}, InputError, {"expected": "address as text", "got": "hf:/owner"}),
        ],
    )
    def test_of_settings(self, vectors: offramp.EarlyExitModel, options: Any, error: Any, fields: Any) -> None:
        with refuses(error, **fields):
            vectors.predictor(**options)

    def test_of_a_device_where_it_is_missing(self, vectors: offramp.EarlyExitModel) -> None:
        with refuses(InputError, problem="device"):
            vectors.predictor(device="cuda:99", trust=[PAIR])({"x": inputs(1)})


@pytest.mark.filterwarnings("ignore:.* is slower than float32:offramp.errors.OfframpWarning")
def test_points_tuned_on_a_backend_run_on_it(tmp_path: Path) -> None:
    tuned = averaged().with_backend("onnx", cascade_examples.vectors(200, seed=2), progress=False).at(cost=0.5)
    model = saved(tuned, tmp_path, PAIR)
    with refuses(InputError, got="tuned on the backend 'onnx'"):
        model.predictor(backend="eager")
    answers = model.predictor(trust=[PAIR], batch_size=150)({"x": inputs()})
    assert answers["exit"].tolist() == tuned.predict(inputs()).exits.tolist()
