"""Graphs in an artifact: what is changed is refused by file and field, every hash right."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
import torch
from torch import Tensor

import offramp
from offramp.artifact._backend import _decode, _encode
from offramp.artifact._format import Artifact, Field
from offramp.artifact._tensors import Tensors
from offramp.errors import ArtifactError, InputError
from tests.artifact_examples import at, change_manifest, change_tensors
from tests.cases import each, refuses
from tests.model.cascade_examples import FEW, network, vectors

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[offramp.EarlyExitModel, Path]:
    data = vectors(300, seed=1), vectors(200, seed=2)
    model = offramp.fit(network("second", width=24), *data, settings=FEW, progress=False)
    folder = tmp_path_factory.mktemp("saved")
    model.with_backend("onnx", data[1], progress=False).save(folder)
    return model, folder


@pytest.fixture
def folder(saved: tuple[offramp.EarlyExitModel, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved[1], tmp_path / "copy"))


def refused(folder: Path, saved: tuple[offramp.EarlyExitModel, Path], *texts: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        offramp.load(folder, backbone=saved[0].backbone)
    for text in (str(folder), *texts):
        assert text in str(caught.value)
    assert len(str(caught.value)) < 1500


WRONG: dict[str, list[Any]] = {
    "backend": [3, [], {}],
    "backend.kind": ["magic", "os:system", 3, "int8"],
    "backend.made_from": [None, 3, "x" * 2000],
    "backend.example": [None, 3, {}, [], {"set": ["0"]}, {"dict": 3}, {"dict": [["a"]]}, {"list": [], "dict": []}],
}


@each(("place", "value"), [(place, value) for place, values in WRONG.items() for value in values])
def test_a_wrong_field_is_named(folder: Path, saved: Any, place: str, value: Any) -> None:
    def change(whole: dict[str, Any]) -> None:
        holder, key = at(whole["content"], place)
        holder[key] = value

    change_manifest(folder, change)
    refused(folder, saved, f"manifest.json, field 'content.{place}")


@each("example", ["7", {"list": []}])
def test_tensors_of_the_example_that_nothing_names_or_that_are_missing(folder: Path, saved: Any, example: Any) -> None:
    change_manifest(folder, lambda whole: whole["content"]["backend"].update(example=example))
    refused(folder, saved, "example-", "tensor '")


def test_another_tree_than_the_network_takes(folder: Path, saved: Any) -> None:
    change_manifest(folder, lambda whole: whole["content"]["backend"].update(example={"list": ["0"]}))
    refused(folder, saved, "graphs-", "cannot run the graphs")


@each("file", ["graphs", "example"])
def test_a_missing_file(folder: Path, saved: Any, file: str) -> None:
    change_manifest(folder, lambda whole: whole["files"].pop(file))
    refused(folder, saved, f"field 'files.{file}'")


class Change(NamedTuple):
    """A change of the tensors of "graphs", and the tensor that the error names."""

    change: Callable[[dict[str, Tensor]], object]
    name: str


@each(
    "case",
    [
        Change(lambda graphs: graphs.pop("manifest.json"), "manifest.json"),
        Change(lambda graphs: graphs.update({"../evil.onnx": graphs["exit_00.onnx"].clone()}), "../evil.onnx"),
        Change(lambda graphs: graphs.update({"a\\b.onnx": graphs["exit_00.onnx"].clone()}), "b.onnx"),
        Change(lambda graphs: graphs.update({"notes.txt": graphs["exit_00.onnx"].clone()}), "notes.txt"),
        Change(lambda graphs: graphs.update({"exit_00.onnx": graphs["exit_00.onnx"].float()}), "exit_00.onnx"),
        Change(lambda graphs: graphs.update({"exit_00.onnx": graphs["exit_00.onnx"][None]}), "exit_00.onnx"),
    ],
)
def test_a_wrong_tensor_is_named(folder: Path, saved: Any, case: Change) -> None:
    change_tensors(folder, "graphs", case.change)
    refused(folder, saved, "graphs-", case.name)
    assert not list(folder.parent.glob("evil*"))


def change_files(folder: Path, change: Callable[[Files, dict[str, Any]], object]) -> None:
    """Change graphs and what their manifest says, their hashes included."""

    def changed(tensors: dict[str, Tensor]) -> None:
        files = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
        manifest = json.loads(files.pop("manifest.json"))
        change(files, manifest)
        manifest["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        files["manifest.json"] = json.dumps(manifest).encode()
        tensors.clear()
        tensors.update({name: torch.frombuffer(bytearray(file), dtype=torch.uint8) for name, file in files.items()})

    change_tensors(folder, "graphs", changed)


def read_outside(files: Files, _: dict[str, Any]) -> None:
    graph = onnx.ModelProto.FromString(files["stage_00.onnx"])
    weight = graph.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../../secret")
    files["stage_00.onnx"] = graph.SerializeToString()


CHANGES: dict[str, Callable[[Files, dict[str, Any]], object]] = {
    "a graph is missing": lambda files, _: files.pop("stage_00.onnx"),
    "a graph is another": lambda files, _: files.update({"stage_01.onnx": files["exit_01.onnx"]}),
    "a graph is cut short": lambda files, _: files.update({"stage_01.onnx": files["stage_01.onnx"][:-100]}),
    "a graph is no graph": lambda files, _: files.update({"stage_01.onnx": b"graph"}),
    "weights are in another file": read_outside,
    "another network": lambda _, manifest: manifest["made_of"].update(backbone="0" * 64),
    "another name": lambda _, manifest: manifest.update(name="other"),
    "another version": lambda _, manifest: manifest.update(version=99),
    "no stages": lambda _, manifest: manifest.update(stages=[]),
    "no precision": lambda _, manifest: manifest.pop("precision"),
    "no exits": lambda _, manifest: manifest.update(exits={}),
    "names that no graph has": lambda _, manifest: manifest["stages"][0].update(writes=["magic"]),
    "a hidden state without tensors": lambda _, manifest: manifest["stages"][0].update(hidden=[]),
}


@each("name", CHANGES)
def test_changed_graphs_are_refused(folder: Path, saved: Any, name: str) -> None:
    change_files(folder, CHANGES[name])
    refused(folder, saved, "graphs-", "cannot run the graphs")


def test_the_order_of_a_dictionary_is_kept() -> None:
    tree = {"b": torch.arange(2), "a": [torch.ones(1), (torch.zeros(1, dtype=torch.bool),)], "c": {}}
    leaves: dict[str, Tensor] = {}
    described = json.loads(json.dumps(_encode(tree, leaves), sort_keys=True))
    field = Field("manifest.json", "example", described)
    again = _decode(field, Tensors(Artifact(field, {"example": leaves}, {"example": "file"}, ""), "example"))
    assert list(again) == ["b", "a", "c"]
    assert str(again) == str(tree)


class Special(dict[str, Any]):
    """A class of somebody's own."""


@each("tree", [Special(), {1: torch.ones(1)}, None, "text", {"a": [3]}, torch.Size([1])])
def test_other_trees_are_refused(tree: Any) -> None:
    with refuses(InputError, expected="dictionaries, lists or tuples of tensors"):
        _encode(tree, {})
