"""The package as a whole: what it needs, and what importing it brings along."""

import ast
import os
import re
import resource
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import offramp
import offramp.data
from tests.cases import each
from tests.public_names import public_names

HEAVY = ("PIL", "datasets", "matplotlib", "pandas", "pyarrow", "rich", "sklearn", "tokenizers", "transformers", "typer")

PUBLIC = {
    "offramp": (
        "DEFAULT PAPER Answer Backbone CalibrationOptions CostOptions EarlyExitModel FittingOptions Frontier "
        "JointSettings annotate callable_model cascade encoder estimate fit image_preprocessing llm load "
        "split"
    ),
    "offramp.annotation": "Annotation estimate_bill",
    "offramp.backbone": "Axes Cascade CifarResNet Factory",
    "offramp.calls": "Price Reply",
    "offramp.cost": "Costs count_backbone keep_exits",
    "offramp.data": "FORMATS as_source open_data sample",
    "offramp.demo": "PREPROCESSING digits trained_networks",
    "offramp.errors": (
        "ArtifactError BudgetError BusyError CallError CorruptFileError DuplicateNameError GuessingError "
        "GuessingWarning InputError MissingExtraError OfframpError OfframpWarning OverlapWarning "
        "SplitError SplitRefusedError StoreError UnknownNameError UntrustedNameError WorkerLostError"
    ),
    "offramp.exits": "EXITS ExitSet LadderExits LinearExits",
    "offramp.features": "ArraySource BatchSource Source StoreSource extract split_by_id",
    "offramp.functional": "evidence exit_distribution gate_loss gate_targets imbalance_weights weighted_loss",
    "offramp.methods": "METHODS FittedExits Method",
    "offramp.model": "compare_models fit_features",
    "offramp.monitor": "Monitor Traffic full_labels",
    "offramp.policy": "POLICIES Guarantee Observation OperatingPoint Policy Tuning",
    "offramp.pooling": "POOLINGS Pooling Representation Tokens",
    "offramp.preprocessing": "STEPS Preprocessing photo_preprocessing text_preprocessing",
    "offramp.report": "find write_report",
    "offramp.runtime": "BACKENDS Backend BudgetController Dial LatencyTable measure_latency",
    "offramp.scale": "extract_on_cluster predict_files",
    "offramp.serve": "Scheduler",
    "offramp.testing": "check_backbone serve_llm",
    "offramp.uncertainty": "calibration_error conformal_thresholds prediction_set",
    "offramp.backbone.adapters.timm": "timm_backbone",
    "offramp.backbone.adapters.torchvision": "torchvision_backbone",
    "offramp.backbone.adapters.transformers": "image_backbone text_backbone",
    "offramp.runtime.onnx": "export_onnx",
    "offramp_onnx": "FolderError OnnxAnswer OnnxNetwork load",
}
"""The public names of each module."""

ROOT = Path(__file__).parents[1]


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
        code = "import offramp; offramp.preprocessing.text_preprocessing; offramp.data.open_data"
        subprocess.run([sys.executable, "-c", code], check=True)

    @each("package", [offramp, offramp.data])
    def test_another_name_is_refused(self, package: ModuleType) -> None:
        with pytest.raises(AttributeError, match="has no attribute 'fitt'"):
            package.fitt  # noqa: B018

    @pytest.mark.slow
    def test_adds_at_most_a_tenth_to_torch(self, tmp_path: Path) -> None:
        """In processor time: the least of several turns."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        compiled = {**kept, "PYTHONPYCACHEPREFIX": str(tmp_path)}  # as an installation has ours; torch's has its own
        times: dict[str, list[float]] = {"torch": [], "offramp": []}
        for module in ("torch", "offramp", "offramp", "offramp", "torch", "offramp"):  # the first of ours compiles
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            environment = compiled if module == "offramp" else kept
            subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times[module].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert min(times["offramp"]) <= 0.1 * min(times["torch"])


class TestPublicNames:
    def test_are_these(self) -> None:
        assert {module: " ".join(listed) for module, listed in public_names().items() if listed} == PUBLIC

    def test_are_at_most_120(self) -> None:
        assert sum(len(names.split()) for names in PUBLIC.values()) <= 120


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    """Also the strings under fields and constants."""
    texts = [
        (file, node.lineno, node.value.value.strip())
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    assert texts
    questions = re.compile(r"(What|Whether|How|Where|Who|Those)\b")
    assert [f"{file.relative_to(ROOT)}:{line}" for file, line, text in texts if questions.match(text)] == []


def test_the_library_does_not_know_the_laboratory() -> None:
    """Names in prose aside: nothing of `src` imports it, so that it works where the laboratory is not installed."""
    files = [*(Path(__file__).parents[1] / "src").rglob("*.py")]
    assert files
    for file in files:
        assert not re.search(r"^\s*(from|import) (offramp_bench|lab)\b", file.read_text(encoding="utf-8"), re.M), file
