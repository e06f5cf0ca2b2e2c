"""The README and the guides run as they stand; docs/api.md is what the docstrings say; links lead somewhere."""

import importlib
import pkgutil
import re
import runpy
from pathlib import Path

import pytest

import offramp
from offramp.features import Rows

ROOT = Path(__file__).parent.parent


def run_guide(guide: str) -> dict[str, object]:
    """Run every Python block of a guide, one after the other, as a reader would."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / guide).read_text(), flags=re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    exec(compile("\n".join(blocks), guide, "exec"), names)
    return names


@pytest.mark.slow
def test_the_readme_runs_and_saves_without_losing_much(capsys: pytest.CaptureFixture[str]) -> None:
    names = run_guide("README.md")
    answer, test = names["answer"], names["test"]
    assert isinstance(answer, offramp.Answer)
    assert isinstance(test, Rows)
    assert (answer.labels.numpy() == test.labels).mean() > 0.95
    assert 0 < float(answer.relative_cost.mean()) < 0.22
    assert "frontier of digitscnn+digitstransformer" in capsys.readouterr().out


def test_the_guide_to_backbones_runs() -> None:
    names = run_guide("docs/backbones.md")
    assert isinstance(names["backbone"], offramp.Backbone)


def test_the_guide_to_running_runs() -> None:
    names = run_guide("docs/runtime.md")
    assert len(names["flight"]) > 0  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_guide_to_guarantees_runs() -> None:
    names = run_guide("docs/guarantees.md")
    assert names["network"].point.guarantee.loss == "disagreement"  # type: ignore[attr-defined]


def test_the_guide_to_the_dial_runs() -> None:
    names = run_guide("docs/dial.md")
    assert names["controller"].count == 1000  # type: ignore[attr-defined]
    assert 0.3 < names["controller"].average <= 0.62  # type: ignore[attr-defined]


def test_the_guide_to_monitoring_runs() -> None:
    names = run_guide("docs/monitoring.md")
    assert names["verdict"].samples == 200  # type: ignore[attr-defined]


def test_the_guide_to_the_method_runs() -> None:
    names = run_guide("docs/method.md")
    assert names["ahead"].name == "mine:ahead"  # type: ignore[attr-defined]
    assert names["table"].batch_sizes == (1, 8)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_guide_to_onnx_runs() -> None:
    names = run_guide("docs/onnx.md")
    assert names["answer"].labels.tolist() == names["network"].predict(names["images"]).labels.tolist()  # type: ignore[attr-defined]


def test_the_guide_to_artifacts_runs() -> None:
    assert isinstance(run_guide("docs/artifact.md")["same"], offramp.Frontier)


def test_names_are_exported_in_order() -> None:
    for module in ["offramp", *(f"offramp.{info.name}" for info in pkgutil.iter_modules(offramp.__path__))]:
        names = list(importlib.import_module(module).__all__)
        assert len(set(names)) == len(names)
        assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name)), module


def test_the_list_of_public_names_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "api.py"))["page"]()
    assert page == (ROOT / "docs" / "api.md").read_text(), "run scripts/api"
    assert "|  |" not in page, "a public name has no docstring"


def test_links_between_documents_lead_somewhere() -> None:
    for guide in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", guide.read_text()):
            if "://" not in target:
                assert (guide.parent / target).exists(), f"{guide.name} links to {target}"
