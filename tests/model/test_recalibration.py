"""Promises from samples without labels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import offramp
from offramp.data import as_source
from offramp.errors import BudgetError, InputError, SplitError
from offramp.features import ArraySource, StoreSource, extract
from offramp.model._compare import on_backbone
from offramp.model._guarantees import losses_at
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import simulate
from offramp.policy import OperatingPoint
from offramp.uncertainty import conformal_thresholds
from offramp.uncertainty._conformal import class_thresholds
from tests.cases import each
from tests.model.artifact_examples import of_texts, resnet, texts
from tests.model.examples import PREPROCESSING, backbone, images


@pytest.fixture(scope="module")
def frontier() -> EarlyExitModel:
    return resnet()


def features(frontier: EarlyExitModel, folder: Path, count: int = 200) -> StoreSource:
    inputs, labels = images(count, seed=7)
    source = ArraySource(inputs, labels, name="new")
    pooling = frontier.pooling.name
    store = extract(frontier.backbone, source, folder, poolings=(pooling,), views=(PREPROCESSING,), progress=False)
    return StoreSource(store, pooling=pooling)


def calibrated(point: OperatingPoint) -> list[str]:
    return [name for name, known in point.losses.items() if len(known.samples)]


def test_inputs_a_source_and_features_come_to_the_same(frontier: EarlyExitModel, tmp_path: Path) -> None:
    inputs, _ = images(200, seed=7)
    unknown = ArraySource(inputs, np.full(200, 77), name="new")  # labels of no class, which nobody looks at
    cached = features(frontier, tmp_path)
    for data in (inputs, unknown, cached):
        found = frontier.recalibrate(data, progress=False)
        for policy, points in found.points.items():
            asked, seen = frontier.outcomes_at(frontier.points[policy], cached)
            expected = losses_at(asked, seen, labelled=False)["disagreement"]
            for one, before, row in zip(points, frontier.points[policy], expected, strict=True):
                assert calibrated(one) == ["disagreement"]
                assert one.losses["disagreement"].samples.sum() == row.sum()
                assert one.losses["disagreement"].tune_mean == before.losses["disagreement"].tune_mean
                assert one.tune_metrics == before.tune_metrics
                assert one.classifier == before.classifier
        assert found.provenance["recalibrated"]["samples"] == 200


def test_more_samples_promise_what_few_could_not(frontier: EarlyExitModel) -> None:
    with pytest.raises(BudgetError, match="30 calibrate samples are too few"):
        frontier.at(max_drop=0.05, loss="disagreement")
    found = frontier.recalibrate(images(400, seed=8)[0], progress=False)
    network = found.at(max_drop=0.05, loss="disagreement")
    assert network.point.guarantee is not None
    assert network.point.guarantee.samples == 400
    inputs, _ = images(500, seed=9)
    full = frontier.backbone(PREPROCESSING(inputs)).argmax(1)
    assert float((network.predict(inputs).labels != full).double().mean()) < 0.08
    with pytest.raises(InputError, match="calibrated without; ask for loss='disagreement'"):
        found.at(max_drop=0.05)


def test_with_labels_all_losses_are_there(frontier: EarlyExitModel, tmp_path: Path) -> None:
    found = frontier.recalibrate(features(frontier, tmp_path), labelled=True)
    assert found.at(max_drop=0.1).point.guarantee is not None
    arrays = frontier.recalibrate(images(400, seed=11), labelled=True, progress=False)
    assert arrays.at(max_drop=0.1).point.guarantee is not None
    with pytest.raises(InputError, match=r"calibrate: expected labelled data"):
        frontier.recalibrate(images(20, seed=7)[0], labelled=True)


@each("by_class", [False, True])
def test_with_labels_sets_are_of_the_new_samples(frontier: EarlyExitModel, tmp_path: Path, by_class: bool) -> None:
    cached = features(frontier, tmp_path)
    if by_class:
        shape = (frontier.backbone.num_exits, frontier.backbone.num_classes)
        loose = {0.2: torch.ones(shape), 0.3: torch.ones(shape)}
        points = {
            policy: [replace(point, conformal_thresholds=loose) for point in listed]
            for policy, listed in frontier.points.items()
        }
        frontier = replace(frontier, points=points)
    full, found = (frontier.recalibrate(cached, labelled=labelled) for labelled in (False, True))
    for policy, listed in frontier.points.items():
        asked, seen = frontier.outcomes_at(listed, cached)
        for place, (before, same, after) in enumerate(
            zip(listed, full.points[policy], found.points[policy], strict=True)
        ):
            assert same.conformal_thresholds is before.conformal_thresholds
            assert set(after.conformal_thresholds) == set(before.conformal_thresholds)
            left = simulate([asked[place]], seen)[0]
            scores = seen.conformal_scores[asked[place].classifier]
            for level, limits in after.conformal_thresholds.items():
                if by_class:
                    classes = {"num_classes": frontier.backbone.num_classes, "miscoverage": level}
                    expected = class_thresholds("pooled", scores, left, seen.labels, **classes)  # type: ignore[arg-type]
                else:
                    expected = conformal_thresholds("pooled", scores, left, miscoverage=level)
                assert torch.equal(limits, expected)
                rows = torch.arange(len(left))
                held = scores[rows, left] <= (limits[left, seen.labels] if by_class else limits[left])
                assert float(held.double().mean()) >= 1 - level


def test_kept_features_without_labels_are_not_taken_for_some_with(frontier: EarlyExitModel, tmp_path: Path) -> None:
    inputs, labels = images(100, seed=7)
    source = ArraySource(inputs, labels, name="new")
    frontier.recalibrate(source, store=tmp_path, progress=False)
    kept = frontier.recalibrate(source, labelled=True, store=tmp_path, progress=False)
    fresh = frontier.recalibrate(source, labelled=True, progress=False)
    for one, other in zip(kept.points["threshold"], fresh.points["threshold"], strict=True):
        assert torch.equal(one.losses["accuracy"].samples, other.losses["accuracy"].samples)
    assert len(list(tmp_path.iterdir())) == 2


def test_one_sample_is_taken_and_says_little(frontier: EarlyExitModel) -> None:
    one = frontier.recalibrate(images(1, seed=7)[0], progress=False)
    with pytest.raises(BudgetError, match=r"^1 calibrate samples are too few"):
        one.at(max_drop=0.1, loss="disagreement")


def test_no_samples_and_older_artifacts_are_refused(frontier: EarlyExitModel) -> None:
    with pytest.raises(InputError):
        frontier.recalibrate(images(0, seed=7)[0], progress=False)
    older = {policy: [replace(point, losses={}) for point in points] for policy, points in frontier.points.items()}
    with pytest.raises(InputError, match=r"got points without; fit again"):
        replace(frontier, points=older).recalibrate(images(20, seed=7)[0])


def test_texts_and_a_folder_of_them(tmp_path: Path) -> None:
    frontier = of_texts()
    found = frontier.recalibrate(texts(100, seed=5)[0], progress=False)
    found.save(tmp_path)
    loaded = offramp.load(tmp_path, backbone=frontier.backbone)
    for policy, points in found.points.items():
        for one, other in zip(points, loaded.points[policy], strict=True):
            assert calibrated(other) == ["disagreement"]
            assert torch.equal(one.losses["disagreement"].samples, other.losses["disagreement"].samples)
    assert loaded.provenance["recalibrated"]["labelled"] is False


@each("stored", [False, True])
def test_first_without_labels_then_with(frontier: EarlyExitModel, tmp_path: Path, stored: bool) -> None:
    cached = features(frontier, tmp_path / "features")
    full = frontier.recalibrate(cached)
    if stored:
        full.save(tmp_path / "artifact")
        full = offramp.load(tmp_path / "artifact", backbone=frontier.backbone)
    found, expected = (one.recalibrate(cached, labelled=True) for one in (full, frontier))
    for policy, points in expected.points.items():
        for one, other in zip(points, found.points[policy], strict=True):
            assert calibrated(other) == ["accuracy", "brier", "disagreement"]
            for name, known in one.losses.items():
                told = other.losses[name]
                assert torch.equal(known.samples, told.samples)
                assert (known.tune_mean, known.tune_variance) == (told.tune_mean, told.tune_variance)
    assert found.at(max_drop=0.1).point.guarantee == expected.at(max_drop=0.1).point.guarantee


@each("stored", [False, True])
def test_another_network_is_calibrated_anew(frontier: EarlyExitModel, tmp_path: Path, stored: bool) -> None:
    updated = backbone()
    with torch.no_grad():
        for parameter in updated.parameters():
            parameter.mul_(1.01)
    after = on_backbone(frontier, updated, images(1, seed=7)[0])
    if stored:
        after.save(tmp_path / "artifact")
        after = offramp.load(tmp_path / "artifact", backbone=updated)
    assert all(not calibrated(point) for points in after.points.values() for point in points)
    for loss in ("accuracy", "disagreement"):
        with pytest.raises(
            InputError, match=r"moved to another network; fit again, or calibrate again \(model.recalibrate"
        ):
            after.at(max_drop=0.5, confidence=0.8, loss=loss)
    cached = features(after, tmp_path / "features")
    told = after.recalibrate(cached).at(max_drop=0.5, loss="disagreement").point.guarantee
    assert told is not None
    assert told.samples == 200
    assert after.recalibrate(cached, labelled=True).at(max_drop=0.5).point.guarantee is not None


def test_samples_that_made_the_points_are_refused(frontier: EarlyExitModel, tmp_path: Path) -> None:
    for seed, count, name in ((1, 90, "train"), (2, 60, "validation")):
        source = as_source(images(count, seed=seed), name)
        with pytest.raises(
            SplitError, match=r"rows of 'recalibrate' are in '(fit|tune)' too.*give 'recalibrate' other"
        ):
            frontier.recalibrate(source, labelled=True, progress=False)
    cached = features(frontier, tmp_path)
    found = frontier.recalibrate(cached)
    assert found.splits["recalibrate"].contains(cached.ids()).all()
    assert found.recalibrate(cached, labelled=True).points  # their labels have come since
