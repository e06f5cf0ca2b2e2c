"""Stages in eight bits: close to what they were, smaller, and faster."""

import json
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import offramp_onnx
from offramp.errors import InputError
from offramp.runtime.onnx._backend import OnnxBackend
from offramp.runtime.onnx._graphs import GraphFunction, Leaf, write_graph
from offramp.runtime.onnx._int8 import quantize_graph
from offramp_bench.cifar import PREPROCESSING, cifar10, resnet
from tests.cases import refuses
from tests.runtime.onnx.examples import example, write_folder


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small network, exported once, on a processor that lacks instructions."""
    given, folder = example("ladder"), tmp_path_factory.mktemp("exported") / "int8"
    frontier = given.frontier
    parts = frontier.backbone, frontier.pooling, frontier.exits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offramp.runtime._processor.find_missing_instructions", lambda kind: ("avx512_vnni",))
        with pytest.warns(UserWarning, match=r"int8 is slower than float32 .*avx512_vnni.*use 'onnx'"):
            write_folder(folder, *parts, given.inputs, given.points, frontier.costs, int8=True)
        with pytest.warns(UserWarning, match="int8 is slower than float32"):
            OnnxBackend(folder, *parts, given.inputs)
    return folder


def test_a_network_answers_nearly_alike(int8: Path) -> None:
    given = example("ladder")
    assert json.loads((int8 / "manifest.json").read_text())["precision"] == "int8"
    operations = {node.op_type for node in onnx.load(int8 / "stage_01.onnx").graph.node}
    assert "QuantizeLinear" in operations
    weights = [onnx.numpy_helper.to_array(weight) for weight in onnx.load(int8 / "stage_01.onnx").graph.initializer]
    assert max(np.abs(weight).max() for weight in weights if weight.dtype == np.int8 and weight.ndim == 4) == 64
    operations = {node.op_type for node in onnx.load(int8 / "exit_00.onnx").graph.node}
    assert "QuantizeLinear" not in operations
    plain, small = (offramp_onnx.load(folder) for folder in (given.folder, int8))
    expected, found = (one.predict(given.arrays, point=1) for one in (plain, small))
    # Not labels: these networks are hardly trained, and classes are nearly tied.
    assert 0 < np.abs(found.probabilities - expected.probabilities).mean() < 0.05


def test_a_point_of_float32_has_no_guarantee_in_int8(int8: Path) -> None:
    given = example("ladder")
    frontier = given.frontier
    for folder in (given.folder, int8):
        backend = OnnxBackend(folder, frontier.backbone, frontier.pooling, frontier.exits, given.inputs)
        network = frontier.at(max_drop=0.5, confidence=0.8).on(backend)
        assert (network.point.guarantee is None) == (folder == int8)


def test_nothing_to_calibrate_with(tmp_path: Path) -> None:
    with refuses(InputError, expected="at least one batch", got="none"):
        quantize_graph(example("ladder").folder / "stage_00.onnx", tmp_path / "int8.onnx", [])


@pytest.mark.data
@pytest.mark.slow
def test_a_trained_network_keeps_its_accuracy_and_is_faster(tmp_path: Path) -> None:
    backbone, rows = resnet(20), cifar10("test", rows=1000).read(0, 1000)
    images = PREPROCESSING(rows.inputs)
    seen = PREPROCESSING(cifar10("train", rows=256).read(0, 256).inputs).numpy()
    with torch.no_grad():
        function = GraphFunction("the network", lambda inputs: [backbone(inputs)], [Leaf("input")], [backbone])
        write_graph(tmp_path / "plain.onnx", function, [images[:3]], {0: "logits"})
    quantize_graph(tmp_path / "plain.onnx", tmp_path / "int8.onnx", ({"input": part} for part in np.split(seen, 4)))
    sessions = [offramp_onnx.open_session(tmp_path / name) for name in ("plain.onnx", "int8.onnx")]
    right = [0, 0]
    times: tuple[list[float], list[float]] = ([], [])
    for part, labels in zip(np.split(images.numpy(), 20), np.split(rows.labels, 20), strict=True):
        for place, session in enumerate(sessions):
            start = time.process_time()
            (logits,) = session.run(None, {"input": part})
            times[place].append(time.process_time() - start)
            right[place] += int((logits.argmax(1) == labels).sum())
    assert right[0] > 900
    assert right[1] > right[0] - 20
    assert np.median(times[1]) < np.median(times[0])
    assert (tmp_path / "int8.onnx").stat().st_size < 0.45 * (tmp_path / "plain.onnx").stat().st_size
