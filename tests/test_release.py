"""Releases: archives with the sources alone, versions that agree, workflows with pinned actions."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases import each
from tests.scripts import ROOT, load_script

in_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the list of files comes from git")


@pytest.fixture(scope="module")
def release() -> Any:
    return load_script("release_check")


@in_git
@pytest.mark.slow
def test_the_archives_hold_the_sources_alone(release: Any, tmp_path: Path) -> None:
    assert release.check(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 4


SOURCES = {"src/offramp/__init__.py", "src/offramp/py.typed", "src/offramp_onnx.py"}


@each(
    ("added", "gone", "told"),
    [
        ((), (), None),
        (("tests/test_release.py",), (), "tests/test_release.py does not belong there"),
        (("offramp/notes.txt",), (), "offramp/notes.txt does not belong there"),
        ((), ("offramp/py.typed",), "offramp/py.typed is missing"),
        ((), ("offramp-1.dist-info/licenses/LICENSE",), "LICENSE is missing"),
    ],
)
def test_a_wheel_with_other_files(release: Any, added: tuple[str], gone: tuple[str], told: str | None) -> None:
    about = {"offramp-1.dist-info/METADATA", "offramp-1.dist-info/licenses/LICENSE"}
    names = sorted(({file[4:] for file in SOURCES} | about | set(added)) - set(gone))
    expected = [] if told is None else [f"wheel of offramp: {told}"]
    assert release.wheel_problems("offramp", names, SOURCES) == expected


@each("name", ["src/offramp/tests/a.py", "src/offramp/weights/a.json", "src/offramp/a.safetensors", "src/a.npz"])
def test_what_may_not_be_published_may_not_be_a_source_either(release: Any, name: str) -> None:
    sources = {*SOURCES, name}
    names = [f"offramp-1/{file}" for file in sources | release.BESIDE["offramp"] | {"PKG-INFO"}]
    assert release.sdist_problems("offramp", names, sources) == [f"sdist of offramp: {name} may not be published"]


def test_versions_agree(release: Any) -> None:
    assert release.version_problems() == []


def test_a_tag_needs_its_version_and_a_dated_section(
    release: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "lab").mkdir()
    for file, version in (("pyproject.toml", "1.2"), ("lab/pyproject.toml", "1.1")):
        (tmp_path / file).write_text(f'[project]\nversion = "{version}"\n')
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.0\n")
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [1.2]\n")
    assert [problem.split()[0] for problem in release.version_problems("v1.3")] == [
        "lab/pyproject.toml",
        "CITATION.cff",
        "the",
        "CHANGELOG.md",
    ]
    (tmp_path / "lab/pyproject.toml").write_text('[project]\nversion = "1.2"\n')
    (tmp_path / "CITATION.cff").write_text("version: 1.2\n")
    (tmp_path / "CHANGELOG.md").write_text("## [1.2] - 2026-01-31\n")
    assert release.version_problems("v1.2") == []


@each("file", sorted((ROOT / ".github" / "workflows").glob("*.yml")))
def test_workflows_pin_actions_and_run_scripts_that_exist(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    uses = re.findall(r"uses: (.*)", text)
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert len(uses) == len([step for step in steps if "uses" in step]) > 0
    assert [line for line in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", line)] == []
    called = re.findall(r"- run: (scripts/[\w-]+)", text)
    assert called
    assert [script for script in called if not (ROOT / script).is_file()] == []


def test_workflows_write_only_what_they_must() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    permissions = {name: job.get("permissions", {}) for name, job in workflow["jobs"].items()}
    assert permissions == {
        "build": {},
        "attest": {"id-token": "write", "attestations": "write"},
        "publish": {"id-token": "write"},
    }


def test_hooks_run_scripts_without_versions_of_their_own() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert repository["repo"] == "local"
    assert all((ROOT / hook["entry"]).is_file() for hook in repository["hooks"])


def test_forms_for_issues_are_complete() -> None:
    for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(file.read_text(encoding="utf-8"))
        if file.name != "config.yml":
            assert {"name", "description", "labels", "body"} == set(form), file
            inputs = [entry for entry in form["body"] if entry["type"] != "markdown"]
            assert len({entry["id"] for entry in inputs}) == len(inputs) > 0


def test_tools_of_a_release_are_pinned() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert all("==" in tool or f"\n{tool}==" in pinned for tool in groups["release"])
