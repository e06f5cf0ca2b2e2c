"""The interface of listeners to a scheduler."""

from typing import Protocol

from offramp.model._answer import Answer

__all__ = ["Observer"]


class Observer(Protocol):
    """A listener to a scheduler. It is called in the thread that runs batches, so it must be quick."""

    def observe_batch(self, samples: int) -> None:
        """Note that a batch starts.

        Args:
            samples: Number of its samples.
        """

    def observe_stages(self, stage: int | None, seconds: float, answer: Answer | None) -> None:
        """Note that the stages up to the next exit in use have run.

        Args:
            stage: Index of the last of them; None if the backend ran the whole network at once.
            seconds: Their time.
            answer: Answers to the samples that left there, all at one exit; None if no sample left.
        """

    def observe_shadow(self, disagrees: bool) -> None:
        """Note the comparison of an answer with that of the full network.

        Args:
            disagrees: True if the full network has another label.
        """
