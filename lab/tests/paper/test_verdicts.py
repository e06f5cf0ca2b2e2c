"""Verdicts on differences that are known."""

import pytest

from offramp_bench.paper.verdicts import (
    Gap,
    Measure,
    Verdict,
    agree,
    differences,
    furthest,
    improves,
    is_alike,
    is_at_most,
    judge,
    noise_of_share,
    summarize,
)
from tests.cases import each


@each(
    ("figures", "better", "same", "at_most"),
    [
        ((), "not tested", "not tested", "not tested"),
        ((3, 0.5, 3), "holds", "does not hold", "does not hold"),
        ((3, 0.5, 0.5), "mixed", "mixed", "mixed"),
        ((3, 3, -3), "mixed", "does not hold", "does not hold"),
        ((3, -3, -3), "does not hold", "does not hold", "mixed"),
        ((0.5, 0.5), "not shown", "holds", "holds"),
        ((-3, -3), "does not hold", "does not hold", "holds"),
    ],
)
def test_verdict_of_one_measure(figures: tuple[float, ...], better: str, same: str, at_most: str) -> None:
    by_task = {str(index): Gap(figure, 1.0) for index, figure in enumerate(figures)}
    assert improves("x", by_task).verdict == better
    assert improves("x", by_task).against == tuple(name for name, gap in by_task.items() if gap.figure == -3)
    assert is_alike("x", by_task).against == tuple(name for name, gap in by_task.items() if abs(gap.figure) == 3)
    assert is_at_most("x", by_task).against == tuple(name for name, gap in by_task.items() if gap.figure == 3)
    assert is_alike("x", by_task).verdict == same
    assert is_at_most("x", by_task).verdict == at_most


def test_parts_of_a_claim_must_agree() -> None:
    def parts(*verdicts: Verdict) -> list[Measure]:
        return [Measure("x", {}, (), verdict) for verdict in verdicts]

    assert agree(parts("holds", "not tested", "holds")) == "holds"
    assert agree(parts("holds", "does not hold")) == "mixed"
    assert agree(parts("does not hold")) == agree(parts("not shown", "does not hold")) == "does not hold"
    assert agree(parts("holds", "not shown")) == "mixed"
    assert agree(parts("not tested")) == agree([]) == "not tested"


def test_tasks_without_a_figure_or_its_noise_are_left_out() -> None:
    tasks = {"a": (0.01, 0.002), "b": (None, 0.002), "c": (0.01, None)}
    assert differences(tasks, lambda task: task[0], lambda task: task[1]) == {"a": Gap(1.0, 0.2)}


def test_noise_of_a_share() -> None:
    assert noise_of_share(0.9, 10_000) == pytest.approx(1.96 * 0.003)
    assert noise_of_share(0.9, 10_000, 10_000) == pytest.approx(1.96 * 0.003 * 2**0.5)
    assert noise_of_share(1.0, 10_000) == 0.002


def test_figures_in_words() -> None:
    by_task = {"a": Gap(2.0, 1.0), "b": Gap(-4.0, 1.0), "c": Gap(0.5, 1.0)}
    assert summarize([improves("points more", by_task), improves("none", {})]) == (
        "Points more: \N{MINUS SIGN}0.50 on average, beyond noise on 2 of 3 tasks, against the claim on b. "
        "None: not measured."
    )


class TestReason:
    LOST = improves("points more", {"a": Gap(9.0, 1.0), "b": Gap(-4.0, 1.0), "c": Gap(-2.0, 1.0)})

    def test_figure_most_against_the_claim(self) -> None:
        assert furthest([self.LOST]).startswith("Most against it: \N{MINUS SIGN}4.00 points more on b")

    def test_largest_figure_if_none_is_against(self) -> None:
        level = improves("points more", {"a": Gap(0.5, 1.0), "b": Gap(0.2, 1.0)})
        assert furthest([level]).startswith("The largest difference: +0.50 points more on a")
        assert furthest([improves("points more", {})]) == ""

    def test_only_a_claim_that_does_not_hold_has_a_cause(self) -> None:
        won = improves("points more", {"a": Gap(2.0, 1.0)})
        assert judge("n", "c", [won], cause="Because.").why == summarize([won])
        assert judge("n", "c", [self.LOST], cause="Because.").why.startswith("Because. ")
        assert judge("n", "c", [self.LOST], note="Note.").why.endswith(" Note.")
        assert judge("n", "c", [self.LOST]).why.startswith("Most against it")
