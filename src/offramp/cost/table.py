"""What leaving at each exit costs, in any unit: Mul-Adds, milliseconds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.errors import InputError

__all__ = ["CostTable", "Costs"]


@dataclass(frozen=True)
class CostTable:
    """The price of every piece a sample may run, stage by stage.

    Any field may be `L` numbers, or `N x L` where samples differ in size. Costs are those of one sample.
    """

    stage: Tensor
    """Running each stage of the backbone."""
    carry: Tensor
    """Pooling, and carrying the exits' state past each stage."""
    answer: Tensor
    """Answering at each exit, the network's own heads among them."""
    decide: Tensor
    """Deciding at each exit whether to leave; 0 at the final one."""
    full: Tensor
    """The full network, all stages and its own last head: one number, or `N`."""
    carries_state: bool
    """Whether `carry` is paid at every stage up to the last early exit in force, or only where an exit is active."""

    @property
    def num_exits(self) -> int:
        """L."""
        return int(self.stage.shape[-1])

    def cumulative_costs(self, active: Sequence[int] | None = None) -> Tensor:
        r"""Everything spent by a sample that leaves at each exit.

        $$\mathrm{IC}^l = \sum_{k \le l} \text{stage}_k + \text{carry}_k + \text{answer}_k + \text{decide}_k$$

        Appendix "Inference cost" of [Regol2024]; answering and deciding are counted at active exits alone, and a state
        is carried no further than the last early one of them, as nobody reads it behind.

        Args:
            active: The exits in force, the final one among them; all if left out.

        Returns:
            `L` or `N x L` costs; at an exit that is not active, what a sample has spent when it passes there.
        """
        mask = torch.zeros(self.num_exits, dtype=self.stage.dtype)
        mask[list(range(self.num_exits) if active is None else active)] = 1
        if not mask[-1]:
            raise InputError(f"active exits must include the final one, {self.num_exits - 1}; got {active}")
        carried = mask
        if self.carries_state:
            ahead = mask[:-1].flip(0).cumsum(0).flip(0)  # early exits in force, here or later
            carried = torch.cat([ahead.clamp_max(1), mask[-1:]])
        return (self.stage + self.carry * carried + (self.answer + self.decide) * mask).cumsum(-1)

    def relative_costs(self) -> Tensor:
        r"""What training prices: $\mathrm{IC}^l_{\mathrm{norm}} = \mathrm{IC}^l / \mathrm{IC}^L$, all exits active."""
        cumulative = self.cumulative_costs()
        return cumulative / cumulative[..., -1:]

    def spent(self, exits: Tensor, active: Sequence[int] | None = None) -> Tensor:
        """What each sample spends.

        Args:
            exits: `... x N` exits the samples leave at.
            active: The exits in force.

        Returns:
            `... x N` costs.
        """
        cumulative = self.cumulative_costs(active)
        if cumulative.ndim == 1:
            return cumulative[exits]
        return cumulative.expand(*exits.shape, -1).gather(-1, exits[..., None]).squeeze(-1)

    def relative_cost(self, exits: Tensor, active: Sequence[int] | None = None) -> Tensor:
        """Relative cost of a set of samples: total spent over the total of the full network.

        The full network has no exits, so their own price shows: samples that all reach the end cost more than 1.

        Args:
            exits: `... x N` exits the samples leave at.
            active: The exits in force.

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
        """Relative cost of a network of a cascade by itself: its stages and its own head, no exits, nothing decided.

        Args:
            stages: Those of the network, its own head after the last.
            count: N, the number of samples.
        """
        # `answer` is 0 where a later head averages with this one: the head is then counted with its stage.
        spent = self.stage[..., list(stages)].sum(-1) + self.answer[..., stages[-1]]
        return float(spent.expand(count).sum() / self.full.expand(count).sum())


@dataclass(frozen=True)
class Costs:
    """What leaving costs samples of any size: one table, or one for each power of the size.

    Example:
        >>> one = torch.ones(2)
        >>> table = CostTable(one, 0 * one, 0 * one, 0 * one, full=torch.tensor(2.0), carries_state=False)
        >>> Costs((table, table)).of(torch.tensor([1.0, 9.0])).full  # 2 + 2 size
        tensor([ 4., 20.])
    """

    tables: tuple[CostTable, ...]
    """The coefficients of 1, size, size squared, ..."""

    def of(self, sizes: Tensor) -> CostTable:
        """The costs of `N` samples of the given sizes: `L` numbers where size does not matter, else `N x L`."""
        if len(self.tables) == 1:
            return self.tables[0]
        return self._weighted(torch.stack([sizes.double() ** power for power in range(len(self.tables))], dim=1))

    def average(self, sizes: Tensor | Iterable[Tensor]) -> CostTable:
        """The mean costs over samples of the given sizes, which may come in pieces: `L` numbers."""
        if len(self.tables) == 1:
            return self._weighted(torch.ones(1, dtype=torch.float64))
        sums, count = torch.zeros(len(self.tables), dtype=torch.float64), 0
        for piece in [sizes] if isinstance(sizes, Tensor) else sizes:
            sums += torch.stack([(piece.double() ** power).sum() for power in range(len(self.tables))])
            count += len(piece)
        return self._weighted(sums / count)

    def _weighted(self, weights: Tensor) -> CostTable:
        """The sum of the tables, weighted by `... x C` numbers."""
        names = ("stage", "carry", "answer", "decide", "full")
        stacked = {name: torch.stack([getattr(table, name) for table in self.tables]) for name in names}
        summed = {name: torch.tensordot(weights.to(value.dtype), value, dims=1) for name, value in stacked.items()}
        return CostTable(**summed, carries_state=self.tables[0].carries_state)
