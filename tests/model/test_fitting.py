"""Prediction sets by class, from the calibrate split to the answers of a network that was saved."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import offramp
from offramp.data import as_source, open_data
from offramp.errors import ArtifactError, InputError, SplitError, UnknownNameError
from offramp.features import ArraySource, StoreSource, extract, split_by_id
from offramp.model import fit_features
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import compute_outcomes, simulate
from offramp.report._answers import answers_at, coverages
from offramp.uncertainty._conformal import class_thresholds
from tests.artifact_examples import assert_same
from tests.cases import each, refuses
from tests.model.examples import LINEAR, PREPROCESSING, backbone, images

Calibrated = tuple[EarlyExitModel, StoreSource]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    network, (inputs, labels) = backbone(), images(360, seed=1)
    store = extract(
        network,
        ArraySource(inputs, labels, name="all"),
        tmp_path_factory.mktemp("store"),
        views=(PREPROCESSING,),
        progress=False,
    )
    fit, tune, calibrate = (
        StoreSource(store, pooling="rich", rows=rows) for rows in split_by_id(store.ids(), [160, 80, 120])
    )
    frontier = fit_features(
        network,
        fit,
        tune,
        calibrate,
        example=PREPROCESSING(inputs[:1]),
        preprocessing=PREPROCESSING,
        settings=LINEAR,
        calibration=offramp.CalibrationOptions(sets_by_class=True),
    )
    return frontier, calibrate


def test_thresholds_by_class_are_those_of_the_calibrate_split(calibrated: Calibrated) -> None:
    frontier, calibrate = calibrated
    seen = compute_outcomes(frontier.exits, calibrate, frontier.temperatures)
    for points in frontier.points.values():
        some = points[::5]
        for point, left in zip(some, simulate(some, seen), strict=True):
            for miscoverage, found in point.conformal_thresholds.items():
                scores = seen.conformal_scores[point.classifier]
                expected = class_thresholds("pooled", scores, left, seen.labels, num_classes=3, miscoverage=miscoverage)
                assert found.shape == (backbone().num_exits, 3)
                assert torch.equal(found, expected)


def test_sets_by_class_are_kept(calibrated: Calibrated, tmp_path: Path) -> None:
    frontier, _ = calibrated
    inputs, labels = images(300, seed=6)
    frontier.save(tmp_path / "saved")
    assert_same(frontier, offramp.load(tmp_path / "saved", backbone=frontier.backbone), inputs)
    answer = frontier.at(cost=0.7).predict(inputs)
    for label in range(3):
        own = torch.from_numpy(labels) == label
        assert answer.prediction_sets[0.1][own, torch.from_numpy(labels)[own]].double().mean() > 0.8


def test_reports_count_sets_by_class(calibrated: Calibrated) -> None:
    frontier, calibrate = calibrated
    seen = compute_outcomes(frontier.exits, calibrate, frontier.temperatures)
    point = frontier.points["threshold"][0]
    given = answers_at(point, seen, seed=0)
    found = {one.miscoverage: one.coverage for one in coverages(given, point.conformal_thresholds)}
    for miscoverage, thresholds in point.conformal_thresholds.items():
        inside = [
            bool(score <= thresholds[exit, label])
            for score, exit, label in zip(given.scores, given.exits, given.labels, strict=True)
        ]
        assert found[miscoverage] == sum(inside) / len(inside)
    everything = replace(point, conformal_thresholds={0.1: torch.ones(backbone().num_exits, 3)})
    assert coverages(given, everything.conformal_thresholds)[0].coverage == 1


NAMES = ("red", "green", "blue")  # in the order of the outputs, not sorted


def named_backbone() -> offramp.Backbone:
    network = backbone()
    network.classes = NAMES
    return network


def called(data: tuple[Any, Any]) -> tuple[Any, Any]:
    return data[0], [NAMES[label] for label in data[1]]


@pytest.fixture(scope="module")
def named() -> EarlyExitModel:
    """Fitted on names of classes, which the network knows."""
    data = (called(images(100, seed=seed)) for seed in (1, 2))
    return offramp.fit(named_backbone(), *data, preprocessing=PREPROCESSING, settings=LINEAR, progress=False)


class TestClasses:
    def test_names_are_the_networks(self, named: EarlyExitModel) -> None:
        inputs, labels = images(60, seed=3)
        answer = named.at(cost=1.0).predict(inputs)
        assert named.classes == NAMES
        assert answer.names == tuple(NAMES[label] for label in answer.labels)
        assert (answer.labels.numpy() == labels).mean() > 0.6

    def test_as_by_numbers(self, named: EarlyExitModel) -> None:
        data = (images(100, seed=seed) for seed in (1, 2))
        numbers = offramp.fit(backbone(), *data, preprocessing=PREPROCESSING, settings=LINEAR, progress=False)
        assert numbers.classes == ()
        assert numbers.at(cost=1.0).predict(images(4, seed=3)[0]).names == ()
        assert [one.tune_metrics for one in numbers.points["threshold"]] == [
            one.tune_metrics for one in named.points["threshold"]
        ]

    def test_they_are_kept(self, named: EarlyExitModel, tmp_path: Path) -> None:
        named.save(tmp_path, weights=True)
        loaded = offramp.load(tmp_path)
        assert loaded.classes == loaded.backbone.classes == NAMES

    def test_another_network_of_the_same_weights_is_refused(self, named: EarlyExitModel, tmp_path: Path) -> None:
        named.save(tmp_path)
        other = backbone()
        other.classes = ("green", "red", "blue")
        with pytest.raises(ArtifactError, match="class 0 is 'green' there"):
            offramp.load(tmp_path, backbone=other)
        assert offramp.load(tmp_path, backbone=backbone()).classes == NAMES

    @each("kind", [np.array, tuple, lambda names: np.array(names, dtype=object)])
    def test_names_in_any_form(self, kind: Any) -> None:
        assert as_source((np.zeros((2, 1)), kind(["blue", "red"])), "x", NAMES).read(0, 2).labels.tolist() == [
            2,
            0,
        ]

    def test_refused_with_what_to_do(self) -> None:
        inputs, labels = called(images(60, seed=1))
        validation = images(60, seed=2)
        with pytest.raises(InputError, match=r"pass classes="):
            offramp.fit(backbone(), (inputs, labels), validation)
        with pytest.raises(UnknownNameError, match="did you mean 'green'"):
            offramp.fit(named_backbone(), (inputs, [*labels[:-1], "greens"]), validation)
        with pytest.raises(InputError, match=r"first difference is class 0; leave classes out"):
            offramp.fit(named_backbone(), (inputs, labels), validation, classes=("blue", "green", "red"))
        with pytest.raises(InputError, match="backbone"):
            offramp.estimate(backbone(), (inputs, labels))

    def test_data_opened_in_another_order_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").write_text("a,b,label\n" + "".join(f"{n},{n},{name}\n" for n, name in enumerate(NAMES)))
        data = open_data(tmp_path / "rows.csv")
        assert data.classes == tuple(sorted(NAMES))
        with pytest.raises(InputError, match=r"classes=backbone.classes"):
            offramp.fit(named_backbone(), data, images(60, seed=2))
        assert as_source(open_data(tmp_path / "rows.csv", classes=NAMES), "train", NAMES) is not None


class TestDatasets:
    """Labelled data of other libraries."""

    @each("kind", ["dataset", "loader", "huggingface"])
    def test_give_the_rows_of_arrays(self, kind: str) -> None:
        inputs, labels = images(20, seed=1)
        data: Any = TensorDataset(torch.from_numpy(inputs), torch.from_numpy(labels))
        if kind == "loader":
            data = DataLoader(data, batch_size=7, shuffle=True)
        elif kind == "huggingface":
            features = datasets.Features(
                {"x": datasets.Array3D((32, 32, 3), "uint8"), "label": datasets.Value("string")}
            )
            columns = {"x": inputs.tolist(), "label": [NAMES[label] for label in labels.tolist()]}
            data = datasets.Dataset.from_dict(columns, features=features)
        rows, expected = (as_source(held, "x", NAMES).read(3, 20) for held in (data, (inputs, labels)))
        np.testing.assert_array_equal(np.asarray(rows.inputs), expected.inputs)
        assert rows.labels.tolist() == expected.labels.tolist()
        assert rows.ids.tolist() == expected.ids.tolist()

    def test_are_fitted(self) -> None:
        options: dict[str, Any] = {"preprocessing": PREPROCESSING, "settings": LINEAR, "anyway": True}
        arrays = images(120, seed=1), images(60, seed=2)
        pairs = [TensorDataset(*map(torch.from_numpy, pair)) for pair in arrays]
        found, expected = (offramp.fit(backbone(), *data, **options, progress=False) for data in (pairs, arrays))
        for policy, points in expected.points.items():
            assert [point.tune_metrics for point in found.points[policy]] == [point.tune_metrics for point in points]
        with pytest.raises(SplitError, match="the same samples"):
            offramp.fit(backbone(), pairs[0], arrays[0], **options)

    @each("store", ["s3://bucket/features", Path("s3://bucket/features")])
    def test_their_features_are_kept_in_a_folder(self, store: str | Path) -> None:
        with refuses(InputError, problem="store", expected="a folder", got=f"'{store}'"):
            offramp.fit(named_backbone(), images(60, seed=1), images(40, seed=2), store=store, anyway=True)

    def test_without_labels_are_refused(self) -> None:
        data = datasets.Dataset.from_dict({"text": ["a"], "kind": ["red"]})
        with pytest.raises(InputError, match=r"train has no labels.*open_data\(data, label="):
            offramp.fit(named_backbone(), data, images(60, seed=2))
        with pytest.raises(InputError, match="train: expected labelled data"):
            offramp.fit(named_backbone(), [1, 2], images(60, seed=2))
