"""Every method and policy by its name: fitted, saved, loaded, measured and asked as the default is."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import offramp
from offramp.backbone import CifarResNet
from offramp.cli import main
from offramp.errors import ArtifactError, InputError, UnknownNameError, UntrustedNameError
from offramp.exits import EXITS
from offramp.methods import METHODS
from offramp.methods._method import default_settings
from offramp.methods._settings import JointSettings
from offramp.model._model import EarlyExitModel
from offramp.policy import POLICIES
from offramp.runtime import measure_latency
from tests.artifact_examples import assert_same, change_manifest
from tests.cases import each

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "your-own-method.md"
TRUST = ["mine:fit", "mine:ahead"]


def images(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images whose class shows in their brightness."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    return torch.randn(count, 3, 32, 32, generator=draw) + labels[:, None, None, None] / 3, labels


def fitted(method: str, **options: Any) -> EarlyExitModel:
    torch.manual_seed(0)
    known = default_settings(METHODS.get(method, trust=TRUST))
    quick: dict[str, Any] = {"warmup_epochs": 1, "epochs": 1, "cost_weights": (0.1, 1.0)}
    settings = replace(known, **quick) if isinstance(known, JointSettings) else None
    data = images(80, 0), images(120, 1)
    return offramp.fit(
        CifarResNet(8), *data, method=method, settings=settings, anyway=True, progress=False, trust=TRUST, **options
    )


@each("method", list(METHODS))
def test_a_method_is_fitted_saved_loaded_and_asked(method: str, tmp_path: Path) -> None:
    frontier = fitted(method)
    assert frontier.provenance["method"] == method
    assert {"stopping", "threshold"} <= set(frontier.points)
    frontier.save(tmp_path / "saved", weights=True)
    loaded = offramp.load(tmp_path / "saved")
    assert type(loaded.exits) is type(frontier.exits)
    assert_same(frontier, loaded, images(40, 2)[0])


def test_every_policy_is_offered_by_name(tmp_path: Path) -> None:
    policies = sorted({*POLICIES} - {"branch_gates"}, reverse=True)  # whose gates another method trains
    frontier = fitted("default", policies=policies)
    assert list(frontier.points) == policies
    frontier.save(tmp_path / "saved", weights=True)
    loaded = offramp.load(tmp_path / "saved")
    assert list(loaded.points) == policies
    assert loaded.policy == frontier.policy == policies[0]
    inputs, _ = images(40, 2)
    for policy in policies:
        network, same = (one.at(cost=1.2, policy=policy) for one in (frontier, loaded))
        draws = (torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
        answer, again = network.predict(inputs, generator=draws[0]), same.predict(inputs, generator=draws[1])
        assert torch.equal(answer.probabilities, again.probabilities)
        assert torch.equal(answer.exits, again.exits)


def test_names_that_are_not_there() -> None:
    with pytest.raises(UnknownNameError, match="unknown method 'defualt'; did you mean 'default'"):
        fitted("defualt")
    with pytest.raises(UntrustedNameError, match=r"trust=\['other:fit'\]"):
        offramp.fit(CifarResNet(8), images(20, 0), images(20, 1), method="other:fit")
    with pytest.raises(InputError, match="has a default"):
        offramp.fit(CifarResNet(8), images(20, 0), images(20, 1), method=lambda fit, tune, costs, settings: None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected exits with gates"):
        fitted("classifiers", policies=["gates"])


@each("policies", [[], "threshold", [POLICIES.get("threshold")]])
def test_what_are_no_names_of_policies(policies: Any) -> None:
    with pytest.raises(InputError, match="expected names of policies, such as"):
        fitted("classifiers", policies=policies)


def returns_nothing(fit: Any, tune: Any, costs: Any, settings: Any = 0) -> Any:
    return None


def fails(fit: Any, tune: Any, costs: Any, settings: Any = 0) -> Any:
    return dict[str, int]()["penalty"]


def test_what_is_wrong_with_a_method_is_said() -> None:
    data = images(60, 0), images(60, 1)
    quiet: dict[str, Any] = {"anyway": True, "progress": False}
    with pytest.raises(InputError, match=r"returns_nothing': expected offramp\.methods\.FittedExits, got a NoneType"):
        offramp.fit(CifarResNet(8), *data, method=returns_nothing, **quiet)
    with pytest.raises(InputError, match=r"fails' failed with KeyError: 'penalty' in line \d+ of .*test_seam.py"):
        offramp.fit(CifarResNet(8), *data, method=fails, **quiet)
    with pytest.raises(InputError, match="expected a function as method, got 3"):
        offramp.fit(CifarResNet(8), *data, method=3, **quiet)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="as JointSettings, got a dict"):
        offramp.fit(CifarResNet(8), *data, settings={"epochs": 3}, **quiet)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The guide's file, in a folder of its own."""
    code = GUIDE.read_text("utf-8").split("Save this as `mine.py`:\n\n```python\n")[1].split("```")[0]
    (tmp_path / "mine.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget()


def forget() -> None:
    """As if nothing of the folder had been imported."""
    for registry in (METHODS, POLICIES):
        for name in TRUST:
            registry._trusted.pop(name, None)
    for module in ("mine", "models"):
        sys.modules.pop(module, None)


def test_a_method_and_a_policy_in_one_file(mine: Path, tmp_path: Path) -> None:
    frontier = fitted("mine:fit", policies=["mine:ahead"])
    assert frontier.provenance["settings"] == {"epochs": 3, "learning_rate": 0.01, "seed": 0}
    assert frontier.policy == "mine:ahead"
    frontier.save(tmp_path / "saved", weights=True)
    loaded = offramp.load(tmp_path / "saved", trust=["mine:ahead"])
    assert_same(frontier, loaded, images(40, 2)[0])
    table = measure_latency(
        loaded.backbone,
        loaded.pooling,
        loaded.exits,
        images(1, 2)[0],
        batch_sizes=(1,),
        repeats=1,
        policies=["mine:ahead"],
    )
    assert loaded.with_latency(table).at(latency_ms=1e6).point.policy == "mine:ahead"


def test_a_policy_that_is_a_class_or_has_another_name(mine: Path) -> None:
    (mine / "other.py").write_text("from mine import Ahead, ahead\n")
    for name in ("other:Ahead", "other:ahead"):
        with pytest.raises(InputError, match=f"expected an object with name = '{name}'"):
            offramp.fit(CifarResNet(8), images(20, 0), images(20, 1), policies=[name], trust=[name])
        POLICIES._trusted.pop(name)


def test_exits_that_are_no_class_are_refused(mine: Path, tmp_path: Path) -> None:
    fitted("classifiers").save(tmp_path / "saved", weights=True)
    change_manifest(tmp_path / "saved", lambda whole: whole["content"]["exits"].update(kind="mine:fit"))
    with pytest.raises(ArtifactError, match="expected a class of exits"):
        offramp.load(tmp_path / "saved", trust=["mine:fit"])
    EXITS._trusted.pop("mine:fit")


def test_the_same_from_the_command_line(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(mine)
    monkeypatch.setenv("COLUMNS", "1000")  # or long lines would be broken
    for name, (inputs, labels) in {"train": images(80, 0), "valid": images(120, 1), "test": images(60, 2)}.items():
        np.savez(mine / f"{name}.npz", inputs=inputs.numpy(), labels=labels.numpy())
    (mine / "models.py").write_text(
        "import torch\nfrom offramp.backbone import CifarResNet\n\ndef make():\n    torch.manual_seed(0)\n    return "
        "CifarResNet(8)\n"
    )

    def run(*words: str, status: int = 0) -> str:
        forget()
        ended = main(list(words))
        out, err = capsys.readouterr()
        assert ended == status, err
        return out + err

    trust = [word for name in TRUST for word in ("--trust", name)]
    data = ["--train", "train.npz", "--validation", "valid.npz", "--anyway", "--out", "saved"]
    run("fit", "--model", "models:make", *data, "--method", "mine:fit", "--policy", "mine:ahead", *trust)
    refused = run("predict", "saved", "--data", "test.npz", "--out", "answers.csv", status=1)
    assert "--trust mine:ahead" in refused
    made = ["--trust", "models:make"] if "--trust models:make" in refused else []
    asked = ["saved", "--data", "test.npz", "--cost", "1.2", "--trust", "mine:ahead", *made]
    run("predict", *asked, "--out", "answers.csv")
    assert len((mine / "answers.csv").read_text().splitlines()) == 61
    run("evaluate", *asked, "--anyway")
