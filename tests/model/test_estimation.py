"""Trying exits on few samples: who is scored by what, against direct computation."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.cost._mul_adds import count_mul_adds
from offramp.errors import InputError
from offramp.features import ArraySource, BatchSource
from offramp.methods._settings import JointSettings
from offramp.model import fit_features
from offramp.model._estimation import Estimate, EstimatedPoint, estimate
from offramp.model._model import EarlyExitModel
from tests.cases import each
from tests.model import examples
from tests.model.cascade_examples import network, vectors

SETTINGS = JointSettings(
    exits="ladder",
    classifier_loss="fixed",
    cost_weights=(0.1, 1.0),
    warmup_epochs=1,
    epochs=1,
    scale_rates_by_depth=False,
    ladder_width=8,
)


def pair() -> Any:
    return cascade(network("first", width=8), network("second", width=120, layers=4))


def tried(backbone: Backbone, data: Any, **options: Any) -> Estimate:
    return estimate(backbone, data, settings=SETTINGS, progress=False, **options)


def answers(backbone: Backbone, inputs: Any) -> npt.NDArray[np.int64]:
    with torch.inference_mode():
        found: npt.NDArray[np.int64] = backbone(backbone.prepare(backbone.preprocessing(inputs))).argmax(1).numpy()
    return found


def mul_adds(backbone: Backbone, inputs: npt.NDArray[np.float32]) -> float:
    return float(count_mul_adds(backbone, torch.tensor(inputs[:1]))[0])


class Watched:
    """The parts of every fit, and the rows it was scored on, by their ids."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = import_module("offramp.model._estimation")
        self.fits: list[tuple[str, list[npt.NDArray[np.int64]]]] = []
        self.frontiers: list[EarlyExitModel] = []
        self.scored: list[BatchSource] = []
        score = module._score

        def fit(backbone: Backbone, *parts: BatchSource, **options: Any) -> EarlyExitModel:
            self.fits.append((backbone.name, [part.ids() for part in parts]))
            self.frontiers.append(fit_features(backbone, *parts, **options))
            return self.frontiers[-1]

        def scored(frontier: EarlyExitModel, test: BatchSource) -> Any:
            self.scored.append(test)
            return score(frontier, test)

        monkeypatch.setattr(module, "fit_features", fit)
        monkeypatch.setattr(module, "_score", scored)


