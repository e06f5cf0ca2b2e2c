"""From images to a chosen network, and the simulator against the network that really runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import offramp
from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.errors import BudgetError, InputError, SplitError, UnknownNameError
from offramp.features import ArraySource, StoreSource, extract, split_by_id
from offramp.features._store import Store
from offramp.functional import exit_distribution
from offramp.functional._leaving import first_exit, should_leave
from offramp.model import fit_features
from offramp.model._evaluation import measure
from offramp.model._frontier import area
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate
from offramp.model._points import thin
from offramp.policy import POLICIES, OperatingPoint
from offramp.preprocessing import Preprocessing
from offramp.preprocessing._row_hashes import hash_rows
from tests.cases import refuses
from tests.model.examples import LINEAR, PREPROCESSING, SMALL, backbone, images
from tests.policy.examples import drawn


@pytest.fixture(scope="module", params=["ladder", "linear"])
def fitted(request: pytest.FixtureRequest) -> EarlyExitModel:
    settings = SMALL if request.param == "ladder" else LINEAR
    network = backbone()
    return offramp.fit(
        network,
        images(400, seed=1),
        images(300, seed=2),
        preprocessing=PREPROCESSING,
        settings=settings,
        fitting=offramp.FittingOptions(pooling="grid" if request.param == "ladder" else "mean"),
        progress=False,
    )


@pytest.fixture(scope="module")
def test_store(fitted: EarlyExitModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    inputs, labels = images(200, seed=3)
    source = ArraySource(inputs, labels, name="test")
    folder = tmp_path_factory.mktemp("store")
    return extract(
        fitted.backbone,
        source,
        folder,
        poolings=(fitted.pooling.name,),
        views=(PREPROCESSING,),
        dtype=torch.float32,
        progress=False,
    )


def source_of(fitted: EarlyExitModel, store: Store) -> StoreSource:
    return StoreSource(store, pooling=fitted.pooling.name)


def test_points_ascend_in_cost_and_span_the_network(fitted: EarlyExitModel) -> None:
    for policy, points in fitted.points.items():
        costs = [point.tune_metrics["cost"] for point in points]
        assert costs == sorted(costs), policy
        assert costs[0] < 0.45  # everybody leaves at the first of three exits
        assert costs[-1] > 0.99


def test_the_simulator_agrees_with_the_network_that_runs(fitted: EarlyExitModel, test_store: Store) -> None:
    seen = compute_outcomes(fitted.exits, source_of(fitted, test_store), fitted.temperatures)
    inputs, labels = images(200, seed=3)
    for policy in fitted.points:
        for cost in (0.6, 0.8, 0.95):
            network = fitted.at(cost=cost, policy=policy)
            exits = simulate([network.point], seen)[0]
            answer = network.predict(inputs)
            assert (answer.exits != exits).sum() <= 2  # a sample on the very boundary may fall either way
            same = answer.exits == exits
            predicted = seen.predictions[network.point.classifier, torch.arange(200), exits]
            assert torch.equal(answer.labels[same], predicted[same])
            assert torch.allclose(
                answer.relative_cost.mean(),
                fitted.costs[policy].tables[0].relative_cost(answer.exits, network.point.active),
            )
            measured = fitted.evaluate(source_of(fitted, test_store), points=[network.point]).rows[0]
            assert measured.accuracy == pytest.approx(float((answer.labels.numpy() == labels).mean()), abs=0.02)


def test_points_of_every_policy_are_evaluated(fitted: EarlyExitModel, test_store: Store) -> None:
    inputs, labels = images(200, seed=3)
    every = replace(fitted, costs=dict.fromkeys(POLICIES, fitted.costs["threshold"]))
    for policy in POLICIES:
        if "noise" in POLICIES.get(policy).reads:
            continue
        given = {name: value[0] for name, value in drawn(policy, 1, exits=3, classes=3).items()}
        point = OperatingPoint(policy, given, (0, 1, 2), fitted.temperatures[0])
        measured = every.evaluate(source_of(fitted, test_store), points=[point]).rows[0]
        answer = replace(every, chosen=point, points={}).predict(inputs)
        assert measured.accuracy == pytest.approx(float((answer.labels.numpy() == labels).mean()), abs=0.015)


def test_predictions_do_not_depend_on_how_inputs_are_batched(fitted: EarlyExitModel) -> None:
    inputs, _ = images(30, seed=4)
    network = fitted.at(cost=0.7)
    together = network.predict(inputs)
    one_by_one = [network.predict(inputs[row : row + 1]) for row in range(30)]
    assert sum(int(alone.exits[0] != exit) for alone, exit in zip(one_by_one, together.exits, strict=True)) <= 1
    backwards = network.predict(inputs[::-1].copy())
    assert (backwards.exits.flip(0) != together.exits).sum() <= 1


def test_work_for_samples_that_left_is_not_done(fitted: EarlyExitModel) -> None:
    inputs, _ = images(40, seed=5)
    network = fitted.at(cost=0.7)
    sizes: list[int] = []
    hooks = [
        stage.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
        for stage in network.backbone.stages
    ]
    exits = network.predict(inputs).exits
    for hook in hooks:
        hook.remove()
    expected = [int((exits >= stage).sum()) for stage in range(3)]
    assert sizes == [count for count in expected if count]
    assert expected[2] < 40


def test_choose_by_cost_is_the_most_accurate_within_it(fitted: EarlyExitModel) -> None:
    for cost in (0.5, 0.7, 0.9):
        tune_metrics = fitted.at(cost=cost).point.tune_metrics
        affordable = [p.tune_metrics for p in fitted.points[fitted.policy] if p.tune_metrics["cost"] <= cost]
        best = max(one["accuracy"] for one in affordable)
        assert tune_metrics["accuracy"] == best
        assert tune_metrics["cost"] == min(one["cost"] for one in affordable if one["accuracy"] == best)
    for wrong in (0, -0.5, 60, float("nan")):
        with pytest.raises(InputError, match=r"expected cost as a share of the full network's cost, such as 0\.6"):
            fitted.at(cost=wrong)


def test_choose_by_accuracy_is_the_cheapest_that_reaches_it(fitted: EarlyExitModel) -> None:
    points = fitted.points[fitted.policy]
    wanted = points[len(points) // 2].tune_metrics["accuracy"]
    chosen = fitted.at(accuracy=wanted).point.tune_metrics
    assert chosen["accuracy"] >= wanted
    assert all(p.tune_metrics["accuracy"] < wanted for p in points if p.tune_metrics["cost"] < chosen["cost"])


def test_wishes_that_cannot_be_met_say_what_can(fitted: EarlyExitModel) -> None:
    with pytest.raises(BudgetError, match="the cost of the cheapest point"):
        fitted.at(cost=0.01)
    with pytest.raises(BudgetError, match="that a point reaches on the tune split, at most"):
        fitted.at(accuracy=0.9999)
    with refuses(InputError, problem="accuracy", expected="a share"):
        fitted.at(accuracy=93)
    with pytest.raises(InputError, match="got cost and accuracy; pass only one"):
        fitted.at(cost=0.5, accuracy=0.5)
    with pytest.raises(UnknownNameError, match="threshold"):
        fitted.at(cost=0.5, policy="dice")


def test_prediction_sets_hold_the_answer_and_widen_with_coverage(fitted: EarlyExitModel) -> None:
    inputs, labels = images(300, seed=6)
    answer = fitted.at(cost=0.7).predict(inputs)
    tight, wide = answer.prediction_sets[0.1], answer.prediction_sets[0.05]
    assert (wide | ~tight).all()
    rows = torch.arange(300)
    assert wide[rows, torch.from_numpy(labels)].double().mean() > 0.88


def test_an_input_that_is_not_a_number_is_refused_by_its_place(fitted: EarlyExitModel) -> None:
    inputs = PREPROCESSING(images(3, seed=4)[0])
    inputs[1] = torch.nan
    network = replace(fitted.at(cost=0.7), preprocessing=Preprocessing())
    with pytest.raises(InputError, match="input 1"):
        network.predict(inputs)


def test_validation_must_be_enough_to_halve() -> None:
    with pytest.raises(InputError, match="halved"):
        offramp.fit(
            backbone(),
            images(20, seed=1),
            images(1, seed=2),
            preprocessing=PREPROCESSING,
            settings=SMALL,
            progress=False,
        )


def test_an_exit_without_errors_is_not_made_too_sure(fitted: EarlyExitModel) -> None:
    assert (fitted.temperatures >= 0.2).all()


def test_the_frontier_prints_as_a_table(fitted: EarlyExitModel) -> None:
    text = str(fitted.frontier)
    assert fitted.policy in text
    assert len(text.splitlines()) > 8


def test_a_store_that_is_kept_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> EarlyExitModel:
        return offramp.fit(
            network,
            images(100, seed=1),
            images(60, seed=2),
            preprocessing=PREPROCESSING,
            settings=SMALL,
            store=tmp_path,
            progress=False,
        )

    network = backbone()
    first = run()
    for stage in network.stages[1:]:  # costs are counted on one sample; nothing else may run the network again
        stage.register_forward_pre_hook(lambda module, args: pytest.fail("ran again") if len(args[0]) > 1 else None)
    second = run()
    assert [point.tune_metrics for point in first.points["gates"]] == [
        point.tune_metrics for point in second.points["gates"]
    ]


def test_other_data_in_the_same_folder_is_not_taken_for_the_old(tmp_path: Path) -> None:
    network = backbone()
    settings = replace(SMALL, warmup_epochs=1)
    inputs, labels = images(100, seed=1)
    for given in (labels, (labels + 1) % 3):  # the same images under other labels
        frontier = offramp.fit(
            network,
            (inputs, given),
            images(60, seed=2),
            preprocessing=PREPROCESSING,
            settings=settings,
            store=tmp_path,
            progress=False,
        )
        assert frontier.points
    assert len(list(tmp_path.glob("train-*"))) == 2


def test_arrays_in_double_precision_and_without_preprocessing() -> None:
    network = backbone()
    inputs, labels = images(60, seed=1)
    prepared = PREPROCESSING(inputs).double().numpy()
    frontier = offramp.fit(
        network, (prepared[:40], labels[:40]), (prepared[40:], labels[40:]), settings=SMALL, progress=False
    )
    assert frontier.at(cost=1.1).predict(prepared[:3]).labels.shape == (3,)


def test_the_same_arrays_are_not_validation() -> None:
    data = images(40, seed=1)
    with pytest.raises(SplitError, match="train and validation are the same samples"):
        offramp.fit(backbone(), data, data, preprocessing=PREPROCESSING, settings=SMALL, progress=False)


def test_samples_that_were_used_are_known(fitted: EarlyExitModel) -> None:
    """Each split's samples are in its sketch and in no other, in any order and number."""
    assert set(fitted.splits) == set(fitted.provenance["splits"]) == {"fit", "tune", "calibrate"}
    train, validation, test = (hash_rows(images(count, seed=seed)[0]) for count, seed in ((400, 1), (300, 2), (50, 9)))
    known = {
        name: [sketch.contains(ids) for ids in (train, validation, test)] for name, sketch in fitted.splits.items()
    }
    assert known["fit"][0].all()
    assert not known["fit"][1].any()
    assert not known["tune"][0].any()
    np.testing.assert_array_equal(known["tune"][1], ~known["calibrate"][1])
    assert known["tune"][1].sum() == 150
    assert not any(contains[2].any() for contains in known.values())


