"""Inputs to try a network on when nobody gives any."""

from typing import Any

import numpy as np

from offramp.errors import InputError
from offramp.preprocessing._preprocessing import Preprocessing

__all__ = ["blank_input"]


def blank_input(name: str, preprocessing: Preprocessing) -> Any:
    """Return inputs for a preprocessing: a short text, or two black images of the size that it crops.

    Args:
        name: Name of the network in messages.
        preprocessing: Its preprocessing.
    """
    steps = dict(preprocessing.steps)
    if "tokenize" in steps:
        return ["a short text of some ten words to count costs on"] * 2
    if "center_crop" in steps:
        side = steps["center_crop"]["size"]
        return np.zeros((2, side, side, 3), np.uint8)
    raise InputError(
        f"the kind of inputs of '{name}' does not follow from its preprocessing", hint="give a few samples with --data"
    )
