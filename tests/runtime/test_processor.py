"""Warnings about slow types: by the processor's instructions, else by a short measurement."""

import warnings
from typing import Any, Literal

import pytest
import torch

from offramp.runtime import BACKENDS
from offramp.runtime import _processor as processor
from offramp.runtime._processor import INSTRUCTIONS, find_missing_instructions, measure_slowdown, warn_if_slow
from tests.cases import each
from tests.runtime.test_backend import POOLING, network

KINDS: tuple[Literal["bfloat16", "int8"], ...] = ("bfloat16", "int8")


def pretend(monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, Any]) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


def without(*names: str) -> dict[str, Any]:
    every = {name: True for listed in INSTRUCTIONS.values() for name in listed}
    return {**every, **dict.fromkeys(names, False)}


@each("kind", KINDS)
def test_any_of_the_instructions_is_enough(kind: Literal["bfloat16", "int8"], monkeypatch: pytest.MonkeyPatch) -> None:
    names = INSTRUCTIONS[kind]
    pretend(monkeypatch, without(*names[:-1]))
    assert find_missing_instructions(kind) == ()
    pretend(monkeypatch, without(*names))
    assert find_missing_instructions(kind) == names
    pretend(monkeypatch, {"architecture": "aarch64"})
    assert find_missing_instructions(kind) is None


def test_torch_knows_this_processor() -> None:
    for kind in KINDS:
        missing = find_missing_instructions(kind)
        assert missing is None or missing in ((), INSTRUCTIONS[kind])


def test_the_backend_warns_when_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, without("avx512_bf16", "amx_bf16"))
    backbone, exits = network()
    with pytest.warns(UserWarning, match=r"slower than float32.*\(avx512_bf16 or amx_bf16\); use 'eager' or 'onnx'"):
        BACKENDS.get("bfloat16")(backbone, POOLING, exits, None)
    pretend(monkeypatch, without("avx512_bf16"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BACKENDS.get("bfloat16")(backbone, POOLING, exits, None)


def test_where_nothing_is_known_of_the_processor_bfloat16_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {})
    monkeypatch.setattr(processor, "measure_slowdown", lambda: 2.04)
    with pytest.warns(UserWarning, match=r"takes 2.0 times as long; use 'eager'"):
        warn_if_slow("bfloat16")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_slow("int8")
        monkeypatch.setattr(processor, "measure_slowdown", lambda: 1.05)
        warn_if_slow("bfloat16")


def test_the_measurement_is_a_ratio_of_times() -> None:
    assert 0.01 < measure_slowdown() < 1000