def test_train_and_validation_must_not_share_samples() -> None:
    data = ArraySource(*images(60, seed=1), name="same")
    with pytest.raises(SplitError):
        offramp.fit(backbone(), data, data, preprocessing=PREPROCESSING, settings=SMALL, progress=False)


def toy_outcomes(num_samples: int = 400, num_exits: int = 4, *, seed: int = 0) -> Outcomes:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (num_samples,), generator=draw)
    right = torch.rand(1, num_samples, num_exits, generator=draw) < torch.linspace(0.5, 0.95, num_exits)
    confidence = torch.rand(1, num_samples, num_exits, generator=draw)
    predictions = torch.where(right, labels[:, None], (labels[:, None] + 1) % 3)
    return Outcomes(
        labels=labels,
        sizes=torch.ones(num_samples),
        full=predictions[0, :, -1],
        predictions=predictions,
        confidence=confidence,
        margin=confidence,
        conformal_scores=1 - confidence,
        evidence=torch.randn(1, num_samples, num_exits, 4, generator=draw),
        num_classes=3,
    )


def costs(num_exits: int = 4) -> Costs:
    zero = torch.zeros(num_exits, dtype=torch.float64)
    stage = torch.ones(num_exits, dtype=torch.float64)
    return Costs((CostTable(stage, zero, zero, zero, full=stage.sum(), carries_state=False),))


