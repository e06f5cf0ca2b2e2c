"""The number of samples per step, and invalid settings."""

from dataclasses import replace
from typing import Any

import pytest

from offramp.errors import InputError
from offramp.methods._joint import EpochRecord, fit_joint
from offramp.methods._settings import DEFAULT, PAPER, JointSettings
from tests.cases import each, refuses
from tests.methods.test_joint import COSTS, QUICK, noisy_clusters


class TestSamplesAStep:
    @each(
        ("samples", "expected"),
        [
            (1, 32),
            (100, 32),
            (1279, 32),
            (1280, 32),
            (1320, 33),
            (4000, 100),
            (20_479, 511),
            (20_480, 512),
            (10**6, 512),
        ],
    )
    def test_few_samples_make_small_steps(self, samples: int, expected: int) -> None:
        assert (DEFAULT.least_steps, DEFAULT.batch_size) == (40, 512)
        assert DEFAULT.samples_per_step(samples) == expected

    @each("samples", [1, 255, 256, 10**6])
    def test_the_papers_do_not_change(self, samples: int) -> None:
        assert PAPER.samples_per_step(samples) == PAPER.batch_size or samples < PAPER.batch_size
        assert -(-samples // PAPER.samples_per_step(samples)) == -(-samples // PAPER.batch_size)

    @each("batch_size", [1, 16, 31])
    def test_never_more_than_asked_for(self, batch_size: int) -> None:
        settings = replace(DEFAULT, batch_size=batch_size)
        assert {settings.samples_per_step(samples) for samples in (1, 50, 10**5)} == {batch_size}

    @each("samples", [1280, 1999, 5000, 20_480])
    def test_as_many_steps_as_asked_for(self, samples: int) -> None:
        assert samples // DEFAULT.samples_per_step(samples) >= DEFAULT.least_steps

    @each(("least_steps", "size"), [(1, 200), (4, 50), (5, 40), (100, 32)])
    def test_a_fit_takes_them(self, least_steps: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        source = noisy_clusters(200)
        asked = []
        shuffled = type(source).shuffled

        def watched(self: Any, **options: Any) -> Any:
            asked.append(options["batch_size"])
            return shuffled(self, **options)

        monkeypatch.setattr(type(source), "shuffled", watched)
        epochs: list[EpochRecord] = []
        settings = replace(QUICK, batch_size=512, least_steps=least_steps)
        fit_joint(source, noisy_clusters(90, seed=1), COSTS, settings, on_epoch=epochs.append)
        assert asked == [size] * len(epochs)


@each(
    "wrong",
    [
        {"least_steps": 0},
        {"batch_size": 0},
        {"patience": 0},
        {"switch_every": 0},
        {"epochs": -1},
        {"distillation": 1.5},
    ],
)
def test_counts_that_are_none(wrong: dict[str, int]) -> None:
    with refuses(InputError, problem=next(iter(wrong)), got=str(next(iter(wrong.values())))):
        JointSettings(**wrong)  # type: ignore[arg-type]


def test_presets() -> None:
    assert PAPER == JointSettings()
    assert PAPER.least_steps == 1
    assert DEFAULT.exits == "ladder"


def test_a_ladder_without_numbers_is_refused() -> None:
    with refuses(InputError, problem="ladder_width", got="0"):
        JointSettings(ladder_width=0)
