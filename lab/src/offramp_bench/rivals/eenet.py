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

BUDGETS = 8
"""From what the first exit costs to what the last does."""

BETWEEN = 4
"""Steps from one budget's shares to the next one's."""

STEPS = 400
RATES = (3e-3, 1e-2)
"""Steps of Adam, and its rates for scores and assignments: at the published 3e-5, weights would move by .01 in so many,
which are a hundred epochs of 2,000 samples."""

BATCH = 512
DECAY = 1e-2
EVEN = 1e-3
"""Published: batch size, weight decay, and the weight of the divergence."""

BUDGET = 3.0
"""Weight of the budget; the published 1e-2 is less than late exits save in cross-entropy: nobody would leave early."""

SUREST = 1e-4
"""Scores nearer to 0 or 1 count as this near in the loss."""

HIDDEN = 8
"""Units of the network that assigns exits."""


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
    r"""Leave at the first exit whose score reaches that exit's own threshold.

    $$q^l = \mathrm{clamp}\bigl(v_l \cdot p^l + w_l \cdot [\max p^l,\ 1 - H(p^l)/\ln K,\ q^{l-1}] + b_l,\ 0,\ 1\bigr)$$

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
    stay_values = MappingProxyType({"threshold": 2.0})

    def step(self, seen: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the score reaches the threshold; it is what the next exit remembers."""
        assert seen.probabilities is not None
        # A sum over classes as a product of matrices: the simulator has many points' weights for the same samples.
        by_class = torch.einsum("...k,...k->...", seen.probabilities, parameters["class_weight"])
        largest, certainty = statistics(seen.probabilities).unbind(-1)
        weight = parameters["weight"]
        by_statistics = largest * weight[..., 0] + certainty * weight[..., 1] + carry * weight[..., 2]
        score = (by_class + by_statistics + parameters["bias"]).clamp(0, 1)
        return score >= parameters["threshold"], score

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        r"""Offer scores that say how likely an exit is right, and thresholds at which the learned shares leave.

        For a budget B, with scores $q$ as `EENetPolicy` has them and assignments $\pi$ over the exits in force,

        $$\mathcal L = \sum_l \pi^l\, \mathrm{BCE}(q^l, [\hat y^l = y])
        + 10^{-3}\, \mathrm{KL}(\bar\pi \,\|\, \text{even}) + w\, \bigl|\textstyle\sum_l \bar\pi^l c^l - B\bigr| / B$$

        is minimised on the tune split, $\bar\pi$ the mean over samples; thresholds then fill each exit's share
        $\bar\pi^l$ with the best scores. [Ilhan2024], reconstructed from what is published of it; ours are: the
        divergence (from equal shares), the inputs of the network that assigns exits (largest probability, entropy and
        score, not all classes), its logits in the softmax without a sigmoid before (which would let no exit have more
        than e times the share of another, and so miss most budgets), w = 3, the learning rates, and scores that start
        as confidences.

        Returns:
            A point for each of 8 budgets, and 3 between each two, by the scores of the lower one.
        """
        if not tuning.early:
            return []
        answers = torch.stack([tuning.probabilities(exit) for exit in tuning.active], dim=1)
        correct = tuning.correct[:, list(tuning.active)].float()
        costs = tuning.relative_costs.float()
        budgets = torch.linspace(float(costs[0]), float(costs[-1]), BUDGETS)
        scheduler = _fitted(answers, correct, costs, budgets, seed=tuning.seed)
        with torch.no_grad():
            scores, assigned = scheduler(answers)
        shares = assigned.mean(1)[:, :-1]
        points = []
        for row in range(BUDGETS):
            learned = {
                name: tuning.per_exit(getattr(scheduler, name)[row, :-1].detach())
                for name in ("class_weight", "weight", "bias")
            }
            for step in range(BETWEEN if row + 1 < BUDGETS else 1):
                wanted = torch.lerp(shares[row], shares[min(row + 1, BUDGETS - 1)], step / BETWEEN)
                thresholds = quota_thresholds(scores[row, :, :-1], wanted)
                points.append(tuning.point(self.name, **learned, threshold=tuning.per_exit(thresholds, NEVER)))
        return points

    def mul_adds(self, num_classes: int) -> int:
        """A softmax, an entropy, and a product of each class, statistic and the score before."""
        return 6 * num_classes + 4


class _Scheduler(nn.Module):
    """Scores and assignments of G budgets at once."""

    def __init__(self, budgets: int, exits: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.class_weight = nn.Parameter(torch.zeros(budgets, exits, classes))
        self.weight = nn.Parameter(torch.tensor([1.0, 0.0, 0.0]).repeat(budgets, exits, 1))
        self.bias = nn.Parameter(torch.zeros(budgets, exits))
        drawn = (torch.rand(exits, 4, HIDDEN, generator=generator) - 0.5).repeat(budgets, 1, 1, 1)
        self.hidden = nn.Parameter(drawn)
        self.output = nn.Parameter(torch.zeros(budgets, exits, HIDDEN + 1))

    def forward(self, answers: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and assignments, `G x N x A` each, from `N x A x K` probabilities."""
        read = statistics(answers)
        by_class = torch.einsum("nak,gak->gna", answers, self.class_weight)
        by_statistics = torch.einsum("nas,gas->gna", read, self.weight[..., :2])
        own = (by_class + by_statistics + self.bias[:, None]).unbind(-1)
        score: Any = torch.zeros_like(own[0])
        scores = []
        for place, one in enumerate(own):
            score = (one + score * self.weight[:, None, place, 2]).clamp(0, 1)
            scores.append(score)
        scored = torch.stack(scores, dim=-1)
        seen = torch.cat(
            [read.expand(len(scored), -1, -1, -1), scored[..., None], torch.ones_like(scored[..., None])], -1
        )
        units = torch.einsum("gnai,gaih->gnah", seen, self.hidden).relu()
        logits = torch.einsum("gnah,gah->gna", units, self.output[..., :-1]) + self.output[:, None, :, -1]
        return scored, logits.softmax(-1)


def _fitted(answers: Tensor, correct: Tensor, costs: Tensor, budgets: Tensor, *, seed: int) -> _Scheduler:
    """Fit schedulers for all budgets; they share nothing but their samples."""
    generator = torch.Generator().manual_seed(seed)
    count, exits, classes = answers.shape
    scheduler = _Scheduler(len(budgets), exits, classes, generator)
    groups = [
        {"params": [scheduler.class_weight, scheduler.weight, scheduler.bias], "lr": RATES[0]},
        {"params": [scheduler.hidden, scheduler.output], "lr": RATES[1]},
    ]
    optimiser = torch.optim.Adam(groups, weight_decay=DECAY)
    for _ in range(STEPS):
        rows = torch.randint(0, count, (min(BATCH, count),), generator=generator)
        scores, assigned = scheduler(answers[rows])
        # Short of 0 and 1: one sure and wrong answer would have a slope that leaves no room for the others'.
        inner = scores.clamp(SUREST, 1 - SUREST)
        wrong = F.binary_cross_entropy(inner, correct[rows].expand_as(scores), reduction="none")
        shares = assigned.mean(1)
        divergence = (shares * (shares * exits).log()).sum(-1)
        missed = ((shares @ costs) - budgets).abs() / budgets
        loss = ((assigned * wrong).sum(-1).mean(1) + EVEN * divergence + BUDGET * missed).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return scheduler


POLICY = EENetPolicy()
"""The policy, as it is registered."""
