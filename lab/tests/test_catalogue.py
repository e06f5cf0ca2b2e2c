"""Random architectures come back from an artifact in a new process; failures are reported."""

from pathlib import Path
from typing import Any

import pytest

from offramp_bench.catalogue import architectures, round_trips


def test_the_first_architectures_stay_the_same() -> None:
    assert [drawn.name for drawn in architectures(6)] == [drawn.name for drawn in architectures(12)][:6]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_few_come_back(tmp_path: Path) -> None:
    """A text classifier, one of timm, one of our own and a cascade; `offramp-bench check catalogue` runs all fifty."""
    rows = round_trips((0, 2, 4, 5), (11, 1000), tmp_path)
    assert [row["wrong"] for row in rows] == [""] * 8


@pytest.mark.slow
def test_a_damaged_artifact_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import offramp

    save = offramp.EarlyExitModel.save

    def save_damaged(frontier: offramp.EarlyExitModel, path: Path, **options: Any) -> None:
        save(frontier, path, **options)
        (path / "manifest.json").write_text("{}")

    monkeypatch.setattr(offramp.EarlyExitModel, "save", save_damaged)
    (row,) = round_trips((4,), (2,), tmp_path)
    assert row["wrong"].startswith("ArtifactError")
