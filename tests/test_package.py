"""The package as a whole: what it needs, and what importing it brings along."""

import os
import re
import resource
import statistics
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import offramp
import offramp.data
from tests.cases import each

HEAVY = ("PIL", "datasets", "matplotlib", "pandas", "pyarrow", "rich", "sklearn", "tokenizers", "transformers", "typer")


@each(
    ("module", "needless"),
    [("offramp", HEAVY), ("offramp.cli.main", tuple(name for name in HEAVY if name not in ("rich", "typer")))],
)
def test_importing_brings_nothing_optional(module: str, needless: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*[name for name in {needless} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_what_the_core_needs() -> None:
    project = tomllib.loads(Path(__file__, "..", "..", "pyproject.toml").resolve().read_text())["project"]
    names = [re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in project["dependencies"]]
    assert names == ["filelock", "numpy", "rich", "safetensors", "torch", "typer"]


class TestImport:
    def test_brings_no_torch(self) -> None:
        code = "import sys, offramp; print('torch' in sys.modules, hasattr(offramp, 'fit'), 'torch' in sys.modules)"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout.split() == ["False", "True", "True"]

    @each("package", [offramp, offramp.data])
    def test_every_public_name_is_there(self, package: ModuleType) -> None:
        assert set(package.__all__) <= set(dir(package))
        assert all(getattr(package, name) is not None for name in package.__all__)

    def test_submodules_need_no_import_of_their_own(self) -> None:
        code = "import offramp; offramp.backbone.text_preprocessing; offramp.data.open_data"
        subprocess.run([sys.executable, "-c", code], check=True)

    @each("package", [offramp, offramp.data])
    def test_another_name_is_refused(self, package: ModuleType) -> None:
        with pytest.raises(AttributeError, match="has no attribute 'fitt'"):
            package.fitt  # noqa: B018

    @pytest.mark.slow
    def test_adds_at_most_a_tenth_to_torch(self, tmp_path: Path) -> None:
        """In processor time: the median of pairs run in turn."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        kept["PYTHONPYCACHEPREFIX"] = str(tmp_path)  # compiled files, as an installation has them
        times: dict[str, list[float]] = {"import torch": [], "import offramp": []}
        for _ in range(6):
            for code, took in times.items():
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([sys.executable, "-c", code], env=kept, check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        torch_s, offramp_s = (statistics.median(took[1:]) for took in times.values())  # the first time compiles
        assert offramp_s <= 0.1 * torch_s


def test_the_library_does_not_know_the_laboratory() -> None:
    """Names in prose aside: nothing of `src` imports it, so that it works where the laboratory is not installed."""
    files = [*(Path(__file__).parents[1] / "src").rglob("*.py")]
    assert files
    for file in files:
        assert not re.search(r"^\s*(from|import) (offramp_bench|lab)\b", file.read_text(encoding="utf-8"), re.M), file


@pytest.mark.slow
def test_the_wheel_holds_the_library_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    root = Path(__file__).parents[1]
    for source, name in ((root, "offramp"), (root / "lab", "offramp_bench")):
        subprocess.run([*command, "--wheel-dir", str(tmp_path), str(source)], check=True, capture_output=True)
        (wheel,) = tmp_path.glob(f"{name}-*.whl")
        names = zipfile.ZipFile(wheel).namelist()
        assert {file.partition("/")[0].partition("-")[0] for file in names} <= {name, "offramp_onnx.py"}
        assert not [file for file in names if file.endswith((".safetensors", ".npz", ".th"))]
        rivals = [file for file in names if re.search(r"rivals|ztw|boosted|l2w|eenet|entropy|t2t|graph_", file)]
        assert bool(rivals) == (name == "offramp_bench"), rivals
