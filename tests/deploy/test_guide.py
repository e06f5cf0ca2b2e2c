"""The commands of docs/how-to/deploy.md from zero to a cluster: what they name exists."""

import re
import shlex

from tests.deploy.dockerfiles import read_steps
from tests.deploy.server import ROOT, server_options


def commands() -> list[list[str]]:
    page = (ROOT / "docs/how-to/deploy.md").read_text("utf-8")
    section = page.partition("## From zero to a cluster\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    return [shlex.split(line) for line in "".join(blocks).splitlines()]


def test_paths_exist() -> None:
    paths = [word for words in commands() for word in words if word.startswith("deploy/")]
    assert len(paths) >= 8
    assert all((ROOT / path).exists() for path in paths), paths


def test_options_of_the_server_exist() -> None:
    serving = [words for words in commands() if words[:2] == ["offramp", "serve"]]
    running = [
        words[words.index("offramp") :] for words in commands() if words[:2] == ["docker", "run"] and "offramp" in words
    ]
    options = {word for words in serving + running for word in words if word.startswith("--")}
    assert "--max-drop" in options
    assert options <= server_options()


def test_arguments_of_builds_exist() -> None:
    builds = [words for words in commands() if words[:2] == ["docker", "build"]]
    assert len(builds) == 2
    for words in builds:
        steps = read_steps(ROOT / words[words.index("-f") + 1])
        known = {step.value.partition("=")[0] for step in steps if step.name == "ARG"}
        given = [words[at + 1].partition("=")[0] for at, word in enumerate(words) if word == "--build-arg"]
        assert set(given) <= known


def test_pinned_packages_are_those_of_the_constraints() -> None:
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {pin for words in commands() for word in words for pin in re.findall(r"[a-z]+==[\w.]+", word)}
    assert pins
    assert pins <= set(constraints)
