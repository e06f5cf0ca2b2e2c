import math

import pytest

from offramp.model._outcomes import simulate
from tests.cases import each
from tests.model.candidates.examples import EXITS, answers, by_threshold, candidates, seen, tuning


def test_levels_are_confidences_that_were_seen() -> None:
    tune = seen(*answers(100))
    points = by_threshold(tune, levels=50)
    found = set(tune.confidence[0, :, :-1].flatten().tolist())
    levels = [float(point.parameters["threshold"]) for point in points]
    assert levels == sorted(levels)
    assert set(levels[:-1]) <= found
    assert levels[0] == min(found)
    assert levels[-2:] == [max(found), 2.0]
    assert len(levels) == 51


def test_entropies_and_margins_of_every_sample() -> None:
    logits, labels = answers(60)
    tune = seen(logits, labels)
    p = logits.double().softmax(-1)[:, :-1]
    entropies = (-(p * p.log()).sum(-1) / math.log(p.shape[-1])).flatten().sort().values
    ordered = p.sort(-1, descending=True).values
    margins = (ordered[..., 0] - ordered[..., 1]).flatten().sort().values
    by_entropy = [float(point.parameters["limit"]) for point in candidates("entropy", tuning(tune))]
    by_margin = [float(point.parameters["threshold"]) for point in candidates("margin", tuning(tune))]
    assert by_entropy == pytest.approx([-1.0, *entropies.tolist()], abs=1e-5)
    assert by_margin == pytest.approx([*margins.tolist(), 2.0], abs=1e-5)


@each("policy", ["entropy", "margin"])
def test_from_leaving_at_once_to_staying(policy: str) -> None:
    tune = seen(*answers(60))
    exits = simulate(candidates(policy, tuning(tune)), tune)
    means = exits.double().mean(1).tolist()
    assert sorted([means[0], means[-1]]) == [0, EXITS - 1]
    assert means in (sorted(means), sorted(means, reverse=True))


def test_two_classes_leave_alike_by_any_of_them() -> None:
    # With two classes confidence, margin and entropy rank answers alike.
    logits, labels = answers(100)  # every level is tried
    tune = seen(logits[..., :2], labels % 2)
    given = tuning(tune)
    ways = [simulate(candidates(policy, given), tune) for policy in ("entropy", "margin")]
    thresholds = simulate(by_threshold(tune), tune)
    rows = [{tuple(row) for row in way.tolist()} for way in (*ways, thresholds)]
    assert len(rows[0] & rows[2]) > 0.9 * len(rows[2])
    assert len(rows[1] & rows[2]) > 0.9 * len(rows[2])
