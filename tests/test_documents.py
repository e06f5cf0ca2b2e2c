"""The README and the guides run as they stand; docs/api.md is up to date; links lead somewhere."""

import importlib
import pkgutil
import re
import runpy
from pathlib import Path

import pytest
import torch

import offramp
from offramp.annotation import Annotation
from offramp.demo import PREPROCESSING, digits
from offramp.demo._digits import Digits
from tests.demo.examples import trained

ROOT = Path(__file__).parent.parent


def run_guide(guide: str) -> dict[str, object]:
    """Run every Python block of a guide, one after the other, as a reader would."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / guide).read_text(), flags=re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    exec(compile("\n".join(blocks), guide, "exec"), names)
    return names


@pytest.mark.slow
def test_the_readme_runs_and_saves_without_losing_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("offramp.demo.trained_networks", lambda train: trained())
    monkeypatch.chdir(tmp_path)
    names = run_guide("README.md")
    fast, model, answer, data = names["fast"], names["model"], names["answer"], names["data"]
    assert isinstance(fast, offramp.EarlyExitModel)
    assert fast.point.guarantee is not None
    assert isinstance(model, offramp.EarlyExitModel)
    assert offramp.load("digits-model", backbone=model.backbone).point.guarantee == fast.point.guarantee
    assert isinstance(answer, offramp.Answer)
    assert isinstance(data, Digits)
    assert (answer.labels.numpy() == data.test.read(0, 497).labels).mean() > 0.95
    assert 0 < float(answer.relative_cost.mean()) < 0.22
    assert "frontier of digitscnn+digitstransformer" in capsys.readouterr().out
    job = names["job"]
    assert isinstance(job, Annotation)
    assert job.guarantee is not None
    assert job.guarantee.at_most == 0.05
    assert job.bill.asked < 0.7 * job.bill.inputs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no guarantee")  # of the default, one point: 250 calibrate samples are too few
def test_the_shortest_path_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, (small, network) = digits(), trained()
    parts = [part.read(0, len(part)) for part in (data.train, data.validation, data.test)]
    train, validation, test = [(PREPROCESSING(part.inputs), part.labels) for part in parts]
    images, example = test[0], test[0][:2]

    model = offramp.fit(network, train, validation)
    print(model.frontier)
    model.evaluate(test)
    fast = model.at(max_drop=0.03)
    answer = fast.predict(images)
    fast.save("digits")

    backbone = offramp.split(network, example)
    both = offramp.cascade(offramp.split(small, example), backbone)

    assert (answer.labels.numpy() == test[1]).mean() > 0.95
    loaded = offramp.load("digits", backbone=model.backbone)
    assert torch.equal(loaded.predict(images).probabilities, answer.probabilities)
    assert both.num_exits > backbone.num_exits


def test_the_guide_to_backbones_runs() -> None:
    names = run_guide("docs/backbones.md")
    assert isinstance(names["backbone"], offramp.Backbone)


def test_the_guide_to_running_runs() -> None:
    names = run_guide("docs/runtime.md")
    assert names["fast"].compaction.latency is names["table"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_guide_to_guarantees_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.demo.trained_networks", lambda train: trained())
    names = run_guide("docs/guarantees.md")
    assert names["fast"].point.guarantee.loss == "disagreement"  # type: ignore[attr-defined]


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


@pytest.mark.slow
def test_the_guide_to_cascades_runs() -> None:
    names = run_guide("docs/cascades.md")
    assert names["job"].guarantee.at_most == 0.05  # type: ignore[attr-defined]
    assert names["job"].bill.asked < 1500  # type: ignore[attr-defined]
    assert names["verdict"].alarms == ()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_guide_to_onnx_runs() -> None:
    names = run_guide("docs/onnx.md")
    assert names["answer"].labels.tolist() == names["fast"].predict(names["images"]).labels.tolist()  # type: ignore[attr-defined]


def test_the_guide_to_serving_runs() -> None:
    names = run_guide("docs/serving.md")
    assert len(names["answer"]) == 8  # type: ignore[arg-type]
    assert names["ticket"].point.tune_metrics["cost"] <= 0.9  # type: ignore[attr-defined]


def test_the_guide_to_artifacts_runs() -> None:
    assert isinstance(run_guide("docs/artifact.md")["same"], offramp.EarlyExitModel)


def test_names_are_exported_in_order() -> None:
    for module in ["offramp", *(f"offramp.{info.name}" for info in pkgutil.iter_modules(offramp.__path__))]:
        names = list(importlib.import_module(module).__all__)
        assert len(set(names)) == len(names)
        assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name)), module


def test_the_list_of_public_names_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "api.py"))["page"]()
    assert page == (ROOT / "docs" / "api.md").read_text(), "run scripts/api"
    assert not re.findall(r"`: *$", page, flags=re.MULTILINE), "a public name has no docstring"


def test_names_in_documents_exist() -> None:
    entry_points = {"offramp.method"}
    for guide in [ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md")]:
        for name in set(re.findall(r"\bofframp(?:\.[A-Za-z_]\w*)+", guide.read_text())) - entry_points:
            assert _exists(name), f"{guide.name} names {name}"


def _exists(name: str) -> bool:
    """Check that a dotted name is a module, or an attribute of one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_links_between_documents_lead_somewhere() -> None:
    for guide in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", guide.read_text()):
            if "://" not in target:
                assert (guide.parent / target).exists(), f"{guide.name} links to {target}"
