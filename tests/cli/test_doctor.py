"""`offramp doctor`, in this environment and in simulated ones."""

import importlib.metadata
import re
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cases import each
from tests.cli.workshop import Shell

REQUIRED = [
    "torch>=2.9",
    "numpy",
    "tokenizers>=0.20; extra == 'text'",
    'ray[serve]>=2.60 ; extra == "replicas"',
    "pillow (>=10) ; extra == 'images'",
    "tzdata; sys_platform == 'win32'",
]
"""As metadata has it, in the ways that build tools write it."""

REQUIRED_BY_RAY = ["click>=7", "smart_open; extra == 'serve'", "fastapi>=0.1; extra == 'serve'"]

Installed = dict[str, str]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Versions of what is installed, to be changed."""
    versions = {
        "offramp": "0.1.0",
        "torch": "2.10.1+cpu",
        "numpy": "2.0",
        "tokenizers": "0.20.0rc1",
        "ray": "3",
        "smart_open": "1",
        "fastapi": "0.2",
        "pillow": "10.0",
    }

    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(
        importlib.metadata, "requires", lambda name: {"offramp": REQUIRED, "ray": REQUIRED_BY_RAY}.get(name)
    )
    return versions


def lines(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(\S+) +(.*)$", text, flags=re.MULTILINE))


def test_here(offramp: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_MAX_BYTES", "1000")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    ran = offramp("doctor")
    assert (ran.status, ran.err) == (0, "")
    assert "secret" not in ran.out
    shown = lines(ran.out)
    assert shown["torch"] == importlib.metadata.version("torch")
    assert shown["threads"] == f"{torch.get_num_threads()} by default"
    assert shown["devices"].startswith("cpu")
    assert "OFFRAMP_MAX_BYTES=1000" in shown["variables"]
    assert ran.out.endswith("No problems found.\n")


def test_as_json(offramp: Shell) -> None:
    found = offramp.json("doctor")
    assert found["problems"] == []
    assert found["libraries"]["torch"] == importlib.metadata.version("torch")
    assert found["python"]["program"] == sys.executable
    extras = {extra["name"]: extra for extra in found["extras"]}
    assert extras["onnx"] == {
        "name": "onnx",
        "installed": True,
        "libraries": {name: importlib.metadata.version(name) for name in ("onnx", "onnxruntime", "onnxscript")},
        "install": None,
    }
    assert {"bfloat16", "int8"} == set(found["types"])


class TestLibraries:
    def test_that_will_do(self, offramp: Shell, installed: Installed) -> None:
        assert installed
        found = offramp.json("doctor")
        assert [(extra["name"], extra["installed"]) for extra in found["extras"]] == [
            ("text", True),
            ("replicas", True),
            ("images", True),
        ]
        assert list(found["libraries"]) == ["torch", "numpy"]  # what needs another system is not shown

    @each(
        ("gone", "extra"),
        [("tokenizers", "text"), ("ray", "replicas"), ("smart_open", "replicas"), ("pillow", "images")],
    )
    def test_missing_ones_of_an_extra_are_no_problem(
        self, offramp: Shell, installed: Installed, gone: str, extra: str
    ) -> None:
        version = installed.pop(gone)
        found = offramp.json("doctor")
        assert [row["name"] for row in found["extras"] if not row["installed"]] == [extra]
        assert [row["install"] for row in found["extras"] if row["install"]] == [f"pip install 'offramp[{extra}]'"]
        shown = offramp("doctor").out
        assert f"{gone} missing" in shown
        assert lines(shown)[f"[{extra}]"].startswith(f"pip install 'offramp[{extra}]' (")
        installed[gone] = version

    @each(("version", "lowest"), [("2.10", "2.10.0"), ("2.10.0", "2.10"), ("2.10.0rc1", "2.10"), ("2.10.dev1", "2.10")])
    def test_zeros_at_the_end_make_no_version_older(
        self, offramp: Shell, installed: Installed, monkeypatch: pytest.MonkeyPatch, version: str, lowest: str
    ) -> None:
        installed["torch"] = version
        required = {"offramp": [f"torch>={lowest}"]}
        monkeypatch.setattr(importlib.metadata, "requires", required.get)
        assert offramp.json("doctor")["problems"] == []

    @each(
        ("name", "version", "told"),
        [
            ("torch", "2.8.9", "torch 2.8.9 (needs 2.9) is too old: pip install --upgrade offramp"),
            ("pillow", "9.5", "pillow 9.5 (needs 10) is too old: pip install --upgrade 'offramp[images]'"),
            ("ray", "2.9", "ray 2.9 (needs 2.60) is too old: pip install --upgrade 'offramp[replicas]'"),
            ("numpy", "", "numpy not installed: pip install offramp"),
        ],
    )
    def test_problems(self, offramp: Shell, installed: Installed, name: str, version: str, told: str) -> None:
        before = installed.pop(name)
        installed |= {name: version} if version else {}
        ran = offramp("doctor")
        assert ran.status == 1
        assert f"Careful: {told}" in ran.err
        assert offramp("doctor", "--json").json["problems"] == [told]
        installed[name] = before


class TestMachine:
    def test_without_torch(self, offramp: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        ran = offramp("doctor")
        assert ran.status == 1
        assert "torch cannot be imported" in ran.err
        assert "threads" not in lines(ran.out)

    def test_a_torchvision_that_does_not_fit(self, offramp: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torchvision", None)
        ran = offramp("doctor")
        assert ran.status == 1
        assert "torchvision cannot be imported" in ran.err

    @each(
        ("quota", "threads", "told"),
        [
            ("200000 100000", 3, "torch uses 3 threads, but this process may use 2 cores: set OMP_NUM_THREADS=2"),
            ("50000 100000", 2, "torch uses 2 threads, but this process may use 1 cores: set OMP_NUM_THREADS=1"),
            ("150000 100000", 2, None),
            ("max 100000", 2, None),
            (None, 2, None),
        ],
    )
    def test_more_threads_than_cores(
        self,
        offramp: Shell,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        quota: str | None,
        threads: int,
        told: str | None,
    ) -> None:
        if quota is not None:
            (tmp_path / "cpu.max").write_text(quota)
        monkeypatch.setattr("offramp.cli.doctor.QUOTA", tmp_path / "cpu.max")
        monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1, 2, 3})
        monkeypatch.setattr("torch.get_num_threads", lambda: threads)
        assert offramp("doctor", "--json").json["problems"] == ([] if told is None else [told])

    def test_a_limit_that_is_no_number(self, offramp: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OFFRAMP_MAX_BYTES", "1G")
        ran = offramp("doctor")
        assert ran.status == 1
        assert "OFFRAMP_MAX_BYTES: expected a number of bytes" in ran.err

    @each(
        ("capabilities", "expected"),
        [
            ({"avx512_bf16": True, "amx_bf16": False}, "fast"),
            ({"avx512_bf16": False, "amx_bf16": False}, "slow, without avx512_bf16 or amx_bf16"),
            ({}, "unknown"),
        ],
    )
    def test_types(
        self, offramp: Shell, monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], expected: str
    ) -> None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
        assert offramp.json("doctor")["types"]["bfloat16"] == expected

    def test_accelerators_have_names(self, offramp: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        device: Any = torch.device("cuda")
        monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
        monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: device)
        monkeypatch.setattr("torch.accelerator.device_count", lambda: 2)
        monkeypatch.setattr("torch.cuda.get_device_name", lambda index: f"Card {index}")
        assert offramp.json("doctor")["devices"] == ["cpu", "cuda:0 (Card 0)", "cuda:1 (Card 1)"]
