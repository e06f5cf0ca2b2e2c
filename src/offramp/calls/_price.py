"""Prices of called models, as their user gives them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from offramp.errors import InputError

__all__ = ["CALLS", "Price", "as_price"]


@dataclass(frozen=True)
class Price:
    """The price of one answer: the sum of the parts that are set.

    Example:
        >>> price = Price(per_call=0.001, per_input_token=2e-6, per_output_token=8e-6)
        >>> round(price.of("a text", input_tokens=500, output_tokens=5), 6)
        0.00204
    """

    per_call: float = 0.0
    """Price of every call for one input."""
    per_input_token: float = 0.0
    """Price of a token that the model reads, as it reports them."""
    per_output_token: float = 0.0
    """Price of a token that the model writes, as it reports them."""
    per_input: Callable[[Any], float] | None = None
    """Function from one input to its price."""
    currency: str = "USD"
    """Name of the currency; all members of a cascade must have the same."""

    def __post_init__(self) -> None:
        for name in ("per_call", "per_input_token", "per_output_token"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} of a price", expected="a number of at least 0", got=value)

    @property
    def varies(self) -> bool:
        """True if inputs differ in price."""
        return self.per_input is not None or self.per_input_token > 0

    def of(self, sample: Any, *, input_tokens: int, output_tokens: int) -> float:
        """Return the price of one answer.

        Args:
            sample: The input.
            input_tokens: Tokens that the model read.
            output_tokens: Tokens that it wrote.
        """
        own = 0.0 if self.per_input is None else float(self.per_input(sample))
        return self.per_call + own + self.per_input_token * input_tokens + self.per_output_token * output_tokens


CALLS = Price(per_call=1.0, currency="calls")
"""The price of a model without one: calls are counted."""


def as_price(price: "Price | Mapping[str, Any] | None") -> Price | None:
    """Return a price from its parts by name.

    Args:
        price: A price, a mapping of its parts, or None.
    """
    if not isinstance(price, Mapping):
        return price
    known = [field.name for field in fields(Price)]
    unknown = sorted(set(price) - set(known))
    if unknown:
        raise InputError("price", expected=", ".join(known), got=", ".join(unknown))
    return Price(**price)
