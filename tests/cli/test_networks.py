"""Networks by what `--model` says, artifacts by their folder, and whose code runs."""

import csv
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

from offramp.artifact._format import write_artifact
from tests.backbone.adapters.folder_examples import NAMES, save_text_folder, tiny_tokenizer
from tests.cases import each
from tests.cli.workshop import MODELS, Shell


class TestMaking:
    @each(
        ("spec", "told"),
        [
            ("no_such_module:make", "no module 'no_such_module' in .*; --model takes package:function"),
            ("no_such_package.models:make", "no module 'no_such_package.models'"),
            (f"{MODELS}:maek", "module 'workshop_models' has no 'maek'; did you mean 'workshop_models:make'"),
            (f"{MODELS}:zzz", "has no 'zzz'; it has Undecided, fails, leaves, make"),
            (f"{MODELS}:silly", "expected a backbone from 'workshop_models:silly', got dict; let it end with"),
            (f"{MODELS}:MODELS", "not callable"),
            (f"{MODELS}:fails", r"'layer1' \(KeyError, workshop_models.py line \d+\); --debug shows"),
            (f"{MODELS}:leaves", "ended the program .* under `if __name__ == '__main__':`"),
            (f"{MODELS}:make,deep=3", "unexpected keyword argument 'deep'"),
            (f"{MODELS}:make,depth", "KEY=VALUE after commas, got 'workshop_models:make,depth'"),
            (f"{MODELS}:make,depth=many", "cannot make a backbone with {'depth': 'many'}"),
            (f"{MODELS}:refused", "depends on the values of the inputs|data-dependent|control flow"),
            ("workshop_broken:make", r"cannot import 'workshop_broken:make': .* \(SyntaxError"),
            ("workshop_needy:make", r"No module named 'no_such_library'.* \(ModuleNotFoundError, workshop_needy.py"),
            ("workshop_empty:make", "it defines no functions; write one"),
            ("workshop_script:make", "ended the program"),
            ("cifar_resnets,layers=8", "unknown backbone 'cifar_resnets'; did you mean 'cifar_resnet'"),
            ("cifar_resnet", "missing 1 required positional argument: 'layers'"),
            ("cifar_resnet,layers=9", "'cifar_resnet' cannot make a backbone"),
            ("", "expected package:function"),
        ],
    )
    def test_refused_with_what_its_author_needs(self, offramp: Shell, spec: str, told: str) -> None:
        Path("workshop_broken.py").write_text("def make(:\n")
        Path("workshop_needy.py").write_text("import no_such_library\n")
        Path("workshop_empty.py").write_text("")
        Path("workshop_script.py").write_text("import argparse\nargparse.ArgumentParser().parse_args(['--x'])\n")
        ran = offramp("inspect", "--model", spec, "--data", "test.npz")
        assert (ran.status, ran.out) == (1, "")
        assert "unexpected error" not in ran.told
        assert re.search(told, ran.told), ran.told

    def test_two_make_a_cascade(self, offramp: Shell) -> None:
        found = offramp.json("inspect", "-m", f"{MODELS}:small", "-m", f"{MODELS}:make", "--data", "test.npz")
        assert found["network"] == "small+tiny"

    def test_a_cascade_of_other_classes_is_refused(self, offramp: Shell) -> None:
        ran = offramp("inspect", "-m", f"{MODELS}:make,classes=2", "-m", f"{MODELS}:make", "--data", "test.npz")
        assert ran.status == 1
        assert "classes" in ran.told
        assert "unexpected error" not in ran.told


