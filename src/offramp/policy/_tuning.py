"""The tune split as policies see it."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.errors import InputError
from offramp.policy._observation import Observation
from offramp.policy._point import OperatingPoint

__all__ = ["Tuning"]


@dataclass(frozen=True)
class Tuning:
    """The answers of every exit to the N samples of the tune split, and the costs of leaving.

    `Policy.candidates` takes one and returns operating points.
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
    """`N x L x K`, temperature applied; None unless a policy reads them, to save memory."""
    temperatures: Tensor
    """`W x L` temperatures, for W sets of classifiers."""
    classifier: int
    """Index of the set of classifiers that answers; gates with classifiers of their own use those instead."""
    active: tuple[int, ...]
    """The A active exits, ascending, the final one last."""
    relative_costs: Tensor
    """`A` cumulative costs of the active exits, relative to the full network, averaged over the tune samples."""
    gate_weight: Tensor | None = None
    """`G x (L - 1) x 4` weights of trained gates, for G cost weights; None where the method trains none."""
    gate_bias: Tensor | None = None
    """`G x (L - 1)` biases of the gates."""
    seed: int = 0
    """Seed for policies that draw random numbers."""

    @property
    def early(self) -> tuple[int, ...]:
        """The active exits without the final one."""
        return self.active[:-1]

    @property
    def correct(self) -> Tensor:
        """`N x L` booleans, true where an exit predicts the true class."""
        return self.predictions == self.labels[:, None]

    @property
    def gates(self) -> tuple[Tensor, Tensor]:
        """Weights and biases of the trained gates; an error if the method trains none."""
        if self.gate_weight is None or self.gate_bias is None:
            raise InputError(
                expected="exits with gates",
                got="exits of a method that trains none",
                hint="fit with method='paper', or choose the policy 'threshold'",
            )
        return self.gate_weight, self.gate_bias

    def observe(self, exit: int, reads: Collection[str]) -> Observation:
        """Return the observation of the tune samples at one exit.

        Args:
            exit: The exit, 0-based.
            reads: The fields to fill.
        """
        columns = {
            "confidence": self.confidence,
            "evidence": self.evidence,
            "margin": self.margin,
            "prediction": self.predictions,
        }
        fields = {name: column[:, exit] for name, column in columns.items() if name in reads}
        if "probabilities" in reads:
            fields["probabilities"] = self.probabilities(exit)
        return Observation(**fields)

    def probabilities(self, exit: int) -> Tensor:
        """Return the `N x K` probabilities of one exit (0-based), temperature applied."""
        if self.all_probabilities is None:
            raise InputError(
                expected="outcomes with the probabilities of all classes, which a policy reads",
                got="outcomes without",
                hint="add 'probabilities' to the policy's `reads`",
            )
        return self.all_probabilities[:, exit]

    def per_exit(self, values: Tensor, otherwise: float = 0.0) -> Tensor:
        """Spread a parameter of the early active exits over all L exits.

        Args:
            values: `(A - 1) x ...`, one row per early active exit.
            otherwise: The value at all other exits, where no policy runs.

        Returns:
            `L x ...` in single precision, as artifacts store it.
        """
        whole = torch.full((self.temperatures.shape[1], *values.shape[1:]), otherwise)
        whole[list(self.early)] = values.float()
        return whole

    def point(self, policy: str, **parameters: Tensor) -> OperatingPoint:
        """Make an operating point with these exits and classifiers.

        Args:
            policy: The policy's name.
            **parameters: The policy's parameters.
        """
        return OperatingPoint(policy, parameters, self.active, self.temperatures[self.classifier], self.classifier)