def gates_point(
    active: tuple[int, ...], offset: float = 0.0, *, policy: str = "gates", seed: int = 1
) -> OperatingPoint:
    draw = torch.Generator().manual_seed(seed)
    parameters = {
        "weight": torch.randn(4, 4, generator=draw),
        "bias": torch.randn(4, generator=draw) - 1,
        "offset": torch.tensor(offset),
    }
    return OperatingPoint(policy, parameters, active, torch.ones(4))


def test_simulated_gates_follow_the_equations_on_active_exits() -> None:
    seen = toy_outcomes()
    for active in ((0, 1, 2, 3), (1, 3), (3,)):
        point = gates_point(active)
        logits = (seen.evidence[0] * point.parameters["weight"]).sum(-1) + point.parameters["bias"]
        scores = logits.sigmoid()[:, list(active)]
        scores[:, -1] = 1
        expected = torch.tensor(active)[first_exit(should_leave(scores))]
        assert torch.equal(simulate([point], seen)[0], expected)


def test_sampled_gates_leave_as_often_as_the_distribution_says() -> None:
    seen = toy_outcomes(2000)
    point = gates_point((0, 1, 2, 3), policy="sampled_gates")
    exits = torch.stack([simulate([point], seen, seed=seed)[0] for seed in range(20)])
    logits = (seen.evidence[0] * point.parameters["weight"]).sum(-1) + point.parameters["bias"]
    scores = torch.cat([logits.sigmoid()[:, :-1], torch.ones(2000, 1)], dim=1)
    shares = torch.bincount(exits.flatten(), minlength=4) / exits.numel()
    assert torch.allclose(shares, exit_distribution(scores).mean(0), atol=0.01)


