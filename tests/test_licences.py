"""Licences: those of all dependencies are allowed; files of others are listed, on docs/reference/licences.md too."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import each
from tests.scripts import ROOT, load_script


@pytest.fixture(scope="module")
def licences() -> Any:
    return load_script("licences")


def test_dependencies_are_allowed_and_on_the_page(licences: Any) -> None:
    found = licences.read_licences()
    assert {"torch", "ray", "timm", "pytest"} <= set(found)
    assert licences.not_allowed(found) == []
    if sys.platform == "linux" and sys.version_info[:2] == (3, 11):  # elsewhere some packages need others
        assert licences.page(found) == licences.PAGE.read_text(encoding="utf-8"), "run scripts/licences"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the list of files comes from git")
def test_files_of_others_are_listed(licences: Any) -> None:
    assert len(licences.tracked()) > 500
    assert licences.unlisted(licences.tracked()) == []


@each(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("Apache-2.0 AND Apache-2.0 WITH LLVM-exception", True),
        ("unknown", False),
        ("BSD License", False),  # which of them?
    ],
)
def test_expressions(licences: Any, expression: str, expected: bool) -> None:
    assert licences.is_allowed(expression) is expected
    assert bool(licences.not_allowed({"some": expression})) is not expected


def test_an_exception_is_for_one_licence_of_one_distribution(licences: Any) -> None:
    for name, licence in licences.EXCEPTIONS.items():
        assert licences.not_allowed({name: licence}) == []
        assert name in licences.NOTES
        assert len(licences.not_allowed({name: "AGPL-3.0-only"})) == 1
        assert len(licences.not_allowed({"another": licence})) == 1


@each(
    ("name", "content", "listed"),
    [
        ("ours.py", b"print(1)", True),
        ("weights.safetensors", b"numbers", False),
        ("data.json", b"a\0b", False),
        ("theirs.py", b"# Copyright (c) 2020 Somebody", False),
        ("theirs.css", b"/* SPDX-License-Identifier: MIT */", False),
        ("theirs.txt", b"Copyright 2020", False),
        ("prose.md", b"the copyright is theirs", True),
    ],
)
def test_a_file_that_looks_like_one_of_others(
    licences: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, content: bytes, listed: bool
) -> None:
    monkeypatch.setattr(licences, "ROOT", tmp_path)
    monkeypatch.setattr(licences, "OTHERS", {})
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "README.md").write_text("")
    (tmp_path / name).write_bytes(content)
    assert licences.unlisted([name]) == [] if listed else len(licences.unlisted([name])) == 1
    monkeypatch.setattr(licences, "OTHERS", {name: ("somebody", "MIT"), "gone.*": ("somebody", "MIT")})
    assert [problem.split(":")[0] for problem in licences.unlisted([name])] == ["gone.*"]
