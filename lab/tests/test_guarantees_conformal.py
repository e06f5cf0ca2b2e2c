"""How coverage over splits is counted and judged."""

from typing import cast

import pytest
import torch

from offramp_bench.conformal_variants import PaperVariant, variant_class_thresholds, variant_thresholds
from offramp_bench.guarantees.claims import CLAIMS, FAILURES, bars, worst_of
from offramp_bench.guarantees.conformal import ALPHAS, Seen, cell, covered_in, halves
from offramp_bench.guarantees.nesting import least_so_far
from tests.cases import each


def drawn(num_samples: int = 400) -> Seen:
    """Three classes at three exits, of which the second is rare and the last hard."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_samples, 3, 3, generator=generator) * torch.tensor([3.0, 2.0, 1.0])[:, None]
    probabilities = logits.softmax(-1)
    labels = torch.randint(3, (num_samples,), generator=generator)
    exits = torch.tensor([0, 2, 2, 0, 2, 0, 0, 1, 0, 2] * (num_samples // 10))
    exits[15:][exits[15:] == 1] = 0
    rows = torch.arange(num_samples)
    return Seen(1 - probabilities[rows, :, labels], exits, labels, probabilities[rows, exits])


@each("name", CLAIMS)
def test_coverage_is_counted_by_hand(name: str) -> None:
    seen = drawn()
    ones, others = (torch.stack(half) for half in zip(*halves(400, 3), strict=True))
    thresholds = seen.thresholds(name, ones, 0.1)
    found = covered_in(seen, name, ones, others, thresholds)
    for split, (calibrating, tried) in enumerate(zip(ones, others, strict=True)):
        scores, exits, labels = seen.scores_at_exits[calibrating], seen.exits[calibrating], seen.labels[calibrating]
        variant = cast(PaperVariant, name.removesuffix(" by class"))
        if name.endswith("by class"):
            expected = variant_class_thresholds(variant, scores, exits, labels, num_classes=3, miscoverage=0.1)
        else:
            expected = variant_thresholds(variant, scores, exits, miscoverage=0.1)[:, None].expand(3, 3)
        assert torch.equal(thresholds[split], expected)
        inside: dict[tuple[str, int], list[bool]] = {}
        for row in tried.tolist():
            exit, label = int(seen.exits[row]), int(seen.labels[row])
            covered = bool(1 - seen.probabilities[row, label] <= expected[exit, label])
            for group in (("overall", 0), ("every exit", exit), ("class", label)):
                inside.setdefault(group, []).append(covered)
        for (kind, number), listed in inside.items():
            assert found[kind][split, number].item() == pytest.approx(sum(listed) / len(listed))
        fewest = 20 if name.startswith(("gated", "pooled")) else 1
        for exit in range(3):
            assert found["exit"][split, exit].isnan() or int((exits == exit).sum()) >= fewest


def test_halves_are_halves() -> None:
    for one, other in halves(101, 3):
        assert len({*one.tolist(), *other.tolist()}) == 100
        assert len(one) == len(other) == 50


def test_claims_hold_and_failures_show_where_they_are() -> None:
    ways = cell(drawn(), splits=60)
    assert set(ways) == set(CLAIMS)
    assert all(set(levels) == set(map(str, ALPHAS)) for levels in ways.values())
    made = bars({"toy": {"points": {"only": {"ways": ways}}}})
    claims = [bar for bar in made if "not claimed" not in bar.name]
    assert len(claims) + len(FAILURES) == len(made)
    for bar in claims:
        # Two standard errors is what is asked of the real pools; of thirty pairs, four leave no doubt.
        assert bar.figure <= 4, bar


def test_the_least_probability_so_far_shrinks_sets() -> None:
    probabilities = torch.tensor([[[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]]).repeat(3, 1, 1)
    found = least_so_far(probabilities, torch.tensor([0, 1, 2]), (0, 2))
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.2, 0.5]]))


def test_the_worst_of_many_is_allowed_more() -> None:
    assert worst_of(1) == pytest.approx(2)
    draws = torch.randn(20_000, 50, generator=torch.Generator().manual_seed(0)).amax(1)
    single = torch.randn(1_000_000, generator=torch.Generator().manual_seed(1)) > 2
    assert (draws > worst_of(50)).double().mean().item() == pytest.approx(single.double().mean().item(), abs=0.004)
