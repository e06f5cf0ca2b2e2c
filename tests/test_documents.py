"""The guides run as they stand; every public name has a page; links lead somewhere."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import offramp
from offramp.demo import PREPROCESSING, digits
from tests.demo.examples import trained
from tests.public_names import docstring, public_names

ROOT = Path(__file__).parent.parent


def documents() -> dict[str, str]:
    """Return the texts of the documentation and of the documents beside it, by their paths."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


def run_guide(guide: str) -> dict[str, object]:
    """Run every Python block of a guide, one after the other, as a reader would."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / guide).read_text(), flags=re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    exec(compile("\n".join(blocks), guide, "exec"), names)
    return names


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


def test_the_guide_to_networks_runs() -> None:
    names = run_guide("docs/how-to/bring-a-network.md")
    assert isinstance(names["backbone"], offramp.Backbone)


def test_the_guide_to_hidden_states_runs() -> None:
    names = run_guide("docs/reference/backbones.md")
    assert names["TokenNetwork"].axes is not offramp.Backbone.axes  # type: ignore[attr-defined]


def test_the_guide_to_cascades_runs() -> None:
    names = run_guide("docs/how-to/cascade.md")
    assert names["both"].num_exits > names["backbone"].num_exits  # type: ignore[attr-defined]
    assert len(names["three"].own_heads) == 3  # type: ignore[attr-defined]


def test_the_guide_to_speed_runs() -> None:
    names = run_guide("docs/how-to/speed-up.md")
    assert names["fast"].compaction.latency is names["table"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_guide_to_guarantees_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.demo.trained_networks", lambda train: trained())
    names = run_guide("docs/how-to/guarantees.md")
    assert names["fast"].point.guarantee.loss == "disagreement"  # type: ignore[attr-defined]


def test_the_guide_to_points_runs() -> None:
    names = run_guide("docs/how-to/choose-a-point.md")
    assert names["controller"].count == 1000  # type: ignore[attr-defined]
    assert 0.3 < names["controller"].average <= 0.62  # type: ignore[attr-defined]


def test_the_guide_to_monitoring_runs() -> None:
    names = run_guide("docs/how-to/monitor.md")
    assert names["verdict"].samples == 200  # type: ignore[attr-defined]


def test_the_guide_to_methods_runs() -> None:
    names = run_guide("docs/how-to/your-own-method.md")
    assert names["ahead"].name == "mine:ahead"  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_guide_to_annotation_runs() -> None:
    names = run_guide("docs/how-to/annotate.md")
    assert names["job"].guarantee.at_most == 0.05  # type: ignore[attr-defined]
    assert names["job"].bill.asked < 1500  # type: ignore[attr-defined]
    assert names["verdict"].alarms == ()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_guide_to_onnx_runs() -> None:
    names = run_guide("docs/how-to/export.md")
    assert names["answer"].labels.tolist() == names["fast"].predict(names["images"]).labels.tolist()  # type: ignore[attr-defined]


def test_the_guide_to_serving_runs() -> None:
    names = run_guide("docs/how-to/serve.md")
    assert len(names["answer"]) == 8  # type: ignore[arg-type]
    assert names["ticket"].point.tune_metrics["cost"] <= 0.9  # type: ignore[attr-defined]


def test_the_guide_to_artifacts_runs() -> None:
    assert isinstance(run_guide("docs/reference/artifact.md")["same"], offramp.EarlyExitModel)


def test_every_guide_with_python_is_run() -> None:
    """The README and the tutorial have tests of their own. Blocks called `py` need a server or a cluster."""
    run = set(re.findall(r'run_guide\("(docs/[^"]+)"\)', Path(__file__).read_text()))
    written = {path for path, text in documents().items() if "```python\n" in text and "docs/tutorial" not in path}
    assert written - {"README.md"} == run


def test_imports_of_offramp_in_every_block_exist() -> None:
    for path, text in documents().items():
        for block in re.findall(r"```py(?:thon)?\n(.*?)```", text, flags=re.DOTALL):
            for statement in ast.walk(ast.parse(block)):
                if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("offramp"):
                    for alias in statement.names:
                        assert _exists(f"{statement.module}.{alias.name}"), f"{path} imports {alias.name}"


def test_names_are_exported_in_order() -> None:
    for module in ["offramp", *(f"offramp.{info.name}" for info in pkgutil.iter_modules(offramp.__path__))]:
        names = list(importlib.import_module(module).__all__)
        assert len(set(names)) == len(names)
        assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name)), module


def test_every_public_name_has_a_page() -> None:
    """A place in docs/reference/api, from which the site shows its arguments and its docstring."""
    folder = ROOT / "docs" / "reference" / "api"
    index = (folder / "index.md").read_text()
    listed: dict[str, list[str]] = {}
    for page in folder.glob("*.md"):
        for module, members in re.findall(r"^::: (\S+)\n((?:    .*\n?)*)", page.read_text(), flags=re.MULTILINE):
            assert module not in listed, f"{module} is on two pages"
            listed[module] = re.findall(r"^ {8}- (\w+)$", members, flags=re.MULTILINE)
            assert f"({page.name})" in index
    assert listed == {module: names for module, names in public_names().items() if names}


def test_every_public_name_has_a_docstring() -> None:
    for module, names in public_names().items():
        for name in names:
            assert docstring(module, name), f"{module}.{name}"


def test_names_in_documents_exist() -> None:
    others = {"offramp.method", "offramp.md", "offramp.data._file"}  # an entry point, a page, a file yet to be written
    for path, text in documents().items():
        for name in set(re.findall(r"\bofframp(?:\.[A-Za-z_]\w*)+", text)) - others:
            assert _exists(name), f"{path} names {name}"


def _exists(name: str) -> bool:
    """Check that a dotted name is a module, or an attribute of one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_links_between_documents_lead_somewhere() -> None:
    """Their anchors are checked by scripts/docs."""
    for path, text in documents().items():
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text):
            if "://" not in target:
                assert ((ROOT / path).parent / target).exists(), f"{path} links to {target}"
