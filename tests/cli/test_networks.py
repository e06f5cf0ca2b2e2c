"""Networks by what `--trunk` says, artifacts by their folder, and whose code runs."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from offramp.artifact import write_artifact
from offramp.cli.networks import parse_network
from offramp.errors import InputError
from tests.cli.workshop import MODELS, Shell


class TestParsing:
    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ("timm", ("timm", {})),
            ("a.b:c", ("a.b:c", {})),
            ("a:b,x=1", ("a:b", {"x": 1})),
            ("a:b, x=1 , y=2.5", ("a:b", {"x": 1, "y": 2.5})),
            ("a:b,x=[1,2],y=z", ("a:b", {"x": [1, 2], "y": "z"})),
            ("a:b,x=true,y=False,z=null,w=None", ("a:b", {"x": True, "y": False, "z": None, "w": None})),
            ("a:b,x=one,two", ("a:b", {"x": "one,two"})),
            ("a:b,x=", ("a:b", {"x": ""})),
            ("a:b,x=y=z", ("a:b", {"x": "y=z"})),
            ('a:b,x="1"', ("a:b", {"x": "1"})),
        ],
    )
    def test_names_and_values(self, spec: str, expected: tuple[str, dict[str, Any]]) -> None:
        name, options = parse_network(spec)
        assert (name.strip(), {key: _stripped(value) for key, value in options.items()}) == expected

    @pytest.mark.parametrize("spec", ["", " ", ",", "a:b,", "a:b,depth", "a:b,=3", "a:b,3=x", ",x=1", "a:b,x,y=2"])
    def test_refused(self, spec: str) -> None:
        with pytest.raises(InputError, match=r"expected package:function .* KEY=VALUE after commas, got '"):
            parse_network(spec)


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


class TestMaking:
    @pytest.mark.parametrize(
        ("spec", "told"),
        [
            ("no_such_module:make", "no module 'no_such_module' in .*; --trunk takes package:function"),
            ("no_such_package.models:make", "no module 'no_such_package.models'"),
            (f"{MODELS}:maek", "module 'workshop_models' has no 'maek'; did you mean 'make'"),
            (f"{MODELS}:zzz", "has no 'zzz'; it has Undecided, fails, leaves, make"),
            (f"{MODELS}:silly", "expected 'workshop_models:silly' to give a trunk, got dict; let it end with"),
            (f"{MODELS}:MODELS", "not callable"),
            (f"{MODELS}:fails", r"'layer1' \(KeyError, workshop_models.py line \d+\); --debug shows"),
            (f"{MODELS}:leaves", "ended the program .* under `if __name__ == '__main__':`"),
            (f"{MODELS}:make,deep=3", "unexpected keyword argument 'deep'"),
            (f"{MODELS}:make,depth", "KEY=VALUE after commas, got 'workshop_models:make,depth'"),
            (f"{MODELS}:make,depth=many", "cannot make a trunk with {'depth': 'many'}"),
            (f"{MODELS}:refused", "depends on the values of the inputs|data-dependent|control flow"),
            ("workshop_broken:make", r"cannot import 'workshop_broken:make': .* \(SyntaxError"),
            ("workshop_needy:make", r"No module named 'no_such_library'.* \(ModuleNotFoundError, workshop_needy.py"),
            ("workshop_empty:make", "it has no functions; write one that returns offramp.split"),
            ("workshop_script:make", "ended the program"),
            ("cifar_resnets,layers=8", "unknown trunk 'cifar_resnets'; did you mean 'cifar_resnet'"),
            ("cifar_resnet", "missing 1 required positional argument: 'layers'"),
            ("cifar_resnet,layers=9", "'cifar_resnet' cannot make a trunk"),
            ("", "expected package:function"),
        ],
    )
    def test_refused_with_what_its_author_needs(self, offramp: Shell, spec: str, told: str) -> None:
        Path("workshop_broken.py").write_text("def make(:\n")
        Path("workshop_needy.py").write_text("import no_such_library\n")
        Path("workshop_empty.py").write_text("")
        Path("workshop_script.py").write_text("import argparse\nargparse.ArgumentParser().parse_args(['--x'])\n")
        ran = offramp("inspect", "--trunk", spec, "--data", "test.npz")
        assert (ran.status, ran.out) == (1, "")
        assert "not foreseen" not in ran.told
        assert re.search(told, ran.told), ran.told

    def test_two_make_a_chain(self, offramp: Shell) -> None:
        found = offramp.json("inspect", "-t", f"{MODELS}:small", "-t", f"{MODELS}:make", "--data", "test.npz")
        assert found["network"] == "small+tiny"

    def test_a_chain_of_other_classes_is_refused(self, offramp: Shell) -> None:
        ran = offramp("inspect", "-t", f"{MODELS}:make,classes=2", "-t", f"{MODELS}:make", "--data", "test.npz")
        assert ran.status == 1
        assert "classes" in ran.told
        assert "not foreseen" not in ran.told


class TestOpening:
    def test_somebodys_code_has_to_be_allowed(self, offramp: Shell, artifact: Path) -> None:
        ran = offramp("frontier", artifact)
        assert (ran.status, ran.out) == (1, "")
        assert ran.told.endswith("allow it to run: --trust workshop_models:make")
        assert MODELS not in sys.modules
        assert offramp("frontier", artifact, "--trust", f"{MODELS}:make").status == 0

    def test_all_of_it_at_once(self, offramp: Shell, chained: Path) -> None:
        ran = offramp("frontier", chained)
        assert ran.told.endswith("--trust workshop_models:small --trust workshop_models:make")
        ran = offramp("frontier", chained, "--trust", f"{MODELS}:small")
        assert ran.told.endswith("allow it to run: --trust workshop_models:make")

    def test_the_code_may_be_gone(self, offramp: Shell, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir("/")
        ran = offramp("frontier", artifact, "--trust", f"{MODELS}:make")
        assert ran.status == 1
        assert "cannot import 'workshop_models:make'" in ran.told

    def test_the_code_may_make_another_network_now(
        self, offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        changed = Path(f"{MODELS}.py").read_text().replace("depth=3", "depth=2")
        (tmp_path / f"{MODELS}.py").write_text(changed)
        monkeypatch.chdir(tmp_path)
        ran = offramp("frontier", artifact, "--trust", f"{MODELS}:make")
        assert ran.status == 1
        assert "trunk.safetensors: weights do not fit the network" in ran.told

    @pytest.mark.parametrize(
        ("ruin", "told"),
        [
            ("gone", "no frontier was saved in this folder"),
            ("file", "no frontier was saved in this folder"),
            ("empty", "no frontier was saved in this folder, or saving was interrupted"),
            ("changed", "is not the file that was saved"),
            ("cut", "'seal': does not match"),
            ("missing", "exits.safetensors is missing; copy the whole folder"),
            ("newer", "install a newer offramp"),
            ("nameless", "in Python: offramp.load(path, trunk=...)"),
        ],
    )
    def test_ruins(self, offramp: Shell, artifact: Path, tmp_path: Path, ruin: str, told: str) -> None:
        place = tmp_path / "artifact"
        shutil.copytree(artifact, place)
        manifest = place / "manifest.json"
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
                raw = bytearray((place / "exits.safetensors").read_bytes())
                raw[-1] ^= 1
                (place / "exits.safetensors").write_bytes(raw)
            case "cut":
                manifest.write_bytes(manifest.read_bytes()[:-9])
            case "missing":
                (place / "exits.safetensors").unlink()
            case "newer" | "nameless":
                _rewrite(place, ruin)
        ran = offramp("frontier", place, "--trust", f"{MODELS}:make")
        assert (ran.status, ran.out) == (1, "")
        assert told in ran.told
        assert "not foreseen" not in ran.told


def _rewrite(place: Path, how: str) -> None:
    from offramp import artifact as form

    found = form.read_artifact(place)
    content = json.loads(json.dumps(found.content.value))
    if how == "nameless":
        content["trunk"]["factory"] = None
    version = form.VERSION
    try:
        form.VERSION = version + (how == "newer")
        write_artifact(place, content, found.tensors)
    finally:
        form.VERSION = version
