"""The demo's two networks, trained once for all tests of a process."""

from copy import deepcopy
from functools import cache

from offramp.demo import digits, trained_networks
from offramp.demo._networks import DigitsCnn, DigitsTransformer


def trained() -> tuple[DigitsCnn, DigitsTransformer]:
    """Return copies of the demo's two trained networks."""
    return deepcopy(_trained())


@cache
def _trained() -> tuple[DigitsCnn, DigitsTransformer]:
    return trained_networks(digits().train, progress=False)
