"""The bill of an annotation job."""

from dataclasses import dataclass

__all__ = ["Bill"]


@dataclass(frozen=True)
class Bill:
    """The calls of a job, by what they were for, and their price beside that of asking for everything.

    Example:
        >>> print(Bill(inputs=5000, learning=1000, guarantee=300, sent=700, spent=4.0, full=10.0, currency="USD"))
        2,000 of 5,000 inputs asked (1,000 to learn from, 300 for the guarantee, 700 sent): 4 USD instead of 10
    """

    inputs: int
    """Number of different inputs."""
    learning: int
    """Inputs asked to learn from."""
    guarantee: int
    """Inputs asked for the guarantee."""
    sent: int
    """Inputs asked after that, because the cheap members are not sure enough of them."""
    spent: float
    """Price of all answers in the store, those of earlier runs, of cheap members and malformed ones included."""
    full: float
    """Price of asking the last member for every input, estimated where prices vary."""
    currency: str
    """Name of the currency, or "calls"."""

    @property
    def asked(self) -> int:
        """Inputs that the last member was asked for."""
        return self.learning + self.guarantee + self.sent

    @property
    def share(self) -> float:
        """Price paid as a share of the price of everything."""
        return self.spent / self.full if self.full else 0.0

    def __str__(self) -> str:
        """Return one line to show."""
        return (
            f"{self.asked:,} of {self.inputs:,} inputs asked ({self.learning:,} to learn from, {self.guarantee:,} for "
            f"the guarantee, {self.sent:,} sent): {self.spent:,.4g} {self.currency} instead of {self.full:,.4g}"
        )
