"""The example for MLflow with the library itself, on a store in SQLite; `scripts/mlflow` runs it."""

import runpy
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.model import text_examples

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:::(?!offramp)")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "mlflow_pyfunc.py"


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")
    monkeypatch.setenv("MLFLOW_RECORD_ENV_VARS_IN_MODEL_LOGGING", "false")
    return pytest.importorskip("mlflow")


def test_logged_loaded_and_asked(
    mlflow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = text_examples.fitted().at(cost=0.9)
    model.save(tmp_path / "artifact")
    texts = text_examples.RAW[:18]
    (tmp_path / "new.csv").write_text("\n".join(["text", *texts]) + "\n")
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, "artifact", "text", "new.csv"])
    names = runpy.run_path(str(EXAMPLE), run_name="__main__")
    expected = model.predict(texts)
    assert names["loaded"].predict(names["pandas"].DataFrame({"text": texts}))["label"].tolist() == list(expected.names)
    assert expected.names[0] in capsys.readouterr().out

    again = mlflow.pyfunc.load_model(names["address"])
    answer = again.predict(names["pandas"].DataFrame({"text": texts}))
    assert answer["exit"].tolist() == expected.exits.tolist()
    assert answer["confidence"].tolist() == expected.probabilities.amax(1).tolist()
    cheap = again.predict(names["pandas"].DataFrame({"text": texts}), params={"budget": 0.35})  # below the point's cost
    assert cheap["relative_cost"].tolist() != answer["relative_cost"].tolist()
    assert cheap["relative_cost"].tolist() == model.predict(texts, budget=0.35).relative_cost.tolist()

    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as store:
        metrics = dict(store.execute("select key, value from metrics").fetchall())
    assert metrics["tune_cost"] == pytest.approx(model.point.tune_metrics["cost"])
