"""Accuracy, latency at batch 1 and throughput at batch 64 of our models and of their alternatives."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import offramp
from offramp.model._model import EarlyExitModel
from offramp.policy import OperatingPoint
from offramp.runtime import Backend
from offramp.runtime._eager import EagerBackend
from offramp.runtime._engine import Engine
from offramp.runtime.onnx._backend import OnnxBackend, onnx_backend
from offramp.runtime.onnx._int8 import quantize_graph
from offramp.runtime.onnx._network import write_network
from offramp_bench import earlyon_exits
from offramp_bench.bars import say
from offramp_bench.cifar import cifar10, resnet
from offramp_bench.runtime.efficiency import full_network
from offramp_bench.runtime.networks import CACHE, all_images, cascade_frontier, held_out_rows
from offramp_bench.runtime.timing import ratio, time_in_turns
from offramp_bench.texts import intents, minilm, minilm_itself, train_rows
from offramp_onnx import open_session

__all__ = ["CASCADE_COST", "Alternative", "alternatives", "measure_images", "measure_texts"]

CASCADE_COST = 0.45
"""Budget of the cascade. It was chosen after five splits of the test images were measured, the one used here among
them: exits of an earlier default lost 0.09 points at 0.4 and gained 0.47 at 0.5, on average."""

CALIBRATION_IMAGES = 512
"""Train images on which the ranges of activations are measured for INT8."""

Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Alternative:
    """A way to classify images."""

    name: str
    run: Run
    """Function from prepared images to their classes."""
    accuracy: float | None = None
    """Accuracy, where it is already known; it may depend on how images are batched."""


def alternatives() -> list[Alternative]:
    """Return all alternatives, the full network first."""
    ways = [Alternative(f"ResNet-{layers}", _resnet(layers)) for layers in (56, 20, 32, 44)]
    ways.append(Alternative("ResNet-56, bfloat16", _full_bfloat16()))
    graph = _whole_graph()
    ways += [Alternative(f"ResNet-56, ONNX {kind}", _session(path)) for kind, path in _whole_graphs(graph).items()]
    frontier = cascade_frontier()
    point = frontier.at(cost=CASCADE_COST).point
    exits = frontier.exits.take(point.classifier)
    example = all_images()[:2]
    eager = EagerBackend(frontier.backbone, frontier.pooling, exits)
    narrow = EagerBackend(frontier.backbone, frontier.pooling, exits, dtype=torch.bfloat16)
    onnx = onnx_backend(frontier.backbone, frontier.pooling, exits, example)
    int8 = _int8_backend(frontier, point)
    backends: dict[str, Backend] = {"": eager, ", bfloat16": narrow, ", ONNX": onnx, ", ONNX INT8": int8}
    for name, backend in backends.items():
        ways.append(Alternative(f"offramp cascade{name}", _engine(frontier, point, backend)))
    return ways + [way for rival in _rivals() for way in _ways_to_run(rival)]


def _rivals() -> list[earlyon_exits.Point]:
    """Return the dearest and the cheapest point of each set of earlyon's exits."""
    sets: dict[str, list[earlyon_exits.Point]] = {}
    for point in earlyon_exits.points():
        sets.setdefault(point.name.partition(":")[0], []).append(point)
    return [point for points in sets.values() for point in points[:: max(1, len(points) - 1)]]


def _ways_to_run(rival: earlyon_exits.Point) -> list[Alternative]:
    """Return earlyon's ways to run a point: batches that leave together and, for cascades, images one by one."""
    name = f"earlyon, {rival.name}"
    together = Alternative(f"{name}, together", _labels(rival.run), rival.accuracy_of_batches)
    if not rival.name.startswith("cascade"):
        return [together]
    return [
        together,
        Alternative(f"{name}, one by one", _labels(rival.run_singly), rival.accuracy),
        Alternative(f"{name}, one by one, ONNX", _labels(rival.run_graphs), rival.accuracy),
    ]


def measure_images(
    ways: Sequence[Alternative], *, repeats: int, singles: int = 200, batches: int = 10
) -> list[dict[str, Any]]:
    """Measure accuracy on held-out images, and times in turns.

    Args:
        ways: The alternatives, the full network first.
        repeats: Number of repeats of each timing.
        singles: Number of images at batch 1.
        batches: Number of batches of 64.
    """
    rows = held_out_rows()
    images, labels = all_images()[rows], torch.from_numpy(cifar10("test").read(0, 10_000).labels[rows])
    correct = {way.name: _correct(way.run, images, labels, way.name) for way in ways if way.accuracy is None}
    runs = {way.name: way.run for way in ways}
    alone = time_in_turns(runs, [images[row : row + 1] for row in range(singles)], repeats)
    together = time_in_turns(runs, [images[64 * row : 64 * (row + 1)] for row in range(batches)], repeats)
    full = ways[0].name
    rows_of_table = []
    for way in ways:
        change = correct[way.name] - correct[full] if way.name in correct else None
        rows_of_table.append(
            {
                "name": way.name,
                "accuracy": way.accuracy if change is None else float(correct[way.name].mean()),
                "change": None if change is None else float(change.mean()),
                "half_width": None if change is None else float(1.96 * change.std() / len(change) ** 0.5),
                "speedup at 64": ratio(together[full], together[way.name]),
                "speedup at 1": ratio(alone[full], alone[way.name]),
                **{
                    f"p{level}": float(np.percentile(np.median(alone[way.name], 0), level) / np.median(alone[full]))
                    for level in (50, 95, 99)
                },
            }
        )
    return rows_of_table


