"""Points tuned on a backend hold for its numbers: they are evaluated on it, and not offered elsewhere."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import offramp
from offramp.errors import InputError
from offramp.model._model import EarlyExitModel
from offramp.monitor._shadow import full_labels
from offramp.runtime._eager import EagerBackend
from offramp.runtime._view import BackendView
from tests.artifact_examples import assert_same
from tests.cases import each, refuses
from tests.model import cascade_examples, text_examples
from tests.model.examples import LINEAR, PREPROCESSING, SMALL, backbone, images

pytestmark = pytest.mark.filterwarnings("ignore:.* is slower than float32:offramp.errors.OfframpWarning")

VALIDATION = images(400, seed=2)


@cache
def fitted() -> EarlyExitModel:
    data = images(200, seed=1), VALIDATION
    by_class = offramp.CalibrationOptions(sets_by_class=True)
    options: dict[str, Any] = {"preprocessing": PREPROCESSING, "settings": SMALL, "calibration": by_class}
    return offramp.fit(backbone(), *data, **options, progress=False)


@cache
def in_int8() -> EarlyExitModel:
    return fitted().with_backend("int8", VALIDATION, progress=False)


def test_tuning_on_the_same_numbers_changes_nothing() -> None:
    again = fitted().with_backend("eager", VALIDATION, progress=False)
    torch.testing.assert_close(again.temperatures, fitted().temperatures)
    assert again.full_accuracy == fitted().full_accuracy
    assert list(again.points) == ["threshold", "stopping"]
    for policy, points in again.points.items():
        before = fitted().points[policy]
        assert [point.tune_metrics for point in points] == [point.tune_metrics for point in before]
        assert [point.active for point in points] == [point.active for point in before]
        for point, other in zip(points, before, strict=True):
            for level, limits in other.conformal_thresholds.items():
                assert torch.equal(point.conformal_thresholds[level], limits)


def test_a_backend_that_computes_other_numbers_is_tuned_for_them() -> None:
    model = in_int8()
    assert not torch.equal(model.temperatures, fitted().temperatures)
    test = images(150, seed=3)
    fast = model.at(cost=0.9)
    answer, measured = fast.predict(test[0]), fast.evaluate(test, progress=False)
    right = np.mean(answer.labels.numpy() == test[1])
    assert measured.rows[0].accuracy == pytest.approx(right, abs=0.01)
    assert measured.rows[0].relative_cost == pytest.approx(float(answer.relative_cost.mean()), rel=0.01)


def test_guarantees_hold_where_they_were_calibrated() -> None:
    fast = in_int8().at(max_drop=0.2, loss="disagreement")
    assert fast.point.guarantee is not None
    with refuses(InputError, got="tuned on the backend 'int8'"):
        fast.on("eager")
    with refuses(InputError, got="tuned on the backend 'int8'"):
        fast.with_backend("eager", VALIDATION, progress=False)
    with pytest.warns(offramp.errors.OfframpWarning, match="nothing is guaranteed"):
        assert fitted().at(cost=0.9).on("bfloat16").at(max_drop=0.2, loss="disagreement").point.guarantee is None
    assert fitted().at(max_drop=0.2, loss="disagreement").on("eager").point.guarantee is not None


def test_its_own_backend_may_be_named() -> None:
    fast = in_int8().at(cost=0.9)
    assert fast.on("int8").backend is fast.backend


def assert_loads_alike(model: EarlyExitModel, folder: Path, inputs: Any, test: Any, **options: Any) -> None:
    """A model tuned on a backend is saved with its guarantee, answers alike when loaded, and is evaluated alike."""
    saved = model.at(max_drop=0.9, confidence=0.8, loss="disagreement")
    saved.save(folder, weights=model.backbone.factory is not None)
    loaded = offramp.load(folder, **options)
    assert model.tuned_on is not None
    assert loaded.tuned_on is not None
    assert loaded.tuned_on.kind == model.tuned_on.kind
    assert loaded.feature_backbone.fingerprint() == model.feature_backbone.fingerprint()
    assert loaded.point.guarantee == saved.point.guarantee is not None
    assert_same(saved, loaded, inputs)
    assert_same(saved, loaded, inputs[:1])
    measured = [made.evaluate(test, anyway=True, progress=False).rows[0] for made in (saved, loaded)]
    assert measured[0] == measured[1]


@each("kind", ["bfloat16", "onnx", "int8"])
def test_images_are_answered_alike_after_loading(kind: str, tmp_path: Path) -> None:
    model = in_int8() if kind == "int8" else fitted().with_backend(kind, VALIDATION, progress=False)
    assert all(limits.ndim == 2 for limits in model.at(cost=0.9).point.conformal_thresholds.values())
    assert_loads_alike(model, tmp_path, images(40, seed=4)[0], images(50, seed=3))


@each("kind", ["bfloat16", "onnx", "int8"])
def test_a_cascade_answers_alike_after_loading(kind: str, tmp_path: Path) -> None:
    pair, vectors = cascade_examples.pair(), cascade_examples.vectors
    validation = vectors(200, seed=2)
    model = offramp.fit(pair, vectors(300, seed=1), validation, settings=cascade_examples.FEW, progress=False)
    tuned = model.with_backend(kind, validation, progress=False)
    test = vectors(60, seed=3)
    assert_loads_alike(tuned, tmp_path, test[0], test, backbone=model.backbone)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*guessing:offramp.errors.OfframpWarning")
@each("kind", ["bfloat16", "onnx", "int8"])
def test_texts_are_answered_alike_after_loading(kind: str, tmp_path: Path) -> None:
    texts, labels = text_examples.sentences(300, seed=8)
    model = text_examples.fitted().with_backend(kind, (list(texts), labels), anyway=True, progress=False)
    test, test_labels = text_examples.sentences(60, seed=9)
    assert_loads_alike(model, tmp_path, text_examples.RAW, (list(test), test_labels))


def test_an_ordinary_artifact_names_no_backend(tmp_path: Path) -> None:
    fitted().at(cost=0.9).on("bfloat16").save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    assert manifest["content"]["backend"] is None
    assert set(manifest["files"]) == {"exits", "points", "splits"}


def test_points_chosen_in_float32_are_not_offered_in_int8() -> None:
    with refuses(InputError, got="int8", hint="with_backend"):
        fitted().on("int8", example=VALIDATION[0][:8])


def test_samples_that_exits_were_fitted_on_are_refused() -> None:
    with pytest.raises(offramp.errors.SplitError):
        fitted().with_backend("eager", images(200, seed=1), progress=False)


def test_samples_that_the_model_was_tuned_on_do_not_calibrate() -> None:
    settings = replace(SMALL, seed=7)  # another split of the validation samples than that of seed 0
    data = images(200, seed=1), VALIDATION
    model = offramp.fit(backbone(), *data, preprocessing=PREPROCESSING, settings=settings, progress=False)
    again = model.with_backend("eager", VALIDATION, progress=False)
    assert not set(again.splits["calibrate"].ranks.tolist()) & set(model.splits["tune"].ranks.tolist())
    assert again.splits["tune"].ranks.tolist() == model.splits["tune"].ranks.tolist()
    new = images(100, seed=5)
    larger = np.concatenate([VALIDATION[0], new[0]]), np.concatenate([VALIDATION[1], new[1]])
    more = model.with_backend("eager", larger, progress=False)
    assert not set(more.splits["calibrate"].ranks.tolist()) & set(model.splits["tune"].ranks.tolist())
    assert len(more.splits["tune"].ranks) == len(more.splits["calibrate"].ranks) == 250


def test_the_full_network_is_that_of_the_backend() -> None:
    model, raw = in_int8(), images(60, seed=6)[0]
    hidden: Any = model.backbone.prepare(model.preprocessing(raw))
    with torch.inference_mode():
        expected = model.feature_backbone(hidden).argmax(1)
    assert torch.equal(full_labels(model, raw, torch.arange(60)), expected)


def test_stores_of_two_precisions_share_a_folder(tmp_path: Path) -> None:
    test = images(50, seed=3)
    plain = fitted().at(cost=0.9).evaluate(test, store=tmp_path, progress=False)
    narrow = in_int8().at(cost=0.9).evaluate(test, store=tmp_path, progress=False)
    assert len(plain.rows) == len(narrow.rows) == 1


def test_one_sample_is_not_enough() -> None:
    one = VALIDATION[0][:1], VALIDATION[1][:1]
    with refuses(InputError, expected="2 samples", got="1"):
        fitted().with_backend("eager", one, progress=False)


def test_gates_would_have_to_be_trained_again() -> None:
    model = offramp.fit(
        backbone(),
        images(200, seed=1),
        VALIDATION,
        preprocessing=PREPROCESSING,
        method="paper",
        settings=LINEAR,
        policies=["gates"],
        progress=False,
    )
    with refuses(InputError, expected="threshold or stopping", got="gates"):
        model.with_backend("eager", VALIDATION, progress=False)


def test_features_of_another_precision_are_not_mistaken_for_these() -> None:
    model = in_int8()
    plain = BackendView(model.backbone, EagerBackend(model.backbone, model.pooling, model.exits), "eager").eval()
    prints = {plain.fingerprint(), model.feature_backbone.fingerprint(), model.backbone.fingerprint()}
    assert len(prints) == 3
    hidden: Any = model.backbone.prepare(model.preprocessing(VALIDATION[0][:4]))
    with torch.inference_mode():
        torch.testing.assert_close(plain(hidden), model.backbone(hidden))
        assert not torch.equal(model.feature_backbone(hidden), model.backbone(hidden))


@pytest.mark.slow
def test_texts_in_int8() -> None:
    data = text_examples.sentences(300, seed=8)
    model = text_examples.fitted()
    with pytest.warns(offramp.errors.OfframpWarning, match="guessing"):
        narrow = model.with_backend("int8", (list(data[0]), data[1]), anyway=True, progress=False)
    test = text_examples.sentences(100, seed=9)
    fast = narrow.at(cost=0.9)
    answer = fast.predict(list(test[0]))
    with pytest.warns(offramp.errors.OfframpWarning, match="guessing"):
        measured = fast.evaluate((list(test[0]), test[1]), anyway=True, progress=False)
    right = np.mean(answer.labels.numpy() == test[1])
    assert measured.rows[0].accuracy == pytest.approx(right, abs=0.03)
    assert measured.rows[0].relative_cost == pytest.approx(float(answer.relative_cost.mean()), rel=0.03)
