"""The contract of every method, run over all that are registered."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from offramp.cost._mul_adds import BackboneMulAdds
from offramp.errors import InputError
from offramp.exits import LinearExits
from offramp.exits._exit_set import all_logits
from offramp.exits._gate import Gates
from offramp.features._batch import MemorySource
from offramp.functional import evidence
from offramp.functional._leaving import first_exit, should_leave
from offramp.functional._statistics import log_probabilities
from offramp.methods import METHODS, FittedExits
from offramp.methods._method import default_settings
from offramp.methods._settings import JointSettings
from offramp.policy import POLICIES
from tests.cases import each
from tests.methods.examples import COSTS, QUICK, WIDTHS, clusters, costs, weights_of

GATED = {"default": "gates", "paper": "gates", "diff_branch": "branch_gates", "pteenet": "branch_gates"}
UNGATED = ("boosted", "calexnet", "classifiers", "l2w_den", "logistic", "ztw", "ztw_ensemble")
LONG = replace(QUICK, warmup_epochs=10, epochs=10, batch_size=50, cost_weights=(0.01, 10.0), scale_rates_by_depth=False)
every_method = each("name", list(METHODS))


def fit(
    name: str, train: MemorySource, tune: MemorySource, prices: BackboneMulAdds, settings: JointSettings
) -> FittedExits:
    """Fit with these settings, or with those of a method that has others."""
    method = METHODS.get(name)
    own = default_settings(method)
    return method(train, tune, prices, settings if isinstance(own, JointSettings) else replace(own, seed=settings.seed))


def answers(fitted: FittedExits, source: MemorySource) -> tuple[Tensor, Tensor]:
    """Logits `W x N x L x K` and labels of all samples."""
    batch = next(source.in_order(batch_size=source.num_samples))
    with torch.no_grad():
        return all_logits(fitted.exits, batch.features, batch.own_logits), batch.labels


def test_every_method_is_here() -> None:
    assert set(METHODS) == {*GATED, *UNGATED}


@every_method
def test_says_what_its_gates_are_for(name: str) -> None:
    fitted = fit(name, clusters(), clusters(90, seed=1), COSTS, QUICK)
    assert (fitted.gates is None) == (name in UNGATED)
    if fitted.gates is not None:
        assert fitted.gate_policy == GATED[name]
        assert fitted.gate_policy in POLICIES
        assert fitted.gates.weight.shape == (3, 2, 4)
        assert fitted.exits.stacked in (1, 3)
    assert not fitted.exits.training
    assert fitted.exits.stages == (0, 1)


@every_method
def test_learns(name: str) -> None:
    fitted = fit(name, clusters(400), clusters(90, seed=1), COSTS, LONG)
    logits, labels = answers(fitted, clusters(600, seed=5))
    accuracy = (logits.argmax(-1) == labels[:, None]).double().mean(1)[0]
    assert accuracy[0] > 0.5  # chance is a third
    assert accuracy[1] > 0.8
    assert accuracy[1] > accuracy[0]


@every_method
def test_as_good_as_the_best_linear_classifier(name: str) -> None:
    # Classes with features of one known spread: a linear rule of the centers is the best there is.
    fitted = fit(name, clusters(2000), clusters(90, seed=1), COSTS, replace(LONG, batch_size=200))
    test = clusters(2000, seed=5)
    logits, labels = answers(fitted, test)
    features = next(test.in_order(batch_size=2000)).features[:, :4]
    centers = torch.randn(3, sum(WIDTHS), generator=torch.Generator().manual_seed(99))[:, :4]
    best = (torch.cdist(features, centers).argmin(1) == labels).double().mean()
    assert (logits[0, :, 0].argmax(-1) == labels).double().mean() > best - 0.02


@each("name", list(GATED))
def test_dearer_compute_leaves_earlier(name: str) -> None:
    fitted = fit(name, clusters(400), clusters(90, seed=1), COSTS, LONG)
    logits, _ = answers(fitted, clusters(600, seed=5))
    with torch.no_grad():
        scores = Gates.scores(fitted.trained_gates(evidence(log_probabilities(logits)[..., :-1, :])))
    left = first_exit(should_leave(scores) if fitted.gate_policy == "gates" else scores >= 0.5).double().mean(1)
    assert left[1] < 0.2 < left[0]


@every_method
def test_same_seed_same_weights_other_seed_others(name: str) -> None:
    def weights(seed: int) -> dict[str, Tensor]:
        return weights_of(fit(name, clusters(), clusters(90, seed=1), COSTS, replace(QUICK, seed=seed)))

    first, second, other = weights(3), weights(3), weights(4)
    assert all(torch.equal(first[key], second[key]) for key in first)
    # Logistic regression has one optimum and draws nothing.
    assert any(not torch.equal(first[key], other[key]) for key in first) == (name != "logistic")


@every_method
def test_the_callers_random_numbers_are_left_alone(name: str) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    fit(name, clusters(), clusters(90, seed=1), COSTS, QUICK)
    assert torch.equal(torch.rand(3), expected)


@every_method
@each("own_heads", [(), (1,)])
def test_one_exit_two_classes_one_cost_weight(name: str, own_heads: tuple[int, ...]) -> None:
    widths = (4, 2, 3)[: 2 + len(own_heads)]
    source = clusters(64, widths=widths, num_classes=2, own_heads=own_heads)
    fitted = fit(name, source, source, costs(len(widths)), replace(QUICK, cost_weights=(0.5,)))
    assert fitted.exits.stages == (0,)
    logits, _ = answers(fitted, source)
    assert logits.shape == (1, 64, len(widths), 2)
    assert logits.isfinite().all()
    assert all(value.isfinite().all() for value in weights_of(fitted).values())


@every_method
@each("count", [1, 17])  # of 16 and 1 samples
def test_a_batch_of_one_sample(name: str, count: int) -> None:
    fitted = fit(name, clusters(count), clusters(30, seed=1), COSTS, QUICK)
    assert all(value.isfinite().all() for value in weights_of(fitted).values())


@every_method
def test_an_empty_split_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="to fit and to tune on, got 200 and 0"):
        fit(name, clusters(), clusters(0), COSTS, QUICK)


@every_method
def test_features_that_are_not_numbers_are_refused(name: str) -> None:
    bad = MemorySource(
        torch.full((20, sum(WIDTHS)), torch.nan), {2: torch.zeros(20, 3)}, torch.zeros(20, dtype=torch.long), WIDTHS
    )
    with pytest.raises(InputError, match="nan"):
        fit(name, bad, clusters(30, seed=1), COSTS, QUICK)


@every_method
def test_features_of_any_precision(name: str) -> None:
    halves = clusters(dtype=torch.float16)
    fitted = fit(name, halves, clusters(90, seed=1), COSTS, QUICK)
    assert next(fitted.exits.parameters()).dtype == torch.float32
    assert all(value.isfinite().all() for value in weights_of(fitted).values())


@each("name", ["boosted", "calexnet", "l2w_den"])
def test_exits_are_linear_whatever_settings_say(name: str) -> None:
    fitted = fit(name, clusters(), clusters(90, seed=1), COSTS, replace(QUICK, exits="ladder"))
    assert isinstance(fitted.exits, LinearExits)


@each("name", ["classifiers", "diff_branch", "pteenet", "ztw", "ztw_ensemble"])
def test_a_ladder_is_shared(name: str) -> None:
    fitted = fit(name, clusters(), clusters(90, seed=1), COSTS, replace(QUICK, exits="ladder", ladder_width=8))
    assert fitted.exits.stacked == 1
    assert answers(fitted, clusters(9))[0].shape == (1, 9, 3, 3)
