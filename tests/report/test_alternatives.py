from dataclasses import replace

import pytest
import torch

from offramp.cost import Costs
from offramp.features._batch import MemorySource
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import compute_outcomes
from offramp.report._alternatives import Alternative, alternatives, network_names
from offramp.report._answers import Answers, answers_at
from tests.report.examples import ANSWER, DECIDE, STAGE, at, drawn, toy


def of(frontier: EarlyExitModel, source: MemorySource) -> tuple[dict[str, Alternative], Answers]:
    seen = compute_outcomes(frontier.exits, source, frontier.temperatures)
    table = frontier.costs["threshold"].of(seen.sizes)
    given = answers_at(at(frontier, 0.7), seen, seed=0)
    found = alternatives(frontier.backbone, source, seen, table, given, classifier=0)
    return {one.name: one for one in found}, given


def check(one: Alternative, right: torch.Tensor, given: Answers, cost: float) -> None:
    """Against the accuracies counted directly."""
    assert one.relative_cost == pytest.approx(cost)
    assert one.accuracy == pytest.approx(right.double().mean().item())
    assert one.accuracy_interval[0] < one.accuracy < one.accuracy_interval[1]
    assert one.lead == pytest.approx((right.double() - given.correct.double()).mean().item())
    assert one.lead_interval[0] <= one.lead <= one.lead_interval[1]


def test_a_network_and_its_exits() -> None:
    logits, labels = drawn(200, 4, 3)
    found, given = of(*toy(logits, labels))
    right = logits.argmax(-1) == labels[:, None]
    assert list(found) == ["net0", "exit 0", "exit 1", "exit 2"]
    assert [one.kind for one in found.values()] == ["network", "exit", "exit", "exit"]
    full = 4 * STAGE + ANSWER
    check(found["net0"], right[:, 3], given, 1.0)
    for exit in range(3):
        check(found[f"exit {exit}"], right[:, exit], given, ((exit + 1) * STAGE + ANSWER + DECIDE) / full)


def test_the_networks_of_a_cascade_stand_by_themselves() -> None:
    logits, labels = drawn(200, 6, 3)
    frontier, source = toy(logits, labels, members=(2, 1, 3))
    found, given = of(frontier, source)
    right = logits.argmax(-1) == labels[:, None]
    # The exit after stage 1 is the first network by itself; the one after stage 2 comes after two networks.
    assert list(found) == ["net2", "net0", "net1", "exit 0", "exit 2", "exit 3", "exit 4"]
    full = 3 * STAGE + ANSWER
    check(found["net2"], right[:, 5], given, 1.0)
    check(found["net0"], right[:, 1], given, (2 * STAGE + ANSWER) / full)
    check(found["net1"], right[:, 2], given, (1 * STAGE + ANSWER) / full)
    check(found["exit 2"], right[:, 2], given, (3 * STAGE + ANSWER + DECIDE) / full)
    assert network_names(frontier.backbone) == ("net0", "net0", "net1", "net2", "net2", "net2")


def test_costs_that_depend_on_size_are_totals_over_totals() -> None:
    logits, labels = drawn(50, 5, 3)
    frontier, source = toy(logits, labels, members=(2, 3))
    table = frontier.costs["threshold"].tables[0]
    source.sizes = lambda: torch.arange(50.0)  # type: ignore[method-assign]
    found, _ = of(replace(frontier, costs={"threshold": Costs((table, table))}), source)
    # Twice the same table: costs are (1 + size) times those of one, for all alike.
    assert found["net0"].relative_cost == pytest.approx((2 * STAGE + ANSWER) / (3 * STAGE + ANSWER))
    assert found["exit 0"].relative_cost == pytest.approx((STAGE + ANSWER + DECIDE) / (3 * STAGE + ANSWER))
