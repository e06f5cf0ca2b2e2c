"""Batch inference on a cluster against the bare engine on the same cores, and a budget for the whole job."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import offramp
from offramp.backbone import CifarResNet
from offramp.features import ArraySource
from offramp.preprocessing._images import image_preprocessing
from offramp.scale import predict_on_cluster
from offramp.scale._workers import open_workers
from offramp_bench.bars import Bar, say
from offramp_bench.cifar import cifar10
from offramp_bench.runtime.networks import cascade_frontier
from offramp_bench.runtime.timing import ratio

__all__ = ["inference"]

WORKERS = 2
BATCH_SIZE = 64
BACKEND = "bfloat16"

COST = 0.4
"""Of the operating point: where the fewest stay for the late stages."""

BUDGETS = (0.4, 0.6)
"""For the whole job."""

LEAST = 0.9
"""Of the bare engine's throughput."""

LEAST_SMALL = 0.5
"""Of jobs so small that to begin one is a good part of it."""


def inference(*, small: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Throughput, and what budgets came to.

    Args:
        small: An untrained network and few inputs: shows that all of it works, and is no evidence of speed.
    """
    network, source = prepared(small)
    repeats = 2 if small else 7
    began = time.perf_counter()
    with TemporaryDirectory() as folder, open_workers(WORKERS) as crew:
        list(crew.run(range(WORKERS), float))
        start_s = time.perf_counter() - began
        with bare_processes(small) as bare:

            def on_cluster(turn: int) -> None:
                _predicted(network, source, Path(folder, f"job-{turn}"))

            works: dict[str, Callable[[int], object]] = {
                "cluster": on_cluster,
                "bare": lambda turn: bare("predict"),
                "bare, batches joined": lambda turn: bare("predict_many"),
            }
            times = _in_turns(works, repeats)
        spent = {
            str(budget): _predicted(network, source, Path(folder, f"budget-{budget}"), budget=budget).cost
            for budget in _budgets(network, small)
        }
    throughputs = {name: ratio(times[name], times["cluster"]) for name in works if name != "cluster"}
    seconds = {name: float(np.median(found.sum(1))) for name, found in times.items()}
    figures = {
        "workers": WORKERS,
        "inputs": len(source),
        "backend": BACKEND,
        "start of Ray, seconds": start_s,
        "seconds": seconds,
        "throughput of the cluster, of": throughputs,
        "spent of budgets": spent,
    }
    say(f"throughput of the cluster over the bare engine's: {throughputs['bare']}; spent {spent}")
    least = LEAST_SMALL if small else LEAST
    bars = [Bar("throughput lost to the bare engine", 1 - throughputs["bare"]["median"], 1 - least)]
    for budget, cost in spent.items():
        bars.append(Bar(f"spent beyond a budget of {float(budget):.3g}, share", cost / float(budget) - 1, 0.02))
        bars.append(Bar(f"left unspent of a budget of {float(budget):.3g}, share", 1 - cost / float(budget), 0.1))
    return figures, bars


def prepared(small: bool) -> tuple[offramp.EarlyExitModel, ArraySource]:
    """The network and its inputs, which every process makes for itself.

    Args:
        small: As for `inference`.
    """
    if small:
        return _untrained(), ArraySource(_noise(2048), np.zeros(2048, np.int64), name="noise")
    images = cifar10("test").read(0, 10_000).inputs
    twice = np.concatenate([images, images])
    source = ArraySource(twice, np.zeros(len(twice), np.int64), name="cifar10/test, twice")
    return cascade_frontier().at(cost=COST, policy="threshold"), source


def _untrained() -> offramp.EarlyExitModel:
    torch.manual_seed(0)
    quick = offramp.JointSettings(exits="ladder", classifier_loss="fixed", cost_weights=(0.1, 1.0), epochs=1)
    data = [(_noise(count, seed=count), np.arange(count) % 10) for count in (100, 200)]
    preprocessing = image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    frontier = offramp.fit(
        CifarResNet(20), *data, preprocessing=preprocessing, settings=quick, anyway=True, progress=False
    )
    network = frontier.at(cost=1.1, policy="threshold")
    # All are settings of the dial: which of them is right by chance more often says nothing.
    points = [replace(point, tune_metrics={**point.tune_metrics, "accuracy": 0.1}) for point in network.dial_points]
    return replace(network, chosen=points[len(points) // 2], points={"threshold": points})


def _noise(count: int, *, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def _budgets(network: offramp.EarlyExitModel, small: bool) -> tuple[float, ...]:
    return ((network.dial.cheapest + network.dial.most_expensive) / 2,) if small else BUDGETS


def _predicted(network: offramp.EarlyExitModel, source: ArraySource, folder: Path, **options: Any) -> Any:
    return predict_on_cluster(
        network, source, folder, workers=WORKERS, batch_size=BATCH_SIZE, backend=BACKEND, progress=False, **options
    )


def _in_turns(works: dict[str, Callable[[int], object]], repeats: int) -> dict[str, Any]:
    """Seconds of each, repeats x 1, once more before that to warm up."""
    names = list(works)
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    for repeat in range(repeats + 1):
        turn = repeat % len(names)
        for name in names[turn:] + names[:turn]:
            began = time.perf_counter()
            works[name](repeat)
            if repeat:
                times[name].append([time.perf_counter() - began])
        say(f"turn {repeat} of {repeats}")
    return {name: np.array(found) for name, found in times.items()}


@contextmanager
def bare_processes(small: bool) -> Iterator[Callable[[str], None]]:
    """As many processes as there are workers, each with the engine and its share of the inputs, and nothing else.

    Args:
        small: As for `inference`.

    Yields:
        Runs them all once, in the way that is named.
    """
    context = get_context("spawn")
    pipes = [context.Pipe() for _ in range(WORKERS)]
    processes = [
        context.Process(target=_bare, args=(theirs, share, small), daemon=True)
        for share, (_, theirs) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    ours = [mine for mine, _ in pipes]

    def run(way: str) -> None:
        for pipe in ours:
            pipe.send(way)
        for pipe in ours:
            pipe.recv()

    try:
        for pipe in ours:
            pipe.recv()  # ready
        yield run
    finally:
        for pipe in ours:
            pipe.send("end")
        for process in processes:
            process.join()


def _bare(pipe: "Connection[Any, Any]", share: int, small: bool) -> None:
    """One bare process: every so manyth piece of the inputs, in batches."""
    torch.set_num_threads(1)
    network, source = prepared(small)
    network = network.on(BACKEND)
    starts = range(0, len(source), BATCH_SIZE)[share::WORKERS]
    pipe.send("ready")
    while (way := pipe.recv()) != "end":
        batches = (source.read(start, min(start + BATCH_SIZE, len(source))).inputs for start in starts)
        if way == "predict":
            for batch in batches:
                network.predict(batch)
        else:
            network.predict_many(batches)
        pipe.send("done")
