"""EENet: learned scores that predict if an exit is right, with one threshold per exit."""

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
"""Number of budgets with learned shares, from the cost of the first exit to that of the last; published: 20. A fit for
one budget takes as long as everything else here, and the geometric shares fill the gaps."""

SHARES = 80
"""Number of geometric shares, as published."""

LEARNING_RATE = 3e-5
WEIGHT_DECAY = 1e-2
BATCH = 512
EPOCHS = 1000
PERIOD = 10
"""Settings of Adam, and the epochs before scores and assignments take turns; scores come first. As published, for CIFAR
and BERT."""

EVEN = 1e-3
BUDGET = 1e-2
"""Weights of the divergence and of the distance from the budget, as published."""

HIDDEN = 0.5
"""Hidden units of an assignment per input, as published for images."""

STAY = 1e6
"""A threshold that no score reaches."""

SUREST = 1e-4
"""Scores closer to 0 or 1 count as this close in the loss. A guard for single precision, where a confidence may be
exactly 1: otherwise one wrong answer of confidence 1 has a gradient of 1e12, after which Adam takes no step."""


def statistics(probabilities: Tensor) -> Tensor:
    r"""Return the statistics that a score reads beside the probabilities: $[\max_k p_k,\ 1 - H(p)/\ln K]$.

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

    The scores of EENet [Ilhan2024], of temperature-scaled probabilities. There a score reads the scores of all earlier
    exits; here only that of the previous active exit (0 at the first), which depends on those before it. So the runtime
    carries one number per sample. Parameters per exit: `class_weight` (K), `weight` (3), `bias`, `threshold`.

    Example:
        >>> observation = Observation(probabilities=torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
        >>> parameters = {"class_weight": torch.zeros(2), "weight": torch.tensor([1.0, 0.0, 0.5])}
        >>> parameters |= {"bias": torch.tensor(0.0), "threshold": torch.tensor(0.7)}
        >>> EENetPolicy().step(observation, torch.zeros(2), parameters)
        (tensor([False,  True]), tensor([0.5000, 0.9000]))
    """

    name = "eenet"
    reads = frozenset({"probabilities"})
    parameters = frozenset({"class_weight", "weight", "bias", "threshold"})
    per_exit = parameters
    vectors = MappingProxyType({"weight": 3})
    per_class = frozenset({"class_weight"})
    stay_values = MappingProxyType({"threshold": STAY})

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the score reaches the threshold; clamped, it is the carry."""
        assert observation.probabilities is not None
        # A sum over classes as a product of matrices: the simulator has many points' weights for the same samples.
        by_class = torch.einsum("...k,...k->...", observation.probabilities, parameters["class_weight"])
        largest, certainty = statistics(observation.probabilities).unbind(-1)
        weight = parameters["weight"]
        by_statistics = largest * weight[..., 0] + certainty * weight[..., 1] + carry * weight[..., 2]
        score = by_class + by_statistics + parameters["bias"]
        # As published, s decides and q is trained: s still ranks the confident samples, whose q is 1.
        return score >= parameters["threshold"], score.clamp(0, 1)

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        r"""Fit scores that predict if an exit is right, and return thresholds at which given shares of samples leave.

        For a budget B, scores $q$ and assignments $\pi$ over the A active exits minimise, on the tune split,

        $$\frac1A \sum_l \frac{\sum_i \pi_i^l\, \mathrm{BCE}(q_i^l, [\hat y_i^l = y_i])}{\sum_i \pi_i^l}
        + 10^{-3}\, \mathrm{KL}(q / \textstyle\sum q \,\|\, \pi) + 10^{-2}\, |\bar\pi \cdot c - B| / B,
        \qquad \pi = \mathrm{softmax}(\sigma(\text{MLP}))$$

        with no gradient through $\pi$ in the first term nor through q in the second, which is a mean over samples and
        exits. Thresholds then fill each exit's share with the best scores. The shares are those that the assignments of
        each budget learn, and, with scores fitted without a budget, geometric ones $\propto r^l$ that cost 80 budgets:
        both are in the released code of [Ilhan2024]. Because of the sigmoid no exit has more than e times the share of
        another, so that learned shares miss low and high budgets where exits are many; the geometric ones reach all.

        The constants are the published ones. Different here: fewer budgets, scores that start as confidences (at the
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
        learned_shares = ((row, shares[:, row]) for row in range(BUDGETS))
        geometric_shares = ((BUDGETS, share) for share in _geometric_shares(tuning.relative_costs.double()))
        points = []
        for row, share in (*learned_shares, *geometric_shares):
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
        """Count a softmax, an entropy, and one product for each class, each statistic and the previous score."""
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
    def score_parameters(self) -> list[nn.Parameter]:
        """The parameters of the scores."""
        return [self.class_weight, self.weight, self.bias]

    @property
    def assignment_parameters(self) -> list[nn.Parameter]:
        """The parameters of the assignments."""
        return [self.hidden, self.hidden_bias, self.output, self.output_bias]

    def scores(self, inputs: Tensor) -> Tensor:
        """Return `A x G x N` scores, not clamped, from `A x (K + 2) x N` probabilities and statistics."""
        weight = torch.cat([self.class_weight, self.weight[..., :2]], dim=-1)
        own = torch.bmm(weight, inputs) + self.bias
        with torch.no_grad():  # as published, an earlier score is an input
            previous = torch.zeros_like(own)
            for place in range(len(own) - 1):
                previous[place + 1] = (own[place] + previous[place] * self.weight[place, :, 2:]).clamp(0, 1)
        return own + previous * self.weight[..., 2:]

    def assign(self, inputs: Tensor, scores: Tensor) -> Tensor:
        """Return `A x G x N` assignments, from the input of `scores` and the scores."""
        previous = F.pad(scores[:-1].clamp(0, 1), (0, 0, 0, 0, 1, 0))[:, :, None]
        products = torch.bmm(self.hidden[..., :-1].flatten(1, 2), inputs).view(*self.hidden.shape[:3], -1)
        units = (products + self.hidden[..., -1:] * previous + self.hidden_bias).sigmoid()
        logits = (units * self.output).sum(2) + self.output_bias
        assignments: Tensor = logits.sigmoid().softmax(0)
        return assignments


def _fit_scheduler(
    answers: Tensor, correct: Tensor, costs: Tensor, budgets: Tensor, *, seed: int
) -> tuple[_Scheduler, Tensor, Tensor]:
    """Fit one scheduler per budget and, last, one without a budget; they share only their samples.

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
    inputs, targets = torch.cat([answers, statistics(answers)], dim=-1).permute(1, 2, 0), correct.T[:, None]
    # As published, samples are shuffled once, so that batches stay the same.
    batches = torch.split(torch.randperm(count, generator=generator), BATCH)
    input_batches, target_batches = ([whole[..., rows].contiguous() for rows in batches] for whole in (inputs, targets))
    score_optimizer, assignment_optimizer = (
        torch.optim.Adam(part, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
        for part in (scheduler.score_parameters, scheduler.assignment_parameters)
    )
    for turn in range(EPOCHS // PERIOD):
        with torch.no_grad():
            scores = [scheduler.scores(batch) for batch in input_batches]
            pairs = zip(input_batches, scores, strict=True)
            assignments = [scheduler.assign(*pair) for pair in pairs] if turn % 2 == 0 else []
        for place in [*range(len(batches))] * PERIOD:
            if turn % 2 == 0:
                current = scheduler.scores(input_batches[place])
                _step(score_optimizer, _score_loss(current, target_batches[place], assignments[place]))
            else:
                current = scheduler.assign(input_batches[place], scores[place])
                loss = _assignment_loss(current[:, :-1], scores[place][:, :-1], costs, budgets)
                _step(assignment_optimizer, loss)
    with torch.no_grad():
        final = scheduler.scores(inputs)
        parts = zip(torch.split(inputs, BATCH, dim=-1), torch.split(final, BATCH, dim=-1), strict=True)
        shares = torch.cat([scheduler.assign(*part) for part in parts], dim=-1).mean(-1)
    return scheduler, final, shares


def _score_loss(scores: Tensor, correct: Tensor, assignments: Tensor) -> Tensor:
    """Return the first term of the loss, summed over budgets."""
    inner = scores.clamp(SUREST, 1 - SUREST)
    wrong = F.binary_cross_entropy(inner, correct.expand_as(scores), reduction="none")
    return ((assignments * wrong).sum(-1) / assignments.sum(-1)).mean(0).sum()


def _assignment_loss(assignments: Tensor, scores: Tensor, costs: Tensor, budgets: Tensor) -> Tensor:
    """Return the other two terms of the loss, summed over budgets."""
    clamped = scores.clamp(0, 1)
    target = clamped / clamped.sum(0).clamp_min(SUREST)
    divergence = F.kl_div(assignments.log(), target, reduction="none").mean((0, 2))
    distance = (costs @ assignments.mean(-1) - budgets).abs() / budgets
    return (EVEN * divergence + BUDGET * distance).sum()


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


POLICY = EENetPolicy()
"""The registered policy."""
