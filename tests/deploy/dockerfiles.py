"""Read Dockerfiles, and run their steps one by one where no Docker daemon is.

A folder stands in for the file system of the image: absolute paths in the steps are mapped into it. A fresh environment
of Python at `usr/local` stands in for the base image. This does not show that the base image exists, that it has the
system libraries that the packages need, and how large the image is.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Image", "Step", "build", "read_steps"]

PYTHON = "/usr/bin/python3.11"
"""The interpreter of the base image, if there is one that every user may run."""


@dataclass(frozen=True)
class Step:
    """One instruction of a Dockerfile."""

    name: str
    """Its name, in capitals."""
    options: dict[str, str]
    """Its options, such as `from`, without dashes."""
    value: str
    """The rest of the line."""

    @property
    def words(self) -> list[str]:
        """The words of an exec form, or of a plain list."""
        words: list[str] = json.loads(self.value) if self.value.startswith("[") else self.value.split()
        return words


def read_steps(dockerfile: Path) -> list[Step]:
    """Return the instructions of a Dockerfile, in order."""
    lines = [line for line in dockerfile.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    steps = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            found = re.match(r"((?:--[\w-]+=\S+\s+)*)(.*)", rest)
            assert found is not None
            options = dict(option[2:].split("=", 1) for option in found[1].split())
            steps.append(Step(name.upper(), options, found[2].strip()))
    return steps


@dataclass
class Image:
    """The files and settings that the steps of a Dockerfile make."""

    root: Path
    """The folder that stands in for the file system."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of its processes."""
    place: str = "/"
    """Current folder, as a path in the image."""
    user: int = 0
    health: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def map(self, path: str) -> Path:
        """Return the place of a path of the image."""
        return self.root / os.path.normpath(os.path.join(self.place, path)).lstrip("/")

    def start(self, line: Sequence[str], *, replace: Sequence[tuple[str, str]] = ()) -> "subprocess.Popen[str]":
        """Start a process as its user.

        Args:
            line: Its words; those that are absolute paths are mapped.
            replace: Texts to replace in the words, such as a port that is taken here.
        """
        for old, new in replace:
            line = [word.replace(old, new) for word in line]
        mapped = [str(self.map(word)) if word.startswith("/") else word for word in line]
        rights = {"user": self.user, "group": self.user, "extra_groups": []} if os.getuid() == 0 and self.user else {}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(mapped, cwd=self.map("."), env=self.environment, **rights, **pipes)  # type: ignore[call-overload, no-any-return]


def build(dockerfile: Path, context: Path, folder: Path, arguments: dict[str, str]) -> Image:
    """Run the steps of a Dockerfile.

    Args:
        dockerfile: The Dockerfile.
        context: The folder that files are copied from.
        folder: An empty folder to build in.
        arguments: Build arguments.
    """
    stages: dict[str, Path] = {}
    image = Image(folder / "root")
    names: list[str] = []
    for step in read_steps(dockerfile):
        print(f"{dockerfile.name}: {step.name} {step.value}", flush=True)
        if step.name == "FROM":
            if image.root.exists():  # every stage is built at the same paths, and moved away when the next begins
                image.root.rename(folder / names[-1])
                stages[names[-1]] = folder / names[-1]
            names.append(step.value.split()[-1])
            image = _start_stage(folder / "root")
        elif step.name == "ARG":
            name, _, default = step.value.partition("=")
            if name in arguments or default:
                image.environment[name] = arguments.get(name, default)
        elif step.name == "ENV":
            for name, value in (pair.split("=", 1) for pair in step.words):
                image.environment[name] = str(image.map(value)) if value.startswith("/") else value
        elif step.name == "WORKDIR":
            image.place = os.path.join(image.place, step.value)
            image.map(".").mkdir(parents=True, exist_ok=True)
        elif step.name == "COPY":
            source = stages[step.options["from"]] if "from" in step.options else context
            _copy([source / word.lstrip("/") for word in step.words[:-1]], step.words[-1], image)
        elif step.name == "RUN":
            words = re.sub(r"(?<![\w./-])/(?=\w)", f"{image.root}/", step.value)
            subprocess.run(["sh", "-c", words], cwd=image.map("."), env=image.environment, check=True)
        elif step.name == "USER":
            image.user = int(step.value.partition(":")[0])
        elif step.name == "HEALTHCHECK":
            image.health = json.loads(step.value.removeprefix("CMD "))
        elif step.name == "ENTRYPOINT":
            image.entrypoint = step.words
        elif step.name == "CMD":
            image.command = step.words
        else:
            assert step.name == "EXPOSE", f"{step.name}: unknown instruction"
    return image


def _start_stage(root: Path) -> Image:
    """Return the stand-in for the base image: an environment with a Python and pip, and nothing else."""
    (root / "tmp").mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    python = PYTHON if Path(PYTHON).exists() else sys.executable
    subprocess.run([python, "-m", "venv", str(root / "usr/local")], check=True)
    index = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    path = f"{root}/usr/local/bin:/usr/bin:/bin"
    return Image(root, {"PATH": path, "HOME": str(root / "tmp"), "TMPDIR": str(root / "tmp"), **index})


def _copy(sources: Sequence[Path], target: str, image: Image) -> None:
    """Copy files into the folder that the target names, and the contents of a folder to it."""
    into = image.map(target)
    for source in sources:
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, into, symlinks=True, dirs_exist_ok=True, ignore=ignored)
        else:
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, into)