class TestFolds:
    @each(("samples", "folds"), [(40, 2), (60, 4), (61, 3), (63, 4), (50, 7)])
    def test_every_sample_is_scored_once_by_a_fit_that_has_not_seen_it(
        self, samples: int, folds: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        watched = Watched(monkeypatch)
        found = tried(network("second", width=16), vectors(samples, seed=1), folds=folds)
        assert found.samples == samples
        assert len(watched.fits) == len(watched.scored) == folds
        tests = [source.ids() for source in watched.scored]
        assert len(np.unique(np.concatenate(tests))) == sum(map(len, tests)) == samples
        assert max(map(len, tests)) - min(map(len, tests)) <= 1
        for (_, parts), test in zip(watched.fits, tests, strict=True):
            everyone = np.concatenate([*parts, test])
            assert len(np.unique(everyone)) == len(everyone) == samples
            fit, tune, calibrate = map(len, parts)
            assert fit > tune >= calibrate >= 1

    def test_by_id_not_by_order(self) -> None:
        # Sorted by class, as data often is: a fold of one class would know nothing of the others.
        inputs, labels = vectors(80, seed=1)
        order = np.argsort(labels, kind="stable")
        found = tried(network("second", width=120, layers=4), (inputs[order], labels[order]))
        assert found.samples == 80
        last = found.curves["second"][-1]
        # A fold of one class, fitted on the others, would never be told right.
        assert last.change > -0.3

    @each("folds", [-1, 0, 1, 61])
    def test_folds_that_are_none(self, folds: int) -> None:
        with pytest.raises(InputError, match=f"folds, at most one per sample, got {folds}"):
            tried(network("second", width=16), vectors(60, seed=1), folds=folds)

    @each("samples", [1, 39])
    def test_too_few_samples(self, samples: int) -> None:
        with pytest.raises(InputError, match=f"expected at least 40 samples to estimate from, .* got {samples}"):
            tried(network("second", width=16), vectors(samples, seed=1))

    def test_what_is_no_backbone(self) -> None:
        with pytest.raises(InputError, match=r"expected a torch module, a backbone"):
            tried(3, vectors(60, seed=1))  # type: ignore[arg-type]


class TestNumbers:
    def test_of_images(self) -> None:
        backbone = examples.backbone()
        backbone.preprocessing = examples.PREPROCESSING
        inputs, labels = examples.images(60, seed=1)
        found = tried(backbone, (inputs, labels))
        assert found.full_accuracy == pytest.approx((answers(backbone, inputs) == labels).mean())
        assert list(found.curves) == ["cifar-resnet-8"]
        assert found.alone == ()
        assert found.num_classes == 3
        self.check_curve(found.curves["cifar-resnet-8"], 60)

    def check_curve(self, points: Sequence[EstimatedPoint], samples: int) -> None:
        assert points
        assert [point.requested_cost for point in points] == sorted(point.requested_cost for point in points)
        for point in points:
            assert 0 < point.cost < 1.5
            assert point.change_interval[0] <= point.change <= point.change_interval[1]
            assert point.change * samples == pytest.approx(round(point.change * samples))

    def test_points_are_those_of_the_fits_on_the_rows_they_have_not_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each fold's network, run on its own rows: right answers and costs add up to the estimate's."""
        watched = Watched(monkeypatch)
        backbone, (inputs, labels) = network("second", width=16, layers=4), vectors(62, seed=1)
        found = tried(backbone, ArraySource(inputs, labels, name="numbered", ids=np.arange(62)), folds=3)
        full = answers(backbone, inputs) == labels
        rows = [source.ids() for source in watched.scored]
        assert sorted(np.concatenate(rows).tolist()) == list(range(62))
        for point in found.curves["second"]:
            gained, spent = 0.0, 0.0
            for frontier, part in zip(watched.frontiers, rows, strict=True):
                answer = frontier.at(cost=point.requested_cost).predict(inputs[part])
                gained += float((answer.labels.numpy() == labels[part]).sum()) - full[part].sum()
                spent += float(answer.relative_cost.sum())
            # Features are stored in half precision: a sample on the very boundary may fall either way.
            assert point.change == pytest.approx(gained / 62, abs=2.5 / 62)
            assert point.cost == pytest.approx(spent / 62, abs=2.5 / 62)

    def test_is_the_same_every_time(self) -> None:
        backbone, data = network("second", width=16, layers=4), vectors(60, seed=1)
        one = tried(backbone, data, folds=2)
        torch.manual_seed(5)
        assert tried(backbone, data, folds=2) == one
        other = estimate(backbone, data, folds=2, settings=replace(SETTINGS, seed=1), progress=False)
        assert other.full_accuracy == pytest.approx(one.full_accuracy)
        assert other != one

    def test_a_store_is_kept_and_used_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        backbone, data = network("second", width=16), vectors(60, seed=1)
        first = tried(backbone, data, store=tmp_path)
        assert list(tmp_path.iterdir())
        monkeypatch.setattr(Backbone, "prepare", counting := Counting(Backbone.prepare))
        assert tried(backbone, data, store=tmp_path) == first == tried(backbone, data)
        assert counting.rows[:4] == [1] * 4  # the example of each fold, and no more


class Counting:
    """A descriptor that records the number of rows of each call of `prepare`."""

    def __init__(self, prepare: Any) -> None:
        self.prepare, self.rows = prepare, list[int]()

    def __get__(self, backbone: Any, kind: Any) -> Any:
        def counted(inputs: Any) -> Any:
            self.rows.append(len(inputs))
            return self.prepare(backbone, inputs)

        return counted


DATA = vectors(80, seed=1)


@pytest.fixture(scope="module")
def found() -> Estimate:
    return tried(pair(), DATA)


class TestCascades:
    def test_the_last_networks_own_exits_and_the_cascades(self, found: Estimate) -> None:
        assert list(found.curves) == ["second", "first+second"]
        for points in found.curves.values():
            TestNumbers().check_curve(points, 80)
        inputs, labels = DATA
        assert found.full_accuracy == pytest.approx((answers(pair().members[-1], inputs) == labels).mean())

    def test_the_last_network_alone_is_as_without_a_cascade(self, found: Estimate) -> None:
        alone = tried(network("second", width=120, layers=4), DATA)
        assert found.curves["second"] == alone.curves["second"]

    def test_the_first_network_by_itself(self, found: Estimate) -> None:
        first, last = pair().members
        inputs, labels = DATA
        right, full = (answers(member, inputs) == labels for member in (first, last))
        assert [name for name, _ in found.alone] == ["first"]
        point = found.alone[0][1]
        assert point.change == pytest.approx(right.mean() - full.mean())
        assert point.cost == point.requested_cost == pytest.approx(mul_adds(first, inputs) / mul_adds(last, inputs))
        assert point.change_interval[0] <= point.change <= point.change_interval[1]
        # Of a mean of 80 paired differences: about twice its standard error on either side.
        error = float(np.std(right.astype(float) - full) / np.sqrt(80))
        assert point.change_interval[1] - point.change_interval[0] == pytest.approx(4 * error, rel=0.35)

    def test_of_three(self) -> None:
        members = [network("first", width=8), network("blind", width=20), network("second", width=120, layers=4)]
        inputs, labels = DATA
        found = tried(cascade(*members), DATA)
        assert list(found.curves) == ["second", "first+blind+second"]
        assert [name for name, _ in found.alone] == ["first", "blind"]
        for member in members[:2]:
            point = dict(found.alone)[member.name]
            assert point.cost == pytest.approx(mul_adds(member, inputs) / mul_adds(members[-1], inputs))
            right, full = (answers(one, inputs) == labels for one in (member, members[-1]))
            assert point.change == pytest.approx(right.mean() - full.mean())


def point(cost: float, change: float, interval: tuple[float, float]) -> EstimatedPoint:
    return EstimatedPoint(requested_cost=cost, cost=cost, change=change, change_interval=interval)


class TestCheapest:
    POINTS = (
        point(0.30, -0.080, (-0.100, -0.060)),
        point(0.50, -0.009, (-0.020, 0.002)),
        point(0.45, -0.004, (-0.011, 0.003)),  # what was asked for is not what came of it
        point(0.60, -0.001, (-0.010, 0.008)),
        point(0.70, 0.002, (-0.001, 0.005)),
        point(1.00, 0.010, (0.000, 0.020)),
        point(1.20, 0.020, (0.010, 0.030)),
    )
    MADE = Estimate(
        samples=1000,
        num_classes=3,
        full_accuracy=0.9,
        curves={"a": POINTS, "none": (), "dear": POINTS[-2:]},
        alone=(),
    )

    @each(
        ("drop", "sure", "expected"),
        [
            (0.01, True, 0.60),
            (0.01, False, 0.45),
            (0.005, True, 0.70),
            (0.005, False, 0.45),
            (0.0, True, None),
            (0.0, False, 0.70),
            (0.02, True, 0.45),
            (0.011, True, 0.45),
            (0.1, True, 0.30),
            (0.1, False, 0.30),
            (-0.001, False, 0.70),
            (-0.01, False, None),
        ],
    )
    def test_the_whole_interval_or_its_middle(self, drop: float, sure: bool, expected: float | None) -> None:
        found = self.MADE.cheapest("a", drop=drop, with_confidence=sure)
        assert (None if found is None else found.cost) == expected

    def test_one_percent_for_sure_unless_told(self) -> None:
        assert self.MADE.cheapest("a") == self.POINTS[3]

    @each("name", ["none", "dear"])
    def test_nothing_where_nothing_is_saved(self, name: str) -> None:
        assert self.MADE.cheapest(name) is None
        assert self.MADE.cheapest(name, with_confidence=False) is None


def test_in_notebooks() -> None:
    curve = (point(0.3, -0.08, (-0.1, -0.06)), point(0.6, -0.001, (-0.01, 0.008)))
    made = Estimate(1000, 3, 0.9, {"<a>": curve}, (("b", point(0.2, -0.02, (-0.03, -0.01))),))
    shown = made._repr_html_()
    assert shown.startswith("<p>1,000 samples; the full network is right on 90.0 %</p>")
    assert shown.count("<tr>") == 4
    assert "<tr><td>exits in &lt;a&gt;</td><td>0.600</td><td>-0.10</td><td>-1.00 to +0.80</td></tr>" in shown
    assert "<tr><td>b by itself</td><td>0.200</td><td>-2.00</td><td>-3.00 to -1.00</td></tr>" in shown
