"""The network that lets samples leave: trunk, exits and one setting of the dial."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.policy import OperatingPoint
from offramp.runtime import Engine
from offramp.trunk import Pooling, Preprocessing, Trunk
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
            inputs: N inputs as the preprocessing takes them: arrays or tensors, a list of images, a list of texts.
            generator: Of the draws of a policy that samples; torch's own if left out.

        Returns:
            Labels, probabilities, exits, prediction sets and costs.
        """
        self.trunk.eval()  # the model it was made of may have been put into training mode since
        prepared = self.preprocessing(inputs)
        with self.trunk.explaining(prepared):
            hidden = self.trunk.prepare(prepared)
            sizes = self.trunk.sizes(hidden)
        probabilities, exits = self.engine.run(hidden, generator=generator)
        unanswered = (~probabilities.isfinite().all(1)).nonzero().squeeze(1)
        if len(unanswered):
            raise InputError(
                f"{len(unanswered)} of {len(exits)} inputs have no finite answer, the first is input "
                f"{int(unanswered[0])}; check it for NaN or infinite numbers"
            )
        costs = self.costs.of(sizes)
        spent = costs.spent(exits, self.point.active) / costs.bare
        sets = {
            miscoverage: prediction_set(probabilities, thresholds[exits])
            for miscoverage, thresholds in self.point.conformal_thresholds.items()
        }
        return Answer(probabilities.argmax(1), probabilities, exits, spent, sets)

    @cached_property
    def engine(self) -> Engine:
        """What runs it."""
        return Engine(self.trunk, self.pooling, self.bank, [self.point])
