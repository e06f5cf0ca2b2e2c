"""Costs of leaving at each exit, in any unit: Mul-Adds, milliseconds, money."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.policy import Policy

__all__ = ["CostTable", "Costs", "Prices"]


@dataclass(frozen=True)
class CostTable:
    """The cost per sample of every part of the network, stage by stage.

    A field is `L` numbers, or `N x L` where samples differ in size.
    """

    stage: Tensor
    """Running each stage of the backbone."""
    carry: Tensor
    """Pooling, and updating the exits' state after each stage."""
    answer: Tensor
    """Answering at each exit, the network's own heads included."""
    decide: Tensor
    """Deciding at each exit whether to leave; 0 at the final one."""
    full: Tensor
    """The full network, all stages and its own last head: one number, or `N`."""
    carries_state: bool
    """True if `carry` is spent at every stage up to the last early active exit; False: only at active exits."""
    _cumulative: dict[tuple[int, ...], Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Results of `cumulative_costs`: a fit asks for those of one set of exits at hundreds of points."""

    @property
    def num_exits(self) -> int:
        """Number of exits, L, the final one included."""
        return int(self.stage.shape[-1])

    def cumulative_costs(self, active: Sequence[int] | None = None) -> Tensor:
        r"""Return the total cost of a sample that leaves at each exit.

        $$\mathrm{IC}^l = \sum_{k \le l} \text{stage}_k + \text{carry}_k + \text{answer}_k + \text{decide}_k$$

        Appendix "Inference cost" of [Regol2024]. Answering and deciding count at active exits only, and a state is
        carried up to the last early one of them.

        Args:
            active: The active exits, the final one included; by default all.

        Returns:
            `L` or `N x L` costs; at an exit that is not active, the cost of passing it. Not to be changed.
        """
        exits = tuple(range(self.num_exits) if active is None else active)
        if exits not in self._cumulative:
            self._cumulative[exits] = self._sum_costs(exits)
        return self._cumulative[exits]

    def _sum_costs(self, active: tuple[int, ...]) -> Tensor:
        mask = torch.zeros(self.num_exits, dtype=self.stage.dtype)
        mask[list(active)] = 1
        if not mask[-1]:
            raise InputError(expected=f"active exits that include the final one, {self.num_exits - 1}", got=active)
        carried = mask
        if self.carries_state:
            ahead = mask[:-1].flip(0).cumsum(0).flip(0)  # active early exits, here or later
            carried = torch.cat([ahead.clamp_max(1), mask[-1:]])
        return (self.stage + self.carry * carried + (self.answer + self.decide) * mask).cumsum(-1)

    def relative_costs(self) -> Tensor:
        r"""Return the costs in the training loss, $\mathrm{IC}^l / \mathrm{IC}^L$ with all exits active."""
        cumulative = self.cumulative_costs()
        return cumulative / cumulative[..., -1:]

    def spent(self, exits: Tensor, active: Sequence[int] | None = None) -> Tensor:
        """Return the cost of each sample.

        Args:
            exits: `... x N` exits the samples leave at.
            active: The active exits; by default all.

        Returns:
            `... x N` costs.
        """
        cumulative = self.cumulative_costs(active)
        if cumulative.ndim == 1:
            return cumulative[exits]
        return cumulative.expand(*exits.shape, -1).gather(-1, exits[..., None]).squeeze(-1)

    def relative_cost(self, exits: Tensor, active: Sequence[int] | None = None) -> Tensor:
        """Return the relative cost of a set of samples: total spent over the total of the full network.

        The full network has no exits, so samples that all reach the end cost more than 1.

        Args:
            exits: `... x N` exits the samples leave at.
            active: The active exits; by default all.

        Returns:
            `...` relative costs.

        Example:
            >>> stage, answer, zero = torch.tensor([1.0, 3.0]), torch.tensor([0.1, 0.0]), torch.zeros(2)
            >>> table = CostTable(stage, zero, answer, zero, full=torch.tensor(4.0), carries_state=False)
            >>> table.relative_cost(torch.tensor([0, 1]))
            tensor(0.6500)
        """
        return self.spent(exits, active).sum(-1) / self.full.expand(exits.shape[-1]).sum()

    def relative_cost_alone(self, stages: Sequence[int], count: int) -> float:
        """Return the relative cost of one member of a cascade by itself: its stages and its own head.

        Args:
            stages: The member's stages; its own head is after the last.
            count: N, the number of samples.
        """
        # `answer` is 0 where a later head averages with this one; `stage` then includes the head.
        spent = self.stage[..., list(stages)].sum(-1) + self.answer[..., stages[-1]]
        return float(spent.expand(count).sum() / self.full.expand(count).sum())


@dataclass(frozen=True)
class Costs:
    """Costs for samples of any size: one table, or one per power of the size.

    Example:
        >>> ones, zeros = torch.ones(2), torch.zeros(2)
        >>> table = CostTable(ones, zeros, zeros, zeros, full=torch.tensor(2.0), carries_state=False)
        >>> Costs((table, table)).of(torch.tensor([1.0, 9.0])).full  # 2 + 2 size
        tensor([ 4., 20.])
    """

    tables: tuple[CostTable, ...]
    """The coefficients of 1, size, size squared, ..."""

    def of(self, sizes: Tensor) -> CostTable:
        """Return the costs of samples of `N` sizes: `L` numbers where size does not matter, else `N x L`."""
        if len(self.tables) == 1:
            return self.tables[0]
        return self._weighted(torch.stack([sizes.double() ** power for power in range(len(self.tables))], dim=1))

    def average(self, sizes: Tensor | Iterable[Tensor]) -> CostTable:
        """Return the `L` mean costs over samples of these sizes, one tensor or several."""
        if len(self.tables) == 1:
            return self._weighted(torch.ones(1, dtype=torch.float64))
        sums, count = torch.zeros(len(self.tables), dtype=torch.float64), 0
        for piece in [sizes] if isinstance(sizes, Tensor) else sizes:
            sums += torch.stack([(piece.double() ** power).sum() for power in range(len(self.tables))])
            count += len(piece)
        return self._weighted(sums / count)

    def _weighted(self, weights: Tensor) -> CostTable:
        """Return the sum of the tables, weighted by `... x C` numbers."""
        names = ("stage", "carry", "answer", "decide", "full")
        stacked = {name: torch.stack([getattr(table, name) for table in self.tables]) for name in names}
        summed = {name: torch.tensordot(weights.to(value.dtype), value, dims=1) for name, value in stacked.items()}
        return CostTable(**summed, carries_state=self.tables[0].carries_state)


class Prices(Protocol):
    """A unit of cost: prices a network with exits that are yet to be trained, in Mul-Adds or milliseconds."""

    def price(self, exits: ExitSet, policy: Policy) -> Costs:
        """Return the costs of network, exits and policy together.

        Args:
            exits: The exits.
            policy: The policy that decides at them.
        """
