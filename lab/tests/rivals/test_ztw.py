from dataclasses import replace

import torch
import torch.nn.functional as F

from offramp.methods._joint import fit_classifiers
from offramp_bench.rivals.ensembled_exits import EnsembledExits
from offramp_bench.rivals.ztw import fit_ztw
from tests.methods.examples import COSTS, QUICK, clusters


def test_the_classifiers_stay_as_they_are() -> None:
    fit, tune = clusters(), clusters(90, seed=1)
    exits = fit_ztw(fit, tune, COSTS, QUICK).exits
    assert isinstance(exits, EnsembledExits)
    for key, value in fit_classifiers(fit, tune, COSTS, QUICK).exits.state_dict().items():
        assert torch.equal(exits.exits.state_dict()[key], value)


def test_the_ensembles_learn() -> None:
    fit, tune = clusters(2000), clusters(90, seed=1)
    exits = fit_ztw(fit, tune, COSTS, replace(QUICK, scale_rates_by_depth=False)).exits
    assert isinstance(exits, EnsembledExits)
    begun = EnsembledExits(exits.exits)
    batch = next(fit.in_order(batch_size=2000))

    def losses(ensemble: EnsembledExits) -> list[float]:
        return [float(F.cross_entropy(answer[0], batch.labels)) for answer in ensemble(batch.features)]

    with torch.no_grad():
        learned, start = losses(exits), losses(begun)
    assert learned[0] < start[0]  # of one exit, a temperature and biases
    assert learned[1] < start[1] - 0.01
    # 250 steps of Adam at a rate that falls from 1e-2 to 0 lead no further than half of 250 times that.
    assert 0.1 < exits.weight.abs().max() < 1.25 + 0.05
    assert 0 < exits.bias.abs().max() < 1.25
