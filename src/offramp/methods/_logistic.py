"""Linear exits fitted by logistic regression: exact and quick where samples are few."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from offramp.cost._table import Prices
from offramp.errors import InputError
from offramp.exits import LinearExits
from offramp.features import BatchSource
from offramp.methods._initialization import check_samples, fit_averaging
from offramp.methods._method import METHODS, FittedExits
from offramp.methods._steps import seeded

__all__ = ["LOGISTIC", "LogisticSettings", "fit_logistic"]

STEPS = 100
"""Largest number of L-BFGS steps; some dozens are usual."""


@dataclass(frozen=True)
class LogisticSettings:
    """Settings of logistic regression."""

    weight_decays: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    """Strengths of the squared penalty on weights, for features scaled to a mean square of 1; each exit takes the one
    with the highest likelihood on the tune split."""
    seed: int = 0
    """Not used: there is one optimum."""


LOGISTIC = LogisticSettings()
"""The default settings."""


def fit_logistic(
    fit: BatchSource, tune: BatchSource, costs: Prices, settings: LogisticSettings = LOGISTIC
) -> FittedExits:
    r"""Fit one multinomial logistic regression per exit, by L-BFGS on all samples at once.

    $$\min_W \frac1n \sum_i -\log \mathrm{softmax}(W x_i / s)_{y_i} + \frac\lambda2 \lVert W \rVert^2, \qquad
      s^2 = \frac1{nD} \sum_{id} x_{id}^2$$

    Args:
        fit: Samples to train on; their features must fit in memory.
        tune: Samples that choose $\lambda$.
        costs: Costs; they do not affect the result.
        settings: Settings.
    """
    del costs
    check_samples(fit, tune)
    features, labels = _load(fit)
    tune_features, tune_labels = _load(tune)
    if not (features.isfinite().all() and tune_features.isfinite().all()):
        raise InputError("features", expected="finite numbers", got="nan or infinity")
    stages = tuple(stage for stage in range(len(fit.widths)) if stage not in fit.own_heads)
    with seeded(settings.seed):  # exits are initialised at random, and the caller's random numbers stay as they are
        exits = LinearExits(fit.widths, stages, fit.num_classes)
    exits.averaging = fit_averaging(tune)
    with torch.no_grad():
        for stage in stages:
            columns = exits.columns(stage)
            own, other = features[:, columns], tune_features[:, columns]
            scale = own.square().mean().sqrt().clamp_min(1e-12)
            best, best_loss = torch.zeros(0), torch.inf
            for decay in settings.weight_decays:
                weights = _minimise(own / scale, labels, fit.num_classes, decay)
                loss = float(F.cross_entropy(_scores(other / scale, weights), tune_labels))
                if loss < best_loss:
                    best, best_loss = weights, loss
            exits.weights[str(stage)].copy_((best[:, :-1] / scale)[:, None])
            exits.biases[str(stage)].copy_(best[:, -1:])
    return FittedExits(exits.eval())


def _load(source: BatchSource) -> tuple[Tensor, Tensor]:
    """Return all `N x D` features and `N` labels of a source."""
    batches = list(source.in_order(batch_size=1000))
    return torch.cat([batch.features.float() for batch in batches]), torch.cat([batch.labels for batch in batches])


def _scores(features: Tensor, weights: Tensor) -> Tensor:
    return torch.addmm(weights[:, -1], features, weights[:, :-1].T)


@torch.enable_grad()
def _minimise(features: Tensor, labels: Tensor, num_classes: int, decay: float) -> Tensor:
    """Return `K x (D + 1)` weights, the bias last, which has no penalty."""
    weights = nn.Parameter(torch.zeros(num_classes, features.shape[1] + 1))
    optimizer = torch.optim.LBFGS([weights], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        penalty = decay / 2 * weights[:, :-1].square().sum()
        value: Tensor = F.cross_entropy(_scores(features, weights), labels) + penalty
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()


METHODS.add("logistic", fit_logistic)
