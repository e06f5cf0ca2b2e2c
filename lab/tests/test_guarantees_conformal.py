"""Coverage over splits: its count and its bars."""

from typing import cast

import pytest
import torch

from offramp_bench.conformal_variants import PaperVariant, variant_class_thresholds, variant_thresholds
from offramp_bench.guarantees.claims import CLAIMS, FAILURES, bars, worst_of
from offramp_bench.guarantees.conformal import ALPHAS, PoolAnswers, coverage_by_group, halves, measure_coverage
from offramp_bench.guarantees.nesting import least_so_far
from tests.cases import each


def draw_answers(num_samples: int = 400) -> PoolAnswers:
    """Draw answers of three classes at three exits, of which the second is rare and the last hard."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_samples, 3, 3, generator=generator) * torch.tensor([3.0, 2.0, 1.0])[:, None]
    probabilities = logits.softmax(-1)
    labels = torch.randint(3, (num_samples,), generator=generator)
    exits = torch.tensor([0, 2, 2, 0, 2, 0, 0, 1, 0, 2] * (num_samples // 10))
    exits[15:][exits[15:] == 1] = 0
    rows = torch.arange(num_samples)
    return PoolAnswers(1 - probabilities[rows, :, labels], exits, labels, probabilities[rows, exits])


@each("name", CLAIMS)
def test_coverage_is_counted_by_hand(name: str) -> None:
    answers = draw_answers()
    first, second = (torch.stack(half) for half in zip(*halves(400, 3), strict=True))
    thresholds = answers.thresholds(name, first, 0.1)
    coverage = coverage_by_group(answers, name, first, second, thresholds)
    for split, (calibrating, test) in enumerate(zip(first, second, strict=True)):
        scores, exits = answers.scores_at_exits[calibrating], answers.exits[calibrating]
        labels = answers.labels[calibrating]
        variant = cast(PaperVariant, name.removesuffix(" by class"))
        if name.endswith("by class"):
            expected = variant_class_thresholds(variant, scores, exits, labels, num_classes=3, miscoverage=0.1)
        else:
            expected = variant_thresholds(variant, scores, exits, miscoverage=0.1)[:, None].expand(3, 3)
        assert torch.equal(thresholds[split], expected)
        inside: dict[tuple[str, int], list[bool]] = {}
        for row in test.tolist():
            exit, label = int(answers.exits[row]), int(answers.labels[row])
            covered = bool(1 - answers.probabilities[row, label] <= expected[exit, label])
            for group in (("overall", 0), ("every exit", exit), ("class", label)):
                inside.setdefault(group, []).append(covered)
        for (kind, number), samples in inside.items():
            assert coverage[kind][split, number].item() == pytest.approx(sum(samples) / len(samples))
        fewest = 20 if name.startswith(("gated", "pooled")) else 1
        for exit in range(3):
            assert coverage["exit"][split, exit].isnan() or int((exits == exit).sum()) >= fewest


def test_halves_are_halves() -> None:
    for first, second in halves(101, 3):
        assert len({*first.tolist(), *second.tolist()}) == 100
        assert len(first) == len(second) == 50


def test_claims_hold_and_failures_show_where_they_are() -> None:
    ways = measure_coverage(draw_answers(), splits=60)
    assert set(ways) == set(CLAIMS)
    assert all(set(levels) == set(map(str, ALPHAS)) for levels in ways.values())
    all_bars = bars({"toy": {"points": {"only": {"ways": ways}}}})
    claims = [bar for bar in all_bars if "not claimed" not in bar.name]
    assert len(claims) + len(FAILURES) == len(all_bars)
    for bar in claims:
        # The bar for the real pools is two standard errors; with thirty pairs, four leave no doubt.
        assert bar.figure <= 4, bar


def test_the_least_probability_so_far_shrinks_sets() -> None:
    probabilities = torch.tensor([[[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]]).repeat(3, 1, 1)
    least = least_so_far(probabilities, torch.tensor([0, 1, 2]), (0, 2))
    torch.testing.assert_close(least, torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.2, 0.5]]))


def test_the_worst_of_many_is_allowed_more() -> None:
    assert worst_of(1) == pytest.approx(2)
    draws = torch.randn(20_000, 50, generator=torch.Generator().manual_seed(0)).amax(1)
    single = torch.randn(1_000_000, generator=torch.Generator().manual_seed(1)) > 2
    assert (draws > worst_of(50)).double().mean().item() == pytest.approx(single.double().mean().item(), abs=0.004)