def measure_texts(*, repeats: int, batches: int = 8, singles: int = 100) -> list[dict[str, Any]]:
    """Measure the shipped default on MiniLM and Banking77, from raw texts, at points chosen without test rows.

    Exits are fitted on the train rows that the encoder was tuned on; the other train rows are the validation split.
    Times include tokenization.

    Args:
        repeats: Number of repeats of each timing.
        batches: Number of batches of 64.
        singles: Number of texts at batch 1.
    """
    task = "banking77"
    backbone, rows = minilm(task), intents(task, "test")
    frontier = offramp.fit(backbone, train_rows(task, seen=True), train_rows(task, seen=False), store=CACHE / "texts")
    networks = {
        "guarantee": frontier.at(max_drop=0.01),
        "level on tune": frontier.at(accuracy=frontier.full_accuracy),
    }
    # Rows are sorted by class: without a shuffle, the first ones would have few classes.
    classifier, everything = minilm_itself(task), rows.read(0, len(rows))
    order = np.random.default_rng(0).permutation(len(rows))
    inputs, labels = everything.inputs[order], torch.from_numpy(everything.labels[order])

    @torch.inference_mode()
    def full(raw: Any) -> Tensor:
        logits: Tensor = classifier(**backbone.prepare(backbone.preprocessing(raw)))
        return logits.argmax(1)

    def with_exits(network: EarlyExitModel) -> Callable[[Any], Tensor]:
        return lambda raw: network.predict(raw).labels

    runs = {"full": full, **{name: with_exits(network) for name, network in networks.items()}}
    parts = [inputs[start : start + 64] for start in range(0, len(rows), 64)]
    correct = {name: (torch.cat([run(part) for part in parts]) == labels).double() for name, run in runs.items()}
    together = time_in_turns(runs, parts[:batches], repeats)
    alone = time_in_turns(runs, [inputs[row : row + 1] for row in range(singles)], repeats)
    measurements = []
    for name, network in networks.items():
        change = correct[name] - correct["full"]
        cost = torch.cat([network.predict(part).relative_cost for part in parts]).mean()
        measurements.append(
            {
                "name": name,
                "max_drop": None if network.point.guarantee is None else network.point.guarantee.at_most,
                "cost": float(cost),
                "change": float(change.mean()),
                "half_width": float(1.96 * change.std() / len(change) ** 0.5),
                "speedup at 64": ratio(together["full"], together[name]),
                "speedup at 1": ratio(alone["full"], alone[name]),
            }
        )
    return measurements


def _resnet(layers: int) -> Run:
    return _labels(torch.inference_mode()(resnet(layers)))


def _labels(logits: Run) -> Run:
    def run(images: Tensor) -> Tensor:
        return logits(images).argmax(1)

    return run


def _full_bfloat16() -> Run:
    network = full_network(resnet(56), torch.bfloat16)
    return _labels(lambda images: network(images)[0])


def _engine(frontier: EarlyExitModel, point: OperatingPoint, backend: Backend) -> Run:
    exits = frontier.exits.take(point.classifier)
    engine = Engine(frontier.backbone, frontier.pooling, exits, [replace(point, classifier=0)], backend=backend)

    def run(images: Tensor) -> Tensor:
        return engine.run(images)[0].argmax(1)

    return run


def _whole_graph() -> Path:
    """Export ResNet-56 as one ONNX graph, and return its path."""
    path = CACHE / "resnet56.onnx"
    program = torch.onnx.export(
        resnet(56).eval(),
        (all_images()[:2],),
        dynamo=True,
        input_names=["images"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        verbose=False,
    )
    assert program is not None
    program.save(str(path))
    return path


def _whole_graphs(graph: Path) -> Mapping[str, Path]:
    """Return the graph and its two INT8 versions: with ranges measured in advance, and for each batch."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    static, dynamic = graph.with_suffix(".static.onnx"), graph.with_suffix(".dynamic.onnx")
    images = _calibration_images().numpy()
    quantize_graph(graph, static, [{"images": images[start : start + 64]} for start in range(0, len(images), 64)])
    plain = onnx.load(graph)
    del plain.graph.value_info[:]  # the quantizer rejects the shapes that the exporter noted
    quantize_dynamic(plain, dynamic, weight_type=QuantType.QUInt8)
    return {"float32": graph, "static INT8": static, "dynamic INT8": dynamic}


def _calibration_images() -> Tensor:
    frontier = cascade_frontier()
    images: Tensor = frontier.preprocessing(cifar10("train").read(0, CALIBRATION_IMAGES).inputs)
    return images


def _session(path: Path) -> Run:
    session = open_session(path, threads=torch.get_num_threads())
    (name,) = (argument.name for argument in session.get_inputs())

    def run(images: Tensor) -> Tensor:
        (logits,) = session.run(None, {name: images.numpy()})
        return torch.from_numpy(logits)

    return _labels(run)


def _int8_backend(frontier: EarlyExitModel, point: OperatingPoint) -> Backend:
    folder = CACHE / "cascade-int8"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    exits = frontier.exits.take(point.classifier)
    example = _calibration_images()
    write_network(frontier.backbone, frontier.pooling, exits, example, folder, int8=True)
    return OnnxBackend(folder, frontier.backbone, frontier.pooling, exits, example)


def _correct(run: Run, images: Tensor, labels: Tensor, name: str) -> Tensor:
    parts = [run(images[start : start + 64]) for start in range(0, len(images), 64)]
    correct = (torch.cat(parts) == labels).double()
    say(f"{name}: {100 * float(correct.mean()):.2f} %")
    return correct
