"""Exits that pay for themselves and exits that do not."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from offramp.backbone._backbone import Backbone
from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.features._batch import MemorySource
from offramp.methods._settings import ExitKind, JointSettings
from offramp.model import fit_features
from offramp.model._frontier import Contribution, area
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate
from offramp.model._points import LEVELS, paying_exits, thin
from offramp.policy._observation import top_two_margin
from offramp.policy._threshold import threshold_candidates
from tests.cases import each
from tests.model.cascade_examples import assert_answers, cached, check_predictions, fit, pair, vectors

STRENGTHS = (0.3, 0.6, 1.0, 1.6)
STAGES = (0.04, 0.04, 1.0, 1.0, 1.0, 1.0)
"""Costs of the stages; the first two together are below 0.1 of all, the smallest budget that counts."""


def answers(strengths: tuple[float | None, ...], *, count: int = 1500) -> Outcomes:
    """Calibrated exits that get better, as far as their strength says; at None, one that is sure of anything."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (count,), generator=draw)
    ease = 3 * torch.rand(count, generator=draw)
    probabilities = []
    for strength in strengths:
        scale = 0 * ease if strength is None else strength * ease
        noise = torch.randn(count, 3, generator=draw)
        logits = 8 * noise if strength is None else scale[:, None] * (scale[:, None] * torch.eye(3)[labels] + noise)
        probabilities.append(logits.softmax(1))
    seen = torch.stack(probabilities, dim=1)[None]
    confidence, predictions = seen.max(-1)
    return Outcomes(
        num_classes=3,
        labels=labels,
        sizes=torch.ones(count),
        full=predictions[0, :, -1],
        predictions=predictions,
        confidence=confidence,
        margin=top_two_margin(seen),
        conformal_scores=1 - confidence,
        evidence=torch.zeros(1, count, len(strengths), 4),
    )


def costs(stage: tuple[float, ...], answer: float = 0.0) -> Costs:
    stages = torch.tensor(stage, dtype=torch.float64)
    zero = torch.zeros_like(stages)
    table = CostTable(stages, zero, torch.full_like(stages, answer), zero, full=stages.sum(), carries_state=False)
    return Costs((table,))


def paying(
    seen: Outcomes, *, stages: tuple[float, ...] = STAGES, answer: float = 0.0, needed: tuple[int, ...] = ()
) -> tuple[tuple[int, ...], list[Contribution]]:
    exits = seen.predictions.shape[-1]
    return paying_exits(seen, torch.ones(1, exits), 0, costs(stages[:exits], answer), needed=needed)


def worth(seen: Outcomes, active: tuple[int, ...]) -> float:
    exits = seen.predictions.shape[-1]
    points = threshold_candidates(seen.confidence[0], torch.ones(exits), 0, active=active, levels=LEVELS)
    return area(thin(points, seen, costs(STAGES[:exits])))


class TestExits:
    def test_those_that_bring_something_are_kept(self) -> None:
        active, found = paying(answers(STRENGTHS), stages=(1.0,) * 4)
        assert active == (0, 1, 2, 3)
        assert [one.name for one in found] == ["0", "1", "2"]
        assert all(one.gain > 0 and one.kept for one in found)

    @each("place", [0, 1, 2, 3])
    def test_one_that_answers_at_random_is_dropped(self, place: int) -> None:
        strengths = (*STRENGTHS[:place], None, *STRENGTHS[place:])
        active, found = paying(answers(strengths))
        assert place not in active
        assert active[-1] == 4
        assert found[place].gain < 0
        assert [one.kept for one in found] == [exit in active for exit in range(4)]

    def test_one_that_only_repeats_another_is_dropped(self) -> None:
        seen = answers((0.6, 0.6, 1.6))
        for name in ("predictions", "confidence"):
            getattr(seen, name)[..., 1] = getattr(seen, name)[..., 0]
        active, found = paying(seen, stages=(1.0, 0.2, 3.0), answer=0.05)
        assert active == (0, 2)
        assert found[0].kept
        assert not found[1].kept
        assert found[1].gain < 0

    def test_the_gain_is_the_area_with_it_minus_without_it(self) -> None:
        seen = answers(STRENGTHS)
        for exit, one in enumerate(paying(seen)[1]):
            without = tuple(other for other in range(4) if other != exit)
            assert one.gain == pytest.approx(worth(seen, (0, 1, 2, 3)) - worth(seen, without))

    def test_dropping_several_never_lowers_the_area(self) -> None:
        seen = answers((None, 0.6, None, 1.0, None, 1.6))
        active, found = paying(seen)
        assert not {0, 2, 4} & {*active}
        assert worth(seen, active) > worth(seen, tuple(range(6)))
        assert {int(one.name) for one in found if one.kept} == {*active} - {5}

    def test_what_is_needed_is_never_dropped(self) -> None:
        seen = answers((0.3, None, 1.0, None, 1.6))
        assert {1, 3}.isdisjoint(paying(seen)[0])
        active, found = paying(seen, needed=(1,))
        assert 1 in active
        assert 3 not in active
        assert found[1].gain < 0
        assert found[1].kept

    def test_all_but_the_final_one_may_go(self) -> None:
        active, found = paying(answers((None, None, 2.0)), stages=(5.0, 0.0, 0.0))
        assert active == (2,)
        assert [one.kept for one in found] == [False, False]

    def test_the_final_one_stays_whatever_it_brings(self) -> None:
        assert paying(answers((2.0, None)), stages=(1.0, 1.0))[0] == (0, 1)


