"""The processor of this machine: its name, and the types it computes fast."""

import platform
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Literal

import torch
import torch.nn.functional as F

from offramp.errors import OfframpWarning

__all__ = ["find_missing_instructions", "measure_slowdown", "processor_name", "warn_if_slow"]

Narrow = Literal["bfloat16", "int8"]

INSTRUCTIONS: dict[Narrow, tuple[str, ...]] = {
    "bfloat16": ("avx512_bf16", "amx_bf16"),
    "int8": ("avx512_vnni", "avx_vnni", "amx_int8"),
}
"""x86 extensions that speed up matrix products in each type, by torch's names; one of them suffices."""

NOTICEABLE = 1.1
"""Time relative to float32 from which a slowdown is reported: less is noise."""


def processor_name() -> str:
    """Return the name of the processor, as far as the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def find_missing_instructions(kind: Narrow) -> tuple[str, ...] | None:
    """Return the instructions for products of a type if this processor has none of them.

    Returns:
        Their names; empty if the processor has some; None if torch does not know its instructions.
    """
    capabilities = torch.cpu.get_capabilities()
    if not all(name in capabilities for name in INSTRUCTIONS[kind]):
        return None
    return () if any(capabilities[name] for name in INSTRUCTIONS[kind]) else INSTRUCTIONS[kind]


def measure_slowdown() -> float:
    """Measure the time of a matrix product in bfloat16 relative to float32, in about 0.05 s."""
    factors = torch.ones(64, 384), torch.ones(384, 384)
    pairs = [factors, tuple(factor.bfloat16() for factor in factors)]
    times: list[list[float]] = [[], []]
    for _ in range(21):
        for (inputs, weights), own in zip(pairs, times, strict=True):
            start = time.perf_counter()
            F.linear(inputs, weights)
            own.append(time.perf_counter() - start)
    return median(times[1]) / median(times[0])


def warn_if_slow(kind: Narrow) -> None:
    """Warn if a type is slower than float32 here: by the instructions, or by measuring if they are not known."""
    missing = find_missing_instructions(kind)
    if missing is None and kind == "bfloat16":
        slowdown = measure_slowdown()
        reason = f"a matrix product takes {slowdown:.1f} times as long" if slowdown > NOTICEABLE else ""
    else:
        reason = f"it has no instructions for it ({' or '.join(missing)})" if missing else ""
    if reason:
        instead = "use 'eager' or 'onnx'" if kind == "bfloat16" else "use 'onnx'"
        warnings.warn(
            f"{kind} is slower than float32 on this processor: {reason}; {instead}, or use another processor",
            OfframpWarning,
            stacklevel=3,
        )
