"""What is saved is what is loaded: every kind of exits, networks and costs, here and in another process."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import offramp
import offramp.artifact
from offramp.errors import ArtifactError, InputError, UntrustedNameError
from offramp.exits import LadderExits
from offramp.frontier import Frontier
from offramp.trunk import ChainTrunk, CifarResNet, Factory, Preprocessing
from tests.artifact_examples import assert_same, reseal
from tests.frontier.artifact_examples import GIVEN, MADE_BY_NAME, PICTURES, TEXTS, bert, of_texts, resnet

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def frontier() -> Frontier:
    return resnet()


@pytest.mark.parametrize("name", list(MADE_BY_NAME))
def test_a_network_with_a_factory_comes_back_by_itself(name: str, tmp_path: Path) -> None:
    make, inputs = MADE_BY_NAME[name]
    saved = make()
    assert isinstance(saved.trunk, ChainTrunk) == name.startswith("chain")
    offramp.save(saved, tmp_path, weights=True)
    loaded = offramp.load(tmp_path)
    assert loaded.trunk is not saved.trunk
    assert_same(saved, loaded, inputs)
    for one, other in zip(saved.trunk.parameters(), loaded.trunk.parameters(), strict=True):
        assert one.stride() == other.stride()  # the order in memory decides on speed, and on the last bit
    # Once more, from what was loaded: nothing is lost on the way, down to the byte.
    offramp.save(loaded, tmp_path / "again", weights=True)
    for file in (tmp_path / "again").iterdir():
        assert file.read_bytes() == (tmp_path / file.name).read_bytes()


@pytest.mark.parametrize("name", [*MADE_BY_NAME, *GIVEN])
def test_any_network_comes_back_when_it_is_given(name: str, tmp_path: Path) -> None:
    make, inputs = (MADE_BY_NAME | GIVEN)[name]
    saved = make()
    offramp.save(saved, tmp_path)
    assert not (tmp_path / "trunk.safetensors").exists()
    loaded = offramp.load(tmp_path, trunk=saved.trunk)
    assert loaded.trunk is saved.trunk
    assert_same(saved, loaded, inputs)


def test_chains_come_back_as_chains_that_average() -> None:
    saved = GIVEN["averaged"][0]()
    assert isinstance(saved.trunk, ChainTrunk)
    assert saved.bank.averaging.stages == saved.trunk.own_heads  # or the round trip above shows little
    assert saved.bank.averaging.shares.any()


def test_a_function_that_is_trusted_makes_the_network(tmp_path: Path) -> None:
    saved = of_texts()
    assert len(saved.costs["threshold"].tables) == 3  # texts cost what their tokens cost
    name = "tests.frontier.artifact_examples:bert"
    offramp.save(saved, tmp_path, factory=Factory(name, {"seed": 0}))
    with pytest.raises(UntrustedNameError, match=r"manifest\.json, field 'content\.trunk\.factory': .*trust="):
        offramp.load(tmp_path)
    assert_same(saved, offramp.load(tmp_path, trust=[name]), TEXTS)
    # Made with other weights it is another network, unless the weights are in the artifact.
    other = Factory(name, {"seed": 1})
    offramp.save(saved, tmp_path, factory=other)
    with pytest.raises(ArtifactError, match="fitted for another network"):
        offramp.load(tmp_path, trust=[name])
    offramp.save(saved, tmp_path, factory=other, weights=True)
    assert_same(saved, offramp.load(tmp_path, trust=[name]), TEXTS)


def test_a_new_process_gives_the_same_answers(frontier: Frontier, tmp_path: Path) -> None:
    offramp.save(frontier, tmp_path / "saved", weights=True)
    torch.save(torch.from_numpy(PICTURES), tmp_path / "inputs.pt")
    code = """
