"""Two networks with exits on the same samples, against counting by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import offramp
from offramp.backbone import CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.errors import InputError
from offramp.features import ArraySource, StoreSource, extract
from offramp.model import compare_models
from offramp.model._compare import on_backbone
from offramp.model._model import EarlyExitModel
from offramp.uncertainty._intervals import paired_interval
from tests.cases import each
from tests.model.examples import PREPROCESSING, SMALL, backbone, images

QUICK = replace(SMALL, warmup_epochs=1)
TEST = images(120, seed=3)


@pytest.fixture(scope="module")
def frontier() -> EarlyExitModel:
    network = backbone()
    network.preprocessing = PREPROCESSING
    return offramp.fit(network, images(90, seed=1), images(60, seed=2), settings=QUICK, anyway=True, progress=False)


@pytest.fixture(scope="module")
def updated() -> Backbone:
    """The same network after a little more training, as it were."""
    network = backbone()
    network.preprocessing = PREPROCESSING
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * parameter.std() * torch.randn_like(parameter) if parameter.numel() > 1 else 0)
    return network


def features(of: EarlyExitModel, folder: Path, rows: slice = slice(None)) -> StoreSource:
    source = ArraySource(TEST[0][rows], TEST[1][rows], name="test")
    views = (of.preprocessing,)
    store = extract(of.backbone, source, folder, views=views, dtype=torch.float32, progress=False)
    return StoreSource(store, pooling="rich")


def test_a_frontier_with_itself(frontier: EarlyExitModel, tmp_path: Path) -> None:
    point, source = frontier.at(cost=0.7).point, features(frontier, tmp_path)
    found = compare_models((replace(frontier, chosen=point), source), (replace(frontier, chosen=point), source))
    assert found.samples == 120
    assert found.accuracies[0] == found.accuracies[1] == frontier.evaluate(source, points=[point]).rows[0].accuracy
    assert (found.gain, found.gain_interval) == (0, paired_interval(0, 0, 120))
    assert (found.cost_ratio, found.cost_ratio_interval) == (1, (1, 1))
    assert (found.agreement, found.newly_wrong) == (1, 0)


def test_two_points_against_the_networks_that_run(frontier: EarlyExitModel, tmp_path: Path) -> None:
    source = features(frontier, tmp_path)
    cheap = frontier.at(cost=0.5, policy="threshold")
    networks = [cheap, replace(cheap, chosen=frontier.points["threshold"][-1])]
    found = compare_models((networks[0], source), (networks[1], source))
    one, other = (network.predict(TEST[0]) for network in networks)
    right, then = ((answer.labels.numpy() == TEST[1]) for answer in (one, other))
    near = 1.5 / 120  # a sample on the very boundary may fall either way
    assert found.accuracies == pytest.approx((right.mean(), then.mean()), abs=near)
    assert found.gain == pytest.approx(then.mean() - right.mean(), abs=near)
    assert found.newly_wrong == pytest.approx((right & ~then).mean(), abs=near)
    assert found.agreement == pytest.approx(float((one.labels == other.labels).double().mean()), abs=near)
    assert list(found.relative_costs) == pytest.approx(
        [float(answer.relative_cost.mean()) for answer in (one, other)], abs=near
    )
    assert found.cost_ratio == pytest.approx(found.relative_costs[1] / found.relative_costs[0])
    lower, upper = found.gain_interval
    assert lower <= found.gain <= upper
    assert found.cost_ratio_interval is not None
    lower, upper = found.cost_ratio_interval
    assert 1 < lower <= found.cost_ratio <= upper


def test_one_sample_is_no_certainty(frontier: EarlyExitModel, tmp_path: Path) -> None:
    point, source = frontier.at(cost=0.7).point, features(frontier, tmp_path, slice(1))
    found = compare_models((replace(frontier, chosen=point), source), (replace(frontier, chosen=point), source))
    assert found.gain_interval == pytest.approx((-0.924, 0.924), abs=1e-3)
    assert found.cost_ratio_interval is None


def test_before_and_after_an_update(frontier: EarlyExitModel, updated: Backbone, tmp_path: Path) -> None:
    after = on_backbone(frontier, updated, TEST[0][:1])
    point = frontier.at(cost=0.7).point
    sources = [features(one, tmp_path / str(index)) for index, one in enumerate((frontier, after))]
    found = compare_models((replace(frontier, chosen=point), sources[0]), (replace(after, chosen=point), sources[1]))
    for one, accuracy in zip((frontier, after), found.full_accuracies, strict=True):
        logits = one.backbone(one.backbone.prepare(PREPROCESSING(TEST[0])))
        assert accuracy == pytest.approx((logits.argmax(1).numpy() == TEST[1]).mean())
    assert after.exits is frontier.exits
    assert {name: len(points) for name, points in after.points.items()} == {
        name: len(points) for name, points in frontier.points.items()
    }
    # Nobody may take the features of one network for those of the other.
    with pytest.raises(InputError, match="expected features of this model's network"):
        compare_models((replace(frontier, chosen=point), sources[1]), (replace(after, chosen=point), sources[0]))


def test_the_seed_is_of_the_intervals_alone(frontier: EarlyExitModel, tmp_path: Path) -> None:
    source = features(frontier, tmp_path)
    sides = [(frontier.at(cost=cost, policy="threshold"), source) for cost in (0.5, 0.9)]
    one, again, other = (compare_models(sides[0], sides[1], seed=seed) for seed in (0, 0, 1))
    assert one == again
    assert replace(other, cost_ratio_interval=one.cost_ratio_interval) == one


def test_other_samples_are_refused(frontier: EarlyExitModel, tmp_path: Path) -> None:
    point = frontier.at(cost=0.7).point
    whole, part = features(frontier, tmp_path / "a"), features(frontier, tmp_path / "b", slice(60))
    with pytest.raises(InputError, match="expected features of the same samples in the same order"):
        compare_models((replace(frontier, chosen=point), whole), (replace(frontier, chosen=point), part))


def test_features_of_another_pooling_are_refused(frontier: EarlyExitModel, tmp_path: Path) -> None:
    point = frontier.at(cost=0.7).point
    source = ArraySource(*TEST, name="test")
    store = extract(frontier.backbone, source, tmp_path, poolings=("mean",), views=(PREPROCESSING,), progress=False)
    narrow = StoreSource(store, pooling="mean")
    with pytest.raises(InputError, match=r"expected features of .* numbers per stage, got .* of another pooling or"):
        compare_models((replace(frontier, chosen=point), narrow), (replace(frontier, chosen=point), narrow))


class TestOnBackbone:
    def test_costs_are_those_of_the_update(self, frontier: EarlyExitModel, updated: Backbone) -> None:
        dearer = backbone()
        dearer.preprocessing = PREPROCESSING
        dearer.declared_mul_adds = {0: 10 * float(frontier.costs["threshold"].tables[0].full)}
        after = on_backbone(frontier, dearer, TEST[0][:1])
        before = frontier.costs["threshold"].tables[0]
        assert float(after.costs["threshold"].tables[0].full) > 9 * float(before.full)
        same = on_backbone(frontier, updated, TEST[0][:1]).costs["threshold"].tables[0]
        assert torch.equal(same.cumulative_costs(), before.cumulative_costs())

    @each("other", [CifarResNet(14, num_classes=3), CifarResNet(8, num_classes=4)])
    def test_another_shape_is_refused(self, frontier: EarlyExitModel, other: Backbone) -> None:
        with pytest.raises(
            InputError, match=r"expected a network of 3 stages and 3 classes .*; fit exits for this network"
        ):
            on_backbone(frontier, other, TEST[0][:1])

    def test_inputs_are_prepared_as_the_update_says(self, frontier: EarlyExitModel, updated: Backbone) -> None:
        other = PREPROCESSING.then("center_crop", size=32)
        changed = backbone()
        changed.preprocessing = other
        assert on_backbone(frontier, changed, TEST[0][:1]).preprocessing == other
        assert on_backbone(frontier, updated, TEST[0][:1]).preprocessing == PREPROCESSING
        # What was fitted with a preparation of its own keeps that.
        apart = replace(frontier, preprocessing=other)
        assert on_backbone(apart, updated, TEST[0][:1]).preprocessing == other

    def test_promises_are_not_passed_on(self, frontier: EarlyExitModel, updated: Backbone) -> None:
        chosen = frontier.at(max_drop=0.5, confidence=0.8).point
        after = on_backbone(replace(frontier, points={chosen.policy: [chosen]}), updated, TEST[0][:1])
        (point,) = after.points[chosen.policy]
        assert chosen.guarantee is not None
        assert point.guarantee is None
        assert point.parameters is chosen.parameters
        with pytest.raises(InputError, match=r"calibrate again \(model\.recalibrate in Python"):
            after.at(max_drop=0.5, confidence=0.8)
        assert frontier.at(max_drop=0.5, confidence=0.8).point.guarantee == chosen.guarantee

    def test_the_frontier_stays_as_it_was(self, frontier: EarlyExitModel, updated: Backbone) -> None:
        before = frontier.backbone.fingerprint()
        assert on_backbone(frontier, updated, TEST[0][:1]).backbone is updated
        assert frontier.backbone.fingerprint() == before
        assert np.isfinite(frontier.full_accuracy)
