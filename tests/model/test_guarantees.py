"""Losses of points, the point that a guarantee selects, and guarantees that are saved and loaded."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import offramp
from offramp.errors import BudgetError, InputError, UnknownNameError
from offramp.exits import LinearExits
from offramp.features._batch import MemorySource
from offramp.model._guarantees import guarantee, losses_at, with_losses, with_tuned_losses, without_guarantee
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate
from offramp.policy import OperatingPoint
from offramp.policy._point import PointLosses
from offramp.runtime._eager import EagerBackend
from offramp.uncertainty._risk import LOSSES, RiskBound
from tests.cases import each
from tests.model.artifact_examples import resnet
from tests.model.timing_examples import table_of

N, L, K, W = 90, 3, 4, 2
BOUNDS: tuple[RiskBound, ...] = ("ltt", "wsr")


@pytest.fixture(scope="module")
def frontier() -> EarlyExitModel:
    return resnet()


@pytest.fixture(scope="module")
def seen() -> Outcomes:
    torch.manual_seed(0)
    own = {L - 1: 2 * torch.randn(N, K)}
    source = MemorySource(torch.randn(N, 5 * L), own, torch.randint(K, (N,)), (5,) * L)
    return compute_outcomes(
        LinearExits((5,) * L, (0, 1), K, stacked=W), source, torch.rand(W, 1).expand(W, L) + 0.5, probabilities=True
    )


def thresholds(*levels: float, classifier: int = 0) -> list[OperatingPoint]:
    return [
        OperatingPoint("threshold", {"threshold": torch.tensor(level)}, (0, 1, 2), torch.ones(L), classifier)
        for level in levels
    ]


def test_losses_are_those_of_plain_loops(seen: Outcomes) -> None:
    points = [*thresholds(0.0, 0.4, 0.6, 2.0), *thresholds(0.5, classifier=1)]
    found, exits = losses_at(points, seen), simulate(points, seen)
    assert list(found) == ["accuracy", "brier", "disagreement"]
    assert seen.probabilities is not None
    for row, point in enumerate(points):
        for sample in range(N):
            label, left = int(seen.labels[sample]), int(exits[row, sample])
            answer = seen.probabilities[point.classifier, sample, left]
            full = seen.probabilities[0, sample, -1]  # one head of its own: the last exit at its temperature
            right = [int(one.argmax()) == label for one in (full, answer)]
            assert int(found["accuracy"][row, sample]) == right[0] - right[1]
            assert bool(found["disagreement"][row, sample]) == (int(full.argmax()) != int(answer.argmax()))
            truth = torch.eye(K)[label]
            gap = float((answer - truth).square().sum() - (full - truth).square().sum())
            assert gap - 1e-6 <= float(found["brier"][row, sample]) <= gap + 1e-5 + 1e-3 * abs(gap)
    assert not found["accuracy"][3].any()  # nobody leaves early: the full network
    assert {name: rows.dtype for name, rows in found.items()} == {
        "accuracy": torch.int8,
        "brier": torch.float16,
        "disagreement": torch.int8,
    }


def test_brier_gaps_are_rounded_up() -> None:
    from offramp.model._guarantees import _rounded_up

    values = torch.rand(1000, generator=torch.Generator().manual_seed(0)) * 4 - 2
    rounded = _rounded_up(values).float()
    assert bool((rounded >= values).all())
    assert bool((rounded - values <= 2e-3).all())
    assert torch.equal(_rounded_up(torch.tensor([0.0, 0.5, -2.0, 2.0])).float(), torch.tensor([0.0, 0.5, -2.0, 2.0]))


def test_without_labels_there_is_agreement_alone(seen: Outcomes) -> None:
    points = thresholds(0.4)
    assert list(losses_at(points, seen, labelled=False)) == ["disagreement"]
    with pytest.raises(InputError, match=r"expected outcomes with Brier gaps"):
        losses_at(points, replace(seen, brier_gaps=None))


def test_points_know_their_losses_on_both_splits(seen: Outcomes) -> None:
    points = thresholds(0.0, 0.5)
    told = with_losses(with_tuned_losses(points, seen), seen)
    for name, rows in losses_at(points, seen).items():
        for point, row in zip(told, rows, strict=True):
            known = point.losses[name]
            assert sorted(known.samples.tolist()) == sorted(row.tolist())
            assert name != "brier" or known.samples.tolist() != row.tolist()  # shuffled
            assert known.tune_mean == pytest.approx(float(row.double().mean()))
            spread = LOSSES[name].to_unit(row).var(unbiased=False)
            assert known.tune_variance == pytest.approx((N * float(spread) + 0.25) / (N + 1))


def test_without_labels_what_tune_says_stays(seen: Outcomes) -> None:
    points = thresholds(0.0, 0.5)
    both = with_losses(with_tuned_losses(points, seen), seen)
    full = with_losses(both, seen, labelled=False)
    again = with_losses(full, seen)
    for one, between, other in zip(both, full, again, strict=True):
        assert {name: len(known.samples) for name, known in between.losses.items()} == {
            "accuracy": 0,
            "brier": 0,
            "disagreement": N,
        }
        for name, known in one.losses.items():
            _same(known, other.losses[name])
    poor = [replace(point, losses={"disagreement": point.losses["disagreement"]}) for point in both]
    with pytest.raises(InputError, match=r"got none of accuracy, brier; fit again, or calibrate without labels"):
        with_losses(poor, seen)


def made(share: float, cost: float, *, samples: int = 1000, tuned: float | None = None) -> OperatingPoint:
    """A point that fails on a share of its samples."""
    losses = torch.zeros(samples, dtype=torch.int8)
    losses[: round(share * samples)] = 1
    losses = losses[torch.randperm(samples, generator=torch.Generator().manual_seed(0))]
    mean = share if tuned is None else tuned
    known = PointLosses(losses, mean, mean * (1 - mean) + 1e-4)
    point = OperatingPoint("threshold", {"threshold": torch.tensor(cost)}, (0,), torch.ones(1))
    return replace(point, tune_metrics={"cost": cost, "accuracy": 0.9}, losses={"disagreement": known})


def asked(
    points: list[OperatingPoint], max_drop: float, bound: RiskBound = "ltt", confidence: float = 0.95
) -> OperatingPoint:
    return guarantee(points, max_drop=max_drop, confidence=confidence, loss="disagreement", bound=bound)


class TestPromise:
    POINTS: ClassVar = [made(0.1, 0.3), made(0.03, 0.5), made(0.01, 0.7), made(0.0, 0.95)]

    @each("bound", BOUNDS)
    @each(("most", "cost"), [(0.01, 0.95), (0.03, 0.7), (0.06, 0.5), (0.15, 0.3)])
    def test_the_cheapest_that_keeps_it(self, bound: RiskBound, most: float, cost: float) -> None:
        point = asked(self.POINTS, most, bound)
        assert point.tune_metrics["cost"] == cost
        told = point.guarantee
        assert told is not None
        assert (told.loss, told.at_most, told.confidence, told.bound) == ("disagreement", most, 0.95, bound)
        assert told.samples == 1000
        assert told.measured == pytest.approx({0.95: 0.0, 0.7: 0.01, 0.5: 0.03, 0.3: 0.1}[cost])

    @each("points", [[made(0.0, 1.0)], [made(0.3, 0.5), made(0.0, 1.09)]])
    def test_what_costs_as_much_as_the_network_is_not_worth_a_promise(self, points: list[OperatingPoint]) -> None:
        with pytest.raises(BudgetError, match=r"no point cheaper than the full network keeps .*use the full network"):
            asked(points, 0.05)

    def test_an_early_point_that_beats_all_on_tune_does_not_hide_safe_ones(self) -> None:
        # On tune the first point loses nothing and beats every dearer one; on calibrate it fails, and others pass.
        points = [made(0.06, 0.2, tuned=0.0), made(0.01, 0.55, tuned=0.0), made(0.0, 0.95, tuned=0.0)]
        assert asked(points, 0.03).tune_metrics["cost"] == 0.55

    def test_points_that_chose_nothing_promise_nothing(self) -> None:
        assert all(point.guarantee is None for point in self.POINTS)

    def test_less_confidence_is_cheaper(self) -> None:
        costs = [asked(self.POINTS, 0.035, confidence=sure).tune_metrics["cost"] for sure in (0.5, 0.999)]
        assert costs == [0.5, 0.7]

    def test_too_few_samples_tell_how_many_would_do(self) -> None:
        few = [made(0.0, 1.0, samples=100), made(0.0, 0.8, samples=100), made(0.04, 0.5, samples=100)]
        with pytest.raises(
            BudgetError, match=r"^100 calibrate samples are too few.*about (\d+) would suffice.*cost 0\.8"
        ) as told:
            asked(few, 0.01)
        enough = int(str(told.value).split("about ")[1].split()[0].replace(",", ""))
        assert 299 <= enough <= 400  # ln(20) / -ln(.99) = 298.07 are the least
        assert asked([made(0.0, 0.8, samples=enough)], 0.01).guarantee is not None
        with pytest.raises(BudgetError):
            asked([made(0.0, 0.8, samples=298)], 0.01)

    def test_what_no_point_keeps(self) -> None:
        for points in ([made(0.1, 0.3), made(0.1, 0.5, tuned=0.0)], [made(0.3, 0.3)]):
            with pytest.raises(
                BudgetError, match=r"no point .* keeps .* on the 1,000 calibrate samples; the smallest loss was"
            ):
                asked(points, 0.05)

    def test_more_than_there_are_is_told_where_they_are_too_few(self) -> None:
        with pytest.raises(
            BudgetError, match=r"^1,000 calibrate samples are too few.*about [\d,]+ would suffice.*cost 0\.3"
        ) as told:
            asked([made(0.045, 0.3, tuned=0.0)], 0.05)
        assert int(str(told.value).split("about ")[1].split()[0].replace(",", "")) > 1000

    def test_no_number_is_told_where_as_many_should_have_done(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("offramp.model._guarantees.samples_needed", lambda *_, **__: 900)
        with pytest.raises(
            BudgetError, match=r"^1,000 calibrate samples are too few.*how many samples would suffice"
        ) as told:
            asked([made(0.045, 0.3, tuned=0.0)], 0.05)
        assert "900" not in str(told.value)
        assert "2,000" not in str(told.value)

    @each("share", [0.045, 0.3])
    def test_errors_warn_of_asking_again(self, share: float) -> None:
        with pytest.raises(BudgetError, match=r"after seeing which .* not covered by its confidence.*new samples$"):
            asked([made(share, 0.3, tuned=0.0)], 0.05)

    @each("wrong", [0, -0.1, 1, 2.0, float("nan"), "0.1", None])
    def test_numbers_that_are_none(self, wrong: float) -> None:
        with pytest.raises(InputError, match="expected max_drop above 0 and below 1"):
            asked(self.POINTS, wrong)
        with pytest.raises(InputError, match="expected confidence above 0 and below 1"):
            asked(self.POINTS, 0.1, confidence=wrong)

    def test_names_that_are_none(self) -> None:
        with pytest.raises(UnknownNameError, match="unknown loss 'acuracy'; did you mean 'accuracy'"):
            guarantee(self.POINTS, max_drop=0.1, confidence=0.9, loss="acuracy", bound="ltt")
        with pytest.raises(UnknownNameError, match="unknown bound 'hoeffding'"):
            guarantee(self.POINTS, max_drop=0.1, confidence=0.9, loss="brier", bound="hoeffding")  # type: ignore[arg-type]

    def test_what_points_do_not_know(self) -> None:
        with pytest.raises(InputError, match="calibrated without; ask for loss='disagreement'"):
            guarantee(self.POINTS, max_drop=0.1, confidence=0.9, loss="accuracy", bound="ltt")
        older = [replace(point, losses={}) for point in self.POINTS]
        for points in (older, [without_guarantee(point) for point in self.POINTS]):
            with pytest.raises(InputError, match=r"built directly.*calibrate again"):
                asked(points, 0.1)


class TestFrontiers:
    @each("loss", list(LOSSES))
    @each("policy", ["stopping", "threshold", "gates"])
    def test_chosen_for_a_promise(self, frontier: EarlyExitModel, loss: str, policy: str) -> None:
        network = frontier.at(max_drop=0.5, confidence=0.8, loss=loss, policy=policy)
        told = network.point.guarantee
        assert told is not None
        assert (told.loss, told.at_most, told.samples) == (loss, 0.5, 30)
        assert network.point.policy == policy
        assert told.measured < 0.5

    def test_one_wish_at_a_time(self, frontier: EarlyExitModel) -> None:
        with pytest.raises(InputError, match=r"expected one of cost, accuracy, latency_ms and max_drop"):
            frontier.at(max_drop=0.1, cost=0.5)
        assert frontier.at(cost=0.9).point.guarantee is None

    @each("how", [{"confidence": 0.95}, {"loss": "accuracy"}, {"bound": "ltt"}])
    def test_how_to_promise_is_refused_where_nothing_is(self, frontier: EarlyExitModel, how: dict[str, Any]) -> None:
        with pytest.raises(InputError, match=rf"expected {next(iter(how))} with max_drop.*with cost; give max_drop"):
            frontier.at(cost=0.9, **how)

    def test_what_is_left_out_of_a_promise(self, frontier: EarlyExitModel) -> None:
        many = {"threshold": [replace(made(0.0, 0.9), losses={"accuracy": made(0.0, 0.9).losses["disagreement"]})]}
        told = replace(frontier, points=many).at(max_drop=0.1).point.guarantee
        assert told is not None
        assert (told.loss, told.confidence, told.bound) == ("accuracy", 0.95, "ltt")

    @each("backend", ["eager", "bfloat16"])
    def test_promises_are_passed_on_to_the_same_arithmetic_alone(self, frontier: EarlyExitModel, backend: str) -> None:
        network = frontier.at(max_drop=0.5, confidence=0.8)
        found = network.on(backend)
        assert found.point.guarantee == (network.point.guarantee if backend == "eager" else None)
        assert network.point.guarantee is not None
        assert found.on("eager").point.guarantee == found.point.guarantee  # what is gone is not made up again

    def test_backends_that_say_nothing_of_their_arithmetic_get_none(self, frontier: EarlyExitModel) -> None:
        network = frontier.at(max_drop=0.5, confidence=0.8)
        backend = EagerBackend(network.backbone, network.pooling, network.exits)
        assert network.on(backend).point.guarantee is not None
        del backend.exact
        assert network.on(backend).point.guarantee is None

    def test_thirty_samples_are_too_few(self, frontier: EarlyExitModel) -> None:
        with pytest.raises(BudgetError, match=r"^30 calibrate samples are too few.*about [\d,]+ would suffice"):
            frontier.at(max_drop=0.01)

    def test_times_keep_what_was_promised(self, frontier: EarlyExitModel) -> None:
        timed = frontier.with_latency(table_of(frontier))
        assert timed.at(max_drop=0.5, confidence=0.8).point.guarantee is not None

    def test_they_come_back(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        frontier.save(tmp_path)
        loaded = offramp.load(tmp_path, backbone=frontier.backbone)
        for policy, points in frontier.points.items():
            for one, other in zip(points, loaded.points[policy], strict=True):
                assert list(one.losses) == list(other.losses) == sorted(LOSSES)
                for name, known in one.losses.items():
                    _same(known, other.losses[name])
        for loss in LOSSES:
            chosen = [one.at(loss=loss, max_drop=0.5, confidence=0.8).point for one in (frontier, loaded)]
            assert chosen[0].guarantee == chosen[1].guarantee


def _same(one: PointLosses, other: PointLosses) -> None:
    assert one.samples.dtype == other.samples.dtype
    assert torch.equal(one.samples, other.samples)
    assert (one.tune_mean, one.tune_variance) == (other.tune_mean, other.tune_variance)
