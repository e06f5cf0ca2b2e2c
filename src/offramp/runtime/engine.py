"""Stage by stage: run, answer, decide, let samples leave, and go on with those who stay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.functional import evidence, log_probabilities
from offramp.policy import Observation, OperatingPoint, Policy
from offramp.runtime.backend import Backend
from offramp.runtime.compaction import Compaction
from offramp.runtime.eager import EagerBackend
from offramp.runtime.flight import Departed, Flight
from offramp.runtime.points import PointTable
from offramp.trunk import Hidden, Pooling, Trunk, concatenate, select

__all__ = ["Engine"]

MOST_PLANS = 4096
"""Kept: batches that mix many points at random ask for ever new ones."""

NOBODY: dict[str, Any] = {"rows": torch.empty(0, dtype=torch.long), "hidden": None, "riding": False}
"""What is left of a flight when the last have left: whoever looks at its length knows."""


class Engine:
    """Runs samples through a network with exits, each at an operating point of its own.

    The engine keeps nothing of the samples: a `Flight` does, so that flights can be joined where they meet. Work that
    no sample needs is not done: later stages of those who left, exits that are not in force at any point that came on
    board, statistics that no policy on board reads.

    Args:
        trunk: The frozen network.
        pooling: What exits see of a stage.
        bank: The trained exits.
        points: The operating points that samples may be at.
        backend: How stages and exits are computed; as torch does by itself if left out.
        compaction: When those who left are taken out of a batch; at once if left out.
    """

    def __init__(
        self,
        trunk: Trunk,
        pooling: Pooling,
        bank: ExitBank,
        points: Sequence[OperatingPoint],
        *,
        backend: Backend | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        self.trunk = trunk
        self.bank = bank
        self.points = PointTable(points)
        if self.points.num_exits != trunk.num_exits:
            raise InputError(
                f"expected operating points of {trunk.num_exits} exits, one a stage of '{trunk.name}', got "
                f"{self.points.num_exits}; they are another network's"
            )
        self.backend = EagerBackend(trunk, pooling, bank) if backend is None else backend
        self.compaction = Compaction() if compaction is None else compaction
        self._last = trunk.num_exits - 1
        self._plans: dict[tuple[int, tuple[int, ...]], _Plan] = {}

    def start(self, hidden: Hidden, *, point: Tensor | None = None, rows: Tensor | None = None) -> Flight:
        """Take samples on board.

        Args:
            hidden: Inputs of n samples, as `trunk.prepare` gives them.
            point: `n` numbers of operating points; the first for all if left out.
            rows: `n` numbers to know the samples by; 0 to n - 1 if left out.
        """
        sizes = self.trunk.sizes(hidden)
        count = len(sizes)
        if point is None:
            point = torch.zeros(count, dtype=torch.long)
        elif point.shape != (count,) or bool(((point < 0) | (point >= len(self.points))).any()):
            raise InputError(f"expected {count} numbers of operating points, 0 to {len(self.points) - 1}, got {point}")
        return Flight(
            depth=0,
            aboard=tuple(sorted(set(point.tolist()))) if len(self.points) > 1 else (0,),
            riding=False,
            hidden=hidden,
            rows=torch.arange(count) if rows is None else rows,
            sizes=sizes,
            point=point,
            gone=torch.zeros(count, dtype=torch.bool),
            state=(self.bank.initial_state(count), ()),
            carries={policy.name: policy.initial_carry(torch.zeros(count)) for policy in self.points.policies},
        )

    def join(self, flights: Sequence[Flight]) -> Flight:
        """Put flights that have come equally far into one; those that everybody has left do not count."""
        flights = [flight for flight in flights if len(flight)] or flights[:1]
        if len(flights) == 1:
            return flights[0]
        depths = sorted({flight.depth for flight in flights})
        if len(depths) != 1:
            raise InputError(f"expected flights that have passed the same stages, got some at {depths}")
        hidden = self.trunk.concatenate([flight.hidden for flight in flights], depths[0])
        aboard = tuple(sorted({row for flight in flights for row in flight.aboard}))
        riding = any(flight.riding for flight in flights)
        return Flight(depths[0], aboard, riding, hidden, *concatenate([flight.luggage for flight in flights]))

    @torch.inference_mode()
    def step(self, flight: Flight, *, generator: torch.Generator | None = None) -> tuple[Flight, Departed | None]:
        """Run one more stage.

        Args:
            flight: The samples; at least one.
            generator: Of the draws of a policy that samples; torch's own if left out.

        Returns:
            Those who go on, perhaps nobody, and those who left, if any.
        """
        stage = flight.depth
        plan = self._plan(stage, flight.aboard)
        hidden = self.backend.stage(stage, flight.hidden)
        classifier = None if self.bank.stacked == 1 else self.points.classifier[flight.point]
        logits, state = self.backend.exit(stage, hidden, flight.state, classifier, answer=plan.answer, carry=plan.carry)
        flight = replace(flight, depth=stage + 1, hidden=hidden, state=state)
        if logits is None:
            return flight, None
        temperatures = plan.temperature if plan.alone else self.points.temperatures[flight.point, stage][:, None]
        probabilities = torch.softmax(logits / temperatures, dim=1)
        if stage == self._last:
            return self._landed(flight, probabilities)
        leave, carries = self._decide(plan, flight, logits, probabilities, generator)
        leave = leave & ~flight.gone if flight.riding else leave
        left = leave.nonzero().squeeze(1)  # the one synchronisation with the device
        if carries is not flight.carries:
            flight = replace(flight, carries=carries)
        if not len(left):
            return flight, None
        departed = Departed(stage, flight.rows[left], probabilities[left])
        return self._without(flight, leave, len(left)), departed

    def run(
        self, hidden: Hidden, *, point: Tensor | None = None, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run samples to their answers.

        Args:
            hidden: Inputs of N samples, as `trunk.prepare` gives them.
            point: `N` numbers of operating points; the first for all if left out.
            generator: Of the draws of a policy that samples.

        Returns:
            `N x K` probabilities and `N` exits, in the order of the samples.
        """
        flight = self.start(hidden, point=point)
        probabilities = torch.empty(len(flight), self.trunk.num_classes)
        exits = torch.empty(len(flight), dtype=torch.long)
        while len(flight):
            flight, departed = self.step(flight, generator=generator)
            if departed is not None:
                probabilities[departed.rows] = departed.probabilities.to(probabilities.dtype)
                exits[departed.rows] = departed.exit
        return probabilities, exits

    def _landed(self, flight: Flight, probabilities: Tensor) -> tuple[Flight, Departed]:
        """Everybody leaves at the last exit."""
        rows = flight.rows
        if flight.riding:
            here = (~flight.gone).nonzero().squeeze(1)
            rows, probabilities = rows[here], probabilities[here]
        return replace(flight, **NOBODY), Departed(self._last, rows, probabilities)

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
            answer=answer,
            carry=self.points.is_carried(stage, aboard),
            alone=alone,
            policies=policies,
            reads=frozenset(name for policy in policies for name in policy.reads),
            temperature=float(self.points.temperatures[aboard[0], stage]),
            parameters=self.points.parameters(policies[0], stage, aboard[0]) if alone else {},
        )

    def _decide(
        self, plan: "_Plan", flight: Flight, logits: Tensor, probabilities: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Mapping[str, Any]]:
        """Who leaves at an exit, and what the policies remember of the others."""
        seen = Observation(
            confidence=probabilities.amax(1) if "confidence" in plan.reads else None,
            evidence=evidence(log_probabilities(logits)) if "evidence" in plan.reads else None,
            noise=torch.rand(len(flight), generator=generator) if "noise" in plan.reads else None,
        )
        if plan.alone:
            (policy,) = plan.policies
            before = flight.carries[policy.name]
            leave, carry = policy.step(seen, before, plan.parameters)
            return leave, flight.carries if carry is before else {**flight.carries, policy.name: carry}
        leave, carries = torch.zeros(len(flight), dtype=torch.bool), dict(flight.carries)
        for policy in plan.policies:
            parameters = self.points.parameters(policy, plan.stage, flight.point)
            wants, carry = policy.step(seen, carries[policy.name], parameters)
            # Exits out of force at a sample's point, and other policies than its own, leave no trace on it.
            own = self.points.active_under(policy)[flight.point, plan.stage]
            leave |= wants & own
            carries[policy.name] = _chosen(own, carry, carries[policy.name])
        return leave, carries

    def _without(self, flight: Flight, leave: Tensor, count: int) -> Flight:
        """Those who stay; the `count` who left ride along where taking them out does not pay."""
        if count == len(flight):
            return replace(flight, **NOBODY)
        gone = flight.gone | leave if flight.riding else leave
        keep = (~gone).nonzero().squeeze(1)
        if not len(keep):
            return replace(flight, **NOBODY)
        if not self.compaction.pays(flight.depth, len(gone), len(keep)):
            return replace(flight, gone=gone, riding=True)
        hidden = self.trunk.trimmed(self.trunk.select(flight.hidden, keep, flight.depth), flight.depth)
        return Flight(flight.depth, flight.aboard, False, hidden, *select(flight.luggage, keep))


def _chosen(own: Tensor, new: Any, old: Any) -> Any:
    """`n` samples' new carries where `own` says so, else the old ones."""
    return pytree.tree_map(lambda one, other: torch.where(own.view(-1, *(1,) * (one.ndim - 1)), one, other), new, old)


@dataclass(frozen=True)
class _Plan:
    """What is to be done after one stage for samples at certain points."""

    stage: int
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