def test_points_are_simulated_alike_alone_and_together() -> None:
    seen = toy_outcomes()
    points = [gates_point((0, 1, 2, 3), offset) for offset in (-1.0, 0.0, 1.0)]
    points += [
        gates_point((1, 3)),
        OperatingPoint("threshold", {"threshold": torch.tensor(0.7)}, (0, 3), torch.ones(4)),
    ]
    together = simulate(points, seen)
    for row, point in zip(together, points, strict=True):
        assert torch.equal(simulate([point], seen)[0], row)


def test_larger_offsets_leave_earlier() -> None:
    seen = toy_outcomes()
    exits = simulate([gates_point((0, 1, 2, 3), offset) for offset in (-3.0, 0.0, 3.0)], seen)
    assert (exits[0] >= exits[1]).all()
    assert (exits[1] >= exits[2]).all()


def test_one_sample_is_no_certainty() -> None:
    seen = toy_outcomes(1)
    point = OperatingPoint("threshold", {"threshold": torch.tensor(0.7)}, (0, 1, 2, 3), torch.ones(4))
    found = measure([point], seen, [costs()])[0]
    assert found.accuracy in (0, 1)
    expected = stats.binomtest(int(found.accuracy), 1).proportion_ci(method="wilson")
    assert found.accuracy_interval == pytest.approx(tuple(expected), abs=1e-6)
    assert found.change_interval[1] - found.change_interval[0] > 1
    assert found.cost_interval is None


def test_measured_figures_against_direct_counts() -> None:
    seen = toy_outcomes()
    point = OperatingPoint("threshold", {"threshold": torch.tensor(0.7)}, (0, 1, 2, 3), torch.ones(4))
    found = measure([point], seen, [costs()])[0]
    exits, correct = [], []
    for row in range(400):
        exit = next((e for e in range(3) if seen.confidence[0, row, e] >= 0.7), 3)
        exits.append(exit)
        correct.append(bool(seen.predictions[0, row, exit] == seen.labels[row]))
    full = (seen.predictions[0, :, 3] == seen.labels).double()
    assert found.accuracy == pytest.approx(np.mean(correct))
    assert found.change == pytest.approx(np.mean(correct) - float(full.mean()))
    assert found.relative_cost == pytest.approx(np.mean([(exit + 1) / 4 for exit in exits]))
    assert found.exit_shares == pytest.approx([exits.count(exit) / 400 for exit in range(4)])
    for label in range(3):
        rows = [row for row in range(400) if seen.labels[row] == label]
        assert found.class_accuracy[label] == pytest.approx(np.mean([correct[row] for row in rows]))
        assert found.class_change[label] == pytest.approx(
            np.mean([correct[row] for row in rows]) - float(full[rows].mean())
        )
    expected = stats.binomtest(sum(correct), 400).proportion_ci(method="wilson")
    assert found.accuracy_interval == pytest.approx(tuple(expected), abs=1e-6)
    assert found.cost_interval is not None
    assert found.cost_interval[0] < found.relative_cost < found.cost_interval[1]
    # The paired interval is about the normal one of the paired differences.
    gains = torch.tensor(correct).double() - full
    half = 1.96 * float(gains.std()) / 20
    assert found.change_interval == pytest.approx((found.change - half, found.change + half), abs=0.015)


