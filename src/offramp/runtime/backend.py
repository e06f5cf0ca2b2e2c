"""The seam to whatever computes: stages, and exits."""

from typing import Any, Protocol

from torch import Tensor

from offramp.backbone import Hidden

__all__ = ["Backend"]


class Backend(Protocol):
    """Computes stages and exits of one network.

    One that computes as the network was calibrated, up to the order of sums, has an attribute `exact` that is true:
    promises are passed on to it, and to no other.
    """

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        """Run one stage."""

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        """Answer at one exit.

        Args:
            index: The stage that has just run.
            hidden: What it left behind, of n samples.
            state: What was returned at the stage before.
            classifier: `n` indices into stacked classifiers; None where there is one set.
            answer: Whether the answer is wanted.
            carry: Whether later exits may read what this one remembers.

        Returns:
            `n x K` logits in full precision where the answer is wanted, and the state to carry on.
        """
