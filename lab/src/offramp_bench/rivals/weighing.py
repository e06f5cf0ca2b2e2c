r"""How much each sample should count at each exit, learned by whether counting so helps: what L2W-DEN rests on."""

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
"""Epsilon: how far from 1 a weight is, roughly, at most."""

RATIO = 15 / 20
"""Of the share that leaves at an exit to that at the exit before: p = 15 of MSDNet's geometric family."""

WIDTH = 500
"""Of the network that weighs."""


def weighing_network(num_exits: int) -> nn.Module:
    """From the losses of a sample at E exits to -1 (it should count less there) to 1 (more).

    Args:
        num_exits: E, those that are trained.

    Example:
        >>> weighing_network(3)(torch.zeros(5, 3)).shape
        torch.Size([5, 3])
    """
    return nn.Sequential(nn.Linear(num_exits, WIDTH), nn.ReLU(), nn.Linear(WIDTH, num_exits), nn.Tanh())


def sample_weights(network: nn.Module, losses: Tensor) -> Tensor:
    r"""What each sample counts at each exit: $w = 1 + \epsilon\, (\tilde w - \overline{\tilde w})$, $\epsilon = .3$.

    Args:
        network: From losses to $\tilde w$.
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
    r"""Where samples leave if a share $q_l \propto r^l$ of them must leave at each exit, the most confident first.

    The last exit takes those whom rounding leaves over.

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
    leaving = (count * shares / shares.sum() + 1e-9).long().tolist()  # whole numbers stay what they are
    exits = torch.full((count,), length - 1)
    waiting = confidence.detach().clone()
    for exit, chosen in enumerate(leaving[:-1]):
        if chosen:
            gone = waiting[:, exit].topk(chosen).indices
            exits[gone] = exit
            waiting[gone] = -1  # below every confidence
    return exits


def exit_losses(exits: ExitSet, batch: Batch) -> Tensor:
    """`n x E` cross-entropies of the trained exits.

    Args:
        exits: The exits, of one set of classifiers.
        batch: n samples.
    """
    features = batch.features.to(next(exits.parameters()).dtype)
    return cross_entropies(log_probabilities(stack_exits(exits(features))), batch.labels)[0]


def meta_loss(exits: ExitSet, network: nn.Module, taught: Batch, judged: Batch, *, rate: float) -> Tensor:
    """Loss of some samples where they leave, after a step on others as the network weighs them.

    The step, plain gradient descent, is not taken: the gradient with respect to the network passes through it.

    Args:
        exits: The exits, of one set of classifiers.
        network: From losses to weights, see `sample_weights`.
        taught: Samples of the step.
        judged: Samples to judge it by, at the exits where `leave_by_shares` sends them after it; those who are sent to
            the network's own heads count, though no weight can help them.
        rate: Of the step.
    """
    parameters = dict(exits.named_parameters())
    losses = exit_losses(exits, taught)
    weighed = (sample_weights(network, losses) * losses).sum(1).mean()
    gradients = torch.autograd.grad(weighed, list(parameters.values()), create_graph=True)
    moved = {
        f"exits.{name}": value - rate * gradient
        for (name, value), gradient in zip(parameters.items(), gradients, strict=True)
    }
    log_p: Tensor = functional_call(_Answers(exits), moved, (judged.features, judged.own_logits))
    left = leave_by_shares(log_p.amax(-1).exp())
    return cross_entropies(log_p, judged.labels).gather(1, left[:, None]).mean()


class _Answers(nn.Module):
    """Log-probabilities `n x L x K` of all exits, in a form that `functional_call` gives other parameters to."""

    def __init__(self, exits: ExitSet) -> None:
        super().__init__()
        self.exits = exits

    def forward(self, features: Tensor, own_logits: Mapping[int, Tensor]) -> Tensor:
        return log_probabilities(all_logits(self.exits, features, own_logits)[0])
