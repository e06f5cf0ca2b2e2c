"""What is in an exported folder, and what cannot be exported."""

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import offramp_onnx
from offramp.backbone import POOLINGS, Backbone, CifarResNet, merge
from offramp.cost import Costs, CostTable
from offramp.demo.networks import digits_transformer
from offramp.errors import InputError
from offramp.exits import LinearExits
from offramp.policy import OperatingPoint
from offramp.runtime.onnx import export_onnx
from tests.runtime.onnx.examples import KINDS, example

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
        assert told["promised"] == dict(point.promised)
        assert told["temperatures"] == point.temperatures.tolist()
        table = given.frontier.costs[point.policy].tables[0]
        assert told["costs"][0] == table.cumulative_costs(point.active).tolist()
    for name in files:
        onnx.checker.check_model(given.folder / name)


def test_files_hold_nothing_of_this_machine() -> None:
    for path in example("ladder").folder.iterdir():
        assert str(Path.home()).encode() not in path.read_bytes()
        assert b".py" not in path.read_bytes()


def test_exits_that_nobody_asks_are_not_written(tmp_path: Path) -> None:
    backbone, bank = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10)
    point = OperatingPoint("threshold", {"threshold": torch.tensor(0.5)}, (1, 2), torch.ones(3))
    costs = {"threshold": example("ladder").frontier.costs["threshold"]}
    export_onnx(backbone, MEAN, bank, torch.randn(1, 3, 32, 32), tmp_path / "new", points=[point], costs=costs)
    assert sorted(path.name for path in (tmp_path / "new").glob("exit*")) == ["exit_01.onnx", "exit_02.onnx"]


def test_batch_norms_are_folded() -> None:
    operations = {node.op_type for node in onnx.load(example("ladder").folder / "stage_00.onnx").graph.node}
    assert "Conv" in operations
    assert "BatchNormalization" not in operations


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["merged", "transformer"])
def test_other_networks(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = merge(CifarResNet(20), (2, 5, 8)) if kind == "merged" else digits_transformer()
    widths = (16, 32, 64) if kind == "merged" else (64,) * 6
    bank = LinearExits(widths, tuple(range(backbone.num_exits - 1)), 10)
    images = torch.randn(5, 3, 32, 32) if kind == "merged" else torch.randn(5, 1, 8, 8)
    export_onnx(backbone, MEAN, bank, images[:1], tmp_path / "new")
    manifest = offramp_onnx.read_manifest(tmp_path / "new")
    values = {"input": images.numpy()}
    for stage in (*manifest["stages"], manifest["exits"][str(backbone.num_exits - 1)]):
        session = offramp_onnx.open_session(tmp_path / "new" / stage["file"])
        found = session.run(stage["writes"], {name: values[name] for name in stage["reads"]})
        values |= dict(zip(stage["writes"], found, strict=True))
    np.testing.assert_allclose(values[f"logits_{backbone.num_exits - 1:02d}"], backbone(images), atol=1e-5)


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


@pytest.mark.parametrize("inference", [False, True])
def test_stages_that_work_in_place(inference: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(4, 4), nn.Linear(4, 2)
    stages = _Doubled(), first, nn.ReLU(inplace=True), _Split(), _Written(), _Joined()
    backbone = Backbone("in place", stages, {5: nn.Sequential(_Doubled(), last)}, 2)
    bank, images = LinearExits((4,) * 6, (0,), 2), torch.randn(5, 4)
    point = OperatingPoint("threshold", {"threshold": torch.tensor(2.0)}, (0, 5), torch.ones(6))
    nothing = torch.zeros(6)
    table = CostTable(torch.ones(6), nothing, nothing, nothing, torch.tensor(6.0), carries_state=False)
    before = images.clone()
    with torch.inference_mode(inference):
        parts = backbone, MEAN, bank, images, tmp_path / "new"
        export_onnx(*parts, points=[point], costs={"threshold": Costs((table,))})
    assert torch.equal(images, before)
    manifest = offramp_onnx.read_manifest(tmp_path / "new")
    assert all(stage["file"] is not None for stage in manifest["stages"])
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


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((_Bound(), nn.Linear(4, 4)), "stage 0 of 'simple' cannot be written as an ONNX graph"),
        ((_Gathered(), nn.Linear(4, 4)), "samples do not lie along one axis"),
    ],
)
def test_networks_that_are_refused(stages: tuple[nn.Module, ...], message: str, tmp_path: Path) -> None:
    backbone, bank = simple(*stages)
    with pytest.raises(InputError, match=message):
        export_onnx(backbone, MEAN, bank, torch.randn(2, 4), tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_what_else_is_refused(tmp_path: Path) -> None:
    backbone, bank = simple(nn.Linear(4, 4), nn.Linear(4, 4))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InputError, match="is not empty"):
        export_onnx(backbone, MEAN, bank, torch.randn(2, 4), tmp_path / "full")
    point = OperatingPoint("threshold", {"threshold": torch.tensor(0.5)}, (0, 1), torch.ones(2))
    with pytest.raises(InputError, match=r"got none of \['threshold'\]; give costs=frontier.costs"):
        export_onnx(backbone, MEAN, bank, torch.randn(2, 4), tmp_path / "new", points=[point])
    with pytest.raises(InputError, match="single precision"):
        export_onnx(backbone.bfloat16(), MEAN, bank, torch.randn(2, 4), tmp_path / "other")
