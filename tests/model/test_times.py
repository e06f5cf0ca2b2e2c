"""Milliseconds as costs: points reprice by who leaves where, chosen by time, and exits fitted by it."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import offramp
from offramp.backbone import CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.errors import BudgetError, InputError
from offramp.exits import LadderExits
from offramp.methods._initialization import create_exits
from offramp.model._compare import check_comparable, on_backbone
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import exit_shares, simulate
from offramp.model._points import thin
from offramp.model._times import reprice
from offramp.policy import OperatingPoint
from tests.cases import each
from tests.model import examples
from tests.model.artifact_examples import FEW, fitted, of_texts, resnet
from tests.model.examples import PREPROCESSING, images
from tests.model.test_frontier import toy_outcomes
from tests.model.timing_examples import FULL_MS, table_for, table_of


@pytest.fixture(scope="module")
def frontier() -> EarlyExitModel:
    return resnet()


def growing(*factors: float) -> Costs:
    """Four stages of 1, and exits of a tenth, times a polynomial of the size."""
    one = torch.ones(4, dtype=torch.float64)
    rows = [(factor * one, 0 * one, 0.1 * factor * one, 0 * one, 4 * factor * one[0]) for factor in factors]
    return Costs(tuple(CostTable(*row, carries_state=False) for row in rows))


def points_at(*levels: float) -> list[OperatingPoint]:
    return [
        OperatingPoint("threshold", {"threshold": torch.tensor(level)}, (0, 1, 3), torch.ones(4)) for level in levels
    ]


class TestWhoLeavesWhere:
    def test_counted_sample_by_sample(self) -> None:
        seen = replace(toy_outcomes(), sizes=torch.randint(1, 9, (400,)).float())
        exits = simulate(points_at(0.5, 0.8), seen)
        found = exit_shares(exits, seen, powers=3)
        assert found.shape == (2, 3, 4)
        for row in range(2):
            for power in range(3):
                for exit in range(4):
                    leavers = [sample for sample in range(400) if exits[row, sample] == exit]
                    expected = sum(float(seen.sizes[sample]) ** power for sample in leavers) / 400
                    assert float(found[row, power, exit]) == pytest.approx(expected)
        assert found[:, 0].sum(-1).tolist() == pytest.approx([1, 1])

    @each("factors", [(1.0,), (2.0, 0.5, 0.25)])
    def test_what_is_known_prices_points_as_samples_do(self, factors: tuple[float, ...]) -> None:
        seen = replace(toy_outcomes(), sizes=torch.randint(1, 9, (400,)).float())
        kept = thin(points_at(0.3, 0.6, 0.9), seen, growing(*factors))
        again = reprice(kept, growing(*factors))
        costs = {point.tune_metrics["cost"] for point in kept}
        assert again
        assert all(min(abs(point.tune_metrics["cost"] - cost) for cost in costs) < 1e-9 for point in again)
        # Another table: as if it had been there from the beginning.
        other = growing(*(3 * factor + 1 for factor in factors))
        expected = [point.tune_metrics["cost"] for point in thin(kept, seen, other)]
        for point in reprice(kept, other):
            assert min(abs(point.tune_metrics["cost"] - cost) for cost in expected) < 1e-9

    def test_sizes_that_nobody_counted_are_not_guessed(self) -> None:
        kept = thin(points_at(0.3, 0.6), toy_outcomes(), growing(1.0))
        with pytest.raises(InputError, match=r"sizes where costs depend on them.*fit again"):
            reprice(kept, growing(1.0, 1.0))
        with pytest.raises(InputError, match="fit again"):
            reprice(points_at(0.5), growing(1.0))


def test_points_are_priced_and_sorted_by_the_new_price() -> None:
    shares = torch.tensor([[[1.0, 0, 0, 0]], [[0, 1.0, 0, 0]], [[0, 0, 0, 1.0]], [[0.5, 0.5, 0, 0]]]).double()
    points = [
        replace(point, leaving=leaving, tune_metrics={"cost": 9.0, "accuracy": accuracy})
        for point, leaving, accuracy in zip(points_at(0.1, 0.2, 0.3, 0.4), shares, (0.5, 0.7, 0.9, 0.8), strict=True)
    ]
    found = reprice(points, growing(1.0))
    # By hand: 1.1, 2.2, 4.3 and 1.65 of 4.
    assert [point.tune_metrics["accuracy"] for point in found] == [0.5, 0.8, 0.7, 0.9]
    assert [point.tune_metrics["cost"] for point in found] == pytest.approx([1.1 / 4, 1.65 / 4, 2.2 / 4, 4.3 / 4])


class TestTimed:
    def test_costs_are_shares_of_the_full_networks_time(self, frontier: EarlyExitModel) -> None:
        timed = frontier.with_latency(table_of(frontier))
        assert timed.unit.full_ms == pytest.approx(FULL_MS)
        for policy, points in timed.points.items():
            decision = {"threshold": 0.02, "gates": 0.2, "stopping": 0.15}[policy]
            assert [point.tune_metrics["cost"] for point in points] == sorted(
                point.tune_metrics["cost"] for point in points
            )
            for point in points:
                assert point.leaving is not None
                early = point.active[:-1]
                spent = [0.2]  # to start
                for stage in range(3):
                    carried = 0.04 if any(stage <= exit for exit in early) or stage == 2 else 0.0
                    answered = 0.1 - 0.04 if stage in point.active else 0.0
                    decided = decision if stage in early else 0.03 * (stage == 2)
                    spent.append(spent[-1] + stage + 1 + 0.05 + carried + answered + decided)
                expected = sum(float(share) * ms for share, ms in zip(point.leaving[0], spent[1:], strict=True))
                assert point.tune_metrics["cost"] * FULL_MS == pytest.approx(expected)

    def test_choose_by_milliseconds(self, frontier: EarlyExitModel) -> None:
        timed = frontier.with_latency(table_of(frontier))
        points = timed.points[timed.policy]
        for asked in (points[0].tune_metrics["cost"] * FULL_MS + 1e-9, 4.0, 6.0, 100.0):
            chosen = timed.at(latency_ms=asked).point.tune_metrics
            assert chosen["cost"] * FULL_MS <= asked
            affordable = [one.tune_metrics["accuracy"] for one in points if one.tune_metrics["cost"] * FULL_MS <= asked]
            assert chosen["accuracy"] == max(affordable)
        assert timed.at(cost=0.5).point.tune_metrics == timed.at(latency_ms=0.5 * FULL_MS).point.tune_metrics

    def test_what_predict_says_is_time(self, frontier: EarlyExitModel) -> None:
        network = frontier.with_latency(table_of(frontier)).at(latency_ms=5.0)
        answer = network.predict(images(20, seed=3)[0])
        (table,) = table_of(frontier).costs(frontier.exits, policy=network.point.policy).tables
        spent = table.cumulative_costs(network.point.active)[answer.exits]
        assert (answer.relative_cost * FULL_MS).tolist() == pytest.approx(spent.tolist())

    def test_it_prints_milliseconds(self, frontier: EarlyExitModel) -> None:
        assert " ms " in str(frontier.with_latency(table_of(frontier)).frontier)
        assert " ms " not in str(frontier.frontier)

    def test_texts_are_timed_by_their_lengths(self) -> None:
        frontier = of_texts()
        small, large = (
            table_of(frontier, size=size, full=(FULL_MS * size,), stage=((size,),) * frontier.backbone.num_exits)
            for size in (2.0, 8.0)
        )
        timed = frontier.with_latency(replace(large, others=(small,)))
        leaving = timed.points["threshold"][0].leaving
        assert leaving is not None
        assert timed.unit.full_ms == pytest.approx(FULL_MS * float(leaving[1].sum()))  # ten a token

    @each("wish", [{"latency_ms": 2.0}, {"latency_ms": 2.0, "policy": "gates"}])
    def test_a_frontier_without_times_says_what_to_do(self, frontier: EarlyExitModel, wish: dict[str, Any]) -> None:
        with pytest.raises(InputError, match=r"measured times.*with_latency\(.*measure_latency"):
            frontier.at(**wish)

    def test_wishes_that_cannot_be_met(self, frontier: EarlyExitModel) -> None:
        timed = frontier.with_latency(table_of(frontier))
        with pytest.raises(
            BudgetError, match=r"expected 1\.\d* ms or more, the cost of the cheapest point, got 0\.1 ms"
        ):
            timed.at(latency_ms=0.1)
        with pytest.raises(InputError, match=r"expected latency_ms as a number, .*got str '2'"):
            timed.at(latency_ms="2")  # type: ignore[arg-type]
        for wrong in (0.0, -1.0, float("nan"), float("inf")):
            with pytest.raises(InputError, match="milliseconds above 0"):
                timed.at(latency_ms=wrong)
        with pytest.raises(InputError, match="expected one of cost"):
            timed.at(latency_ms=1.0, cost=0.5)

    @each("wish", ["latency_ms", "cost"])
    def test_what_is_told_to_ask_for_is_enough(self, frontier: EarlyExitModel, wish: str) -> None:
        def asking(value: float) -> dict[str, Any]:
            return {wish: value}

        for full_ms in (FULL_MS, 7.77, 3.21):
            timed = frontier.with_latency(table_of(frontier, full=(full_ms,)))
            with pytest.raises(BudgetError) as caught:
                timed.at(**asking(1e-4))
            (told,) = re.findall(r"expected ([\d.]+)", str(caught.value))
            cheapest = timed.points[timed.policy][0].tune_metrics["cost"] * (full_ms if wish == "latency_ms" else 1)
            assert float(told) == pytest.approx(cheapest, rel=1.1e-3)
            timed.at(**asking(float(told)))

    def test_a_path_is_no_table(self, frontier: EarlyExitModel) -> None:
        with pytest.raises(InputError, match=r"got str 'latency.json'.*LatencyTable\.load\(path\)"):
            frontier.with_latency("latency.json")  # type: ignore[arg-type]

    def test_tables_of_other_networks(self, frontier: EarlyExitModel) -> None:
        with pytest.raises(InputError, match="latency table of 'cifar-resnet-8' with 3 stages, got one of 'other'"):
            frontier.with_latency(table_of(frontier, network="other"))
        with pytest.raises(InputError, match="with 3 stages, got one of 'cifar-resnet-8' with 2"):
            frontier.with_latency(table_of(frontier).with_stages((0, 2), frontier.backbone.name))

    def test_tables_of_the_same_network_cut_elsewhere(self, frontier: EarlyExitModel) -> None:
        blocks = list(frontier.backbone.stages)
        whole = nn.Sequential(*blocks)
        cut = Backbone(
            frontier.backbone.name, [nn.Identity(), nn.Identity(), whole], {2: frontier.backbone.heads["2"]}, 3
        )
        with pytest.raises(InputError, match=r"another network of that name, with \(0, 0, 7\d*\) weights"):
            frontier.with_latency(table_for(cut, frontier.exits))

    def test_tables_of_other_exits(self, frontier: EarlyExitModel) -> None:
        exits = frontier.exits
        assert isinstance(exits, LadderExits)
        for other, told in (
            (
                LadderExits(exits.widths, exits.stages, 3, width=exits.width + 1),
                f"LadderExits of width {exits.width + 1} ",
            ),
            (LadderExits(exits.widths, exits.stages, 4, width=exits.width), "for 4 classes"),
            (LadderExits((7, 7, 7), exits.stages, 3, width=exits.width), r"got \(7, 7, 7\)"),
        ):
            with pytest.raises(InputError, match=f"{told}.*measure this network and these exits"):
                frontier.with_latency(table_for(frontier.backbone, other))

    def test_it_knows_what_the_times_are_those_of(self, frontier: EarlyExitModel) -> None:
        assert frontier.with_latency(table_of(frontier, backend="onnx")).provenance["latency"] == {
            "backend": "onnx",
            "machine": "an abacus",
            "threads": 1,
            "torch": "2.0",
        }


class TestFit:
    def test_by_time(self) -> None:
        backbone = examples.backbone()
        exits = create_exits((512, 1024, 512), (2,), 3, settings=FEW)
        table = table_for(backbone, exits)
        found = fitted(backbone, preprocessing=PREPROCESSING, cost=offramp.CostOptions(table))
        assert found.unit.full_ms == pytest.approx(FULL_MS)
        assert found.provenance["latency"]["backend"] == "eager"
        expected = table.costs(found.exits, policy="gates").tables[0]
        assert torch.equal(found.costs["gates"].tables[0].cumulative_costs(), expected.cumulative_costs())
        # The same points, at the same prices, as by time from the beginning.
        for policy, points in found.with_latency(table).points.items():
            costs = [point.tune_metrics["cost"] for point in found.points[policy]]
            for point in points:
                assert min(abs(point.tune_metrics["cost"] - cost) for cost in costs) < 1e-9

    def test_of_a_cascade_that_loses_a_network(self) -> None:
        torch.manual_seed(1)
        backbone = cascade(CifarResNet(8, num_classes=3), examples.backbone(), name="both")
        exits = create_exits((512, 1024, 512) * 2, (2, 5), 3, settings=FEW)
        dear = table_for(backbone, exits, stage=((50.0,),) * 3 + ((3.0,),) * 3)
        found = fitted(backbone, preprocessing=PREPROCESSING, cost=offramp.CostOptions(dear))
        assert found.backbone.num_exits == 3  # a first network of 150 ms before one of 9 is not worth it
        assert found.unit.full_ms == pytest.approx(FULL_MS)
        assert found.costs["threshold"].tables[0].stage.tolist() == pytest.approx([3.25, 3.05, 3.05])

    def test_tables_of_other_networks(self) -> None:
        backbone = examples.backbone()
        table = table_for(backbone, create_exits((512, 1024, 512), (2,), 3, settings=FEW))
        with pytest.raises(
            InputError, match=r"with 2 stages, got one of 'cifar-resnet-8' with 3.*keep_exits\(backbone, .*=2\)"
        ):
            fitted(
                backbone,
                preprocessing=PREPROCESSING,
                cost=offramp.CostOptions(table),
                fitting=offramp.FittingOptions(max_exits=2),
            )
        with pytest.raises(InputError, match=r"LinearExits for 3 classes, got .*, LadderExits"):
            fitted(backbone, preprocessing=PREPROCESSING, cost=offramp.CostOptions(table), settings=examples.LINEAR)


def test_times_and_mul_adds_are_not_compared(frontier: EarlyExitModel) -> None:
    timed = frontier.with_latency(table_of(frontier))
    with pytest.raises(InputError, match="costs in one unit"):
        check_comparable(frontier, timed)
    updated = on_backbone(timed, frontier.backbone, images(1, seed=0)[0])
    assert updated.costs == timed.costs
    assert on_backbone(timed, frontier.backbone, None).costs == timed.costs  # nothing is counted
