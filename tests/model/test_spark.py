"""The predictor in Spark on this machine; `scripts/spark` runs it."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import offramp
from tests.model.examples import images
from tests.model.saved_examples import check_rows, save_and_load

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")]

COLUMNS = "id long, label long, confidence float, exit int, cost double, set array<long>, error string"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> offramp.EarlyExitModel:
    return save_and_load(tmp_path_factory.mktemp("artifact"))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two processes of Python on this machine."""
    sql = pytest.importorskip("pyspark.sql")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = sql.SparkSession.builder.master("local[2]").appName("offramp")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "40",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_the_answers_of_predict(model: offramp.EarlyExitModel, spark: Any, kind: str, tmp_path: Path) -> None:
    pixels = images(100, seed=3)[0]
    frame = pandas.DataFrame({"id": np.arange(100), "image": [image.tolist() for image in pixels]})
    frame.to_parquet(tmp_path / "inputs.parquet")
    data = spark.read.parquet(str(tmp_path / "inputs.parquet")).repartition(2)
    predictor = model.predictor(column="image", keep=["id"], threads=1)
    run = data.mapInPandas if kind == "pandas" else data.mapInArrow
    rows = run(predictor, COLUMNS).collect()
    check_rows(rows, model, pixels)
    assert {row["error"] for row in rows} == {""}
