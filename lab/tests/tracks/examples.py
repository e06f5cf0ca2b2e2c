"""A task of small made-up features in place of a real one: fits take a second."""

from pathlib import Path

import pytest

from offramp_bench.paper.tasks import TASKS, Task
from offramp_bench.tracks import cell, results, tuning
from offramp_bench.tracks.samples import Look, Splits
from tests.methods.examples import COSTS, clusters

TASK: Task = TASKS["nci1"]
"""Its name and kind are used; its samples are replaced."""


def load(_task: Task, _look: Look, seed: int, _spacing: int = 1) -> Splits:
    """Splits whose tune and calibrate samples follow the seed."""
    return Splits(clusters(120), clusters(90, seed=10 + seed), clusters(90, seed=200 + seed), clusters(150, seed=999))


def replace_samples(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let cells read made-up samples and write to a folder, with two epochs and two settings to choose from."""
    monkeypatch.setattr(cell, "load_splits", load)
    monkeypatch.setattr(cell, "prices_of", lambda _name, _look, _spacing: COSTS)
    monkeypatch.setattr(cell, "fingerprint_of", lambda name: name)
    monkeypatch.setattr(cell, "spacing_of", lambda _name, _look, _kind: 1)
    for module in (cell, tuning):
        monkeypatch.setattr(module, "widest_ladder", lambda _name, _look: 8)
    monkeypatch.setattr(cell, "CACHE", folder)
    monkeypatch.setattr(cell, "EPOCHS", {"graph": 2})
    monkeypatch.setattr(cell, "VARIANTS", tuning.VARIANTS[:2])
    monkeypatch.setattr(results, "VARIANTS", tuning.VARIANTS[:2])
