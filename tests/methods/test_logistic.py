"""Logistic regression against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from offramp.cost._table import Costs
from offramp.exits import ExitSet
from offramp.features._batch import MemorySource
from offramp.methods._logistic import LogisticSettings, fit_logistic
from offramp.policy import Policy


class Free:
    """Prices that nobody may ask for: the method does not depend on them."""

    def price(self, exits: ExitSet, policy: Policy) -> Costs:
        raise AssertionError


def source(rows: int, *, seed: int, classes: int = 3, scale: float = 1.0) -> MemorySource:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    centres = torch.randn(classes, 5, generator=torch.Generator().manual_seed(9))
    features = scale * (centres[labels] + torch.randn(rows, 5, generator=generator))
    own = torch.nn.functional.one_hot(labels, classes).float() * 20
    widths = (2, 3, classes)
    return MemorySource(torch.cat([features, own], dim=1), {2: own}, labels, widths)


@pytest.mark.parametrize("scale", [1.0, 0.01, 100.0])
def test_the_optimum_is_scikit_learns(scale: float) -> None:
    fit, tune, decay = source(200, seed=0, scale=scale), source(50, seed=1, scale=scale), 1e-2
    exits = fit_logistic(fit, tune, Free(), LogisticSettings(weight_decays=(decay,))).exits
    (batch,) = fit.in_order(batch_size=200)
    for stage in (0, 1):
        own = batch.features[:, exits.columns(stage)].double().numpy()
        own = own / np.sqrt((own**2).mean())
        peer = LogisticRegression(C=1 / (decay * 200), tol=1e-8, max_iter=5000).fit(own, batch.labels.numpy())
        found = exits(batch.features)[exits.stages.index(stage)][0].softmax(1).detach().numpy()
        np.testing.assert_allclose(found, peer.predict_proba(own), atol=2e-3)


def test_the_weight_decay_that_tune_prefers_is_taken() -> None:
    fit, tune = source(30, seed=0), source(2000, seed=1)
    losses = {}
    for decays in ((1e-6,), (1e-1,), (1e-6, 1e-1)):
        exits = fit_logistic(fit, tune, Free(), LogisticSettings(weight_decays=decays)).exits
        (batch,) = tune.in_order(batch_size=2000)
        answers = exits(batch.features)[1][0].detach()
        losses[decays] = float(torch.nn.functional.cross_entropy(answers, batch.labels))
    assert losses[1e-6, 1e-1] == min(losses.values())


def test_a_class_never_seen_is_improbable_and_finite() -> None:
    fit, tune = source(60, seed=0, classes=2), source(20, seed=1, classes=2)
    (batch,) = fit.in_order(batch_size=60)
    wider = torch.cat([batch.features[:, :5], torch.zeros(60, 4)], dim=1)
    more = MemorySource(wider, {2: torch.nn.functional.one_hot(batch.labels, 4).float()}, batch.labels, (2, 3, 4))
    exits = fit_logistic(more, more, Free()).exits
    answers = exits(wider)[1][0].detach().softmax(1)
    assert torch.isfinite(answers).all()
    assert float(answers[:, 2:].max()) < 0.2
    del tune
