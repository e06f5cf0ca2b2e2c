from dataclasses import replace

import numpy as np
import pytest
import torch

from offramp.model._outcomes import compute_outcomes
from offramp.report._answers import (
    Answers,
    answers_at,
    changes_by_class,
    coverages,
    exit_uses,
    leavers,
    reliability,
)
from offramp.uncertainty import calibration_error
from tests.cases import each
from tests.report.examples import at, drawn, toy


def given_by(threshold: float = 0.8, *, samples: int = 200) -> tuple[Answers, torch.Tensor]:
    """Answers of a drawn example, and its logits."""
    logits, labels = drawn(samples, 4, 3)
    frontier, source = toy(logits, labels)
    seen = compute_outcomes(frontier.exits, source, frontier.temperatures)
    return answers_at(at(frontier, threshold), seen, seed=0), logits


def test_answers_are_those_of_the_first_confident_exit() -> None:
    given, logits = given_by()
    for row in range(len(logits)):
        probabilities = logits[row].softmax(-1)
        confident = (probabilities.amax(-1) >= 0.8).tolist()
        exit = confident.index(True) if any(confident[:-1]) else 3
        assert given.exits[row] == exit
        assert given.predictions[row] == logits[row, exit].argmax()
        assert given.confidence[row].item() == pytest.approx(probabilities[exit].max().item(), abs=1e-5)
        assert given.full_correct[row] == (logits[row, -1].argmax() == given.labels[row])


def test_exits_are_counted_by_hand() -> None:
    given, logits = given_by()
    right = logits.argmax(-1) == given.labels[:, None]
    uses = exit_uses(given, right, (0, 1, 2, 3), ("a", "a", "b", "b"))
    assert sum(use.samples for use in uses) == 200
    assert [use.network for use in uses] == ["a", "a", "b", "b"]
    for use in uses:
        rows = (given.exits == use.exit).nonzero().squeeze(1)
        assert use.samples == len(rows) > 0
        assert use.share == len(rows) / 200
        assert use.accuracy == pytest.approx(right[rows, use.exit].double().mean().item())
        assert use.full == pytest.approx(right[rows, -1].double().mean().item())
        assert use.everyone == pytest.approx(right[:, use.exit].double().mean().item())
        assert use.accuracy is not None
        assert use.accuracy_interval is not None
        assert use.accuracy_interval[0] <= use.accuracy <= use.accuracy_interval[1]


def test_an_exit_that_nobody_uses_says_nothing() -> None:
    given, logits = given_by(2.0)
    first = exit_uses(given, logits.argmax(-1) == given.labels[:, None], (0, 3), ("a",) * 4)[0]
    assert (first.samples, first.share, first.accuracy, first.accuracy_interval, first.full) == (0, 0, None, None, None)
    assert first.everyone > 0


@each("samples", [1, 7, 15, 200])
@each("decimals", [1, 6])  # few: many confidences tie
def test_bins_add_up_to_the_calibration_error(samples: int, decimals: int) -> None:
    given, _ = given_by(samples=samples)
    given = replace(given, confidence=given.confidence.round(decimals=decimals))
    bins = reliability(given)
    assert len(bins) == min(samples, 15)
    assert sum(one.samples for one in bins) == samples
    assert [one.confidence for one in bins] == sorted(one.confidence for one in bins)
    error = sum(one.samples * abs(one.accuracy - one.confidence) for one in bins) / samples
    assert error == pytest.approx(calibration_error(given.confidence, given.correct).item(), abs=1e-6)


def test_classes_that_lose_come_first_and_those_without_samples_last() -> None:
    given, _ = given_by(0.6)
    changes = changes_by_class(given, ("zero", "one", "two", "absent"))
    assert changes[-1].name == "absent"
    assert (changes[-1].samples, changes[-1].accuracy, changes[-1].change) == (0, None, None)
    known = changes[:-1]
    assert [one.change for one in known] == sorted(one.change for one in known if one.change is not None)
    for one in known:
        rows = given.labels == one.label
        accuracy, full = (hits[rows].double().mean().item() for hits in (given.correct, given.full_correct))
        assert one.samples == int(rows.sum())
        assert one.accuracy == pytest.approx(accuracy)
        assert one.change == pytest.approx(accuracy - full)


def test_coverage_is_that_of_the_sets() -> None:
    given, logits = given_by()
    thresholds = {0.1: torch.tensor([0.3, 0.5, 0.7, 0.9]), 0.05: torch.ones(4)}
    low, high = coverages(given, thresholds)
    rows = torch.arange(len(logits))
    probability = logits[rows, given.exits].softmax(-1)[rows, given.labels]
    expected = (1 - probability <= thresholds[0.1][given.exits]).double().mean()
    assert (low.miscoverage, low.coverage) == (0.05, 1.0)
    assert high.coverage == pytest.approx(expected.item())
    assert coverages(given, {}) == ()


def test_leavers_are_in_order_and_nobody_is_both() -> None:
    given, _ = given_by()
    first, last = leavers(given, count=10)
    exits = given.exits.numpy()
    assert [one.row for one in first] == np.argsort(exits, kind="stable")[:10].tolist()
    assert [one.row for one in last] == np.argsort(-exits, kind="stable")[:10].tolist()
    for one in first:
        assert one.exit == exits[one.row]
        assert [one.label, one.predicted] == [int(given.labels[one.row]), int(given.predictions[one.row])]
        assert one.confidence == pytest.approx(given.confidence[one.row].item())
    first, last = leavers(given, count=150)
    assert not {one.row for one in first} & {one.row for one in last}
    assert len(first) + len(last) == 200


def test_where_all_leave_at_one_exit_nobody_is_last() -> None:
    first, last = leavers(given_by(0.0)[0])
    assert ([one.row for one in first], last) == (list(range(24)), ())
