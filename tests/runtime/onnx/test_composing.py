"""One graph answers as the engine does, weighs as much as its parts, and skips what is not needed."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import offramp_onnx
from offramp.backbone._backbone import Backbone
from offramp.errors import InputError
from offramp.exits import LinearExits
from offramp.policy import OperatingPoint
from offramp.pooling import POOLINGS
from offramp.runtime._engine import Engine
from offramp.runtime.onnx._backend import onnx_backend
from offramp.runtime.onnx._composing import write_single
from tests.cases import refuses
from tests.runtime.onnx.examples import COUNT, KINDS, engine, example


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_engine(kind: str, tmp_path: Path) -> None:
    given = example(kind)
    folder, backbone = shutil.copytree(given.folder, tmp_path / "copy"), given.frontier.backbone
    left = set()
    for row, point in enumerate(given.points):
        write_single(folder, row)
        session, runner = onnxruntime.InferenceSession(folder / "single.onnx"), offramp_onnx.load(folder)
        for sample in range(0, COUNT, 3):
            one = backbone.select(given.inputs, torch.tensor([sample]), 0)
            probabilities, exits = engine(given, point).run(one)
            feeds = one if isinstance(one, dict) else {"input": one}
            found, exit = session.run(["probabilities", "exit"], {name: leaf.numpy() for name, leaf in feeds.items()})
            assert exit.tolist() == exits.tolist()
            np.testing.assert_allclose(found, probabilities, atol=1e-5)
            left.add(int(exit[0]))
            answer = runner.predict({name: leaf.numpy() for name, leaf in feeds.items()}, point=row)
            assert answer.exits.tolist() == exits.tolist()
            np.testing.assert_array_equal(answer.probabilities, found)
    assert len(left) > 1


def test_weights_are_there_once(tmp_path: Path) -> None:
    given = example("ladder")
    folder = shutil.copytree(given.folder, tmp_path / "copy")
    parts = sum(path.stat().st_size for path in (*folder.glob("stage_*"), *folder.glob("exit_*")))
    row = max(range(4), key=lambda row: len(given.points[row].active))
    write_single(folder, row)
    assert (folder / "single.onnx").stat().st_size < 1.05 * parts
    branches = [node for node in onnx.load(folder / "single.onnx").graph.node if node.op_type == "If"]
    assert len(branches) == len(given.points[row].active) - 1
    held = [weight.name for branch in branches for kind in branch.attribute for weight in kind.g.initializer]
    assert held
    assert len(held) == len(set(held))


def test_stages_after_the_exit_do_not_run(tmp_path: Path) -> None:
    given = example("ladder")
    folder = shutil.copytree(given.folder, tmp_path / "copy")
    write_single(folder, 0)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    exits = engine(given, given.points[0]).run(given.inputs)[1]
    ran = {}
    for sample in (int(exits.argmin()), int(exits.argmax())):
        session = onnxruntime.InferenceSession(folder / "single.onnx", options)
        session.run(None, {"input": given.arrays[sample : sample + 1]})
        events = json.loads(Path(session.end_profiling()).read_text())
        ran[int(exits[sample])] = {event["name"].partition("/")[0] for event in events}
    first, last = min(ran), max(ran)
    assert first < last
    assert f"stage_{last:02d}" in ran[last]
    assert f"stage_{first:02d}" in ran[first]
    assert f"stage_{first + 1:02d}" not in ran[first]


def test_points_that_are_not_there(tmp_path: Path) -> None:
    folder = shutil.copytree(example("ladder").folder, tmp_path / "copy")
    with refuses(InputError, expected="0 to 5", got="6"):
        write_single(folder, 6)
    with pytest.raises(InputError, match="cannot read"):
        write_single(tmp_path, 0)


@pytest.mark.slow
def test_a_network_of_many_exits() -> None:
    """Nested branches of so many exits could not be read: files have a largest depth."""
    torch.manual_seed(0)
    count = 36
    backbone = Backbone("deep", [torch.nn.Linear(4, 4) for _ in range(count)], {count - 1: torch.nn.Linear(4, 3)}, 3)
    exits, pooling = LinearExits((4,) * count, tuple(range(count - 1)), 3), POOLINGS.get("mean")
    parameters = {"threshold": torch.tensor(0.65)}
    point = OperatingPoint("threshold", parameters, tuple(range(count)), torch.full((count,), 0.5))
    inputs = 2 * torch.randn(20, 4)
    made = onnx_backend(backbone.eval(), pooling, exits.eval(), inputs)
    plain = Engine(backbone, pooling, exits, [point])
    runs = Engine(backbone, pooling, exits, [point], backend=made)
    left = []
    for row in range(len(inputs)):
        expected, exit = plain.run(inputs[row : row + 1])
        found, same = runs.run(inputs[row : row + 1])
        assert torch.equal(same, exit)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        left.append(int(exit))
    assert len(set(left)) > 2
