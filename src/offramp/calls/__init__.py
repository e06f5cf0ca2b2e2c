"""Models that can only be called: prices, replies, kept answers, retries and spending caps."""

from offramp.calls._price import Price
from offramp.calls._replies import Reply

__all__ = ["Price", "Reply"]
