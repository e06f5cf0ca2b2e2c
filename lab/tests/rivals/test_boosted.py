from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.methods._joint import fit_classifiers
from offramp_bench.rivals.boosted import fit_boosted
from offramp_bench.rivals.boosted_exits import BoostedExits
from tests.methods.examples import COSTS, QUICK, clusters


def test_the_first_exit_is_trained_like_any_other() -> None:
    # It has nothing to correct, and no later exit teaches it: the same steps as without boosting.
    fit, tune = clusters(), clusters(90, seed=1)
    boosted = fit_boosted(fit, tune, COSTS, QUICK).exits.state_dict()
    plain = fit_classifiers(fit, tune, COSTS, QUICK).exits.state_dict()
    torch.testing.assert_close(boosted["weights.0"], plain["weights.0"])
    assert not torch.allclose(boosted["weights.1"], plain["weights.1"], atol=1e-3)


def test_the_second_learns_what_the_first_leaves_to_do() -> None:
    # At the end, its weights are those of the best classifier that is given half of the first answer.
    settings = replace(QUICK, epochs=40, batch_size=50, warmup_learning_rate=0.1)
    source = clusters(300)
    exits = fit_boosted(source, source, COSTS, settings).exits
    assert isinstance(exits, BoostedExits)
    batch = next(source.in_order(batch_size=300))
    first, second = (answer[0].detach() for answer in exits(batch.features))
    stage = batch.features[:, 4:10]
    fitted_loss = F.cross_entropy(second, batch.labels)
    weight, bias = torch.zeros(3, 6, requires_grad=True), torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        return F.cross_entropy(F.linear(stage, weight, bias) + first / 2, batch.labels)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        torch.autograd.backward(value)
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    best = loss().detach()
    assert best <= fitted_loss < best + 0.01
