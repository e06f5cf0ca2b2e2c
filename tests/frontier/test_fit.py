"""Prediction sets by class, from the calibrate split to the answers of a network that was saved."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import offramp
from offramp.features import ArraySource, StoreSource, extract, split_by_id
from offramp.frontier import Frontier, fit_frontier, outcomes, simulate
from offramp.report.answers import answers_at, coverages
from offramp.uncertainty import class_thresholds, coverage
from tests.artifact_examples import assert_same
from tests.frontier.examples import LINEAR, PREPROCESSING, images, trunk

Calibrated = tuple[Frontier, StoreSource]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    network, (inputs, labels) = trunk(), images(360, seed=1)
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
    frontier = fit_frontier(
        network,
        fit,
        tune,
        calibrate,
        example=PREPROCESSING(inputs[:1]),
        preprocessing=PREPROCESSING,
        settings=LINEAR,
        sets_by_class=True,
    )
    return frontier, calibrate


def test_thresholds_by_class_are_those_of_the_calibrate_split(calibrated: Calibrated) -> None:
    frontier, calibrate = calibrated
    seen = outcomes(frontier.bank, calibrate, frontier.temperatures)
    for points in frontier.points.values():
        for point, left in zip(points, simulate(points, seen), strict=True):
            for miscoverage, found in point.conformal_thresholds.items():
                scores = seen.conformal_scores[point.classifier]
                expected = class_thresholds("pooled", scores, left, seen.labels, num_classes=3, miscoverage=miscoverage)
                assert found.shape == (trunk().num_exits, 3)
                assert torch.equal(found, expected)


def test_sets_by_class_are_kept(calibrated: Calibrated, tmp_path: Path) -> None:
    frontier, _ = calibrated
    inputs, labels = images(300, seed=6)
    offramp.save(frontier, tmp_path / "saved")
    assert_same(frontier, offramp.load(tmp_path / "saved", trunk=frontier.trunk), inputs)
    answer = frontier.choose(cost=0.7).predict(inputs)
    for label in range(3):
        own = torch.from_numpy(labels) == label
        assert coverage(answer.prediction_sets[0.1][own], torch.from_numpy(labels)[own]) > 0.8


def test_reports_count_sets_by_class(calibrated: Calibrated) -> None:
    frontier, calibrate = calibrated
    seen = outcomes(frontier.bank, calibrate, frontier.temperatures)
    point = frontier.points["threshold"][0]
    given = answers_at(point, seen, seed=0)
    found = {one.miscoverage: one.coverage for one in coverages(given, point.conformal_thresholds)}
    for miscoverage, thresholds in point.conformal_thresholds.items():
        inside = [
            bool(score <= thresholds[exit, label])
            for score, exit, label in zip(given.scores, given.exits, given.labels, strict=True)
        ]
        assert found[miscoverage] == sum(inside) / len(inside)
    everything = replace(point, conformal_thresholds={0.1: torch.ones(trunk().num_exits, 3)})
    assert coverages(given, everything.conformal_thresholds)[0].coverage == 1
