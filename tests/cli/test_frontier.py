"""The points of an artifact."""

from pathlib import Path

from tests.cli.workshop import MODELS, Shell, opened

TRUST = ("--trust", f"{MODELS}:make")


def test_as_a_table(offramp: Shell, artifact: Path) -> None:
    ran = offramp("frontier", artifact, *TRUST)
    frontier = opened(artifact)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith(str(frontier))
    assert f"the full network: {100 * frontier.full_accuracy:.2f} %; samples: " in ran.out
    assert "160 to fit" in ran.out


def test_as_json(offramp: Shell, artifact: Path) -> None:
    ran = offramp("frontier", artifact, *TRUST, "--json")
    frontier = opened(artifact)
    assert (ran.status, ran.err) == (0, "")
    assert ran.json["points"] == {
        policy: [{**point.promised, "active": list(point.active)} for point in listed]
        for policy, listed in frontier.points.items()
    }
    assert ran.json["preferred"] == frontier.preferred
    assert ran.json["contributions"] == [vars(one) for one in frontier.contributions]
