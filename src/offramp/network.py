"""The network that lets samples leave: trunk, exits and one setting of the dial."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.functional import evidence, log_probabilities
from offramp.policy import Observation, OperatingPoint
from offramp.trunk import Hidden, Pooling, Preprocessing, Trunk, select
from offramp.uncertainty import prediction_set

__all__ = ["Answer", "EarlyExitNetwork"]


@dataclass(frozen=True)
class Answer:
    """What the network says of N inputs, in their order."""

    labels: Tensor
    """`N` predicted classes."""
    probabilities: Tensor
    """`N x K`, calibrated."""
    exits: Tensor
    """`N` exits the samples left at, 0-based."""
    relative_cost: Tensor
    """`N` costs, as shares of the bare network's."""
    prediction_sets: Mapping[float, Tensor]
    """`N x K` booleans for each miscoverage: the true class is among them with probability 1 - miscoverage."""


@dataclass(frozen=True)
class EarlyExitNetwork:
    """A frozen network with exits, at one operating point.

    Samples that have left are not computed any further: each stage runs on those that remain.
    """

    trunk: Trunk
    """The frozen network."""
    preprocessing: Preprocessing
    """From raw inputs to what the trunk takes."""
    pooling: Pooling
    """What exits see of a stage."""
    bank: ExitBank
    """The trained exits."""
    costs: Costs
    """What leaving at each exit costs."""
    point: OperatingPoint
    """The setting of the dial."""

    @torch.inference_mode()
    def predict(self, inputs: Any, *, generator: torch.Generator | None = None) -> Answer:
        """Answer a batch of raw inputs.

        Args:
            inputs: N inputs as the preprocessing takes them.
            generator: Of the draws of a policy that samples; torch's own if left out.

        Returns:
            Labels, probabilities, exits, prediction sets and costs.
        """
        self.trunk.eval()  # the model it was made of may have been put into training mode since
        hidden = self.trunk.prepare(self.preprocessing(inputs))
        sizes = self.trunk.sizes(hidden)
        count = len(sizes)
        probabilities = torch.empty(count, self.trunk.num_classes)
        exits = torch.empty(count, dtype=torch.long)
        waiting = torch.arange(count)
        state = self.bank.initial_state(count), ()
        carry = self.point.rule.initial_carry(torch.zeros(count))
        for index, stage in enumerate(self.trunk.stages):
            if not len(waiting):
                break
            hidden = stage(hidden)
            logits, state = self._answer(hidden, index, state)
            if logits is None:
                continue
            # Divided in full precision, as the temperatures were fitted.
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            calibrated = log_probabilities(logits / self.point.temperatures[index]).exp().to(probabilities.dtype)
            if index == self.trunk.num_exits - 1:
                leave = torch.ones(len(waiting), dtype=torch.bool)
            else:
                leave, carry = self._decide(index, logits, calibrated, carry, generator)
            probabilities[waiting[leave]] = calibrated[leave]
            exits[waiting[leave]] = index
            if leave.any():
                stay = (~leave).nonzero().squeeze(1)
                hidden = self.trunk.select(hidden, stay, index + 1)
                state, carry, waiting = select((state, carry, waiting), stay)
        unanswered = (~probabilities.isfinite().all(1)).nonzero().squeeze(1)
        if len(unanswered):
            raise InputError(
                f"{len(unanswered)} of {count} inputs have no finite answer, the first is input {int(unanswered[0])}; "
                "check it for NaN or infinite numbers"
            )
        costs = self.costs.of(sizes)
        spent = costs.spent(exits, self.point.active) / costs.bare
        sets = {
            miscoverage: prediction_set(probabilities, thresholds[exits])
            for miscoverage, thresholds in self.point.conformal_thresholds.items()
        }
        return Answer(probabilities.argmax(1), probabilities, exits, spent, sets)

    def _answer(self, hidden: Hidden, index: int, states: Any) -> tuple[Tensor | None, Any]:
        """Logits of the exit after stage `index`, if it is active, and the states of bank and averaging to carry on."""
        active = index in self.point.active
        state, own_state = states
        if index in self.bank.stages:
            if not active and not self.bank.carries_state:
                return None, states
            features = self.pooling(self.trunk.representation(hidden, index)).to(self._dtype)
            if features.shape[1] != self.bank.widths[index]:
                raise InputError(
                    f"the exit after stage {index} reads {self.bank.widths[index]} features, these inputs give "
                    f"{features.shape[1]}; give inputs of the size the exits were fitted on"
                )
            point = None
            if self.bank.stacked > 1:
                point = torch.full((len(features),), self.point.classifier)
            logits, state = self.bank.step(index, features, state, point)
            return (logits if active else None), (state, own_state)
        if not active and index not in self.bank.averaging.read:
            return None, states
        logits, own_state = self.bank.averaging.step(index, self.trunk.own_logits(hidden, index), own_state)
        return (logits if active else None), (state, own_state)

    def _decide(
        self, index: int, logits: Tensor, calibrated: Tensor, carry: Any, generator: torch.Generator | None
    ) -> tuple[Tensor, Any]:
        rule = self.point.rule
        seen = Observation(
            confidence=calibrated.amax(1) if "confidence" in rule.reads else None,
            evidence=evidence(log_probabilities(logits)) if "evidence" in rule.reads else None,
            noise=torch.rand(len(logits), generator=generator) if "noise" in rule.reads else None,
        )
        parameters = {
            name: value[index] if name in rule.per_exit else value for name, value in self.point.parameters.items()
        }
        return rule.step(seen, carry, parameters)

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.bank.parameters()).dtype
