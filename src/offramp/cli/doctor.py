"""`offramp doctor`."""

import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from offramp.cli.console import print_json, print_text, warn
from offramp.cli.options import JsonOption
from offramp.errors import OfframpError

__all__ = ["doctor"]

VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HF_DATASETS_CACHE",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "RAY_ADDRESS",
)
"""Environment variables of other libraries that change how offramp runs; those that may hold a secret are left out."""

OWN = "OFFRAMP_"
"""Beginning of offramp's environment variables."""

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""File with the processor time that a container may use, and the period it is for, in microseconds."""

_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+) *(?:\[(?P<inner>[\w,.-]+)\])? *(?:[^;]*>= *(?P<lowest>[\d.]+))?[^;]*"
    r"(?:; *extra *== *['\"](?P<extra>[\w.-]+)['\"])?"
)
"""Name, extras, lowest version and extra of a requirement without other conditions."""


@dataclass(frozen=True)
class Library:
    """A library that offramp needs, and the one installed."""

    name: str
    lowest: str
    """Lowest version that will do; empty if any."""
    installed: str | None
    """Version installed; None if it is not."""

    @property
    def too_old(self) -> bool:
        """True if the installed version is below the lowest."""
        return self.installed is not None and _read_release(self.installed) < _read_release(self.lowest)

    @property
    def will_do(self) -> bool:
        """True if it is installed in a version that offramp can use."""
        return self.installed is not None and not self.too_old

    def __str__(self) -> str:
        if self.installed is None:
            return f"{self.name} missing"
        return f"{self.name} {self.installed}" + (f" (needs {self.lowest})" if self.too_old else "")


@dataclass(frozen=True)
class Extra:
    """An extra of offramp and its libraries."""

    name: str
    libraries: tuple[Library, ...]

    @property
    def complete(self) -> bool:
        """True if every library will do."""
        return all(library.will_do for library in self.libraries)

    @property
    def command(self) -> str:
        """Command that installs it."""
        return f"pip install 'offramp[{self.name}]'"


def doctor(as_json: JsonOption = False) -> None:
    """Check this installation: versions, processor, devices, threads, extras, and what to install.

    Copy what it prints into a report of a bug. It ends with status 1 if it found a problem. Libraries of extras are
    looked up, not imported; only torch is, and torchvision, which the libraries for networks import.

    [bold]Example[/bold]: offramp doctor
    """
    core = _find_core()
    extras = _find_extras()
    variables = {name: value for name, value in sorted(os.environ.items()) if name in VARIABLES or name.startswith(OWN)}
    machine, problems = _describe_machine()
    problems += _find_problems(core, extras)
    if as_json:
        print_json(
            {
                "offramp": {"version": _find_version("offramp"), "folder": str(Path(__file__).parents[1])},
                "python": {"version": platform.python_version(), "program": sys.executable},
                "libraries": {library.name: library.installed for library in core},
                "system": platform.platform(),
                **machine,
                "variables": variables,
                "extras": [
                    {
                        "name": extra.name,
                        "installed": extra.complete,
                        "libraries": {library.name: library.installed for library in extra.libraries},
                        "install": None if extra.complete else extra.command,
                    }
                    for extra in extras
                ],
                "problems": problems,
            }
        )
    else:
        _print(core, extras, variables, machine)
        for problem in problems:
            warn(problem)
        if not problems:
            print_text("No problems found.")
    if problems:
        raise typer.Exit(1)


def _print(core: list[Library], extras: list[Extra], variables: dict[str, str], machine: dict[str, Any]) -> None:
    lines = {
        "offramp": f"{_find_version('offramp')} in {Path(__file__).parents[1]}",
        "Python": f"{platform.python_version()}, {sys.executable}",
        **{library.name: str(library).removeprefix(library.name).strip() for library in core},
        "system": platform.platform(),
        "processor": f"{machine['processor']}, {machine['cores']} cores for this process",
    }
    if "threads" in machine:  # torch could be imported
        lines["threads"] = f"{machine['threads']} by default"
        lines["instructions"] = machine["instructions"] + "".join(
            f"; {kind} {speed}" for kind, speed in machine["types"].items()
        )
        lines["devices"] = ", ".join(machine["devices"])
    lines["variables"] = ", ".join(f"{name}={value}" for name, value in variables.items()) or "none set"
    for extra in extras:
        libraries = ", ".join(map(str, extra.libraries))
        lines[f"[{extra.name}]"] = libraries if extra.complete else f"{extra.command} ({libraries})"
    width = max(map(len, lines)) + 2
    print_text("\n".join(f"{name:{width}}{text}" for name, text in lines.items()))


def _find_core() -> list[Library]:
    """Return the libraries that offramp cannot do without."""
    return [library for extra, library in _list_requirements("offramp") if not extra]


def _find_extras() -> list[Extra]:
    """Return the extras in the order in which offramp declares them."""
    by_extra: dict[str, list[Library]] = {}
    for extra, library in _list_requirements("offramp"):
        if extra:
            by_extra.setdefault(extra, []).append(library)
    return [Extra(name, tuple(libraries)) for name, libraries in by_extra.items()]


def _list_requirements(distribution: str) -> Iterator[tuple[str, Library]]:
    """Yield the extra, "" for none, and the library of each requirement without other conditions.

    For a library with an extra of its own, such as `ray[serve]`, yield those libraries of that extra too that will not
    do.
    """
    from importlib.metadata import requires  # not above: only this command needs it

    for requirement in requires(distribution) or ():
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None:
            continue
        name, inner, lowest, extra = match.group("name", "inner", "lowest", "extra")
        installed = _find_version(name)
        yield extra or "", Library(name, lowest or "", installed)
        if inner and installed is not None:
            for own, library in _list_requirements(name):
                if own in inner.split(",") and not library.will_do:
                    yield extra or "", library


def _find_version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _read_release(text: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, without zeros at the end, as 2.10 and 2.10.0 are one version.

    Example:
        >>> _read_release("2.10.0+cpu"), _read_release("2.10.dev1"), _read_release("2.9.1") < _read_release("2.10")
        ((2, 10), (2, 10), True)
    """
    match = re.match(r"\d+(\.\d+)*", text)
    numbers = [] if match is None else [int(part) for part in match.group().split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _describe_machine() -> tuple[dict[str, Any], list[str]]:
    """Return a description of the machine as torch sees it, and its problems."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    machine: dict[str, Any] = {"processor": platform.processor() or platform.machine(), "cores": cores}
    try:
        import torch

        from offramp.data._files import allowed_bytes
        from offramp.runtime._processor import INSTRUCTIONS, find_missing_instructions, processor_name
    except Exception as error:  # a build of torch for another machine fails in many ways
        return machine, [f"torch cannot be imported: {error}; install it again, see the installation page of PyTorch"]

    machine["processor"] = processor_name()
    machine["threads"] = torch.get_num_threads()
    machine["instructions"] = torch.backends.cpu.get_cpu_capability()
    machine["types"] = {kind: _describe_speed(find_missing_instructions(kind)) for kind in INSTRUCTIONS}
    machine["devices"] = _list_devices()
    problems = []
    usable = min(cores, _find_quota() or cores)
    if machine["threads"] > usable:
        problems.append(
            f"torch uses {machine['threads']} threads, but this process may use {usable} cores: set "
            f"OMP_NUM_THREADS={usable}"
        )
    try:
        allowed_bytes()
    except OfframpError as error:
        problems.append(str(error))
    if _find_version("torchvision") is not None:
        try:
            import torchvision  # noqa: F401
        except Exception as error:
            problems.append(
                f"torchvision cannot be imported ({error}), so neither can timm and models of transformers: install "
                "torch and torchvision from the same place"
            )
    return machine, problems


def _describe_speed(missing: tuple[str, ...] | None) -> str:
    if missing is None:
        return "unknown"
    return f"slow, without {' or '.join(missing)}" if missing else "fast"


def _list_devices() -> list[str]:
    """Return torch's devices, with the names of those that have one."""
    import torch

    devices = ["cpu"]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        name = "" if kind is None else kind.type
        for index in range(torch.accelerator.device_count()):
            model = f" ({torch.cuda.get_device_name(index)})" if name == "cuda" else ""
            devices.append(f"{name}:{index}{model}")
    return devices


def _find_quota() -> int | None:
    """Return the cores that the container may use, rounded up; None without a limit."""
    try:
        most, period = QUOTA.read_text().split()
        return -(-int(most) // int(period))
    except (OSError, ValueError):  # no file, or "max"
        return None


def _find_problems(core: list[Library], extras: list[Extra]) -> list[str]:
    """Return the problems of the libraries."""
    missing = [library.name for library in core if library.installed is None]
    problems = [f"{', '.join(missing)} not installed: pip install offramp"] if missing else []
    upgrades = {str(library): "offramp" for library in core if library.too_old}
    for extra in extras:
        upgrades |= {str(library): f"'offramp[{extra.name}]'" for library in extra.libraries if library.too_old}
    return problems + [f"{library} is too old: pip install --upgrade {what}" for library, what in upgrades.items()]
