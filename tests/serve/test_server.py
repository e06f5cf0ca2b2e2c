"""Settings become a model at its point, and a scheduler that is ready."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from offramp.serve._server import ServerSettings, load_model, make_scheduler, prepare_model
from tests.model.examples import images
from tests.serve.examples import model


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    model().save(tmp_path / "shapes", weights=True)
    return ServerSettings(artifact=str(tmp_path / "shapes"), name="shapes", backend="eager")


def test_the_point_is_the_one_saved_or_the_one_named(settings: ServerSettings) -> None:
    assert load_model(settings).point.guarantee == model().point.guarantee
    cost = load_model(replace(settings, point={"cost": 0.9})).point.tune_metrics["cost"]
    assert cost == model().at(cost=0.9).point.tune_metrics["cost"]


def test_a_scheduler_answers_as_predict_does(settings: ServerSettings) -> None:
    settings = replace(settings, batch_size=4, queue=2, deadline_ms=500.0)
    inputs = images(3, seed=3)[0]
    with make_scheduler(prepare_model(load_model(settings), settings), settings) as scheduler:
        assert scheduler.is_running
        assert scheduler.submit(inputs).result().names == model().predict(inputs).names
        assert (scheduler.max_batch, scheduler.max_queue) == (4, 4)
    assert not scheduler.is_running
    assert settings.limits.deadline_ms == 500.0


def test_settings_are_plain_values(settings: ServerSettings) -> None:
    assert ServerSettings(**asdict(settings)) == settings