def clusters(name: str, count: int, *, silent: int) -> MemorySource:
    """Features of four stages that tell the class, but for one that is the same for all samples."""
    draw = torch.Generator().manual_seed(len(name))
    labels = torch.randint(3, (count,), generator=draw)
    features = [torch.eye(3)[labels].repeat(1, 4) + torch.randn(count, 12, generator=draw) for _ in range(4)]
    features[silent] = torch.ones(count, 12)
    own = 4 * torch.eye(3)[labels] + torch.randn(count, 3, generator=draw)
    ids = torch.arange(count) + 10_000 * len(name)
    return MemorySource(torch.cat(features, dim=1), {3: own}, labels, (12,) * 4, ids=ids)


@each("exits", ["linear", "cumulative"])
def test_an_exit_that_sees_nothing_new_is_not_in_force(exits: ExitKind) -> None:
    torch.manual_seed(0)
    stages: list[nn.Module] = [nn.Sequential(nn.Linear(12, 300), nn.Linear(300, 12)) for _ in range(4)]
    backbone = Backbone("four", stages, {3: nn.Linear(12, 3)}, num_classes=3)
    settings = JointSettings(exits=exits, cost_weights=(0.1, 1.0), warmup_epochs=6, epochs=1, batch_size=50)
    sources = [clusters(name, 400, silent=1) for name in ("fit", "tune", "calibrate")]
    frontier = fit_features(backbone, *sources, example=torch.zeros(1, 12), settings=settings)
    assert [one.name for one in frontier.contributions] == ["0", "1", "2"]
    assert [one.kept for one in frontier.contributions] == [True, False, True]
    assert all(point.active == (0, 2, 3) for point in frontier.points["threshold"])
    assert {point.active for point in frontier.points["gates"]} <= {(0, 2, 3), (0, 1, 2, 3)}
    assert "exits dropped because they do not raise accuracy: 1\n" in str(frontier.frontier)


@pytest.fixture(scope="module")
def together() -> EarlyExitModel:
    """A fit whose second network averages with the first."""
    frontier = fit(pair())
    assert frontier.exits.averaging.read == {1}
    return frontier


class TestAveraging:
    def test_the_head_that_is_read_is_in_force_at_every_point(self, together: EarlyExitModel) -> None:
        assert all(1 in point.active for points in together.points.values() for point in points)
        exits = together.contributions[-4:]
        kept = {int(one.name) for one in exits if one.kept}
        assert all({*point.active} == {*kept, 4} for point in together.points["threshold"])

    def test_predictions_are_the_simulated_ones(self, together: EarlyExitModel, tmp_path: Path) -> None:
        check_predictions(together, vectors(200, seed=7), tmp_path, costs=(0.1, 0.3, 0.6, 1.2))

    @each("active", [(2, 4), (0, 4), (4,)])
    def test_the_head_that_is_read_is_asked_and_paid_where_a_point_leaves_it_out(
        self, together: EarlyExitModel, active: tuple[int, ...], tmp_path: Path
    ) -> None:
        inputs, labels = data = vectors(120, seed=8)
        seen = compute_outcomes(together.exits, cached(together, data, tmp_path), together.temperatures)
        chosen = together.at(cost=0.5, policy="threshold")
        alone = replace(chosen, chosen=replace(chosen.point, active=active))
        answer = alone.predict(inputs)
        assert torch.equal(answer.exits, simulate([alone.point], seen)[0])
        assert_answers(answer, seen, 0, torch.tensor(labels), torch.ones(120, dtype=torch.bool))
        table = together.costs["threshold"].tables[0]
        torch.testing.assert_close(answer.relative_cost, table.spent(answer.exits, active) / table.full)
        assert table.stage[1] == 24 * 24 + 24 * 3  # the layer, and the head after it
        assert table.answer[1] == 0