def test_samples_pay_by_their_size() -> None:
    seen = replace(toy_outcomes(), sizes=1.0 + torch.arange(400) % 9)
    fixed = costs().tables[0]
    grows = Costs((fixed, replace(fixed, stage=torch.tensor([0.0, 1.0, 2.0, 3.0]), full=torch.tensor(6.0))))
    point = OperatingPoint("threshold", {"threshold": torch.tensor(0.7)}, (0, 1, 2, 3), torch.ones(4))
    exits = simulate([point], seen)[0].tolist()
    spent = sum(
        sum(1 + stage * size for stage in range(exit + 1))
        for exit, size in zip(exits, seen.sizes.tolist(), strict=True)
    )
    expected = spent / sum(4 + 6 * size for size in seen.sizes.tolist())
    assert measure([point], seen, [grows])[0].relative_cost == pytest.approx(expected)
    assert thin([point], seen, grows)[0].tune_metrics["cost"] == pytest.approx(expected)
    assert measure([point], seen, [costs()])[0].relative_cost != pytest.approx(expected)


def test_a_class_without_samples_measures_as_not_a_number() -> None:
    seen = toy_outcomes()
    seen = replace(seen, labels=seen.labels.clamp_max(1))
    point = OperatingPoint("threshold", {"threshold": torch.tensor(0.7)}, (0, 1, 2, 3), torch.ones(4))
    assert np.isnan(measure([point], seen, [costs()])[0].class_accuracy[2])


def test_thinning_keeps_the_best_of_each_step_of_cost() -> None:
    seen = toy_outcomes()
    levels = torch.linspace(0, 1.1, 300)
    points = [OperatingPoint("threshold", {"threshold": level}, (0, 1, 2, 3), torch.ones(4)) for level in levels]
    kept = thin(points, seen, costs())
    kept_costs = [point.tune_metrics["cost"] for point in kept]
    assert kept_costs == sorted(kept_costs)
    every = measure(points, seen, [costs()] * len(points))
    assert kept_costs[0] == pytest.approx(min(m.relative_cost for m in every))  # though a little more buys more
    assert kept[0].tune_metrics["accuracy"] < kept[1].tune_metrics["accuracy"]
    assert int(kept_costs[0] / 0.005) == int(kept_costs[1] / 0.005)
    assert len({int(cost / 0.005) for cost in kept_costs[1:]}) == len(kept_costs[1:])
    for point in kept[1:]:
        rivals = [m.accuracy for m in every if int(m.relative_cost / 0.005) == int(point.tune_metrics["cost"] / 0.005)]
        assert point.tune_metrics["accuracy"] == pytest.approx(max(rivals))


def test_the_first_policy_decides(fitted: EarlyExitModel) -> None:
    assert fitted.policy == fitted.at(cost=1.2).point.policy == "threshold"
    other = replace(fitted, points={policy: fitted.points[policy] for policy in ("gates", "threshold")})
    assert other.policy == other.at(cost=1.2).point.policy == "gates"


def test_the_area_prefers_the_higher_curve() -> None:
    def point(cost: float, accuracy: float) -> OperatingPoint:
        return OperatingPoint(
            "threshold",
            {"threshold": torch.tensor(1.0)},
            (3,),
            torch.ones(4),
            tune_metrics={"cost": cost, "accuracy": accuracy},
        )

    low, high = [point(0.05, 0.5), point(0.5, 0.8)], [point(0.05, 0.5), point(0.4, 0.8)]
    assert area(high) > area(low)
    assert area([point(0.05, 0.7)]) == pytest.approx(0.7)


def test_explicit_splits_are_checked(tmp_path: Path) -> None:
    network = backbone()
    inputs, labels = images(60, seed=1)
    store = extract(network, ArraySource(inputs, labels, name="all"), tmp_path, views=(PREPROCESSING,), progress=False)
    first, second, third = split_by_id(store.ids(), [30, 20, 10])
    parts = [StoreSource(store, pooling="rich", rows=rows) for rows in (first, second, third)]
    example = PREPROCESSING(inputs[:1])
    frontier = fit_features(network, *parts, example=example, settings=SMALL)
    assert isinstance(frontier.at(cost=1.1), EarlyExitModel)
    with pytest.raises(SplitError, match="fit"):
        fit_features(network, parts[0], parts[0], parts[2], example=example, settings=SMALL)
