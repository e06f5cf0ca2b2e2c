"""The engine: run a stage, run its exit, decide who leaves, and continue with the others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden, concatenate, select
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.policy import OperatingPoint, Policy
from offramp.policy._observation import observe
from offramp.pooling import Pooling
from offramp.runtime._backend import Backend, FusedBackend
from offramp.runtime._batch import ActiveBatch, Compaction, FinishedSamples
from offramp.runtime._eager import EagerBackend
from offramp.runtime._points import PointTable

__all__ = ["Engine"]

MOST_PLANS = 4096
"""Most plans to cache: batches that mix many points at random need ever new ones."""


class Engine:
    """The execution of a network with exits, each sample at its own operating point.

    The engine keeps no state of samples; `ActiveBatch` does, so batches at the same depth can be joined. It skips the
    later stages of samples that left, exits that no point in the batch uses, and statistics that no policy reads.

    Args:
        backbone: The frozen network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        points: The operating points that samples may be at.
        backend: The computation of stages and exits; by default plain torch.
        compaction: The rule for removing finished samples from a batch; by default at once.
    """

    def __init__(
        self,
        backbone: Backbone,
        pooling: Pooling,
        exits: ExitSet,
        points: Sequence[OperatingPoint],
        *,
        backend: Backend | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        self.backbone = backbone
        self.exits = exits
        device = next((parameter.device for parameter in backbone.parameters()), None)
        self.points = PointTable(points, device=device)
        if self.points.num_exits != backbone.num_exits:
            raise InputError(
                "operating points",
                expected=f"{backbone.num_exits} exits, one per stage of '{backbone.name}'",
                got=f"{self.points.num_exits}",
                hint="give points that were fitted for this network",
            )
        self.backend: Backend = EagerBackend(backbone, pooling, exits) if backend is None else backend
        self._fused = self.backend if isinstance(self.backend, FusedBackend) else None
        self.compaction = Compaction() if compaction is None else compaction
        self._last = backbone.num_exits - 1
        self._plans: dict[tuple[int, tuple[int, ...]], _StagePlan] = {}
        self._repeated: dict[tuple[int, int], Mapping[str, Tensor]] = {}

    def start(self, hidden: Hidden, *, point: Tensor | None = None, rows: Tensor | None = None) -> ActiveBatch:
        """Begin a batch.

        Args:
            hidden: Inputs of n samples, from `backbone.prepare`.
            point: `n` indices of operating points; by default the first for all.
            rows: `n` numbers that identify the samples; by default 0 to n - 1.
        """
        count = self.backbone.batch_size(hidden, 0)
        if point is not None and not self.points.has(point, count):
            raise InputError(
                "point", expected=f"a tensor of {count} indices in 0 to {len(self.points) - 1}", got=f"{point}"
            )
        if len(self.points) == 1:
            point = None
        elif point is None:
            point = torch.zeros(count, dtype=torch.long)
        zeros = torch.zeros(count, device=self.points.device)
        return ActiveBatch(
            depth=0,
            points=(0,) if point is None else tuple(sorted(set(point.tolist()))),
            hidden=hidden,
            rows=torch.arange(count, device=self.points.device) if rows is None else rows.to(self.points.device),
            point=None if point is None else point.to(self.points.device),
            finished=None,
            riders=0,
            state=(self.exits.initial_state(count), ()),
            carries={policy.name: policy.initial_carry(zeros) for policy in self.points.policies},
        )

    def join(self, batches: Sequence[ActiveBatch]) -> ActiveBatch:
        """Concatenate batches of the same depth; empty ones are ignored."""
        batches = [batch for batch in batches if len(batch)] or batches[:1]
        if len(batches) == 1:
            return batches[0]
        depths = sorted({batch.depth for batch in batches})
        if len(depths) != 1:
            raise InputError("depth", expected="batches that have passed the same stages", got=depths)
        riders = sum(batch.riders for batch in batches)
        points = [batch.point for batch in batches if batch.point is not None]
        return ActiveBatch(
            depth=depths[0],
            points=tuple(sorted({row for batch in batches for row in batch.points})),
            hidden=self.backbone.concatenate([batch.hidden for batch in batches], depths[0]),
            rows=torch.cat([batch.rows for batch in batches]),
            point=torch.cat(points) if points else None,
            finished=torch.cat([_finished_flags(batch) for batch in batches]) if riders else None,
            riders=riders,
            state=concatenate([batch.state for batch in batches]),
            carries=concatenate([batch.carries for batch in batches]),
        )

    @torch.inference_mode()
    def step(
        self, batch: ActiveBatch, *, generator: torch.Generator | None = None
    ) -> tuple[ActiveBatch, FinishedSamples | None]:
        """Run one more stage.

        Args:
            batch: At least one sample.
            generator: The random generator of policies that draw; by default torch's own.

        Returns:
            The samples that continue, possibly none, and those that left, if any.
        """
        return self._advance(batch, batch.depth, generator)

    @torch.inference_mode()
    def advance(
        self, batch: ActiveBatch, *, generator: torch.Generator | None = None
    ) -> tuple[ActiveBatch, FinishedSamples | None]:
        """Run the stages up to the next exit that has anything to do; arguments and result are those of `step`.

        One sample at the first point runs through the whole network at once, where the backend can do that.
        """
        if batch.depth == 0 and len(batch) == 1 and batch.points == (0,) and self._single is not None:
            probabilities, exit = self._single(batch.hidden)
            return _empty(batch), FinishedSamples(int(exit), batch.rows, probabilities)
        return self._advance(batch, self._plan(batch.depth, batch.points).next_stage, generator)

    def keep(self, batch: ActiveBatch, keep: Tensor) -> ActiveBatch:
        """Return some samples of a batch.

        Args:
            batch: The batch.
            keep: Indices of the samples, none of them a rider.
        """
        if not len(keep):
            return _empty(batch)
        return ActiveBatch(
            depth=batch.depth,
            points=batch.points,
            hidden=self.backbone.trim(self.backbone.select(batch.hidden, keep, batch.depth), batch.depth),
            rows=batch.rows[keep],
            point=None if batch.point is None else batch.point[keep],
            finished=None,
            riders=0,
            state=select(batch.state, keep),
            carries=select(batch.carries, keep),
        )

    @torch.inference_mode()
    def run(
        self, hidden: Hidden, *, point: Tensor | None = None, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run samples until all have left.

        Args:
            hidden: Inputs of N samples, from `backbone.prepare`.
            point: `N` indices of operating points; by default the first for all.
            generator: The random generator of policies that draw.

        Returns:
            `N x K` probabilities and `N` exits, in the order of the samples.
        """
        batch = self.start(hidden, point=point)
        count, parts = len(batch), []
        while len(batch):
            batch, finished = self.advance(batch, generator=generator)
            if finished is not None:
                parts.append(finished)
        if len(parts) == 1:  # all left together, and so in their order
            return parts[0].probabilities.float(), torch.full_like(parts[0].rows, parts[0].exit)
        return self.gather(parts, count)

    @cached_property
    def _single(self) -> Callable[[Hidden], tuple[Tensor, Tensor]] | None:
        """The whole network for one sample at the first point, if the backend can run it at once."""
        return None if self._fused is None else self._fused.single(self.points.points[0])

    def gather(self, parts: Sequence[FinishedSamples], count: int) -> tuple[Tensor, Tensor]:
        """Put the results of `count` finished samples in the order of their rows."""
        probabilities = torch.empty(count, self.backbone.num_classes, device=self.points.device)
        exits = torch.empty(count, dtype=torch.long, device=self.points.device)
        for part in parts:
            probabilities[part.rows] = part.probabilities.float()
            exits[part.rows] = part.exit
        return probabilities, exits

    def _advance(
        self, batch: ActiveBatch, stage: int, generator: torch.Generator | None
    ) -> tuple[ActiveBatch, FinishedSamples | None]:
        """Run the stages through `stage`, then its exit; the exits before it have nothing to do."""
        plan = self._plan(stage, batch.points)
        hidden, finished, riders = batch.hidden, batch.finished, batch.riders
        for index in range(batch.depth, stage):
            hidden = self.backend.stage(index, hidden)
        classifier = None if self.exits.stacked == 1 else self.points.classifiers(batch.point, len(batch))
        after = ActiveBatch(
            stage + 1, batch.points, hidden, batch.rows, batch.point, finished, riders, batch.state, batch.carries
        )
        decision = self._decide_at_once(plan, after, classifier) if plan.fused else None
        if decision is None:
            decision = self._decide_in_parts(plan, after, classifier, generator)
        if decision is None:
            return after, None
        probabilities, leave = decision
        if stage == self._last:
            if finished is None:
                return _empty(after), FinishedSamples(stage, batch.rows, probabilities)
            staying = finished.argsort(stable=True)[: len(batch) - riders]
            return _empty(after), FinishedSamples(stage, batch.rows[staying], probabilities[staying])
        leave = leave if finished is None else leave & ~finished
        # The only synchronisation with the device; a single sample need not be counted.
        num_leaving = int(leave) if len(batch) == 1 else int(leave.count_nonzero())
        if not num_leaving:
            return after, None
        if num_leaving == len(batch):
            return _empty(after), FinishedSamples(stage, batch.rows, probabilities)
        # Staying samples first, then riders, then leavers: by sorting, as boolean indexing would synchronise again.
        order = (2 * leave.byte() + _finished_flags(batch)).argsort(stable=True)
        leaving = order[-num_leaving:]
        left = FinishedSamples(stage, batch.rows[leaving], probabilities[leaving])
        after.finished, after.riders = leave if finished is None else leave | finished, riders + num_leaving
        return self._compact(after, order), left

    def _decide_at_once(
        self, plan: "_StagePlan", batch: ActiveBatch, classifier: Tensor | None
    ) -> tuple[Tensor, Tensor] | None:
        """Run a stage, its exit and the policy together; None if the backend cannot.

        Args:
            plan: The plan of the stage.
            batch: The samples before the stage; their hidden state, state and carries become those after it.
            classifier: `n` indices into stacked classifiers, if there are several sets.

        Returns:
            `n x K` probabilities and `n` flags of the samples that leave.
        """
        assert self._fused is not None
        last = plan.stage == self._last
        policy = None if last else plan.policies[0]
        carry = () if policy is None else batch.carries[policy.name]
        parameters = self._parameters(plan, policy, batch)
        step = self._fused.step(plan.stage, batch.hidden, batch.state, classifier, policy, parameters, carry)
        if step is None:
            return None
        batch.hidden, batch.state = step.hidden, step.state
        if policy is None:
            return step.probabilities, torch.ones_like(batch.rows, dtype=torch.bool)
        leave, new_carry = step.leave, step.carry
        assert leave is not None
        if not plan.one_point:
            own = self.points.active_under(policy)[batch.point, plan.stage]
            leave, new_carry = leave & own, _update_carry(carry, new_carry, own)
        batch.carries = {**batch.carries, policy.name: new_carry}
        return step.probabilities, leave

    def _parameters(self, plan: "_StagePlan", policy: Policy | None, batch: ActiveBatch) -> Mapping[str, Tensor]:
        """Return temperatures and the policy's parameters at a stage for each sample.

        Those of one point are kept, repeated for the largest batch so far; other threads may do the same meanwhile.
        """
        key, count = (plan.stage, plan.points[0]), len(batch)
        kept = self._repeated.get(key) if plan.one_point else None
        if kept is not None and len(kept["temperature"]) >= count:
            return {name: values[:count] for name, values in kept.items()}
        point = torch.full_like(batch.rows, plan.points[0]) if plan.one_point else batch.point
        assert point is not None
        inputs = {"temperature": self.points.temperatures[point, plan.stage][:, None]}
        if policy is not None:
            inputs |= self.points.parameters(policy, plan.stage, point)
        if plan.one_point:
            self._repeated[key] = inputs
        return inputs

    def _decide_in_parts(
        self, plan: "_StagePlan", batch: ActiveBatch, classifier: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor] | None:
        """Run a stage, its exit and the policy one after the other; None if nobody may leave here.

        Args:
            plan: As for `_decide_at_once`; so are batch, classifier and the result.
            batch: The samples.
            classifier: Indices of classifiers.
            generator: The random generator of policies that draw.
        """
        stage = plan.stage
        batch.hidden = self.backend.stage(stage, batch.hidden)
        logits, batch.state = self.backend.exit(
            stage, batch.hidden, batch.state, classifier, answer=plan.answer, carry=plan.carry
        )
        if logits is None:
            return None
        temperatures = plan.temperature if plan.one_point else self.points.temperatures[batch.point, stage][:, None]
        probabilities = torch.softmax(logits / temperatures, dim=1)
        if stage == self._last:
            return probabilities, torch.ones_like(batch.rows, dtype=torch.bool)
        leave, batch.carries = self._decide(plan, batch, logits, probabilities, generator)
        return probabilities, leave

    def _plan(self, stage: int, points: tuple[int, ...]) -> "_StagePlan":
        """Return the cached plan for a stage and the points of a batch."""
        key = stage, points
        if key not in self._plans:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            self._plans[key] = self._make_plan(stage, points)
        return self._plans[key]

    def _make_plan(self, stage: int, points: tuple[int, ...]) -> "_StagePlan":
        policies = self.points.policies_of(points)
        one_point = len(points) == 1
        answer = stage == self._last or self.points.is_active(stage, points)
        reads = frozenset(name for policy in policies for name in policy.reads)
        return _StagePlan(
            stage=stage,
            points=points,
            fused=self._fused is not None and answer and len(policies) == 1 and "noise" not in reads,
            next_stage=next(later for later in range(stage, self._last + 1) if self._has_work(later, points)),
            answer=answer,
            carry=self.points.is_carried(stage),
            one_point=one_point,
            policies=policies,
            reads=reads,
            temperature=float(self.points.temperatures[points[0], stage]),
            parameters=self.points.parameters(policies[0], stage, points[0]) if one_point else {},
        )

    def _has_work(self, stage: int, points: tuple[int, ...]) -> bool:
        """Tell if the exit after a stage has anything to do for samples at these points."""
        if stage == self._last or self.points.is_active(stage, points):
            return True
        if stage in self.exits.stages:
            return self.exits.carries_state and self.points.is_carried(stage)
        return stage in self.exits.averaging.read

    def _decide(
        self,
        plan: "_StagePlan",
        batch: ActiveBatch,
        logits: Tensor,
        probabilities: Tensor,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Mapping[str, Any]]:
        """Return `n` flags of the samples that leave, and the new carries of the policies."""
        noise = self._draw_noise(len(batch), generator) if "noise" in plan.reads else None
        observation = observe(plan.reads, logits, probabilities, noise)
        if plan.one_point:
            (policy,) = plan.policies
            before = batch.carries[policy.name]
            leave, carry = policy.step(observation, before, plan.parameters)
            return leave, batch.carries if carry is before else {**batch.carries, policy.name: carry}
        assert batch.point is not None
        leave, carries = torch.zeros_like(batch.rows, dtype=torch.bool), dict(batch.carries)
        for policy in plan.policies:
            parameters = self.points.parameters(policy, plan.stage, batch.point)
            wants, carry = policy.step(observation, carries[policy.name], parameters)
            # Inactive exits and other policies must not affect a sample.
            own = self.points.active_under(policy)[batch.point, plan.stage]
            leave |= wants & own
            carries[policy.name] = _update_carry(carries[policy.name], carry, own)
        return leave, carries

    def _draw_noise(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Draw uniform numbers on the generator's device, so that they are the same for every device of the network."""
        return torch.rand(count, generator=generator, device=generator.device if generator else None).to(
            self.points.device
        )

    def _compact(self, batch: ActiveBatch, order: Tensor) -> ActiveBatch:
        """Remove the riders where that pays; `order` lists staying samples first."""
        staying = len(batch) - batch.riders
        if staying and not self.compaction.pays(batch.depth, len(batch), staying):
            return batch
        return self.keep(batch, order[:staying])


@dataclass(frozen=True)
class _StagePlan:
    """The work after one stage for samples at certain points."""

    stage: int
    points: tuple[int, ...]
    fused: bool
    """True if the backend is asked to run stage, exit and policy at once."""
    next_stage: int
    """The first stage from this one on whose exit has work to do."""
    answer: bool
    """True if a sample may leave here."""
    carry: bool
    """True if a later exit reads the state of this one."""
    one_point: bool
    """True if all samples are at one point; `temperature` and `parameters` are then its own."""
    policies: Sequence[Policy]
    reads: frozenset[str]
    temperature: float
    parameters: Mapping[str, Tensor]


def _finished_flags(batch: ActiveBatch) -> Tensor:
    return torch.zeros_like(batch.rows, dtype=torch.bool) if batch.finished is None else batch.finished


def _empty(batch: ActiveBatch) -> ActiveBatch:
    """Return the batch without samples; only its length and depth are read."""
    return replace(batch, hidden=None, rows=batch.rows[:0], finished=None, riders=0)


def _update_carry(old: Any, new: Any, own: Tensor) -> Any:
    """Take the new carry of the samples that `own` flags, and the old carry of the others."""
    return pytree.tree_map(
        lambda left, right: torch.where(own.view(-1, *(1,) * (left.ndim - 1)), left, right), new, old
    )
