"""Speed of batch inference with Ray Data, and over files, against bare processes over the same files.

A bare process holds the model, reads its share of the files and runs the engine on full batches; it writes nothing.
All sides are timed in turns, Ray's workers with the model loaded.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow
import torch
from pyarrow import parquet

import offramp
from offramp.backbone import CifarResNet
from offramp.model._predictor import Predictor
from offramp.preprocessing._images import image_preprocessing
from offramp.scale import predict_files
from offramp.scale._workers import open_workers
from offramp_bench import places
from offramp_bench.bars import Bar, say
from offramp_bench.cifar import PREPROCESSING, cifar10, images_cascade
from offramp_bench.runtime.timing import ratio

__all__ = ["inference", "small_model"]

WORKERS = 2
BATCH_SIZE = 64
BACKEND = "bfloat16"

COST = 0.4
"""Cost of the operating point: few samples reach the late stages."""

FILES = 8
"""Number of input files, of some seconds each."""

REPEATS = 9

LEAST = 0.9
"""Least share of the bare processes' throughput."""

LEAST_SMALL = 0.02
"""The same for jobs so small that their start takes most of the time."""

END_S = 60.0
"""Time that a bare process has to end before it is killed."""


def inference(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Measure the throughput of Ray Data and of files against that of bare processes.

    Args:
        small: Use an untrained network and few inputs, only to test the benchmark itself.
    """
    repeats = 2 if small else REPEATS
    with TemporaryDirectory() as name:
        folder = Path(name)
        (small_model() if small else _cascade()).save(folder / "model", weights=True)
        predictor = offramp.load(folder / "model").predictor(
            column="image", keep=["id"], batch_size=BATCH_SIZE, backend=BACKEND, threads=1
        )
        rows = _write_inputs(folder / "inputs", small)
        with open_workers(WORKERS), _bare_processes(predictor, folder / "inputs") as bare:
            works: dict[str, Callable[[], object]] = {
                "Ray Data": lambda: _by_ray_data(predictor, folder, rows),
                "files": lambda: _by_files(predictor, folder, rows),
                "bare": bare,
            }
            times = _in_turns(works, repeats)
    throughputs = {name: ratio(times["bare"], times[name]) for name in works if name != "bare"}
    figures = {
        "workers": WORKERS,
        "inputs": rows,
        "files": FILES,
        "rounds": repeats,
        "backend": BACKEND,
        "seconds": {name: float(np.median(rounds)) for name, rounds in times.items()},
        "seconds of a file": float(np.median(times["bare"])) * WORKERS / FILES,
        "throughput of bare processes": throughputs,
    }
    say(f"throughput, of bare processes: {throughputs}")
    least = LEAST_SMALL if small else LEAST
    bars = [Bar(f"{name}: throughput lost", 1 - share["median"], 1 - least) for name, share in throughputs.items()]
    return figures, bars


def _by_ray_data(predictor: Predictor, folder: Path, rows: int) -> None:
    import ray

    inputs = ray.data.read_parquet(str(folder / "inputs"), override_num_blocks=FILES)
    # Without this, Ray Data reads such small files as one block, for one worker.
    inputs = inputs.repartition(target_num_rows_per_block=rows // FILES)
    answers = inputs.map_batches(predictor, batch_size=rows // FILES, batch_format="pyarrow")
    answers.write_parquet(str(folder / "by Ray Data"))
    _check(folder / "by Ray Data", rows)


def _by_files(predictor: Predictor, folder: Path, rows: int) -> None:
    predict_files(predictor, folder / "inputs", folder / "by files", batch_rows=rows // FILES)
    _check(folder / "by files", rows)


def _check(folder: Path, rows: int) -> None:
    """Check that every answer is there exactly once, and delete the answers before the next round."""
    ids = parquet.read_table(folder, columns=["id"])["id"].to_numpy()
    if not np.array_equal(np.sort(ids), np.arange(rows)):
        raise RuntimeError(f"{len(ids)} answers to {rows} inputs")
    shutil.rmtree(folder)


def _write_inputs(folder: Path, small: bool) -> int:
    """Write the inputs as files, and return their number."""
    if small:
        images = _noise(2048)
    else:
        images = np.concatenate([cifar10("test").read(0, 10_000).inputs] * 2)
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(images)), FILES)):
        pixels = pyarrow.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(images[part]))
        parquet.write_table(pyarrow.table({"id": part, "image": pixels}), folder / f"{number:03d}.parquet")
    return len(images)


def small_model() -> offramp.EarlyExitModel:
    """Return an untrained network with exits of one epoch."""
    torch.manual_seed(0)
    quick = offramp.JointSettings(exits="ladder", classifier_loss="fixed", cost_weights=(0.1, 1.0), epochs=1)
    data = [(_noise(count, seed=count), np.arange(count) % 10) for count in (100, 200)]
    preprocessing = image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    model = offramp.fit(
        CifarResNet(20), *data, preprocessing=preprocessing, settings=quick, anyway=True, progress=False
    )
    return model.at(cost=1.1, policy="threshold")


def _cascade() -> offramp.EarlyExitModel:
    folder = places.CACHE / "scale" / "cascade"
    if not (folder / "manifest.json").exists():
        test = cifar10("test")
        parts = [test.read(0, 4_000), test.read(4_000, 7_000)]
        data = [(rows.inputs, rows.labels) for rows in parts]
        offramp.fit(images_cascade(), *data, preprocessing=PREPROCESSING, progress=False).save(folder, weights=True)
    return offramp.load(folder).at(cost=COST, policy="threshold")


def _noise(count: int, *, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def _in_turns(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, Any]:
    """Return `repeats x 1` seconds of each work, measured in turns after one turn to warm up."""
    names = list(works)
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    for repeat in range(repeats + 1):
        turn = repeat % len(names)
        for name in names[turn:] + names[:turn]:
            began = time.perf_counter()
            works[name]()
            if repeat:
                times[name].append([time.perf_counter() - began])
        say(f"turn {repeat} of {repeats}")
    return {name: np.array(rounds) for name, rounds in times.items()}


@contextmanager
def _bare_processes(predictor: Predictor, inputs: Path) -> Iterator[Callable[[], None]]:
    """Start as many processes as there are workers, each with the engine and its share of the files only."""
    context = get_context("spawn")
    pipes = [context.Pipe() for _ in range(WORKERS)]
    processes = [
        context.Process(target=_bare, args=(theirs, predictor, sorted(inputs.iterdir())[share::WORKERS]), daemon=True)
        for share, (_, theirs) in enumerate(pipes)
    ]
    for process, (_, theirs) in zip(processes, pipes, strict=True):
        process.start()
        theirs.close()  # so that `recv` raises an error if the process dies, instead of waiting for ever
    ours = [mine for mine, _ in pipes]

    def run() -> None:
        for pipe in ours:
            pipe.send("run")
        for pipe in ours:
            pipe.recv()

    try:
        for pipe in ours:
            pipe.recv()  # ready
        yield run
    finally:
        for pipe in ours:
            with suppress(OSError):  # the process has ended
                pipe.send("end")
        for process in processes:
            process.join(END_S)
            if process.is_alive():
                process.kill()
                process.join()


def _bare(pipe: "Connection[Any, Any]", predictor: Predictor, files: list[Path]) -> None:
    """Answer the files on every message until "end": the work of a bare process."""
    torch.set_num_threads(1)
    model = offramp.load(predictor.artifact).on(BACKEND)
    pipe.send("ready")
    while pipe.recv() != "end":
        for file in files:
            images = parquet.read_table(file)["image"].combine_chunks().to_numpy_ndarray()
            model.predict_many(images[start : start + BATCH_SIZE] for start in range(0, len(images), BATCH_SIZE))
        pipe.send("done")