class TestFolders:
    """`hf:FOLDER`, from the folder to answers by name, with nobody's code."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        model = save_text_folder(tmp_path / "my-model", hidden_size=64)
        texts = [f"w{number % 30} w{number % 7} w{number % 11}" for number in range(240)]
        encoded = tiny_tokenizer()(texts, return_tensors="pt", padding=True)
        with torch.no_grad():
            labels = model(encoded["input_ids"], encoded["attention_mask"]).logits.argmax(1).tolist()
        named = [model.config.id2label[label] for label in labels]
        for name, rows in (("train", range(120)), ("val", range(120, 240))):
            lines = [f"{texts[row]},{named[row]}" for row in rows]
            (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
        return tmp_path

    def test_from_the_folder_to_names(self, offramp: Shell, folder: Path) -> None:
        data = ("--train", folder / "train.csv", "--validation", folder / "val.csv")
        line = ("fit", "--model", f"hf:{folder / 'my-model'}", *data, "--epochs", "1", "--out", folder / "artifact")
        fitted = offramp.json(*line)
        assert fitted["classes"] == list(NAMES)
        assert fitted["full_accuracy"] == 1
        shutil.rmtree(folder / "my-model")
        offramp.json("predict", folder / "artifact", "--data", folder / "val.csv", "--out", folder / "a.csv")
        with (folder / "a.csv").open() as file:
            assert {row["label"] for row in csv.DictReader(file)} <= set(NAMES)

    def test_labels_that_do_not_fit_are_refused(self, offramp: Shell, folder: Path) -> None:
        rows = (folder / "val.csv").read_text().replace("card lost", "card_lost")
        (folder / "val.csv").write_text(rows)
        ran = offramp("estimate", "--model", f"hf:{folder / 'my-model'}", "--data", folder / "val.csv")
        assert ran.status == 1
        assert "unknown class 'card_lost'; did you mean 'card lost'?" in ran.told
        assert "classes have no label: 'card lost'" in ran.told

    def test_names_of_a_file_must_be_the_networks(self, offramp: Shell, folder: Path) -> None:
        line = ("estimate", "--model", f"hf:{folder / 'my-model'}", "--data", folder / "val.csv", "--classes")
        (folder / "names").write_text("\n".join(sorted(NAMES)))
        assert "in another order; leave --classes out" in offramp(*line, folder / "names").told
        (folder / "names").write_text("\n".join([*NAMES[:2], "other", "pin"]))
        assert "'other' for class 2, which the network calls 'balance'" in offramp(*line, folder / "names").told

    def test_without_weights_it_could_not_be_loaded(self, offramp: Shell, folder: Path) -> None:
        ran = offramp("fit", "-m", "hf:x", "--train", folder / "train.csv", "--out", folder / "a", "--no-weights")
        assert ran.status == 1
        assert "remove --no-weights" in ran.told


class TestOpening:
    def test_somebodys_code_has_to_be_allowed(self, offramp: Shell, artifact: Path) -> None:
        ran = offramp("inspect", artifact)
        assert (ran.status, ran.out) == (1, "")
        assert ran.told.endswith("to run it, add --trust workshop_models:make")
        assert MODELS not in sys.modules
        assert offramp("inspect", artifact, "--trust", f"{MODELS}:make").status == 0

    def test_all_of_it_at_once(self, offramp: Shell, cascade: Path) -> None:
        ran = offramp("inspect", cascade)
        assert ran.told.endswith("--trust workshop_models:small --trust workshop_models:make")
        ran = offramp("inspect", cascade, "--trust", f"{MODELS}:small")
        assert ran.told.endswith("to run it, add --trust workshop_models:make")

    def test_the_code_may_be_gone(self, offramp: Shell, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir("/")
        ran = offramp("inspect", artifact, "--trust", f"{MODELS}:make")
        assert ran.status == 1
        assert "cannot import 'workshop_models:make'" in ran.told

    def test_the_code_may_make_another_network_now(
        self, offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        changed = Path(f"{MODELS}.py").read_text().replace("depth=3", "depth=2")
        (tmp_path / f"{MODELS}.py").write_text(changed)
        monkeypatch.chdir(tmp_path)
        ran = offramp("inspect", artifact, "--trust", f"{MODELS}:make")
        assert ran.status == 1
        assert ".safetensors: weights do not fit the network" in ran.told

    @each(
        ("ruin", "told"),
        [
            ("gone", "no model was saved in this folder"),
            ("file", "no model was saved in this folder"),
            ("empty", "no model was saved in this folder, or saving was interrupted"),
            ("changed", "is not the file that was saved"),
            ("cut", "is not what `save` of a model writes"),
            ("missing", ".safetensors is missing; copy the whole folder"),
            ("newer", "install the offramp that saved it"),
            ("nameless", "give that network: offramp.load(path, backbone=...)"),
        ],
    )
    def test_ruins(self, offramp: Shell, artifact: Path, tmp_path: Path, ruin: str, told: str) -> None:
        place = tmp_path / "artifact"
        shutil.copytree(artifact, place)
        manifest, (exits,) = place / "manifest.json", place.glob("exits-*.safetensors")
        match ruin:
            case "gone":
                shutil.rmtree(place)
            case "file":
                shutil.rmtree(place)
                place.write_text("")
            case "empty":
                shutil.rmtree(place)
                place.mkdir()
            case "changed":
                raw = bytearray(exits.read_bytes())
                raw[-1] ^= 1
                exits.write_bytes(raw)
            case "cut":
                manifest.write_bytes(manifest.read_bytes()[:-9])
            case "missing":
                exits.unlink()
            case "newer" | "nameless":
                _rewrite(place, ruin)
        ran = offramp("inspect", place, "--trust", f"{MODELS}:make")
        assert (ran.status, ran.out) == (1, "")
        assert told in ran.told
        assert "unexpected error" not in ran.told


def _rewrite(place: Path, how: str) -> None:
    from offramp.artifact import _format as form

    found = form.read_artifact(place)
    content = json.loads(json.dumps(found.content.value))
    if how == "nameless":
        content["backbone"]["factory"] = None
    version = form.VERSION
    try:
        form.VERSION = version + (how == "newer")
        write_artifact(place, content, found.tensors)
    finally:
        form.VERSION = version


class TestDevice:
    """`--device`, wherever a network runs."""

    def test_the_cpu(self, offramp: Shell, artifact: Path, tmp_path: Path) -> None:
        trust = ("--trust", f"{MODELS}:make", "--device", "cpu")
        answers = offramp.json(
            "predict", artifact, "--data", "test.npz", "--cost", "0.6", "--out", tmp_path / "a.csv", *trust
        )
        assert answers["rows"] == 90
        assert offramp("evaluate", artifact, "--data", "test.npz", "--cost", "0.6", *trust).status == 0

    @each("device", ["cdua", "meta", "cuda:99"])
    @each("command", ["estimate", "evaluate"])
    def test_a_wrong_one(self, offramp: Shell, artifact: Path, command: str, device: str) -> None:
        first = (artifact,) if command == "evaluate" else ("--model", f"{MODELS}:make")
        ran = offramp(command, *first, "--data", "test.npz", "--device", device)
        assert (ran.status, ran.out) == (1, "")
        assert f"device: expected one that PyTorch can use on this machine, got '{device}'" in ran.told
        assert "leave it out to use the CPU" in ran.told

    def test_where_something_else_chooses(self, offramp: Shell, artifact: Path, tmp_path: Path) -> None:
        more = ("--out", tmp_path / "a.csv", "--device", "cpu", "--backend", "onnx")
        ran = offramp("predict", artifact, "--data", "test.npz", *more)
        assert ran.status == 1
        assert "expected --device without" in ran.told
