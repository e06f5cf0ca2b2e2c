"""Requests as JSON: inputs in the form that a model takes, and settings that are checked."""

import base64
from dataclasses import replace
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import offramp
from offramp.errors import InputError
from offramp.preprocessing import Preprocessing
from offramp.serve._requests import (
    Limits,
    Settings,
    check_sets,
    describe_answer,
    describe_point,
    read_inputs,
    read_settings,
)
from tests.cases import each
from tests.model.examples import LINEAR, PREPROCESSING, backbone, images

LIMITS = Limits(samples=3, characters=10, pixels=2100, deadline_ms=1000)


@cache
def model() -> offramp.EarlyExitModel:
    data = images(200, seed=1), images(120, seed=2)
    fitted = offramp.fit(backbone(), *data, preprocessing=PREPROCESSING, settings=LINEAR, progress=False)
    return fitted.at(max_drop=0.5, policy="threshold")


def text_model() -> offramp.EarlyExitModel:
    return replace(model(), preprocessing=Preprocessing((("tokenize", {}),)))


def encode(array: Any, kind: str = "PNG") -> str:
    file = BytesIO()
    Image.fromarray(array).save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


class TestInputs:
    def test_texts(self) -> None:
        assert read_inputs(["one", b"zwei \xc3\xa4"], text_model(), LIMITS) == ["one", "zwei ä"]

    def test_images_as_base64_and_as_pixels(self) -> None:
        pixels = images(2, seed=3)[0]
        from_files = read_inputs([encode(image) for image in pixels], model(), LIMITS)
        from_lists = read_inputs(pixels.tolist(), model(), LIMITS)
        expected = model().predict(pixels)
        for inputs in (from_files, from_lists):
            assert torch.equal(model().predict(inputs).probabilities, expected.probabilities)

    def test_arrays_for_a_network_without_preprocessing(self) -> None:
        bare = replace(model(), preprocessing=Preprocessing())
        inputs = read_inputs([[0.5, 1.5], [2.5, 3.5]], bare, LIMITS)
        assert inputs.dtype == np.float32
        assert inputs.tolist() == [[0.5, 1.5], [2.5, 3.5]]
        assert read_inputs([[3, 4]], bare, LIMITS).dtype == np.float32  # 3.0 and 4.0, as some clients write them

    @each(
        "values",
        [
            None,
            "one text",
            {},
            [],
            ["a"] * 4,
            ["eleven char"],
            [None],
            [b"\xff\xff"],
        ],
    )
    def test_wrong_texts_are_refused(self, values: Any) -> None:
        with pytest.raises(InputError):
            read_inputs(values, text_model(), LIMITS)

    @each(
        "values",
        [
            ["not base64!"],
            [base64.b64encode(b"no image").decode()],
            [encode(np.zeros((50, 43, 3), np.uint8))],
            [[[0, 1], [2]]],
            [[0, 300]],
            [[0, -1]],
            [[0.5]],
            [["a", "b"]],
            [[None]],
            [{}],
            [[10**30]],
            [[True]],
        ],
    )
    def test_wrong_images_are_refused(self, values: Any) -> None:
        with pytest.raises(InputError):
            read_inputs(values, model(), LIMITS)


class TestSettings:
    def test_are_read(self) -> None:
        given = {"budget": 0.5, "max_drop": None, "sets": 0.05, "deadline_ms": 20}
        assert read_settings(given, LIMITS) == Settings(0.5, None, 0.05, 20.0)

    def test_a_deadline_is_no_later_than_the_servers(self) -> None:
        assert read_settings({}, LIMITS).deadline_ms == 1000
        assert read_settings({"deadline_ms": 5000}, LIMITS).deadline_ms == 1000

    @each(
        "values",
        [
            {"budgt": 1},
            {"budget": "0.5"},
            {"budget": True},
            {"sets": [0.1]},
            {"budget": float("nan")},
            {"max_drop": float("inf")},
            {"budget": 10**400},
        ],
    )
    def test_wrong_ones_are_refused(self, values: dict[str, Any]) -> None:
        with pytest.raises(InputError):
            read_settings(values, LIMITS)

    def test_of_prediction_sets_must_be_calibrated(self) -> None:
        check_sets(Settings(), model().point)
        check_sets(Settings(sets=0.1), model().point)
        with pytest.raises(InputError, match=r"0\.05, 0\.1"):
            check_sets(Settings(sets=0.2), model().point)


class TestAnswers:
    def test_are_plain_values(self) -> None:
        answer = model().predict([*images(2, seed=3)[0], None], on_error="mark")
        first, _, bad = describe_answer(answer, Settings(sets=0.1))
        assert set(first) == {"label", "confidence", "exit", "relative_cost", "prediction_set"}
        assert first["label"] == int(answer.labels[0])
        assert first["prediction_set"] == answer.prediction_sets[0.1][0].nonzero()[:, 0].tolist()
        assert set(bad) == {"error"}
        assert "prediction_set" not in describe_answer(answer, Settings())[0]

    def test_the_point_has_its_guarantee(self) -> None:
        described = describe_point(model().point)
        assert described["guarantee"]["at_most"] == 0.5
        assert "confidence" in described["guarantee"]["claim"]
        assert describe_point(model().at(cost=0.8).point)["guarantee"] is None
