"""The predictor in Ray Data, and over files: the answers of one process, each once, whatever is lost."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow
import pytest
import ray
from pyarrow import feather, parquet

import offramp
from offramp.errors import InputError, StoreError
from offramp.model._predictor import Predictor
from offramp.scale import predict_files
from tests.cases import each, refuses
from tests.model.examples import images
from tests.model.saved_examples import check_rows, save_and_load

ROWS = 120
FILES = 6
NAMES = ("id", "label", "confidence", "exit", "cost", "set", "error")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> offramp.EarlyExitModel:
    return save_and_load(tmp_path_factory.mktemp("artifact"))


@pytest.fixture(scope="module")
def predictor(model: offramp.EarlyExitModel) -> Predictor:
    return model.predictor(column="image", keep=["id"], threads=1)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("shards"))


def pixels() -> Any:
    return images(ROWS, seed=3)[0]


def written(folder: Path) -> Path:
    """Write six files of twenty images, one of them in a folder of its own."""
    for number, rows in enumerate(np.array_split(np.arange(ROWS), FILES)):
        column = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(pixels()[rows])
        file = folder / ("more/5.parquet" if number == 5 else f"{number}.parquet")
        file.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.table({"id": rows, "image": column}), file)
    return folder


@pytest.mark.usefixtures("_ray")
class TestRayData:
    @each("batch_format", ["numpy", "pandas", "pyarrow"])
    def test_the_answers_of_predict(
        self, model: offramp.EarlyExitModel, predictor: Predictor, shards: Path, batch_format: str, tmp_path: Path
    ) -> None:
        answers = ray.data.read_parquet(str(shards)).map_batches(predictor, batch_format=batch_format, batch_size=50)
        answers.write_parquet(str(tmp_path))
        table = parquet.read_table(tmp_path)
        assert table.column_names == list(NAMES)
        check_rows(table.to_pylist(), model, pixels())

    def test_on_actors(self, model: offramp.EarlyExitModel, predictor: Predictor) -> None:
        data = ray.data.from_numpy(pixels()).add_column(
            "id", lambda batch: np.arange(len(batch)), batch_format="pandas"
        )
        options = {"fn_constructor_kwargs": vars(predictor), "compute": ray.data.ActorPoolStrategy(size=1)}
        answers = data.rename_columns({"data": "image"}).map_batches(type(predictor), **options)
        check_rows(answers.take_all(), model, pixels())


@pytest.mark.usefixtures("_ray")
class TestFiles:
    def test_one_file_of_answers_each(
        self, model: offramp.EarlyExitModel, predictor: Predictor, shards: Path, tmp_path: Path
    ) -> None:
        names = [*(f"{number}.parquet" for number in range(5)), "more/5.parquet"]
        assert sorted(predict_files(predictor, shards, tmp_path)) == names
        table = parquet.read_table(tmp_path)
        assert table.column_names == list(NAMES)
        check_rows(table.to_pylist(), model, pixels())
        assert parquet.read_table(tmp_path / "more/5.parquet")["id"].to_pylist() == list(range(100, 120))
        assert predict_files(predictor, shards, tmp_path) == []

    def test_what_is_there_is_kept_and_the_rest_made_again(
        self, model: offramp.EarlyExitModel, predictor: Predictor, shards: Path, tmp_path: Path
    ) -> None:
        predict_files(predictor, shards, tmp_path)
        before = {file.name: file.stat().st_ino for file in tmp_path.rglob("*.parquet")}
        contents = {file.name: file.read_bytes() for file in tmp_path.rglob("*.parquet")}
        (tmp_path / "2.parquet").unlink()
        (tmp_path / "4.parquet").rename(tmp_path / "4.parquet.0123.tmp")  # of a writer that was killed
        options: dict[str, Any] = {"compute": ray.data.ActorPoolStrategy(size=1)}
        assert sorted(predict_files(predictor, shards, tmp_path, **options)) == ["2.parquet", "4.parquet"]
        assert {file.name: file.read_bytes() for file in tmp_path.rglob("*.parquet")} == contents
        assert [name for name, inode in before.items() if os.stat(next(tmp_path.rglob(name))).st_ino != inode] == [
            *sorted(name for name in before if name in ("2.parquet", "4.parquet"))
        ]

    def test_a_worker_is_lost(
        self, model: offramp.EarlyExitModel, predictor: Predictor, shards: Path, tmp_path: Path
    ) -> None:
        killed, ended = list[int](), Event()

        def kill() -> None:
            while not (killed or ended.is_set()):
                killed.extend(workers_at_work()[:1])
            for worker in killed:
                os.kill(worker, signal.SIGKILL)

        thread = Thread(target=kill)
        thread.start()
        try:
            predict_files(predictor, shards, tmp_path)
        finally:
            ended.set()
            thread.join()
        assert killed
        check_rows(parquet.read_table(tmp_path).to_pylist(), model, pixels())

    def test_formats(self, model: offramp.EarlyExitModel, tmp_path: Path) -> None:
        """Vectors as nested lists, in every format that holds them, and one file without rows."""
        rows = pyarrow.table({"id": np.arange(20), "image": pixels()[:20].tolist()})
        (tmp_path / "in").mkdir()
        feather.write_feather(rows[:8], tmp_path / "in" / "a.arrow", compression="uncompressed")
        (tmp_path / "in" / "b.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[8:15].to_pylist()))
        parquet.write_table(rows[15:], tmp_path / "in" / "c.parquet")
        parquet.write_table(rows[:0], tmp_path / "in" / "d.parquet")
        (tmp_path / "in" / "b.jsonl").rename(tmp_path / "in" / "b.JSONL")
        (tmp_path / "in" / "_metadata.json").touch()
        (tmp_path / "in" / ".a.crc").touch()
        made = predict_files(model.predictor(column="image", keep=["id"]), tmp_path / "in", tmp_path / "out")
        assert sorted(made) == ["a.parquet", "b.parquet", "c.parquet", "d.parquet"]
        table = parquet.read_table(tmp_path / "out")
        assert table["id"].to_pylist() == list(range(20))
        assert table["label"].to_pylist() == model.predict(pixels()[:20]).labels.tolist()

    def test_the_inputs_are_kept(self, model: offramp.EarlyExitModel, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        column = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(pixels()[:4])
        parquet.write_table(pyarrow.table({"image": column}), tmp_path / "in" / "a.parquet")
        budget: Any = np.float32(1)
        predictor = model.predictor(column="image", keep=["image"], budget=budget, threads=1)
        predict_files(predictor, tmp_path / "in", tmp_path / "out")
        answers = parquet.read_table(tmp_path / "out" / "a.parquet")
        assert answers["image"].to_pylist() == column.to_pylist()
        assert answers["label"].to_pylist() == model.predict(pixels()[:4], budget=1).labels.tolist()

    def test_a_damaged_file_is_named(self, predictor: Predictor, tmp_path: Path) -> None:
        """Both where its columns are read and where its rows are."""
        (tmp_path / "in").mkdir()
        file = tmp_path / "in" / "a.parquet"
        rows = pyarrow.table({"id": np.arange(4), "image": np.zeros((4, 3072)).tolist()})
        parquet.write_table(rows, file, compression="gzip", use_dictionary=False)
        content = file.read_bytes()
        for damaged in (content[:9], content[:4] + bytes(50) + content[54:]):
            file.write_bytes(damaged)
            with pytest.raises(Exception, match=r"(?s)cannot read .*/in/a\.parquet: .*write the file again"):
                predict_files(predictor, tmp_path / "in", tmp_path / "out")
        assert not list((tmp_path / "out").glob("*.parquet*"))

    def test_an_error_names_the_file(self, predictor: Predictor, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        parquet.write_table(pyarrow.table({"id": [1], "picture": [1]}), tmp_path / "in" / "a.parquet")
        with pytest.raises(Exception, match=r"a\.parquet: expected the column image, got columns id, picture"):
            predict_files(predictor, tmp_path / "in", tmp_path / "out")
        assert not list((tmp_path / "out").glob("*.parquet"))


@pytest.mark.usefixtures("_ray")
def test_a_driver_is_lost(model: offramp.EarlyExitModel, predictor: Predictor, shards: Path, tmp_path: Path) -> None:
    (tmp_path / "predictor").write_bytes(pickle.dumps(predictor))
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, tmp_path, shards], start_new_session=True)
    try:
        deadline_s = time.monotonic() + 300
        while not (written := list((tmp_path / "out").rglob("*.parquet"))):
            assert driver.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline_s
            time.sleep(0.001)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)  # its workers too, as if the machine had gone
        driver.wait()
    left = {file: file.stat().st_ino for file in written}
    made = predict_files(predictor, shards, tmp_path / "out")
    assert 0 < len(made) < FILES
    assert {file: file.stat().st_ino for file in left} == left, "answered again"
    check_rows(parquet.read_table(tmp_path / "out").to_pylist(), model, pixels())


@pytest.mark.usefixtures("_ray")
class TestRefusals:
    @each(
        ("change", "expected", "got"),
        [
            ({"batch_size": 4}, "batch_size 64", "4"),
            ({"probabilities": True}, "probabilities False", "True"),
            ({"keep": []}, "keep ['id']", "[]"),
            ({"budget": 0.9}, "budget None", "0.9"),
        ],
    )
    def test_of_answers_of_another_predictor(
        self, model: offramp.EarlyExitModel, shards: Path, tmp_path: Path, change: Any, expected: str, got: str
    ) -> None:
        options: dict[str, Any] = {"column": "image", "keep": ["id"]}
        (tmp_path / "_predictor.json").write_text(settings(model.predictor(**options), shards))
        with refuses(StoreError, problem="another predictor", expected=expected, got=got):
            predict_files(model.predictor(**{**options, **change}), shards, tmp_path)

    def test_of_answers_to_other_inputs(self, predictor: Predictor, tmp_path: Path) -> None:
        days = [tmp_path / "day1", tmp_path / "day2"]
        for day in days:
            written(day)
        latest = tmp_path / "latest"
        latest.symlink_to(days[0])
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "_predictor.json").write_text(settings(predictor, days[0]))
        for number in range(5):
            (tmp_path / "out" / f"{number}.parquet").touch()
        (tmp_path / "out" / "more").mkdir()
        (tmp_path / "out" / "more" / "5.parquet").touch()
        for same in (days[0], f"file://{days[0]}/", latest):
            assert predict_files(predictor, same, tmp_path / "out") == []
        latest.unlink()
        latest.symlink_to(days[1])
        for other in (days[1], latest):
            with refuses(StoreError, problem="other inputs", expected="day1", got="day2", hint="another output"):
                predict_files(predictor, other, tmp_path / "out")

    def test_of_inputs(self, predictor: Predictor, tmp_path: Path) -> None:
        shards, out = tmp_path / "in", tmp_path / "out"
        with refuses(InputError, problem="inputs in", got="none"):
            predict_files(predictor, tmp_path / "nothing", out)
        shards.mkdir()
        for name in ("a.csv", "a.PARQUET"):
            (shards / name).touch()
        with refuses(InputError, expected="differ in name", got="a.PARQUET and a.csv", hint="rename"):
            predict_files(predictor, shards, out)
        with refuses(InputError, problem="batch_rows", got="0"):
            predict_files(predictor, shards, out, batch_rows=0)
        (shards / "a.csv").unlink()
        for name in ("b.csv.gz", "c.ndjson", "README"):
            (shards / name).touch()
        with refuses(InputError, problem="inputs in", expected=".parquet", got="README, b.csv.gz, c.ndjson"):
            predict_files(predictor, shards, out)
        assert not out.exists()

    def test_of_an_output_among_the_inputs(self, predictor: Predictor, shards: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(shards)
        for output in (shards, shards / "out", shards.parent, tmp_path / "link" / "out", f"file://{shards}/out"):
            with refuses(InputError, problem="output", expected="beside the inputs", hint="another output"):
                predict_files(predictor, shards, output)
        with refuses(InputError, problem="output"):
            predict_files(predictor, "memory://bucket/in", "memory://bucket/in/out/")
        assert not list(shards.rglob("_predictor.json"))

    def test_of_an_output_that_is_a_file(self, predictor: Predictor, shards: Path, tmp_path: Path) -> None:
        (tmp_path / "out").touch()
        with refuses(StoreError, problem="cannot write", hint="give permission"):
            predict_files(predictor, shards, tmp_path / "out")

    def test_of_a_scheme_that_nothing_opens(self, predictor: Predictor, shards: Path, tmp_path: Path) -> None:
        with refuses(InputError, problem="fsspec cannot open nothing://in"):
            predict_files(predictor, "nothing://in", tmp_path)
        with refuses(InputError, problem="fsspec cannot open nothing://out"):
            predict_files(predictor, shards, "nothing://out")


class TestCluster:
    """Workers of `predict_files` if Ray is not connected."""

    @each(("environment", "address"), [(None, None), ("", None), ("10.0.0.1:6379", "10.0.0.1:6379")])
    def test_workers_are_opened(
        self,
        predictor: Predictor,
        shards: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        environment: str | None,
        address: str | None,
    ) -> None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        if environment is not None:
            monkeypatch.setenv("RAY_ADDRESS", environment)
        opened: list[str | None] = []

        def note(*, address: str | None) -> None:
            opened.append(address)
            raise InterruptedError

        monkeypatch.setattr(sys.modules[predict_files.__module__], "open_workers", note)
        with pytest.raises(InterruptedError):
            predict_files(predictor, shards, tmp_path)
        assert opened == [address]

    @pytest.mark.slow
    def test_workers_started_here_are_stopped(
        self, model: offramp.EarlyExitModel, predictor: Predictor, shards: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "predictor").write_bytes(pickle.dumps(predictor))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        command = [sys.executable, "-c", UNCONNECTED, str(tmp_path), str(shards)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.split()[-2:] == ["0", "64"]
        check_rows(parquet.read_table(tmp_path / "out").to_pylist(), model, pixels())


def settings(predictor: Predictor, inputs: Path) -> str:
    content = asdict(predictor) | {"batch_rows": 4096, "inputs": str(inputs)}
    return json.dumps({name: value for name, value in content.items() if name not in ("artifact", "trust")})


def workers_at_work() -> list[int]:
    """Return workers of this process's Ray in the middle of a file."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cmdline").read_bytes().startswith(b"ray::Map(_FileWork") and is_descendant(int(entry.name)):
                found.append(int(entry.name))
    return found


def is_descendant(process: int) -> bool:
    while process > 1 and process != os.getpid():
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process > 1


DRIVER = """
import pickle, sys
from pathlib import Path
from offramp.scale import predict_files
from offramp.scale._workers import open_workers

folder, shards = sys.argv[1:]
predictor = pickle.loads(Path(folder, "predictor").read_bytes())
with open_workers(1):
    predict_files(predictor, shards, Path(folder, "out"), num_cpus=1)
"""

UNCONNECTED = """
import os, pickle, sys
from pathlib import Path
from offramp.scale import predict_files

folder, shards = sys.argv[1:]
assert len(predict_files(pickle.loads(Path(folder, "predictor").read_bytes()), shards, Path(folder, "out"))) == 6
import ray
assert not ray.is_initialized()
print(os.environ["RAY_USAGE_STATS_ENABLED"], len(os.environ["RAY_AUTH_TOKEN"]))
"""
