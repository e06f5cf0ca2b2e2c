"""The check of the full network against guessing: against scipy's exact test, and at the edges."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import offramp
from offramp.errors import GuessingError, GuessingWarning, InputError
from offramp.features import ArraySource, StoreSource, extract
from offramp.methods import METHODS, FittedExits
from offramp.model._guessing import check_not_guessing
from tests.cases import each
from tests.model.examples import LINEAR, PREPROCESSING, backbone, images


def passes(labels: torch.Tensor, predictions: torch.Tensor) -> bool:
    try:
        check_not_guessing(labels, predictions, split="tune")
    except GuessingError:
        return False
    return True


@each("num_classes", [2, 3, 77, 1000])
def test_as_clopper_and_pearson_say(num_classes: int) -> None:
    draw = np.random.default_rng(num_classes)
    found = []
    for _ in range(60):
        count = int(draw.integers(2, 2000))
        labels = torch.from_numpy(draw.integers(0, num_classes, count))
        right = torch.from_numpy(draw.random(count) < draw.choice([0.5 / num_classes, 1.3 / num_classes, 0.6]))
        predictions = torch.where(right, labels, (labels + 1) % num_classes)
        frequency = int(torch.bincount(labels).max())
        if frequency == count:
            continue
        hits = int(right.sum())
        test = binomtest(hits, count, frequency / count, alternative="greater")
        if abs(test.pvalue - 0.05) < 1e-9:
            continue
        bound = test.proportion_ci(0.95, method="exact").low
        assert (test.pvalue <= 0.05) == (bound >= frequency / count)
        found.append(passes(labels, predictions))
        assert found[-1] == (test.pvalue <= 0.05)
    assert {*found} == {True, False}


def test_a_network_that_guesses_passes_one_time_in_twenty_at_most() -> None:
    draw = np.random.default_rng(0)
    passed = 0
    for _ in range(1000):
        labels = torch.from_numpy(np.r_[np.zeros(100, np.int64), draw.integers(1, 3, 100)])
        passed += passes(labels, torch.from_numpy(np.where(draw.random(200) < 0.5, labels.numpy(), 3)))
    assert passed / 1000 < 0.05 + 3 * (0.05 * 0.95 / 1000) ** 0.5


class TestMessages:
    def told(self, labels: list[int], predictions: list[int], classes: tuple[str, ...] = ()) -> str:
        with pytest.raises(GuessingError) as caught:
            check_not_guessing(torch.tensor(labels), torch.tensor(predictions), split="tune", classes=classes)
        return str(caught.value)

    def test_what_to_check(self) -> None:
        labels = [0, 1, 2] * 40
        told = self.told(labels, [(label + 1) % 3 for label in labels], ("pin", "card", "fee"))
        assert "right on 0 of 120 samples (0.0 %), and class 'pin' alone is 33.3 %" in told
        assert "order of the network's outputs (pin, card, fee)" in told
        assert told.endswith("anyway=True")

    def test_one_class_alone(self) -> None:
        assert "samples of several classes" in self.told([4] * 500, [4] * 500)

    def test_one_row(self) -> None:
        assert "samples of several classes" in self.told([1], [1])

    def test_too_few_to_tell(self) -> None:
        # Half of either class: 0.5 ** 5 is the first power below 0.05.
        assert "Give at least 5" in self.told([0, 1], [0, 1])
        assert "Give at least 5" in self.told([0, 1, 0, 1], [0, 1, 0, 1])
        check_not_guessing(torch.tensor([0, 1] * 3), torch.tensor([0, 1] * 3), split="tune")

    def test_none(self) -> None:
        with pytest.raises(InputError, match="at least one sample"):
            check_not_guessing(torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.long), split="tune")

    def test_going_on_warns(self) -> None:
        with pytest.warns(GuessingWarning, match="no better than guessing"):
            check_not_guessing(torch.tensor([0, 1]), torch.tensor([1, 0]), split="tune", anyway=True)


def never(fit: Any, tune: Any, costs: Any, settings: Any = None) -> FittedExits:
    """A method that is not to be reached."""
    pytest.fail("fitted")


class TestWhereItStops:
    """Labels in another order than the network's: right answers, wrong names."""

    def data(self, count: int, seed: int) -> tuple[object, object]:
        inputs, labels = images(count, seed=seed)
        return PREPROCESSING(inputs), (labels + 1) % 3

    def test_fit(self) -> None:
        with pytest.raises(GuessingError, match="validation split"):
            offramp.fit(backbone(), self.data(60, 1), self.data(120, 2), method=never, settings=LINEAR, progress=False)

    def test_estimate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(METHODS._entries, "default", never)
        with pytest.raises(GuessingError, match="estimate split"):
            offramp.estimate(backbone(), self.data(120, 1), settings=LINEAR, progress=False)

    def test_evaluate_and_anyway(self, tmp_path: Path) -> None:
        data = self.data(60, 1), self.data(120, 2)
        with pytest.warns(GuessingWarning, match="validation split"):
            frontier = offramp.fit(backbone(), *data, settings=LINEAR, anyway=True, progress=False)
        store = extract(frontier.backbone, ArraySource(*self.data(120, 3), name="test"), tmp_path, progress=False)
        features, points = StoreSource(store, pooling="rich"), frontier.points["threshold"][:1]
        with pytest.raises(GuessingError, match="order"):
            frontier.evaluate(features, points=points)
        with pytest.warns(GuessingWarning):
            frontier.evaluate(features, points=points, anyway=True)
