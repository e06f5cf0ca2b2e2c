"""The annotation benchmark on synthetic rows: new draws of samples, the peer, the summary and its table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp.annotation._sampling import SetGuarantee
from offramp_bench.annotation.bargain import count_calls
from offramp_bench.annotation.calls import LEVELS, _bars, _summarise
from offramp_bench.annotation.jobs import Redraw, learn
from offramp_bench.annotation.rows import AnnotationRows
from offramp_bench.annotation.tables import measured_block


def make_rows(count: int) -> AnnotationRows:
    generator = np.random.default_rng(0)
    answers = generator.integers(0, 3, count)
    embeddings = np.eye(3, 6)[answers] + 0.35 * generator.normal(size=(count, 6))
    return AnnotationRows([str(row) for row in range(count)], embeddings.astype(np.float32), answers, answers, 3)


@pytest.mark.parametrize("scope", ["inputs", "future"])
def test_a_sample_drawn_again(scope: Any, tmp_path: Path) -> None:
    rows = make_rows(2000)
    job, model = learn(rows, tmp_path, seed=0, scope=scope, label_budget=150)
    redraw = Redraw(job, model, rows.answers)
    losses, sampled = [], []
    for seed in range(5):
        redraw.draw(seed, max_drop=0.1)
        chosen, guarantee = redraw.guarantee(model)
        assert guarantee is not None
        assert isinstance(guarantee, SetGuarantee) == (scope == "inputs")
        loss, asked = redraw.loss(chosen)
        assert 0 <= asked < 0.9
        losses.append(loss)
        sampled.append({row for row in redraw.scores if row not in job.scores})
    assert max(losses) <= 0.1
    assert all(sampled)
    if scope == "inputs":
        assert len(set(map(frozenset, sampled))) == 5
        assert set().union(*sampled) <= set(np.flatnonzero(job.contents.copies).tolist())


def test_the_peer_asks_for_everything_if_the_cheap_model_knows_nothing() -> None:
    truth = np.arange(1000) % 5
    confidence = np.linspace(0, 1, 1000)
    calls, wrong = count_calls((truth + 1) % 5, confidence, truth, max_drop=0.05, thresholds=20, seed=0)
    assert (calls, wrong) == (1000, 0)
    calls, wrong = count_calls(truth, confidence, truth, max_drop=0.05, thresholds=20, seed=0)
    assert calls < 500
    assert wrong == 0


def cell(scope: str, asked: float | None, loss: float | None) -> dict[str, Any]:
    levels: dict[str, Any] = {str(drop): {"draws": [{"asked": asked, "loss": loss}] * 10} for drop in LEVELS}
    if scope == "inputs":
        for drop in LEVELS[:2]:
            levels[str(drop)]["peer"] = {"20": 0.6, "50": 0.5}
    return {"scope": scope, "cpu_s": 20.0, "levels": levels}


def test_bars_can_be_missed_and_the_table_shows_the_figures() -> None:
    figures = {"rows": 6414, "cpu_s": [20.0, 21.0]}
    good = {scope: _summarise([cell(scope, 0.3, 0.005)] * 2) for scope in ("inputs", "future")}
    assert all(bar.held for bar in _bars("banking77", {**figures, **good}))
    broken = {**good, "future": _summarise([cell("future", 0.3, 0.06), cell("future", None, None)])}
    missed = [bar.name for bar in _bars("banking77", {**figures, **broken}) if not bar.held]
    assert missed == [f"future, {level} %: broken" for level in (5, 2, 1)] + ["future, 5 %: no saving committed to"]
    table = measured_block({"banking77": {**figures, **broken}})
    assert "| share asked at 5 %, everything counted | 0.30 (0.30 to 0.30) |" in table
    assert "| the same with BARGAIN at 5 % | 0.50 |" in table
    assert "| guarantees about inputs to come broken | 50.0 %, 50.0 %, 50.0 % |" in table
    assert "| draws with a saving at 5 %: these inputs, inputs to come | 100 %, 50 % |" in table
