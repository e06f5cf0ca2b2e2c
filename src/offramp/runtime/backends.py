"""Ways to compute, by name."""

from collections.abc import Callable

import torch

from offramp.exits import ExitBank
from offramp.registry import Registry
from offramp.runtime.backend import Backend
from offramp.runtime.eager import EagerBackend
from offramp.runtime.processor import warn_if_slow
from offramp.trunk import Hidden, Pooling, Trunk

__all__ = ["BACKENDS", "MakeBackend"]

MakeBackend = Callable[[Trunk, Pooling, ExitBank, Hidden | None], Backend]
"""Makes a backend of a trunk, a pooling, exits and, if given, an example: inputs as `trunk.prepare` gives them."""


def _eager(trunk: Trunk, pooling: Pooling, bank: ExitBank, example: Hidden | None) -> Backend:
    return EagerBackend(trunk, pooling, bank)


def _bfloat16(trunk: Trunk, pooling: Pooling, bank: ExitBank, example: Hidden | None) -> Backend:
    if all(parameter.device.type == "cpu" for parameter in trunk.parameters()):
        warn_if_slow("bfloat16")
    return EagerBackend(trunk, pooling, bank, dtype=torch.bfloat16)


BACKENDS: Registry[MakeBackend] = Registry("backend")
BACKENDS.add("eager", _eager)
BACKENDS.add("bfloat16", _bfloat16)
BACKENDS.add("onnx", "offramp.runtime.onnx:onnx_backend")
