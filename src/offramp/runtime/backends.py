"""Ways to compute, by name."""

from collections.abc import Callable

import torch

from offramp.backbone import Backbone, Hidden, Pooling
from offramp.exits import ExitBank
from offramp.registry import Registry
from offramp.runtime.backend import Backend
from offramp.runtime.eager import EagerBackend
from offramp.runtime.processor import warn_if_slow

__all__ = ["BACKENDS", "MakeBackend"]

MakeBackend = Callable[[Backbone, Pooling, ExitBank, Hidden | None], Backend]
"""Makes a backend of a backbone, a pooling, exits and, if given, an example as `backbone.prepare` returns it."""


def _eager(backbone: Backbone, pooling: Pooling, bank: ExitBank, example: Hidden | None) -> Backend:
    return EagerBackend(backbone, pooling, bank)


def _bfloat16(backbone: Backbone, pooling: Pooling, bank: ExitBank, example: Hidden | None) -> Backend:
    if all(parameter.device.type == "cpu" for parameter in backbone.parameters()):
        warn_if_slow("bfloat16")
    return EagerBackend(backbone, pooling, bank, dtype=torch.bfloat16)


BACKENDS: Registry[MakeBackend] = Registry("backend")
BACKENDS.add("eager", _eager)
BACKENDS.add("bfloat16", _bfloat16)
BACKENDS.add("onnx", "offramp.runtime.onnx:onnx_backend")
