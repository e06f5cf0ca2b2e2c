"""Builds both distributions and compares their contents with a rule: scripts/release-check calls this.

    python scripts/release_check.py FOLDER [TAG]

An archive holds exactly the files of its source folder that are under version control: no tests, no weights, nothing
that lies around. A wheel built from the sdist is the same, byte for byte.
"""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]

DISTRIBUTIONS = {"offramp": ".", "offramp-bench": "lab"}
"""Folder of each distribution's pyproject.toml."""

BESIDE = {
    "offramp": {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml"},
    "offramp-bench": {"LICENSE", "README.md", "pyproject.toml"},
}
"""Files of an sdist beside the source folder."""

BY_HATCHLING = {"PKG-INFO", ".gitignore"}
"""Files of an sdist that the build backend adds."""

FORBIDDEN = re.compile(r"(^|/)(tests?|weights|results)/|\.(safetensors|npz|npy|pt|pth|th|onnx|gz|parquet|pyc)$")
"""Paths that no archive may have."""


def build(distribution: str, into: Path, source: Path | None = None) -> tuple[Path, Path]:
    """Build a distribution.

    Args:
        distribution: Its name.
        into: Folder for the archives.
        source: Folder with its pyproject.toml; that of the repository if left out.

    Returns:
        The wheel and the sdist.
    """
    folder = source or ROOT / DISTRIBUTIONS[distribution]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(into.resolve())],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    stem = distribution.replace("-", "_")
    (wheel,), (sdist,) = into.glob(f"{stem}-[0-9]*.whl"), into.glob(f"{stem}-[0-9]*.tar.gz")
    return wheel, sdist


def source_files(distribution: str) -> set[str]:
    """Return the files of the source folder that are under version control, as paths from the distribution's folder."""
    command = ["git", "ls-files", "-z", "src"]
    folder = ROOT / DISTRIBUTIONS[distribution]
    listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split("\0")
    return {file for file in listed if file and (folder / file).is_file()}


def wheel_problems(distribution: str, names: list[str], sources: set[str]) -> list[str]:
    """Return what is wrong with the files of a wheel.

    Args:
        distribution: Its name.
        names: Paths in the wheel.
        sources: Files of the source folder.
    """
    about = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/.*", name)]
    problems = _differences({name for name in names if name not in about}, {file[len("src/") :] for file in sources})
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in about):
        problems.append("LICENSE is missing")
    return [f"wheel of {distribution}: {problem}" for problem in problems]


def sdist_problems(distribution: str, names: list[str], sources: set[str]) -> list[str]:
    """Return what is wrong with the files of an sdist, as `wheel_problems` does."""
    inside = {name.partition("/")[2] for name in names}
    problems = _differences(inside - BY_HATCHLING, sources | BESIDE[distribution])
    return [f"sdist of {distribution}: {problem}" for problem in problems]


def _differences(names: set[str], expected: set[str]) -> list[str]:
    return [
        *(f"{name} is missing" for name in sorted(expected - names)),
        *(f"{name} does not belong there" for name in sorted(names - expected)),
        *(f"{name} may not be published" for name in sorted(names & expected) if FORBIDDEN.search(name)),
    ]


def version_problems(tag: str | None = None) -> list[str]:
    """Return where versions differ from that of pyproject.toml.

    Args:
        tag: Name of the tag of a release, such as v0.1.0.
    """
    version = _version(ROOT / "pyproject.toml")
    laboratory = _version(ROOT / "lab" / "pyproject.toml")
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    problems = [
        f"{file} has version {found}, pyproject.toml {version}"
        for file, found in (("lab/pyproject.toml", laboratory), ("CITATION.cff", cited))
        if found != version
    ]
    if tag is not None:
        if tag != f"v{version}":
            problems.append(f"the tag is {tag}, the version {version}")
        changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
            problems.append(f"CHANGELOG.md has no section '## [{version}] - DATE'")
    return problems


def _version(file: Path) -> str:
    return str(tomllib.loads(file.read_text(encoding="utf-8"))["project"]["version"])


def check(into: Path) -> list[str]:
    """Build all archives into a folder; return what is wrong with them."""
    problems = []
    for distribution in DISTRIBUTIONS:
        wheel, sdist = build(distribution, into)
        sources = source_files(distribution)
        files = zipfile.ZipFile(wheel).namelist()
        problems += wheel_problems(distribution, files, sources)
        with tarfile.open(sdist) as archive, TemporaryDirectory() as again:
            packed = archive.getnames()
            archive.extractall(again, filter="data")
            (unpacked,) = Path(again).iterdir()
            rebuilt, _ = build(distribution, Path(again), unpacked)
            if rebuilt.read_bytes() != wheel.read_bytes():
                problems.append(f"sdist of {distribution}: the wheel built from it is another one")
        problems += sdist_problems(distribution, packed, sources)
        for archive_file, names in ((wheel, files), (sdist, packed)):
            size = archive_file.stat().st_size
            print(f"{archive_file.name}: {len(names)} files, {size:,} bytes")
    return problems


def main() -> None:
    """Build, and say what is wrong."""
    folder, *tag = sys.argv[1:]
    into = Path(folder)
    into.mkdir(parents=True)
    problems = version_problems(*tag) + check(into)
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
