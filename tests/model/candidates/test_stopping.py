import numpy as np
import pytest
import torch
from torch import Tensor

from offramp.model._frontier import area
from offramp.model._outcomes import Outcomes, simulate
from offramp.model._points import thin
from offramp.policy._stopping import OFFSETS, PRICES, RIDGE, ridge
from tests.model.candidates.examples import CLASSES, EXITS, answers, by_threshold, candidates, costs, seen, tuning

NO_OFFSET = 12  # of 25


class TestRidge:
    def test_is_least_squares_with_rows_of_belief(self) -> None:
        # A penalty is as good as a row for each number, that says sqrt(RIDGE) of it makes 0.
        draw = torch.Generator().manual_seed(0)
        numbers = torch.cat([torch.ones(200, 1), 3 + 5 * torch.randn(200, 3, generator=draw)], 1).double()
        targets = torch.randn(200, 2, generator=draw).double()
        raw = numbers.numpy()
        mean, deviation = raw[:, 1:].mean(0), raw[:, 1:].std(0)
        rows = np.concatenate([np.ones((200, 1)), (raw[:, 1:] - mean) / deviation], 1)
        belief = np.concatenate([np.zeros((3, 1)), RIDGE**0.5 * np.eye(3)], 1)
        found, *_ = np.linalg.lstsq(np.concatenate([rows, belief]), np.concatenate([targets, np.zeros((3, 2))]))
        expected = np.concatenate([found[:1] - (mean / deviation) @ found[1:], found[1:] / deviation[:, None]])
        np.testing.assert_allclose(ridge(numbers, targets), expected, atol=1e-10)

    def test_what_does_not_vary_says_nothing(self) -> None:
        numbers = torch.tensor([[1.0, 7.0, 0.0], [1.0, 7.0, 1.0]] * 500, dtype=torch.float64)
        found = ridge(numbers, numbers[:, 2:])
        assert found[1].item() == 0
        assert found[[0, 2], 0].tolist() == pytest.approx([0, 1], abs=0.03)


def coins(chances: Tensor, *, seed: int = 0) -> Outcomes:
    """Answers that are right as often as `N x L` chances say: those are the confidences, and nothing else is seen."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.zeros(len(chances), dtype=torch.long)
    right = torch.rand(chances.shape, generator=draw) < chances
    predictions = torch.where(right, 0, 1)[None]
    blind = torch.zeros(1, *chances.shape, 4)
    full, seen = predictions[0, :, -1], chances[None]
    return Outcomes(2, labels, torch.ones(len(labels)), full, predictions, seen, 2 * seen - 1, seen, blind)


class TestStoppingCandidates:
    def test_prices_and_offsets(self) -> None:
        points = candidates("stopping", tuning(seen(*answers(300))))
        assert len(points) == 24 * 25 + 2
        assert [float(PRICES[0]), float(PRICES[-1])] == pytest.approx([0.02, 3.0], rel=0.02)
        assert float(points[NO_OFFSET].parameters["offset"]) == pytest.approx(0, abs=1e-8)
        for point in points:  # the last exit has no advantage to speak of
            assert not point.parameters["weight"][-1].any()

    def test_two_exits_by_hand(self) -> None:
        # The first exit is right with chance .1 or .9 and costs a half, the last always right: at a price of x,
        # whoever has .9 leaves if .9 - x / 2 >= 1 - x, so from x = .2 on, and whoever has .1 from x = 1.8 on.
        chances = torch.tensor([[0.9, 1.0], [0.1, 1.0]]).repeat(2000, 1)
        tune = coins(chances)
        given = tuning(tune, priced=costs(2))
        exits = simulate(candidates("stopping", given)[NO_OFFSET:-2:25], tune)
        for price, row in zip(PRICES.tolist(), exits, strict=True):
            if min(abs(price - 0.2), abs(price - 1.8)) > 0.06:
                assert (row[0::2] == 0).all() == (price >= 0.2)
                assert (row[1::2] == 0).all() == (price >= 1.8)

    def test_looks_more_than_one_exit_ahead(self) -> None:
        # The second exit is no better than the first, the last is certain: going on pays for the sake of the last.
        chances = torch.tensor([0.5, 0.5, 1.0]).repeat(4000, 1)
        tune = coins(chances)
        exits = simulate(candidates("stopping", tuning(tune, priced=costs(3)))[NO_OFFSET:-2:25], tune)
        for price, row in zip(PRICES.tolist(), exits, strict=True):
            if abs(price - 0.75) > 0.1:  # .5 - x / 3 against 1 - x
                assert (row == (0 if price > 0.75 else 2)).double().mean() > 0.9

    def test_larger_offsets_leave_earlier(self) -> None:
        tune = seen(*answers(300))
        exits = simulate(candidates("stopping", tuning(tune))[:-2], tune).view(len(PRICES), len(OFFSETS), -1)
        assert (exits[:, 1:] <= exits[:, :-1]).all()
        assert (exits[:, -1] < exits[:, 0]).any()

    def test_higher_prices_leave_earlier_on_average(self) -> None:
        tune = seen(*answers(600))
        means = simulate(candidates("stopping", tuning(tune))[NO_OFFSET:-2:25], tune).double().mean(1).tolist()
        assert means == sorted(means, reverse=True)

    def test_holds_on_samples_it_has_not_seen(self) -> None:
        tune, test = seen(*answers(1000)), seen(*answers(6000, seed=1))
        given = tuning(tune)
        areas = {}
        for name, points in (
            ("stopping", candidates("stopping", given)),
            ("threshold", by_threshold(tune)),
        ):
            kept = thin(points, tune, costs())
            areas[name] = [area(kept), area(thin(kept, test, costs()))]
        assert abs(areas["stopping"][0] - areas["stopping"][1]) < 0.03
        assert areas["stopping"][1] > areas["threshold"][1] - 0.01

    def test_a_lying_exit_is_found_out(self) -> None:
        # The first exit is sure of itself and wrong: no single threshold can pass it by, a rule for each exit can.
        logits, labels = answers(1500)
        logits[:, 0] = 8 * torch.eye(CLASSES)[(labels + 1) % CLASSES]
        tune = seen(logits, labels)
        given = tuning(tune)
        simple = thin(by_threshold(tune), tune, costs())
        by_stopping = thin(candidates("stopping", given), tune, costs())
        assert EXITS > 2
        assert area(by_stopping) > area(simple) + 0.1
