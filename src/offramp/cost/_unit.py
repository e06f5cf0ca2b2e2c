"""The unit of costs: Mul-Adds, milliseconds, or money."""

from dataclasses import dataclass

__all__ = ["MILLISECONDS", "MUL_ADDS", "CostUnit"]

MUL_ADDS, MILLISECONDS = "Mul-Adds", "ms"
"""Names of the units that are not money."""

MANY = 1000
"""Number of samples that prices are shown for: the price of one is too small to read."""


@dataclass(frozen=True)
class CostUnit:
    """The unit of a model's costs, and the full network's cost in it.

    Example:
        >>> CostUnit("USD", 0.002).show(0.25), CostUnit("ms", 8.0).show(0.25), CostUnit().show(0.25)
        ('0.5 USD per 1,000', '2 ms', '')
    """

    name: str = MUL_ADDS
    """ "Mul-Adds", "ms", the name of a currency, or "calls"."""
    full: float | None = None
    """Cost of the full network per sample of the tune split; None if it is Mul-Adds."""

    @property
    def full_ms(self) -> float | None:
        """Milliseconds of the full network, if costs are times."""
        return self.full if self.name == MILLISECONDS else None

    @property
    def is_money(self) -> bool:
        """True if costs are prices or calls."""
        return self.name not in (MUL_ADDS, MILLISECONDS)

    @property
    def noun(self) -> str:
        """Noun for the whole that a relative cost is a share of."""
        return "time" if self.name == MILLISECONDS else self.name

    @property
    def heading(self) -> str:
        """Heading of a column of costs in this unit; empty for Mul-Adds."""
        if self.full is None:
            return ""
        return f"{self.name} per {MANY:,}" if self.is_money else self.name

    def figure(self, relative_cost: float) -> str:
        """Return a relative cost in this unit: milliseconds per sample, or money per 1,000; empty for Mul-Adds.

        Example:
            >>> [CostUnit("ms", ms).figure(1) for ms in (4.4096, 999.7, 12345.6)]
            ['4.41', '999.7', '12,346']
        """
        if self.full is None:
            return ""
        spent = self.full * relative_cost * (MANY if self.is_money else 1)
        # From 1,000 on whole numbers: four digits would turn 12,345 into 1.234e+04.
        return f"{spent:,.0f}" if spent >= 1000 else f"{spent:,.4g}"

    def show(self, relative_cost: float) -> str:
        """Return a relative cost with its unit; empty for Mul-Adds."""
        return f"{self.figure(relative_cost)} {self.heading}".strip()
