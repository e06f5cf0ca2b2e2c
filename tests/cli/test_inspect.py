"""How a network is cut, as a table and as JSON."""

import pytest

from offramp.trunk import make_trunk
from tests.cli.workshop import MODELS, Shell


def test_as_json_it_agrees_with_the_library(offramp: Shell) -> None:
    ran = offramp("inspect", "--trunk", f"{MODELS}:make", "--data", "test.npz", "--json")
    assert (ran.status, ran.err) == (0, "")
    found = ran.json
    trunk = make_trunk(f"{MODELS}:make", {})
    assert (found["network"], found["num_classes"], len(found["stages"])) == ("tiny", 3, trunk.num_exits)
    # By hand: a linear layer of a inputs and b outputs has a * b multiply-adds.
    by_hand = [16 * 256, *[256 * 256] * 3]
    assert [one["mul_adds"] for one in found["stages"]] == pytest.approx(by_hand, rel=0.01)
    assert found["mul_adds"] == pytest.approx(sum(by_hand) + 256 * 3, rel=0.01)
    assert sum(one["share"] for one in found["stages"]) == pytest.approx(1, abs=0.01)
    assert [one["features"] for one in found["stages"]] == [256] * 4
    assert [one["own_head"] for one in found["stages"]] == [False] * 3 + [True]
    leaving = [one["leaving"] for one in found["stages"]]
    assert leaving == sorted(leaving)


def test_as_a_table(offramp: Shell) -> None:
    ran = offramp("inspect", "--trunk", f"{MODELS}:make", "--data", "test.npz")
    assert ran.status == 0
    assert "tiny: 4 stages, 3 classes, 0.2 M Mul-Adds" in ran.out
    assert "3 *" in ran.out
    assert "Careful: nobody can leave inside stage 1, 2, 3, above 30% of the network." in ran.told


def test_pictures(offramp: Shell) -> None:
    ran = offramp("inspect", "--trunk", f"{MODELS}:pictures", "--data", "images")
    assert "16 x 32 x 32" in ran.out
    assert "12.24" in ran.out


def test_texts_need_no_data(offramp: Shell) -> None:
    found = offramp.json("inspect", "--trunk", f"{MODELS}:texts")
    assert found["preprocessing"] == ["tokenize"]
    assert found["stages"][0]["sees"].endswith("words x 64")


def test_what_a_network_takes_may_be_unknown(offramp: Shell) -> None:
    ran = offramp("inspect", "--trunk", f"{MODELS}:make")
    assert ran.status == 1
    assert "cannot be told from its preprocessing; give a few samples with --data" in ran.told


def test_poolings(offramp: Shell) -> None:
    found = offramp.json("inspect", "--trunk", f"{MODELS}:pictures", "--data", "images", "--pooling", "mean")
    assert [one["features"] for one in found["stages"]] == [16, 32, 64]
    ran = offramp("inspect", "--trunk", f"{MODELS}:make", "--data", "test.npz", "--pooling", "grid")
    assert ran.status == 1
    assert "grid pooling takes maps N x C x H x W, got shape (2, 256); use pooling 'auto'" in ran.told


def test_an_unknown_pooling(offramp: Shell) -> None:
    ran = offramp("inspect", "--trunk", f"{MODELS}:make", "--data", "test.npz", "--pooling", "maen")
    assert ran.status == 1
    assert "unknown pooling 'maen'; did you mean 'mean'?" in ran.told
