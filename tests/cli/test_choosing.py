"""The operating point that a command asks for."""

from pathlib import Path

import pytest

from tests.cli.workshop import MODELS, Shell, opened


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ("--cost 0.001", "no point costs 0.0010 or less; the cheapest costs 0.1"),
        ("--cost 0", "expected --cost as a share of 1, such as 0.6, got 0"),
        ("--cost -0.5", "expected --cost as a share of 1, such as 0.6, got -0.5"),
        ("--cost nan", "expected --cost as a share of 1, such as 0.6, got nan"),
        ("--cost inf", "expected --cost as a share of 1, such as 0.6, got inf"),
        ("--cost 60", "got 60: did you mean 0.6?"),
        ("--accuracy 93", "expected --accuracy as a share of 1, such as 0.6, got 93: did you mean 0.93?"),
        ("--accuracy 1.01", "no point reaches accuracy 1.0100 on the tune split; the best has 0."),
        ("--cost 0.5 --accuracy 0.5", "expected --cost or --accuracy, got both; leave one of them out"),
        ("--policy treshold", "unknown policy of this frontier 'treshold'; did you mean 'threshold'? Known: gates"),
        ("--policy treshold --cost 0.5", "did you mean 'threshold'?"),
    ],
)
def test_refused(offramp: Shell, artifact: Path, tmp_path: Path, wish: str, told: str) -> None:
    line = ("--data", "test.npz", "--trust", f"{MODELS}:make", *wish.split())
    ran = offramp("predict", artifact, *line, "--out", tmp_path / "a.csv")
    assert (ran.status, ran.out) == (1, "")
    assert told in ran.told
    assert "not foreseen" not in ran.told
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("verb", ["evaluate", "compare"])
def test_refused_by_every_verb(offramp: Shell, artifact: Path, verb: str) -> None:
    others = [artifact] if verb == "compare" else []
    ran = offramp(verb, artifact, *others, "--data", "test.npz", "--trust", f"{MODELS}:make", "--accuracy", "93")
    assert (ran.status, ran.out) == (1, "")
    assert "did you mean 0.93?" in ran.told


def test_budgets_that_cannot_be_met_tell_where_to_look(offramp: Shell, artifact: Path) -> None:
    ran = offramp("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", "--cost", "0.001")
    assert ran.told.endswith(f"More points: offramp frontier {artifact} --trust {MODELS}:make")
    assert "settings=" not in ran.told


@pytest.mark.parametrize("policy", ["threshold", "gates", None])
def test_nothing_asked_for_is_the_cheapest_that_keeps_the_accuracy(
    offramp: Shell, artifact: Path, policy: str | None
) -> None:
    frontier = opened(artifact)
    listed = frontier.points[policy or frontier.preferred]
    best = max(point.promised["accuracy"] for point in listed)
    least = min(best, frontier.full_accuracy - 0.005)
    expected = next(point.promised for point in listed if point.promised["accuracy"] >= least)
    wish = [] if policy is None else ["--policy", policy]
    found = offramp.json("evaluate", artifact, "--data", "test.npz", "--trust", f"{MODELS}:make", *wish)
    assert found["policy"] == (policy or frontier.preferred)
    chosen = frontier.choose(accuracy=least, policy=policy).point
    assert chosen.promised == expected
