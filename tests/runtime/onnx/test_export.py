"""The content of an exported folder, and networks that cannot be exported."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import offramp_onnx
from offramp.backbone._backbone import Backbone
from offramp.backbone._merging import merge
from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.demo._networks import digits_transformer
from offramp.errors import InputError, OfframpWarning
from offramp.exits import LinearExits
from offramp.policy import OperatingPoint
from offramp.pooling import POOLINGS
from offramp.runtime._eager import EagerBackend
from offramp.runtime._view import BackendView
from offramp.runtime.onnx import export_onnx
from offramp.runtime.onnx._export import _write_preprocessing
from offramp.runtime.onnx._network import new_folder, write_network
from tests.cases import each, refuses
from tests.model.examples import PREPROCESSING, images
from tests.runtime.onnx.examples import KINDS, example, write_folder

MEAN = POOLINGS.get("mean")


def simple(*stages: nn.Module) -> tuple[Backbone, LinearExits]:
    return Backbone("simple", stages, {len(stages) - 1: nn.Linear(4, 2)}, 2), LinearExits((4,) * len(stages), (0,), 2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_says_what_is_there(kind: str) -> None:
    given = example(kind)
    manifest = json.loads((given.folder / "manifest.json").read_text())
    files = {path.name: sha256(path.read_bytes()).hexdigest() for path in given.folder.glob("*.onnx")}
    assert manifest["files"] == files
    assert (manifest["format"], manifest["version"], manifest["precision"]) == ("offramp-onnx", 1, "float32")
    assert len(manifest["stages"]) == given.frontier.backbone.num_exits
    in_force = {exit for point in given.points for exit in point.active}
    assert in_force <= set(map(int, manifest["exits"]))
    for told, point in zip(manifest["points"], given.points, strict=True):
        assert tuple(told["active"]) == point.active
        assert told["tune_metrics"] == dict(point.tune_metrics)
        assert told["temperatures"] == point.temperatures.tolist()
        table = given.frontier.costs[point.policy].tables[0]
        assert told["costs"][0] == table.cumulative_costs(point.active).tolist()
    for name in files:
        onnx.checker.check_model(given.folder / name)


def test_files_hold_nothing_of_this_machine() -> None:
    for path in example("ladder").folder.iterdir():
        assert str(Path.home()).encode() not in path.read_bytes()
        assert b".py" not in path.read_bytes()


def test_batch_norms_are_folded() -> None:
    operations = {node.op_type for node in onnx.load(example("ladder").folder / "stage_00.onnx").graph.node}
    assert "Conv" in operations
    assert "BatchNormalization" not in operations


@pytest.mark.slow
def test_a_transformer_with_merged_stages(tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone, images = merge(digits_transformer(), (2, 5)), torch.randn(5, 1, 8, 8)
    (tmp_path / "new").mkdir()
    write_network(backbone, MEAN, LinearExits((64, 64), (0,), 10), images[:1], tmp_path / "new")
    manifest = offramp_onnx.read_manifest(tmp_path / "new")
    values = {"input": images.numpy()}
    for stage in (*manifest["stages"], manifest["exits"]["1"]):
        session = offramp_onnx.open_session(tmp_path / "new" / stage["file"])
        found = session.run(stage["writes"], {name: values[name] for name in stage["reads"]})
        values |= dict(zip(stage["writes"], found, strict=True))
    np.testing.assert_allclose(values["logits_01"], backbone(images), atol=1e-5)


class _Doubled(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mul_(2)


class _Split(nn.Module):
    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        return {"kept": inputs, "changed": inputs + 1, "hidden": inputs * 3}


class _Written(nn.Module):
    """Writes into two parts of the hidden state, and passes all of them on."""

    def forward(self, hidden: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden["changed"].mul_(5)
        hidden["hidden"].add_(7)
        return hidden


class _Joined(nn.Module):
    def forward(self, hidden: dict[str, Tensor]) -> Tensor:
        return hidden["kept"] + 10 * hidden["changed"] + 100 * hidden["hidden"]


@each("inference", [False, True])
def test_stages_that_work_in_place_and_stages_without_exits(inference: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(4, 4), nn.Linear(4, 2)
    stages = _Doubled(), first, nn.ReLU(inplace=True), _Split(), _Written(), _Joined()
    backbone = Backbone("in place", stages, {5: nn.Sequential(_Doubled(), last)}, 2)
    exits, images = LinearExits((4,) * 6, (0,), 2), torch.randn(5, 4)
    point = OperatingPoint("threshold", {"threshold": torch.tensor(2.0)}, (0, 5), torch.ones(6))
    nothing = torch.zeros(6)
    table = CostTable(torch.ones(6), nothing, nothing, nothing, torch.tensor(6.0), carries_state=False)
    before = images.clone()
    with torch.inference_mode(inference):
        write_folder(tmp_path / "new", backbone, MEAN, exits, images, [point], {"threshold": Costs((table,))})
    assert torch.equal(images, before)
    manifest = offramp_onnx.read_manifest(tmp_path / "new")
    assert all(stage["file"] is not None for stage in manifest["stages"])
    assert sorted(path.name for path in (tmp_path / "new").glob("exit*")) == ["exit_00.onnx", "exit_05.onnx"]
    assert manifest["stages"][4]["writes"] == ["hidden_04_0", "hidden_04_1"]
    assert "hidden_02_0" in [one["name"] for one in manifest["stages"][4]["hidden"]]
    found = offramp_onnx.load(tmp_path / "new").predict(images.numpy())
    with torch.no_grad():
        seen = first(2 * images).relu()
        expected = last(2 * (seen + 50 * (seen + 1) + 100 * (3 * seen + 7))).softmax(1)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)


class _Bound(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + torch.arange(len(inputs.tolist()))[:, None]


class _Gathered(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.repeat(2, 1)


@each(
    ("stages", "message"),
    [
        ((_Bound(), nn.Linear(4, 4)), "stage 0 of 'simple' cannot be written as an ONNX graph"),
        ((_Gathered(), nn.Linear(4, 4)), "samples do not lie along one axis"),
    ],
)
def test_networks_that_are_refused(stages: tuple[nn.Module, ...], message: str, tmp_path: Path) -> None:
    backbone, exits = simple(*stages)
    with pytest.raises(InputError, match=message):
        with new_folder(tmp_path / "new") as place:
            write_network(backbone, MEAN, exits, torch.randn(2, 4), place)
    assert not list(tmp_path.iterdir())


def test_what_else_is_refused(tmp_path: Path) -> None:
    backbone, exits = simple(nn.Linear(4, 4), nn.Linear(4, 4))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    model = example("ladder").frontier.at(cost=1.2)
    with refuses(InputError, problem="is not empty"):
        export_onnx(model, tmp_path / "full", example=images(1, seed=3)[0])
    with refuses(InputError, problem="example", got="none"):
        export_onnx(model, tmp_path / "new")
    narrow = EagerBackend(model.backbone, model.pooling, model.exits, dtype=torch.bfloat16)
    tuned = replace(model, backend=narrow, tuned_on=BackendView(model.backbone, narrow, "bfloat16"))
    with refuses(InputError, got="one tuned on the backend 'bfloat16'"):
        export_onnx(tuned, tmp_path / "new", example=images(1, seed=3)[0])
    with refuses(InputError, expected="single precision", got="torch.bfloat16"):
        write_network(backbone.bfloat16(), MEAN, exits, torch.randn(2, 4), tmp_path)
    assert not (tmp_path / "new").exists()


def test_a_step_that_the_runner_does_not_know(tmp_path: Path) -> None:
    mirrored = PREPROCESSING.then("shift_and_flip", shift=0)
    with pytest.warns(OfframpWarning, match="does not know the preprocessing step 'shift_and_flip'"):
        assert _write_preprocessing(tmp_path, mirrored) == []
