import torch

from offramp.model._frontier import area
from offramp.model._outcomes import simulate
from offramp.model._points import thin
from offramp_bench.rivals.eenet import BETWEEN, BUDGETS
from tests.model.candidates.examples import CLASSES, EXITS, answers, candidates, costs, seen, tuning


def test_budgets_are_met_on_tune() -> None:
    tune = seen(*answers(1000))
    points = candidates("eenet", tuning(tune))
    assert len(points) == BETWEEN * (BUDGETS - 1) + 1
    spent = costs().of(tune.sizes).relative_cost(simulate(points, tune))
    budgets = torch.linspace(0.2, 1, len(points), dtype=torch.float64)
    # Shares are learned, and a few samples' scores are alike.
    assert (spent - budgets).abs().max() < 0.1


def test_scores_tell_right_from_wrong() -> None:
    # An exit that is right about some classes only: confidence does not know, weights on classes do.
    logits, labels = answers(2000)
    weak = labels < CLASSES // 2
    logits[weak, :-1] = logits[weak, :-1].roll(1, dims=-1)
    tune = seen(logits, labels)
    by_scores = thin(candidates("eenet", tuning(tune)), tune, costs())
    by_confidence = thin(candidates("exit_thresholds", tuning(tune)), tune, costs())
    assert EXITS > 2
    assert area(by_scores) > area(by_confidence) + 0.01
