"""Learned scores of how likely each exit is right, each with a threshold of its own."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from offramp.policy import Observation, Policy
from offramp.policy._point import OperatingPoint
from offramp.policy._tuning import Tuning
from offramp_bench.rivals.entropy import relative_entropy
from offramp_bench.rivals.exit_thresholds import NEVER, quota_thresholds

__all__ = ["POLICY", "EENetPolicy", "statistics"]

BUDGETS = 4
"""Number of budgets with learned shares, from the cost of the first exit to that of the last; published are 20. A fit
of one takes as long as everything else here, and the geometric shares fill the gaps."""

SHARES = 80
"""Number of geometric shares: published."""

LEARNING_RATE = 3e-5
WEIGHT_DECAY = 1e-2
BATCH = 512
EPOCHS = 1000
PERIOD = 10
"""Adam, and epochs before scores and assignments swap; scores come first. Published, for CIFAR and BERT alike."""

EVEN = 1e-3
BUDGET = 1e-2
"""Weights of the divergence and of the missed budget: published."""

HIDDEN = 0.5
"""Hidden units of an assignment per input: published for images."""

STAY = 1e6
"""A threshold that no score reaches."""

SUREST = 1e-4
"""Scores closer to 0 or 1 count as this close in the loss. A guard for single precision, where a confidence may be
exactly 1: one sure and wrong answer would else have a slope of 1e12, after which Adam takes no step."""


def statistics(probabilities: Tensor) -> Tensor:
    r"""What a score reads beside the probabilities: $[\max_k p_k,\ 1 - H(p)/\ln K]$.

    Args:
        probabilities: `... x K`.

    Returns:
        `... x 2` numbers.

    Example:
        >>> statistics(torch.tensor([0.5, 0.5]))
        tensor([0.5000, 0.0000])
    """
    return torch.stack([probabilities.amax(-1), 1 - relative_entropy(probabilities)], dim=-1)


class EENetPolicy(Policy):
    r"""A policy that leaves at the first exit whose score reaches that exit's own threshold.

    $$s^l = v_l \cdot p^l + w_l \cdot [\max p^l,\ 1 - H(p^l)/\ln K,\ q^{l-1}] + b_l, \qquad
    q^l = \mathrm{clamp}(s^l, 0, 1)$$

    The scores of EENet [Ilhan2024], of temperature-scaled probabilities. There a score reads those of all exits before;
    here that of the last one in force, 0 at the first, which itself has read the one before: all that a runtime has to
    carry is one number. Parameters, an exit: `class_weight` (K), `weight` (3), `bias`, `threshold`.

    Example:
        >>> seen = Observation(probabilities=torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
        >>> parameters = {"class_weight": torch.zeros(2), "weight": torch.tensor([1.0, 0.0, 0.5])}
        >>> parameters |= {"bias": torch.tensor(0.0), "threshold": torch.tensor(0.7)}
        >>> EENetPolicy().step(seen, torch.zeros(2), parameters)
        (tensor([False,  True]), tensor([0.5000, 0.9000]))
    """

    name = "eenet"
    reads = frozenset({"probabilities"})
    parameters = frozenset({"class_weight", "weight", "bias", "threshold"})
    per_exit = parameters
    vectors = MappingProxyType({"weight": 3})
    per_class = frozenset({"class_weight"})
    stay_values = MappingProxyType({"threshold": STAY})

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the score reaches the threshold; clamped, it is the carry."""
        assert seen.probabilities is not None
        # A sum over classes as a product of matrices: the simulator has many points' weights for the same samples.
        by_class = torch.einsum("...k,...k->...", seen.probabilities, parameters["class_weight"])
        largest, certainty = statistics(seen.probabilities).unbind(-1)
        weight = parameters["weight"]
        by_statistics = largest * weight[..., 0] + certainty * weight[..., 1] + carry * weight[..., 2]
        score = by_class + by_statistics + parameters["bias"]
        # As published, s decides and q is learned: sure samples, whose q is 1 alike, can still be told apart.
        return score >= parameters["threshold"], score.clamp(0, 1)

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        r"""Fit scores of how likely each exit is right, and return thresholds at which given shares of samples leave.

        For a budget B, scores $q$ and assignments $\pi$ over the A active exits minimise, on the tune split,

        $$\frac1A \sum_l \frac{\sum_i \pi_i^l\, \mathrm{BCE}(q_i^l, [\hat y_i^l = y_i])}{\sum_i \pi_i^l}
        + 10^{-3}\, \mathrm{KL}(q / \textstyle\sum q \,\|\, \pi) + 10^{-2}\, |\bar\pi \cdot c - B| / B,
        \qquad \pi = \mathrm{softmax}(\sigma(\text{MLP}))$$

        with no gradient through $\pi$ in the first term nor through q in the second, which is a mean over samples and
        exits. Thresholds then fill each exit's share with the best scores. The shares are those that the assignments of
        each budget learn, and, with scores of no budget, geometric ones $\propto r^l$ that cost 80 budgets: both are in
        the released code of [Ilhan2024]. Because of the sigmoid no exit has more than e times the share of another, so
        that learned shares miss low and high budgets where exits are many; the geometric ones reach all.

        Its constants are the published ones. Ours are: fewer budgets, scores that start as confidences (at the
        published rate they stay near their start, and there they start at random, the best of ten by validation
        accuracy), gradients that are cleared between steps, no early stop, and assignments held fixed for the ten
        epochs in which scores learn.

        Returns:
            4 points with learned shares and 80 with geometric ones.
        """
        if not tuning.early:
            return []
        answers = torch.stack([tuning.probabilities(exit) for exit in tuning.active], dim=1)
        correct = tuning.correct[:, list(tuning.active)].float()
        costs = tuning.relative_costs.float()
        budgets = torch.linspace(float(costs[0]), float(costs[-1]), BUDGETS)
        scheduler, scores, shares = _fit_scheduler(answers, correct, costs, budgets, seed=tuning.seed)
        series = _geometric_shares(tuning.relative_costs.double())
        learned = ((row, shares[:, row]) for row in range(BUDGETS))
        given = ((BUDGETS, share) for share in series)
        points = []
        for row, share in (*learned, *given):
            thresholds = quota_thresholds(scores[:-1, row].T, share[:-1])
            points.append(
                tuning.point(
                    self.name,
                    class_weight=tuning.per_exit(scheduler.class_weight[:-1, row].detach()),
                    weight=tuning.per_exit(scheduler.weight[:-1, row].detach()),
                    bias=tuning.per_exit(scheduler.bias[:-1, row, 0].detach()),
                    threshold=tuning.per_exit(thresholds.where(thresholds != NEVER, STAY), STAY),
                )
            )
        return points

    def mul_adds(self, num_classes: int) -> int:
        """A softmax, an entropy, and a product of each class, statistic and the score before."""
        return 6 * num_classes + 4


def _geometric_shares(costs: Tensor) -> Tensor:
    """Return `P x A` shares that are geometric series over `A` exits and cost 80 budgets, evenly spread."""
    exponents = torch.linspace(-20, 20, 20_001, dtype=torch.float64)[:, None]  # ratios 0.2 % apart
    shares = (exponents * torch.arange(len(costs), dtype=torch.float64)).softmax(-1)
    budgets = torch.linspace(float(costs[0]), float(costs[-1]), SHARES, dtype=torch.float64)
    return shares[torch.searchsorted(shares @ costs, budgets).clamp_max(len(shares) - 1)]


class _Scheduler(nn.Module):
    """Scores and assignments of G budgets at once; in all tensors exits come first and samples last, for speed."""

    def __init__(self, budgets: int, exits: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.class_weight = nn.Parameter(torch.zeros(exits, budgets, classes))
        self.weight = nn.Parameter(torch.tensor([1.0, 0.0, 0.0]).repeat(exits, budgets, 1))
        self.bias = nn.Parameter(torch.zeros(exits, budgets, 1))
        inputs = classes + 3  # probabilities, two statistics and the previous score
        units = int(HIDDEN * inputs)

        def draw(fan_in: int, *shape: int) -> nn.Parameter:  # as torch.nn.Linear
            return nn.Parameter((2 * torch.rand(exits, budgets, *shape, generator=generator) - 1) * fan_in**-0.5)

        self.hidden, self.hidden_bias = draw(inputs, units, inputs), draw(inputs, units, 1)
        self.output, self.output_bias = draw(units, units, 1), draw(units, 1)

    @property
    def scoring(self) -> list[nn.Parameter]:
        """The parameters of the scores."""
        return [self.class_weight, self.weight, self.bias]

    @property
    def assigning(self) -> list[nn.Parameter]:
        """The parameters of the assignments."""
        return [self.hidden, self.hidden_bias, self.output, self.output_bias]

    def scores(self, seen: Tensor) -> Tensor:
        """Return `A x G x N` scores, not clamped, from `A x (K + 2) x N` probabilities and statistics."""
        weight = torch.cat([self.class_weight, self.weight[..., :2]], dim=-1)
        own = torch.bmm(weight, seen) + self.bias
        with torch.no_grad():  # as published, an earlier score is an input
            before = torch.zeros_like(own)
            for place in range(len(own) - 1):
                before[place + 1] = (own[place] + before[place] * self.weight[place, :, 2:]).clamp(0, 1)
        return own + before * self.weight[..., 2:]

    def assign(self, seen: Tensor, scores: Tensor) -> Tensor:
        """Return `A x G x N` assignments, from the input of `scores` and the scores."""
        before = F.pad(scores[:-1].clamp(0, 1), (0, 0, 0, 0, 1, 0))[:, :, None]
        known = torch.bmm(self.hidden[..., :-1].flatten(1, 2), seen).view(*self.hidden.shape[:3], -1)
        units = (known + self.hidden[..., -1:] * before + self.hidden_bias).sigmoid()
        logits = (units * self.output).sum(2) + self.output_bias
        assigned: Tensor = logits.sigmoid().softmax(0)
        return assigned


def _fit_scheduler(
    answers: Tensor, correct: Tensor, costs: Tensor, budgets: Tensor, *, seed: int
) -> tuple[_Scheduler, Tensor, Tensor]:
    """Fit schedulers for all budgets and, last, for none; they share nothing but their samples.

    Args:
        answers: `N x A x K` probabilities.
        correct: `N x A` numbers, 1 where an exit is right.
        costs: `A` relative costs.
        budgets: `B` budgets.
        seed: Seed of all random numbers.

    Returns:
        The schedulers, their `A x (B + 1) x N` scores, and their `A x (B + 1)` mean assignments.
    """
    generator = torch.Generator().manual_seed(seed)
    count, exits, classes = answers.shape
    scheduler = _Scheduler(len(budgets) + 1, exits, classes, generator)
    seen, right = torch.cat([answers, statistics(answers)], dim=-1).permute(1, 2, 0), correct.T[:, None]
    # As published, samples are shuffled once, so that batches stay the same.
    batches = torch.split(torch.randperm(count, generator=generator), BATCH)
    inputs, targets = ([whole[..., rows].contiguous() for rows in batches] for whole in (seen, right))
    scoring, assigning = (
        torch.optim.Adam(part, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
        for part in (scheduler.scoring, scheduler.assigning)
    )
    for turn in range(EPOCHS // PERIOD):
        with torch.no_grad():
            scores = [scheduler.scores(part) for part in inputs]
            held = [scheduler.assign(*parts) for parts in zip(inputs, scores, strict=True)] if turn % 2 == 0 else []
        for place in [*range(len(inputs))] * PERIOD:
            if turn % 2 == 0:
                _step(scoring, _score_loss(scheduler.scores(inputs[place]), targets[place], held[place]))
            else:
                assigned = scheduler.assign(inputs[place], scores[place])
                _step(assigning, _assignment_loss(assigned[:, :-1], scores[place][:, :-1], costs, budgets))
    with torch.no_grad():
        final = scheduler.scores(seen)
        parts = zip(torch.split(seen, BATCH, dim=-1), torch.split(final, BATCH, dim=-1), strict=True)
        shares = torch.cat([scheduler.assign(*part) for part in parts], dim=-1).mean(-1)
    return scheduler, final, shares


def _score_loss(scores: Tensor, correct: Tensor, assigned: Tensor) -> Tensor:
    """Return the first term of the loss, summed over budgets."""
    inner = scores.clamp(SUREST, 1 - SUREST)
    wrong = F.binary_cross_entropy(inner, correct.expand_as(scores), reduction="none")
    return ((assigned * wrong).sum(-1) / assigned.sum(-1)).mean(0).sum()


def _assignment_loss(assigned: Tensor, scores: Tensor, costs: Tensor, budgets: Tensor) -> Tensor:
    """Return the other two terms of the loss, summed over budgets."""
    clamped = scores.clamp(0, 1)
    target = clamped / clamped.sum(0).clamp_min(SUREST)
    divergence = F.kl_div(assigned.log(), target, reduction="none").mean((0, 2))
    missed = (costs @ assigned.mean(-1) - budgets).abs() / budgets
    return (EVEN * divergence + BUDGET * missed).sum()


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


POLICY = EENetPolicy()
"""The policy, as it is registered."""
