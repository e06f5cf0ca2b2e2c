"""Stage by stage: run, answer, decide, let samples leave, and go on with those who stay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone import Backbone, Hidden, Pooling, concatenate, select
from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.policy import OperatingPoint, Policy, observe
from offramp.runtime.backend import Backend
from offramp.runtime.compaction import Compaction
from offramp.runtime.eager import EagerBackend
from offramp.runtime.flight import Departed, Flight
from offramp.runtime.points import PointTable

__all__ = ["Engine"]

MOST_PLANS = 4096
"""Kept: batches that mix many points at random ask for ever new ones."""


class Engine:
    """Runs samples through a network with exits, each at an operating point of its own.

    The engine keeps nothing of the samples: a `Flight` does, so that flights can be joined where they meet. Work that
    no sample needs is not done: later stages of those who left, exits that are not in force at any point that came on
    board, statistics that no policy on board reads.

    Args:
        backbone: The frozen network.
        pooling: What exits see of a stage.
        bank: The trained exits.
        points: The operating points that samples may be at.
        backend: How stages and exits are computed; as torch does by itself if left out.
        compaction: When those who left are taken out of a batch; at once if left out.
    """

    def __init__(
        self,
        backbone: Backbone,
        pooling: Pooling,
        bank: ExitBank,
        points: Sequence[OperatingPoint],
        *,
        backend: Backend | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        self.backbone = backbone
        self.bank = bank
        device = next((parameter.device for parameter in backbone.parameters()), None)
        self.points = PointTable(points, device=device)
        if self.points.num_exits != backbone.num_exits:
            raise InputError(
                f"expected operating points of {backbone.num_exits} exits, one a stage of '{backbone.name}', got "
                f"{self.points.num_exits}; they are another network's"
            )
        self.backend = EagerBackend(backbone, pooling, bank) if backend is None else backend
        self.compaction = Compaction() if compaction is None else compaction
        self._last = backbone.num_exits - 1
        self._plans: dict[tuple[int, tuple[int, ...]], _Plan] = {}

    def start(self, hidden: Hidden, *, point: Tensor | None = None, rows: Tensor | None = None) -> Flight:
        """Take samples on board.

        Args:
            hidden: Inputs of n samples, as `backbone.prepare` gives them.
            point: `n` numbers of operating points; the first for all if left out.
            rows: `n` numbers to know the samples by; 0 to n - 1 if left out.
        """
        count = self.backbone.batch_size(hidden, 0)
        if point is not None and not self.points.has(point, count):
            raise InputError(
                f"expected a tensor of {count} numbers of operating points, 0 to {len(self.points) - 1}, got {point}"
            )
        if len(self.points) == 1:
            point = None
        elif point is None:
            point = torch.zeros(count, dtype=torch.long)
        zeros = torch.zeros(count, device=self.points.device)
        return Flight(
            depth=0,
            aboard=(0,) if point is None else tuple(sorted(set(point.tolist()))),
            hidden=hidden,
            rows=torch.arange(count, device=self.points.device) if rows is None else rows.to(self.points.device),
            point=None if point is None else point.to(self.points.device),
            gone=None,
            riding=0,
            state=(self.bank.initial_state(count), ()),
            carries={policy.name: policy.initial_carry(zeros) for policy in self.points.policies},
        )

    def join(self, flights: Sequence[Flight]) -> Flight:
        """Put flights that have come equally far into one; those that everybody has left do not count."""
        flights = [flight for flight in flights if len(flight)] or flights[:1]
        if len(flights) == 1:
            return flights[0]
        depths = sorted({flight.depth for flight in flights})
        if len(depths) != 1:
            raise InputError(f"expected flights that have passed the same stages, got some at {depths}")
        riding = sum(flight.riding for flight in flights)
        points = [flight.point for flight in flights if flight.point is not None]
        return Flight(
            depth=depths[0],
            aboard=tuple(sorted({row for flight in flights for row in flight.aboard})),
            hidden=self.backbone.concatenate([flight.hidden for flight in flights], depths[0]),
            rows=torch.cat([flight.rows for flight in flights]),
            point=torch.cat(points) if points else None,
            gone=torch.cat([_gone(flight) for flight in flights]) if riding else None,
            riding=riding,
            state=concatenate([flight.state for flight in flights]),
            carries=concatenate([flight.carries for flight in flights]),
        )

    @torch.inference_mode()
    def step(self, flight: Flight, *, generator: torch.Generator | None = None) -> tuple[Flight, Departed | None]:
        """Run one more stage.

        Args:
            flight: The samples; at least one.
            generator: Of the draws of a policy that samples; torch's own if left out.

        Returns:
            Those who go on, perhaps nobody, and those who left, if any.
        """
        return self._advance(flight, flight.depth, generator)

    def _advance(self, flight: Flight, stage: int, generator: torch.Generator | None) -> tuple[Flight, Departed | None]:
        """Run the stages up to and with `stage`, and its exit; there is nothing to do at the exits between."""
        plan = self._plan(stage, flight.aboard)
        hidden = flight.hidden
        for passed in range(flight.depth, stage + 1):
            hidden = self.backend.stage(passed, hidden)
        classifier = None if self.bank.stacked == 1 else self.points.classifiers(flight.point, len(flight))
        logits, state = self.backend.exit(stage, hidden, flight.state, classifier, answer=plan.answer, carry=plan.carry)
        gone, riding = flight.gone, flight.riding
        after = Flight(stage + 1, flight.aboard, hidden, flight.rows, flight.point, gone, riding, state, flight.carries)
        if logits is None:
            return after, None
        temperatures = plan.temperature if plan.alone else self.points.temperatures[flight.point, stage][:, None]
        probabilities = torch.softmax(logits / temperatures, dim=1)
        if stage == self._last:
            if gone is None:
                return _nobody(after), Departed(stage, flight.rows, probabilities)
            here = gone.argsort(stable=True)[: len(flight) - riding]
            return _nobody(after), Departed(stage, flight.rows[here], probabilities[here])
        leave, after.carries = self._decide(plan, flight, logits, probabilities, generator)
        leave = leave if gone is None else leave & ~gone
        # The one synchronisation with the device; a single sample need not be counted.
        leaving = int(leave) if len(flight) == 1 else int(leave.count_nonzero())
        if not leaving:
            return after, None
        if leaving == len(flight):
            return _nobody(after), Departed(stage, flight.rows, probabilities)
        # Those who stay, those who left before, those who leave now: sorted, since picking flags would ask the device.
        order = (2 * leave.byte() + _gone(flight)).argsort(stable=True)
        left = order[-leaving:]
        departed = Departed(stage, flight.rows[left], probabilities[left])
        after.gone, after.riding = leave if gone is None else leave | gone, riding + leaving
        return self._without(after, order), departed

    @torch.inference_mode()
    def run(
        self, hidden: Hidden, *, point: Tensor | None = None, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run samples to their answers.

        Args:
            hidden: Inputs of N samples, as `backbone.prepare` gives them.
            point: `N` numbers of operating points; the first for all if left out.
            generator: Of the draws of a policy that samples.

        Returns:
            `N x K` probabilities and `N` exits, in the order of the samples.
        """
        flight = self.start(hidden, point=point)
        count, left = len(flight), []
        while len(flight):
            flight, departed = self._advance(flight, self._plan(flight.depth, flight.aboard).next, generator)
            if departed is not None:
                left.append(departed)
        if len(left) == 1:  # together, and so in their order
            return left[0].probabilities.float(), torch.full_like(left[0].rows, left[0].exit)
        probabilities = torch.empty(count, self.backbone.num_classes, device=self.points.device)
        exits = torch.empty(count, dtype=torch.long, device=self.points.device)
        for departed in left:
            probabilities[departed.rows] = departed.probabilities.float()
            exits[departed.rows] = departed.exit
        return probabilities, exits

    def _plan(self, stage: int, aboard: tuple[int, ...]) -> "_Plan":
        """What is to be done after a stage for samples at these points: looked up once, not for every batch."""
        key = stage, aboard
        if key not in self._plans:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            self._plans[key] = self._made_plan(stage, aboard)
        return self._plans[key]

    def _made_plan(self, stage: int, aboard: tuple[int, ...]) -> "_Plan":
        policies = self.points.policies_of(aboard)
        alone = len(aboard) == 1
        answer = stage == self._last or self.points.is_active(stage, aboard)
        return _Plan(
            stage=stage,
            next=next(later for later in range(stage, self._last + 1) if self._is_stop(later, aboard)),
            answer=answer,
            carry=self.points.is_carried(stage),
            alone=alone,
            policies=policies,
            reads=frozenset(name for policy in policies for name in policy.reads),
            temperature=float(self.points.temperatures[aboard[0], stage]),
            parameters=self.points.parameters(policies[0], stage, aboard[0]) if alone else {},
        )

    def _is_stop(self, stage: int, aboard: tuple[int, ...]) -> bool:
        """Whether there is anything to do after a stage for samples at these points."""
        if stage == self._last or self.points.is_active(stage, aboard):
            return True
        if stage in self.bank.stages:
            return self.bank.carries_state and self.points.is_carried(stage)
        return stage in self.bank.averaging.read

    def _decide(
        self, plan: "_Plan", flight: Flight, logits: Tensor, probabilities: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Mapping[str, Any]]:
        """Who leaves at an exit, and what the policies remember of the others."""
        noise = self._draws(len(flight), generator) if "noise" in plan.reads else None
        seen = observe(plan.reads, logits, probabilities, noise)
        if plan.alone:
            (policy,) = plan.policies
            before = flight.carries[policy.name]
            leave, carry = policy.step(seen, before, plan.parameters)
            return leave, flight.carries if carry is before else {**flight.carries, policy.name: carry}
        assert flight.point is not None
        leave, carries = torch.zeros_like(flight.rows, dtype=torch.bool), dict(flight.carries)
        for policy in plan.policies:
            parameters = self.points.parameters(policy, plan.stage, flight.point)
            wants, carry = policy.step(seen, carries[policy.name], parameters)
            # Exits out of force at a sample's point, and other policies than its own, leave no trace on it.
            own = self.points.active_under(policy)[flight.point, plan.stage]
            leave |= wants & own
            carries[policy.name] = _chosen(own, carry, carries[policy.name])
        return leave, carries

    def _draws(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Uniform numbers: drawn where the generator is, so that they are the same on every device."""
        return torch.rand(count, generator=generator, device=generator.device if generator else None).to(
            self.points.device
        )

    def _without(self, flight: Flight, order: Tensor) -> Flight:
        """Those who stay, first in `order`; those who are gone ride along where taking them out does not pay."""
        staying = len(flight) - flight.riding
        if not staying:
            return _nobody(flight)
        if not self.compaction.pays(flight.depth, len(flight), staying):
            return flight
        keep = order[:staying]
        return Flight(
            depth=flight.depth,
            aboard=flight.aboard,
            hidden=self.backbone.trimmed(self.backbone.select(flight.hidden, keep, flight.depth), flight.depth),
            rows=flight.rows[keep],
            point=None if flight.point is None else flight.point[keep],
            gone=None,
            riding=0,
            state=select(flight.state, keep),
            carries=select(flight.carries, keep),
        )


def _gone(flight: Flight) -> Tensor:
    """Flags of those who ride along."""
    return torch.zeros_like(flight.rows, dtype=torch.bool) if flight.gone is None else flight.gone


def _nobody(flight: Flight) -> Flight:
    """What is left of a flight when the last have left: whoever looks at its length knows."""
    return replace(flight, hidden=None, rows=flight.rows[:0], gone=None, riding=0)


def _chosen(own: Tensor, new: Any, old: Any) -> Any:
    """`n` samples' new carries where `own` says so, else the old ones."""
    return pytree.tree_map(lambda one, other: torch.where(own.view(-1, *(1,) * (one.ndim - 1)), one, other), new, old)


@dataclass(frozen=True)
class _Plan:
    """What is to be done after one stage for samples at certain points."""

    stage: int
    next: int
    """The first stage from here on after which there is something to do."""
    answer: bool
    """Whether anybody may leave here."""
    carry: bool
    """Whether a later exit reads what this one remembers."""
    alone: bool
    """Whether there is one point; the two last entries are its own."""
    policies: Sequence[Policy]
    reads: frozenset[str]
    temperature: float
    parameters: Mapping[str, Tensor]
