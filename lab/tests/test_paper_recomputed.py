"""Cells of the committed results, computed again."""

import json
from typing import Any

import numpy as np
import pytest

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp_bench.paper import recomputed as module
from offramp_bench.paper.__main__ import COMMITTED
from offramp_bench.paper.cell import Cell
from offramp_bench.paper.contestants import EXITS
from offramp_bench.paper.recomputed import drawn, recomputed

TASKS: dict[str, Any] = {
    "nci1": {
        "contestants": {
            "threshold": {"areas": [0.7, 0.8]},
            "margin": {"areas": [0.6, 0.9]},
            "L2W-DEN": {"areas": [0.5, 0.4]},
            "ResNet-20": {"areas": [0.1]},  # no cell: a network as it is
        }
    }
}


def test_every_cell_may_be_drawn() -> None:
    generator = np.random.default_rng(0)
    found = {(exits, seed): areas for _, exits, seed, areas in (drawn(TASKS, [*EXITS], generator) for _ in range(100))}
    assert found == {
        ("linear", 0): {"threshold": 0.7, "margin": 0.6},
        ("linear", 1): {"threshold": 0.8, "margin": 0.9},
        ("l2w", 0): {"geometric": 0.5},
        ("l2w", 1): {"geometric": 0.4},
    }


def test_only_what_is_asked_for_is_drawn() -> None:
    assert drawn(TASKS, ["l2w"], np.random.default_rng(0))[1] == "l2w"


def test_another_area_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell({"rules": {"threshold": {"area": 0.71}, "margin": {"area": 0.6001}}}, {})
    monkeypatch.setattr(module, "run_cell", lambda *given: cell)
    bars = recomputed("nci1", "linear", 0, {"threshold": 0.7, "margin": 0.6})
    assert [bar.held for bar in bars] == [False, True]


@pytest.mark.slow
def test_a_committed_cell_of_a_graph_network() -> None:
    """Features are extracted, exits fitted and curves measured again, from nothing but data and committed weights."""
    committed = json.loads(COMMITTED.read_text())["tasks"]
    graphs = {name: task for name, task in committed.items() if task["kind"] == "graph"}
    bars = recomputed(*drawn(graphs, [*EXITS], np.random.default_rng()))
    assert all(bar.held for bar in bars), bars
