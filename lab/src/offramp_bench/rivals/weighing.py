r"""The sample weights of L2W-DEN: a network learns how much each sample counts at each exit."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from offramp.exits import ExitSet
from offramp.exits._exit_set import all_logits, stack_exits
from offramp.features._batch import Batch
from offramp.functional._objective import cross_entropies
from offramp.functional._statistics import log_probabilities

__all__ = ["exit_losses", "leave_by_shares", "meta_loss", "sample_weights", "weighing_network"]

SPREAD = 0.3
"""Epsilon: roughly the largest distance of a weight from 1."""

RATIO = 15 / 20
"""Ratio of the share that leaves at an exit to that at the previous exit: p = 15 of MSDNet's geometric family."""

WIDTH = 500
"""Hidden units of the weighing network."""


def weighing_network(num_exits: int) -> nn.Module:
    """Return a network from the losses of a sample at E exits to numbers from -1 (less weight there) to 1 (more).

    Args:
        num_exits: E, the number of trained exits.

    Example:
        >>> weighing_network(3)(torch.zeros(5, 3)).shape
        torch.Size([5, 3])
    """
    return nn.Sequential(nn.Linear(num_exits, WIDTH), nn.ReLU(), nn.Linear(WIDTH, num_exits), nn.Tanh())


def sample_weights(network: nn.Module, losses: Tensor) -> Tensor:
    r"""Return the weight of each sample at each exit.

    $$w = 1 + \epsilon\, (\tilde w - \overline{\tilde w}), \qquad \epsilon = 0.3$$

    Args:
        network: The weighing network: losses to $\tilde w$.
        losses: `n x E` cross-entropies; no gradient passes through them.

    Returns:
        `n x E` weights of mean 1 over the whole matrix.

    Example:
        >>> sample_weights(nn.Identity(), torch.tensor([[1.0, 3.0]]))
        tensor([[0.7000, 1.3000]])
    """
    raw: Tensor = network(losses.detach())
    return 1 + SPREAD * (raw - raw.mean())


def leave_by_shares(confidence: Tensor, *, ratio: float = RATIO) -> Tensor:
    r"""Return the exits of samples if a share $q_l \propto r^l$ leaves at each exit, the most confident first.

    Samples that remain because of rounding leave at the last exit.

    Args:
        confidence: `n x L` largest probability at each exit.
        ratio: r.

    Returns:
        `n` exits, 0-based.

    Example:
        >>> leave_by_shares(torch.tensor([[0.9, 0.5], [0.6, 0.5], [0.7, 0.5]]), ratio=0.5)
        tensor([0, 1, 0])
    """
    count, length = confidence.shape
    shares = ratio ** torch.arange(length, dtype=torch.float64)
    quotas = (count * shares / shares.sum() + 1e-9).long().tolist()  # whole numbers stay what they are
    exits = torch.full((count,), length - 1)
    waiting = confidence.detach().clone()
    for exit, quota in enumerate(quotas[:-1]):
        if quota:
            rows = waiting[:, exit].topk(quota).indices
            exits[rows] = exit
            waiting[rows] = -1  # below every confidence
    return exits


def exit_losses(exits: ExitSet, batch: Batch) -> Tensor:
    """Return `n x E` cross-entropies of the trained exits.

    Args:
        exits: The exits, of one set of classifiers.
        batch: n samples.
    """
    features = batch.features.to(next(exits.parameters()).dtype)
    return cross_entropies(log_probabilities(stack_exits(exits(features))), batch.labels)[0]


def meta_loss(exits: ExitSet, network: nn.Module, train_batch: Batch, meta_batch: Batch, *, rate: float) -> Tensor:
    """Return the loss of some samples at their exits, after a step on other samples with the weights of a network.

    The step, plain gradient descent, is not taken: the gradient with respect to the network passes through it.

    Args:
        exits: The exits, of one set of classifiers.
        network: The weighing network, see `sample_weights`.
        train_batch: Samples of the step.
        meta_batch: Samples of the loss, at the exits that `leave_by_shares` gives them after the step. Samples at the
            backbone's own heads count too, though no weight affects them.
        rate: Learning rate of the step.
    """
    parameters = dict(exits.named_parameters())
    losses = exit_losses(exits, train_batch)
    weighted_loss = (sample_weights(network, losses) * losses).sum(1).mean()
    gradients = torch.autograd.grad(weighted_loss, list(parameters.values()), create_graph=True)
    new_parameters = {
        f"exits.{name}": value - rate * gradient
        for (name, value), gradient in zip(parameters.items(), gradients, strict=True)
    }
    log_p: Tensor = functional_call(_Answers(exits), new_parameters, (meta_batch.features, meta_batch.own_logits))
    left = leave_by_shares(log_p.amax(-1).exp())
    return cross_entropies(log_p, meta_batch.labels).gather(1, left[:, None]).mean()


class _Answers(nn.Module):
    """Log-probabilities `n x L x K` of all exits, as a module for `functional_call`."""

    def __init__(self, exits: ExitSet) -> None:
        super().__init__()
        self.exits = exits

    def forward(self, features: Tensor, own_logits: Mapping[int, Tensor]) -> Tensor:
        return log_probabilities(all_logits(self.exits, features, own_logits)[0])