import json, sys, torch, offramp
torch.set_num_threads(1)
answer = offramp.load(sys.argv[1]).choose(cost=0.9).predict(torch.load(sys.argv[2]))
print(json.dumps([answer.probabilities.tolist(), answer.exits.tolist(), answer.relative_cost.tolist()]))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "saved"), str(tmp_path / "inputs.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        answer = frontier.choose(cost=0.9).predict(PICTURES)
    finally:
        torch.set_num_threads(threads)
    expected = [answer.probabilities.tolist(), answer.exits.tolist(), answer.relative_cost.tolist()]
    assert json.loads(done.stdout) == expected


class TestWhichNetwork:
    def test_another_one_is_refused(self, frontier: Frontier, tmp_path: Path) -> None:
        offramp.save(frontier, tmp_path)
        with pytest.raises(ArtifactError, match=r"content\.trunk\.fingerprint.*fitted for another network"):
            offramp.load(tmp_path, trunk=CifarResNet(8, num_classes=3))
        with pytest.raises(ArtifactError, match=r"content\.trunk\.name"):
            offramp.load(tmp_path, trunk=CifarResNet(14, num_classes=3))
        with pytest.raises(ArtifactError, match=r"content\.trunk\.num_classes"):
            offramp.load(tmp_path, trunk=CifarResNet(8))

    def test_without_its_weights_the_factory_alone_is_not_enough(self, frontier: Frontier, tmp_path: Path) -> None:
        offramp.save(frontier, tmp_path)
        with pytest.raises(ArtifactError, match="other weights of it"):
            offramp.load(tmp_path)

    def test_without_a_factory_it_must_be_given(self, frontier: Frontier, tmp_path: Path) -> None:
        frontier.trunk.factory, kept = None, frontier.trunk.factory
        try:
            with pytest.raises(InputError, match="of no use without a name to make the network by"):
                offramp.save(frontier, tmp_path, weights=True)
            offramp.save(frontier, tmp_path)
        finally:
            frontier.trunk.factory = kept
        with pytest.raises(ArtifactError, match=r"without a name to make it by; give it with trunk="):
            offramp.load(tmp_path)
        offramp.load(tmp_path, trunk=frontier.trunk)

    def test_what_the_caller_gives_is_left_as_it_is(self, frontier: Frontier, tmp_path: Path) -> None:
        offramp.save(frontier, tmp_path, weights=True)
        given = CifarResNet(8, num_classes=3)
        before = given.fingerprint()
        with pytest.raises(ArtifactError, match="another network"):
            offramp.load(tmp_path, trunk=given)
        assert given.fingerprint() == before

    def test_trusting_it_is_not_enough_for_another_one(self, tmp_path: Path) -> None:
        offramp.save(
            of_texts(), tmp_path, factory=Factory("offramp.trunk:CifarResNet", {"layers": 8, "num_classes": 3})
        )
        with pytest.raises(ArtifactError, match=r"content\.trunk\.name"):
            offramp.load(tmp_path, trust=["offramp.trunk:CifarResNet"])


class TestFolders:
    def test_saved_twice(self, frontier: Frontier, tmp_path: Path) -> None:
        offramp.save(frontier, tmp_path, weights=True)
        first = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        offramp.save(frontier, tmp_path, weights=True)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == first
        assert_same(frontier, offramp.load(str(tmp_path)), PICTURES)

    def test_another_frontier_takes_the_place_of_the_first(self, frontier: Frontier, tmp_path: Path) -> None:
        offramp.save(frontier, tmp_path, weights=True)
        fewer = replace(frontier, points={"threshold": frontier.points["threshold"][:2]})
        offramp.save(fewer, tmp_path)
        assert_same(fewer, offramp.load(tmp_path, trunk=frontier.trunk), PICTURES)

    def test_interrupted_and_empty_ones_are_refused(self, frontier: Frontier, tmp_path: Path) -> None:
        offramp.save(frontier, tmp_path)
        (tmp_path / "manifest.json").unlink()
        for folder in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(ArtifactError, match=r"manifest\.json is not there.*interrupted"):
                offramp.load(folder, trunk=frontier.trunk)

    def test_one_that_cannot_be_written(self, frontier: Frontier, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(ArtifactError, match=r"cannot write .*file"):
            offramp.save(frontier, tmp_path / "file")

    def test_versions(self, frontier: Frontier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        offramp.save(frontier, tmp_path)
        reseal(tmp_path, lambda whole: whole["content"]["trunk"].pop("num_exits"))  # as if version 1 had none
        monkeypatch.setattr(offramp.artifact, "VERSION", 2)

        def upgraded(content: dict[str, Any]) -> dict[str, Any]:
            return {**content, "trunk": {**content["trunk"], "num_exits": len(content["exits"]["widths"])}}

        monkeypatch.setattr(offramp.artifact, "_UPGRADES", {1: upgraded})
        assert_same(frontier, offramp.load(tmp_path, trunk=frontier.trunk), PICTURES)
        reseal(tmp_path, lambda whole: whole.update(version=3))
        with pytest.raises(ArtifactError, match=r"manifest\.json has version 3, .* reads up to 2; install a newer"):
            offramp.load(tmp_path, trunk=frontier.trunk)


class TestWhatCannotBeSaved:
    def test_exits_of_another_kind(self, frontier: Frontier, tmp_path: Path) -> None:
        class Mine(LadderExits):
            pass

        bank = Mine(frontier.bank.widths, frontier.bank.stages, 3, width=8)
        with pytest.raises(InputError, match="got Mine"):
            offramp.save(replace(frontier, bank=bank), tmp_path)

    def test_options_that_json_does_not_hold(self, frontier: Frontier, tmp_path: Path) -> None:
        with pytest.raises(ArtifactError, match="options must be numbers, texts or lists"):
            offramp.save(frontier, tmp_path, factory=Factory("a:b", {"module": nn.Linear(1, 1)}))

    def test_preprocessing_that_would_be_refused(self, frontier: Frontier, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"'size' in 1\.\.4096"):
            offramp.save(replace(frontier, preprocessing=Preprocessing().then("center_crop", size=0)), tmp_path)

    def test_thresholds_in_another_precision(self, frontier: Frontier, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"temperatures in torch\.float32, got torch\.float64"):
            offramp.save(replace(frontier, temperatures=frontier.temperatures.double()), tmp_path)

    def test_weights_that_are_quantised(self, frontier: Frontier, tmp_path: Path) -> None:
        class Packed(CifarResNet):
            def state_dict(self, *_: Any, **__: Any) -> Any:
                return {"packed": (torch.ones(1), None)}

        with pytest.raises(InputError, match="quantised and cannot be embedded"):
            offramp.save(replace(frontier, trunk=Packed(8, num_classes=3)), tmp_path, weights=True)


def test_exits_may_be_in_half_precision(frontier: Frontier, tmp_path: Path) -> None:
    offramp.save(frontier, tmp_path, weights=True)
    halved = offramp.load(tmp_path)
    halved.bank.half()
    offramp.save(halved, tmp_path / "half", weights=True)
    assert_same(halved, offramp.load(tmp_path / "half"), PICTURES)


def test_bert_is_the_same_every_time() -> None:
    assert bert().fingerprint() == bert().fingerprint()
