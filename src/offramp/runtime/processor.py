"""What this processor can compute fast: a narrow type without instructions of its own is slower than float32."""

import time
import warnings
from statistics import median
from typing import Literal

import torch
import torch.nn.functional as F

from offramp.errors import OfframpWarning

__all__ = ["measured_slowdown", "missing_instructions", "warn_if_slow"]

Narrow = Literal["bfloat16", "int8"]

INSTRUCTIONS: dict[Narrow, tuple[str, ...]] = {
    "bfloat16": ("avx512_bf16", "amx_bf16"),
    "int8": ("avx512_vnni", "avx_vnni", "amx_int8"),
}
"""Extensions of x86 for products of each type, as torch names them; any of them is enough."""

NOTICEABLE = 1.1
"""Time over that of float32 from which a measured slowdown is told: less is noise."""


def missing_instructions(kind: Narrow) -> tuple[str, ...] | None:
    """Return the instructions for products of a type, where this processor has none of them.

    Args:
        kind: "bfloat16" or "int8".

    Returns:
        Their names; none where it has some; None where torch does not know this processor's instructions.
    """
    read = getattr(torch.cpu, "get_capabilities", None)  # not there before torch 2.10
    capabilities = {} if read is None else read()
    if not all(name in capabilities for name in INSTRUCTIONS[kind]):
        return None
    return () if any(capabilities[name] for name in INSTRUCTIONS[kind]) else INSTRUCTIONS[kind]


def measured_slowdown() -> float:
    """Return the time of a matrix product in bfloat16 over that in float32: medians, taken in turns, some 0.05 s."""
    factors = torch.ones(64, 384), torch.ones(384, 384)
    ways = [factors, tuple(factor.bfloat16() for factor in factors)]
    times: list[list[float]] = [[], []]
    for _ in range(21):
        for (inputs, weights), own in zip(ways, times, strict=True):
            start = time.perf_counter()
            F.linear(inputs, weights)
            own.append(time.perf_counter() - start)
    return median(times[1]) / median(times[0])


def warn_if_slow(kind: Narrow) -> None:
    """Warn where a type is slower than float32 on this processor: by its instructions, else by measuring bfloat16.

    Args:
        kind: "bfloat16" or "int8".
    """
    missing = missing_instructions(kind)
    if missing is None and kind == "bfloat16":
        slowdown = measured_slowdown()
        reason = f"a matrix product takes {slowdown:.1f} times as long" if slowdown > NOTICEABLE else ""
    else:
        reason = f"it has no instructions for it ({' or '.join(missing)})" if missing else ""
    if reason:
        instead = "use 'eager' or 'onnx'" if kind == "bfloat16" else "export in float32, without int8"
        warnings.warn(
            f"{kind} is slower than float32 on this processor: {reason}; {instead}, or run it on another processor",
            OfframpWarning,
            stacklevel=3,
        )
