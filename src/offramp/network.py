"""The network that lets samples leave: trunk, exits and one setting of the dial."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from offramp.cost import Costs
from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.policy import OperatingPoint
from offramp.runtime import BACKENDS, Backend, Compaction, Engine
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
    backend: Backend | None = None
    """How stages and exits are computed; as torch does by itself if left out."""
    compaction: Compaction | None = None
    """When those who left are taken out of a batch; at once if left out."""

    @torch.inference_mode()
    def predict(self, inputs: Any, *, generator: torch.Generator | None = None) -> Answer:
        """Answer a batch of raw inputs.

        Args:
            inputs: N inputs as the preprocessing takes them: arrays or tensors, a list of images, a list of texts.
            generator: Of the draws of a policy that samples; torch's own if left out.

        Returns:
            Labels, probabilities, exits, prediction sets and costs.
        """
        if any(module.training for module in self._modules):
            self.trunk.eval()  # the model it was made of has been put into training mode since
        prepared = self.preprocessing(inputs)
        with self.trunk.explaining(prepared):
            hidden = self.trunk.prepare(prepared)
            sizes = self.trunk.sizes(hidden).cpu()
        # Where costs and thresholds are, wherever the trunk is.
        probabilities, exits = (found.cpu() for found in self.engine.run(hidden, generator=generator))
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

    def on(
        self, backend: str | Backend, *, example: Any = None, compaction: Compaction | None = None
    ) -> "EarlyExitNetwork":
        """The same network, computed in another way.

        Args:
            backend: One of `offramp.runtime.BACKENDS` ("eager", "bfloat16", "compiled", "onnx"), or a backend made for
                this network's trunk, pooling and exits.
            example: Raw inputs, at least one, for a backend that makes itself ready with them: "onnx" needs them,
                "compiled" then compiles everything now, not at the first batch of each size.
            compaction: When those who left are taken out of a batch; as it was if left out.

        Returns:
            A network with the same answers, up to rounding.

        Example:
            >>> import offramp
            >>> from offramp.trunk import CifarResNet
            >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
            >>> quick = offramp.JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
            >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
            >>> frontier = offramp.fit(CifarResNet(8), *data, settings=quick, progress=False)
            >>> network = frontier.choose(cost=1.1).on("bfloat16")
            >>> network.predict(images).labels.shape
            torch.Size([60])
        """
        self.trunk.eval()  # as for `predict`: what is made may be a copy
        if isinstance(backend, str):
            make, prepared = BACKENDS.get(backend), None
            if example is not None:
                prepared = self.trunk.prepare(self.preprocessing(example))
            backend = make(self.trunk, self.pooling, self.bank, prepared)
        return replace(self, backend=backend, compaction=self.compaction if compaction is None else compaction)

    @cached_property
    def _modules(self) -> tuple[nn.Module, ...]:
        # Looked up once: walking all modules takes as long as a stage does at batch 1.
        return tuple(self.trunk.modules())

    @cached_property
    def engine(self) -> Engine:
        """What runs it."""
        return Engine(
            self.trunk, self.pooling, self.bank, [self.point], backend=self.backend, compaction=self.compaction
        )
