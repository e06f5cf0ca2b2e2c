import pytest
import torch

from lab.tests.rivals.examples import walk
from offramp.policy import Observation
from offramp_bench.rivals.pcee import BINS, NEVER, POLICY, reliability_map
from tests.cases import each
from tests.model.candidates.examples import EXITS, answers, seen, tuning


class TestReliabilityMap:
    def test_is_the_accuracy_of_equal_parts(self) -> None:
        draw = torch.Generator().manual_seed(0)
        confidence = torch.rand(1000, generator=draw)
        correct = torch.rand(1000, generator=draw) < confidence
        start, accuracy = reliability_map(confidence, correct)
        parts = sorted(zip(confidence.tolist(), correct.tolist(), strict=True))
        for place in range(BINS):
            part = parts[50 * place : 50 * (place + 1)]
            assert start[place] == pytest.approx(part[0][0] if place else 0)
            assert accuracy[place] == pytest.approx(sum(right for _, right in part) / 50)

    def test_samples_of_equal_confidence_share_a_bin(self) -> None:
        confidence = torch.tensor([0.5] * 30 + [1.0] * 70)
        correct = torch.arange(100) % 10 < 9
        start, accuracy = reliability_map(confidence, correct, 10)
        assert start.tolist() == [0, 1] + [NEVER] * 8
        assert accuracy.tolist() == pytest.approx([0.9, 0.9] + [0] * 8)

    @each("count", [1, 3, 19])
    def test_of_fewer_samples_than_bins(self, count: int) -> None:
        confidence = torch.linspace(0.5, 0.9, count)
        start, accuracy = reliability_map(confidence, torch.ones(count, dtype=torch.bool))
        assert start.shape == accuracy.shape == (BINS,)
        assert accuracy[start < NEVER].tolist() == [1.0] * count


def test_leaves_by_the_accuracy_of_its_bin() -> None:
    draw = torch.Generator().manual_seed(1)
    confidence = torch.rand(500, generator=draw)
    start, accuracy = reliability_map(confidence, torch.rand(500, generator=draw) < confidence)
    for target in (0.0, 0.3, float(accuracy[7]), 0.9, NEVER):
        here = {"start": start, "accuracy": accuracy, "target": torch.tensor(target)}
        leave, carry = POLICY.step(Observation(confidence), (), here)
        bins = [max(place for place in range(BINS) if start[place] <= sample) for sample in confidence]
        assert leave.tolist() == [bool(accuracy[place] >= target) for place in bins]
        assert carry == ()


@each("active", [tuple(range(EXITS)), (0, EXITS - 1)])
def test_candidates_go_from_the_first_exit_to_the_last(active: tuple[int, ...]) -> None:
    tune = seen(*answers(600))
    points = POLICY.candidates(tuning(tune, active=active))
    exits = walk(POLICY, points, tune)
    assert len(points) <= 514
    assert (exits[0] == active[0]).all()
    assert (exits[-1] == active[-1]).all()
    assert (exits[:-1] <= exits[1:]).all()
    assert len(set(map(tuple, exits.tolist()))) > 10


def test_the_target_is_met_on_tune_where_one_exit_is_early() -> None:
    tune = seen(*answers(2000))
    points = POLICY.candidates(tuning(tune, active=(1, EXITS - 1)))
    for point, exits in zip(points[:-1], walk(POLICY, points[:-1], tune), strict=True):
        if (exits == 1).any():
            assert tune.correct[0, exits == 1, 1].double().mean() >= float(point.parameters["target"])


def test_two_classes_one_sample() -> None:
    logits, labels = torch.tensor([[[2.0, 0.0], [3.0, 0.0]]]), torch.tensor([0])
    tune = seen(logits, labels)
    exits = walk(POLICY, POLICY.candidates(tuning(tune)), tune)
    assert exits.flatten().tolist() == [0, 0, 1]


def test_without_early_exits_all_stay() -> None:
    tune = seen(*answers(20))
    points = POLICY.candidates(tuning(tune, active=(EXITS - 1,)))
    assert (walk(POLICY, points, tune) == EXITS - 1).all()
