"""Whole runs on every backend: what really runs, beside the full network that would run without exits."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from offramp.cost._unit import CostUnit
from offramp.errors import InputError, MissingExtraError, OfframpWarning
from offramp.model import _backend_times
from offramp.model._backend_times import LESS_PRECISE, NEEDS_FIT, _prepare, measure_backends, without_rare_exits
from offramp.model._model import EarlyExitModel
from offramp.runtime import BACKENDS
from tests.cases import refuses
from tests.model import artifact_examples, cascade_examples
from tests.model.examples import images

pytestmark = pytest.mark.filterwarnings("ignore:.* is slower than float32:offramp.errors.OfframpWarning")

IMAGES = images(6, seed=3)[0]


@cache
def resnet() -> EarlyExitModel:
    return artifact_examples.resnet().at(cost=1.5)


@cache
def pair() -> EarlyExitModel:
    return cascade_examples.fit(cascade_examples.pair()).at(cost=1.5)


def use(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(_backend_times, "_usable_backends", lambda _: list(names))
    monkeypatch.setattr(_backend_times, "SAMPLES", 8)


def hidden_of(model: EarlyExitModel, inputs: Any) -> Any:
    return model.backbone.prepare(model.preprocessing(inputs))


def test_runs_of_every_backend_and_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "eager", "bfloat16")
    table = measure_backends(resnet(), IMAGES, batch_sizes=(1, 4), progress=False)
    own = [run for run in table.runs if run.note != NEEDS_FIT]
    assert [(run.backend, run.batch_size, run.note) for run in own] == [
        ("eager", 1, ""),
        ("bfloat16", 1, LESS_PRECISE),
        ("eager", 4, ""),
        ("bfloat16", 4, LESS_PRECISE),
    ]
    assert all(run.exits == len(resnet().point.active) for run in own)
    assert all(0 < run.least_ms <= run.ms <= run.most_ms and run.full_ms > 0 for run in table.runs)
    assert table.fastest_run is not None
    assert table.fastest_run.backend == table.backend == "eager"
    assert resnet().with_latency(table, batch_size=4).unit.full_ms == table.full_ms(4) / 4


def test_the_full_network_is_the_one_without_exits() -> None:
    hidden = hidden_of(resnet(), IMAGES)
    probabilities, _ = _prepare(resnet(), "eager", hidden).full.run(hidden)
    torch.testing.assert_close(probabilities, resnet().backbone(hidden).softmax(1))


def test_of_a_cascade_it_is_the_last_member() -> None:
    model = pair()
    hidden = hidden_of(model, cascade_examples.vectors(6, seed=3)[0])
    candidate = _prepare(model, "eager", hidden)
    last = getattr(model.backbone, "members", (model.backbone,))[-1]
    probabilities, _ = candidate.full.run(candidate.full_hidden)
    assert candidate.full.backbone.num_exits == 1
    torch.testing.assert_close(probabilities, last(candidate.full_hidden).softmax(1))


@pytest.mark.slow
def test_a_single_graph_is_timed_where_it_runs() -> None:
    hidden = hidden_of(resnet(), IMAGES)
    candidate = _prepare(resnet(), "onnx", hidden)
    assert candidate.note == ""
    assert candidate.model.engine._single is not None
    assert candidate.full._single is not None
    probabilities, _ = candidate.full.run(hidden)
    torch.testing.assert_close(probabilities, resnet().backbone(hidden).softmax(1), rtol=1e-3, atol=1e-4)


def test_a_model_that_was_tuned_on_a_backend_runs_only_on_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend_times, "SAMPLES", 4)
    model = artifact_examples.resnet().with_backend("bfloat16", images(60, seed=2), anyway=True, progress=False)
    table = measure_backends(model.at(cost=1.5), IMAGES, batch_sizes=(2,), progress=False)
    assert {run.backend for run in table.runs} == {"bfloat16"}
    assert table.runs[0].note == ""
    assert table.backend == "bfloat16"


def test_backends_that_are_usable_here(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: dict[str, tuple[str, ...] | None] = {"bfloat16": ()}
    monkeypatch.setattr(_backend_times, "find_missing_instructions", missing.get)
    assert _backend_times._usable_backends(resnet()) == ["eager", "onnx", "bfloat16"]
    missing["bfloat16"] = None  # unknown: it may be slow
    assert _backend_times._usable_backends(resnet()) == ["eager", "onnx"]

    def get(name: str) -> Any:
        raise MissingExtraError(name)

    monkeypatch.setattr(BACKENDS, "get", get)
    assert _backend_times._usable_backends(resnet()) == ["eager"]


def test_a_backend_that_refuses_the_model_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "eager", "refusing")

    def refuse(*_: Any) -> Any:
        raise InputError("too new")

    monkeypatch.setitem(BACKENDS._entries, "refusing", refuse)
    with pytest.warns(OfframpWarning, match="'refusing' was not measured: too new"):
        table = measure_backends(resnet(), IMAGES, batch_sizes=(4,), progress=False)
    assert {run.backend for run in table.runs} == {"eager"}


def test_exits_that_hardly_any_sample_takes() -> None:
    point = resnet().point
    length = len(point.temperatures)
    point = replace(point, active=tuple(range(length)))
    shares = torch.full((1, length), 1 / length)
    assert without_rare_exits(replace(point, leaving=shares)) is None
    assert without_rare_exits(replace(point, leaving=None)) is None
    shares[0, 1] = 0.009
    fewer = without_rare_exits(replace(point, leaving=shares))
    assert fewer is not None
    assert fewer.active == (0, *range(2, length))


def test_calls_are_not_timed() -> None:
    with refuses(InputError, expected="runs on this machine", got="USD"):
        measure_backends(replace(resnet(), unit=CostUnit("USD", 1.0)), IMAGES, progress=False)
