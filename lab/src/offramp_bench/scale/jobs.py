"""The two jobs that failures are tested on: an extraction, and an inference over files.

    python -m offramp_bench.scale.jobs extraction ROOT FOLDER ROWS NAME ADDRESS

runs one of them on a cluster, in a driver of its own.
"""

import hashlib
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from pyarrow import parquet

import offramp
from offramp._remote import find_file_system
from offramp.features import extract
from offramp.features._store import Store
from offramp.model._predictor import Predictor
from offramp.scale import extract_on_cluster, predict_files
from offramp_bench.scale.inference import small_model
from offramp_bench.scale.work import VIEWS, hashes, images, network

__all__ = ["JOBS", "Extraction", "Inference", "Job"]

OPTIONS: dict[str, Any] = {"views": VIEWS, "batch_size": 125, "threads": 1, "progress": False}


@dataclass(frozen=True)
class Job(ABC):
    """Work on a cluster that is killed and run again."""

    root: str
    """Folder or address of all output."""
    rows: int
    folder: Path
    """Local folder for the output of one process without Ray, and for the inputs of all runs."""

    @property
    def units(self) -> int:
        """Number of shards or files that the job writes."""
        return 24 if self.rows >= 20_000 else 8

    def output(self, name: str) -> str:
        """Return the folder or address that a run writes to."""
        return f"{self.root}/{name.replace(' ', '-')}"

    def count(self, name: str) -> int:
        """Return the number of shards or files that a run has written so far."""
        files, path = find_file_system(self.output(name))
        return sum(self.is_unit(file.removeprefix(path)) for file in files.find(path))

    @abstractmethod
    def prepare(self) -> None:
        """Write the inputs, and the output of one process without Ray."""

    @abstractmethod
    def run(self, name: str, address: str) -> None:
        """Run the job on a cluster."""

    @abstractmethod
    def is_unit(self, file: str) -> bool:
        """Return true for a file that marks a finished shard, or holds answers."""

    @abstractmethod
    def compare(self, name: str) -> dict[str, int]:
        """Count what is missing, doubled or different after a run."""


@dataclass(frozen=True)
class Extraction(Job):
    """Features of random images by a small network."""

    def prepare(self) -> None:
        if not (self.folder / "alone").exists():
            extract(network(8), images(self.rows), self.folder / "alone", shard_mb=self._shard_mb, **OPTIONS)

    def run(self, name: str, address: str) -> None:
        options = {"address": address, "shard_mb": self._shard_mb, **OPTIONS}
        extract_on_cluster(network(8), images(self.rows), self.output(name), **options)

    def is_unit(self, file: str) -> bool:
        return file.startswith("/shards/") and file.endswith(".json")

    def compare(self, name: str) -> dict[str, int]:
        ids, expected = Store.open(self.output(name)).ids(), images(self.rows).read(0, self.rows).ids
        files, path = find_file_system(self.output(name))
        alone = hashes(self.folder / "alone")
        written = {
            file.removeprefix(f"{path}/"): hashlib.sha256(files.cat_file(file)).hexdigest()
            for file in files.find(path)
            if not file.endswith("/.lock")
        }
        differing = {file for file in {*alone, *written} if alone.get(file) != written.get(file)}
        return _counts(len(differing), expected, ids)

    @property
    def _shard_mb(self) -> float:
        return self.rows * 7_228 / 1e6 / self.units  # bytes of a row of this network


@dataclass(frozen=True)
class Inference(Job):
    """Answers to random images by an early-exit model, file by file."""

    def prepare(self) -> None:
        if not (self.folder / "model").exists():
            small_model().save(self.folder / "model", weights=True)
        pixels = images(self.rows).read(0, self.rows).inputs
        files, path = find_file_system(f"{self.root}/inputs")
        files.makedirs(path, exist_ok=True)
        answers = self.folder / "answers"
        answers.mkdir(exist_ok=True)
        predictor = self._predictor()
        for number, rows in enumerate(np.array_split(np.arange(self.rows), self.units)):
            column = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(pixels[rows]))
            table = pyarrow.table({"id": rows, "image": column})
            with files.open(f"{path}/{number:03d}.parquet", "wb") as file:
                parquet.write_table(table, file)
            if not (answers / f"{number:03d}.parquet").exists():
                parquet.write_table(predictor(table), answers / f"{number:03d}.parquet")

    def run(self, name: str, address: str) -> None:
        import ray

        ray.init(address=address, log_to_driver=False)
        predict_files(self._predictor(), f"{self.root}/inputs", self.output(name), batch_rows=self.rows, num_cpus=1)

    def is_unit(self, file: str) -> bool:
        return file.endswith(".parquet")

    def compare(self, name: str) -> dict[str, int]:
        files, path = find_file_system(self.output(name))
        tables = {
            file.removeprefix(f"{path}/"): parquet.read_table(file, filesystem=files)
            for file in files.find(path)
            if self.is_unit(file)
        }
        alone = {file.name: parquet.read_table(file) for file in (self.folder / "answers").iterdir()}
        differing = [file for file in {*alone, *tables} if not _same(alone.get(file), tables.get(file))]
        ids = np.concatenate([table["id"].to_numpy() for table in tables.values()])
        return _counts(len(differing), np.arange(self.rows), ids)

    def _predictor(self) -> Predictor:
        model = offramp.load(self.folder / "model")
        return model.predictor(column="image", keep=["id"], batch_size=64, threads=1)


JOBS: dict[str, type[Extraction] | type[Inference]] = {"extraction": Extraction, "inference": Inference}
"""The jobs, by name."""


def _same(table: Any, other: Any) -> bool:
    return table is not None and other is not None and bool(table.equals(other))


def _counts(differing: int, expected: Any, ids: Any) -> dict[str, int]:
    return {
        "files that differ": differing,
        "rows missing": len(np.setdiff1d(expected, ids)),
        "rows twice": len(ids) - len(np.unique(ids)),
    }


if __name__ == "__main__":
    job, root, folder, rows, name, address = sys.argv[1:]
    torch.set_num_threads(1)
    JOBS[job](root, int(rows), Path(folder)).run(name, address)
