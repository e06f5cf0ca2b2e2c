from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from offramp.methods._joint import fit_classifiers
from offramp_bench.rivals.cascaded_exits import CascadedExits
from offramp_bench.rivals.ensembled_exits import EnsembledExits
from offramp_bench.rivals.ztw import fit_ztw, fit_ztw_ensemble
from tests.cases import each
from tests.methods.examples import COSTS, QUICK, clusters, costs

LONGER = replace(QUICK, scale_rates_by_depth=False)
every_method = each("method", [fit_ztw, fit_ztw_ensemble])


def test_without_connections_the_classifiers_stay_as_they_are() -> None:
    fit, tune = clusters(), clusters(90, seed=1)
    exits = fit_ztw_ensemble(fit, tune, COSTS, QUICK).exits
    assert isinstance(exits, EnsembledExits)
    for key, value in fit_classifiers(fit, tune, COSTS, QUICK).exits.state_dict().items():
        assert torch.equal(exits.exits.state_dict()[key], value)


def test_the_first_classifier_is_trained_like_any_other() -> None:
    # It reads no answer, and no later exit teaches it.
    fit, tune = clusters(), clusters(90, seed=1)
    exits = fit_ztw(fit, tune, COSTS, QUICK).exits
    assert isinstance(exits, EnsembledExits)
    assert isinstance(exits.exits, CascadedExits)
    plain = fit_classifiers(fit, tune, COSTS, QUICK).exits.state_dict()
    torch.testing.assert_close(exits.exits.weights["0"].detach(), plain["weights.0"])
    assert exits.exits.weights["1"].shape == (3, 1, 6 + 3)


def test_the_second_classifier_minimises_its_own_loss() -> None:
    # At the end, no direction of its weights, connections included, leads down.
    settings = replace(LONGER, epochs=300, batch_size=300, warmup_learning_rate=0.1)
    source = clusters(300)
    exits = fit_ztw(source, source, COSTS, settings).exits
    assert isinstance(exits, EnsembledExits)
    batch = next(source.in_order(batch_size=300))
    loss = F.cross_entropy(exits.exits(batch.features)[1][0], batch.labels)
    (slope,) = torch.autograd.grad(loss, [exits.exits.parameters_of(1)[0]])  # type: ignore[operator]
    assert slope.abs().max() < 5e-3


@every_method
def test_the_ensembles_learn(method: Any) -> None:
    fit, tune = clusters(2000), clusters(90, seed=1)
    exits = method(fit, tune, COSTS, LONGER).exits
    initial_exits = EnsembledExits(exits.exits)
    batch = next(fit.in_order(batch_size=2000))

    def losses(ensemble: EnsembledExits) -> list[float]:
        return [float(F.cross_entropy(answer[0], batch.labels)) for answer in ensemble(batch.features)]

    with torch.no_grad():
        learned, start = losses(exits), losses(initial_exits)
    assert learned[0] < start[0]  # of one exit, a temperature and biases
    assert learned[1] < start[1]
    # 250 steps of Adam at a rate that falls from 1e-2 to 0 lead no further than half of 250 times that.
    assert 0.1 < exits.weight.abs().max() < 1.25 + 0.05
    assert 0 < exits.bias.abs().max() < 1.25


@every_method
def test_ensembles_move_at_the_rate_of_the_settings(method: Any) -> None:
    fit, tune = clusters(), clusters(90, seed=1)
    slow, fast = (method(fit, tune, COSTS, replace(QUICK, learning_rate=rate)).exits for rate in (1e-5, 1e-2))
    assert slow.bias.abs().max() < 26 * 1e-5 < fast.bias.abs().max()
    for key, value in slow.exits.state_dict().items():
        assert torch.equal(value, fast.exits.state_dict()[key])


@every_method
def test_one_early_exit_and_two_classes(method: Any) -> None:
    fit = clusters(100, widths=(4, 6), num_classes=2)
    answers = method(fit, fit, costs(2), QUICK).exits(torch.zeros(1, 10))
    assert [answer.shape for answer in answers] == [(1, 1, 2)]
