"""The tune split as a policy sees it."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.policy.point import OperatingPoint
from offramp.policy.policy import Observation

__all__ = ["Tuning"]


@dataclass(frozen=True)
class Tuning:
    """Answers of every exit to the N samples of the tune split, and what leaving costs.

    `Policy.candidates` gets one and returns operating points; nothing else of the tune split is there to be seen.
    """

    labels: Tensor
    """`N` true classes."""
    predictions: Tensor
    """`N x L` predicted classes."""
    confidence: Tensor
    """`N x L` largest probability, temperature applied."""
    margin: Tensor
    """`N x L` difference between the two largest probabilities."""
    evidence: Tensor
    """`N x L x 4` evidence of the raw logits."""
    all_probabilities: Tensor | None
    """`N x L x K`, temperature applied; None unless a policy here reads them, for their size."""
    temperatures: Tensor
    """`W x L` temperatures, for W sets of classifiers."""
    classifier: int
    """Which set of classifiers answers; gates with classifiers of their own answer by those instead."""
    active: tuple[int, ...]
    """The A exits in force, ascending, the final one last."""
    relative_costs: Tensor
    """`A` cumulative costs of the exits in force, as shares of the full network's, mean over the tune samples."""
    gate_weight: Tensor | None = None
    """`G x (L - 1) x 4` weights of trained gates, for G cost weights; None where the method trains none."""
    gate_bias: Tensor | None = None
    """`G x (L - 1)` biases of the gates."""
    seed: int = 0
    """Seed of whatever is drawn."""

    @property
    def early(self) -> tuple[int, ...]:
        """The exits in force without the final one."""
        return self.active[:-1]

    @property
    def correct(self) -> Tensor:
        """`N x L` booleans: which exits are right."""
        return self.predictions == self.labels[:, None]

    @property
    def gates(self) -> tuple[Tensor, Tensor]:
        """Weights and biases of the gates, where there must be some."""
        if self.gate_weight is None or self.gate_bias is None:
            raise InputError(
                "expected exits with gates, got exits of a method that trains none; fit with method='default' or "
                "'paper', or choose the policy 'threshold'"
            )
        return self.gate_weight, self.gate_bias

    def observe(self, exit: int, reads: Collection[str]) -> Observation:
        """Return what a policy sees of the tune samples at one exit.

        Args:
            exit: The exit, 0-based.
            reads: What the policy reads.
        """
        columns = {
            "confidence": self.confidence,
            "evidence": self.evidence,
            "margin": self.margin,
            "prediction": self.predictions,
        }
        seen = {name: column[:, exit] for name, column in columns.items() if name in reads}
        if "probabilities" in reads:
            seen["probabilities"] = self.probabilities(exit)
        return Observation(**seen)

    def probabilities(self, exit: int) -> Tensor:
        """Return the `N x K` probabilities of one exit, temperature applied.

        Args:
            exit: The exit, 0-based.
        """
        if self.all_probabilities is None:
            raise InputError(
                "expected outcomes with the probabilities of all classes, which a policy here reads, got some without; "
                "make them with outcomes(..., probabilities=True)"
            )
        return self.all_probabilities[:, exit]

    def per_exit(self, values: Tensor, otherwise: float = 0.0) -> Tensor:
        """Spread a parameter of the early exits in force over all L exits.

        Args:
            values: `(A - 1) x ...`, one row per early exit in force.
            otherwise: The value at all other exits, where nobody asks.

        Returns:
            `L x ...` in single precision, which artifacts hold.
        """
        whole = torch.full((self.temperatures.shape[1], *values.shape[1:]), otherwise)
        whole[list(self.early)] = values.float()
        return whole

    def point(self, policy: str, **parameters: Tensor) -> OperatingPoint:
        """Make an operating point with these exits and classifiers.

        Args:
            policy: The policy's name.
            **parameters: Its parameters.
        """
        return OperatingPoint(policy, parameters, self.active, self.temperatures[self.classifier], self.classifier)
