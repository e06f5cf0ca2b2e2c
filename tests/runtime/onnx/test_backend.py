"""The engine answers alike with ONNX Runtime and with torch."""

import copy
import gc
import pickle
from typing import Any

import onnx
import pytest
import torch
from torch import nn

from offramp.backbone import CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.errors import InputError
from offramp.exits import LinearExits
from offramp.exits._averaging import Averaging
from offramp.pooling import POOLINGS
from offramp.runtime._eager import EagerBackend
from offramp.runtime.onnx._backend import MOST_SINGLES, OnnxBackend, onnx_backend, open_graphs
from offramp.runtime.onnx._network import fingerprint_parts
from tests.cases import each, refuses
from tests.runtime.onnx.examples import COUNT, KINDS, Example, engine, example, mixed


def backend(given: Example) -> OnnxBackend:
    frontier = given.frontier
    return OnnxBackend(given.folder, frontier.backbone, frontier.pooling, frontier.exits, given.inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_answers_as_with_torch(kind: str) -> None:
    given = example(kind)
    for point in given.points:
        probabilities, exits = engine(given, point).run(given.inputs)
        found, left = engine(given, point, backend=backend(given)).run(given.inputs)
        assert torch.equal(left, exits)
        torch.testing.assert_close(found, probabilities, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_points_mix_and_batches_join(kind: str) -> None:
    given = example(kind)
    expected, exits = engine(given).run(given.inputs, point=mixed())
    runs, half, backbone = engine(given, backend=backend(given)), COUNT // 2, given.frontier.backbone
    parts = [torch.arange(half), torch.arange(half, COUNT)]
    batches = [runs.start(backbone.select(given.inputs, rows, 0), point=mixed()[rows], rows=rows) for rows in parts]
    found, left = torch.zeros_like(expected), torch.full((COUNT,), -1)
    stepped = [runs.step(batch) for batch in batches]
    batch = runs.join([one for one, _ in stepped])
    parts_left = [finished for _, finished in stepped]
    while len(batch):
        batch, finished = runs.step(batch)
        parts_left.append(finished)
    for finished in parts_left:
        if finished is not None:
            found[finished.rows], left[finished.rows] = finished.probabilities, finished.exit
    assert torch.equal(left, exits)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_one_sample_runs_as_one_graph(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = example(kind)
    made, backbone = backend(given), given.frontier.backbone
    for point in given.points:
        plain, runs = engine(given, point), engine(given, point, backend=made)
        for sample in range(0, COUNT, 7):
            one = backbone.select(given.inputs, torch.tensor([sample]), 0)
            expected, exits = plain.run(one)
            found, left = runs.run(one)
            assert torch.equal(left, exits)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        monkeypatch.setattr(made, "stage", _refuse)
        monkeypatch.setattr(made, "step", _refuse)
        runs.run(one)  # neither is called
        with pytest.raises(AssertionError):
            runs.run(given.inputs)
        monkeypatch.undo()


def _refuse(*_: Any) -> Any:
    raise AssertionError


def test_stage_exit_and_policy_run_as_one_graph_also_at_many_points(monkeypatch: pytest.MonkeyPatch) -> None:
    given = example("ladder")
    name = given.points[0].policy
    points = [point for point in given.frontier.points[name] if point.classifier == given.points[0].classifier]
    chosen = [points[0], points[len(points) // 2], points[-1]]
    rows = torch.arange(COUNT) % 3
    expected, exits = engine(given, *chosen).run(given.inputs, point=rows)
    frontier = given.frontier
    made = onnx_backend(frontier.backbone, frontier.pooling, frontier.exits, given.inputs)
    monkeypatch.setattr(made, "exit", _refuse)
    found, left = engine(given, *chosen, backend=made).run(given.inputs, point=rows)
    assert len(set(left.tolist())) > 1
    assert torch.equal(left, exits)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_what_cannot_be_one_graph_runs_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    given = example("ladder")
    made, point = backend(given), given.points[0]
    monkeypatch.setattr("offramp.runtime.onnx._backend.write_policy", _refuse)
    for inputs in (given.inputs, given.inputs[:1]):
        expected, exits = engine(given, point).run(inputs)
        found, left = engine(given, point, backend=made).run(inputs)
        assert torch.equal(left, exits)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_graphs_of_the_last_few_points_are_kept() -> None:
    given = example("ladder")
    made = backend(given)
    for point in given.points:
        assert made.single(point) is not None
    assert len(made._singles) == MOST_SINGLES


def test_the_graphs_are_removed_with_the_backend() -> None:
    backbone, exits, pooling = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10), POOLINGS.get("mean")
    made = onnx_backend(backbone, pooling, exits, torch.randn(1, 3, 32, 32))
    folder = made.folder
    assert folder.exists()
    del made
    gc.collect()
    assert not folder.exists()


def test_it_is_sent_with_its_graphs() -> None:
    given = example("ladder")
    made = backend(given)
    other = pickle.loads(pickle.dumps(made))
    assert other.folder != made.folder
    for place in (other, made):
        assert place.example.shape == (1, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(other.stage(0, given.inputs), made.stage(0, given.inputs))


@each("nested", [False, True])
def test_graphs_that_read_other_files_are_refused(nested: bool) -> None:
    given = example("ladder")
    made, frontier = backend(given), given.frontier
    files = made.read_files()
    graph = onnx.ModelProto.FromString(files["stage_00.onnx"])
    tensor = onnx.TensorProto(name="secret", data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    if nested:
        branch = onnx.helper.make_graph([], "branch", [], [], initializer=[tensor])
        graph.graph.node.add(op_type="If").attribute.append(onnx.helper.make_attribute("then_branch", branch))
    else:
        graph.graph.initializer.append(tensor)
    files["stage_00.onnx"] = graph.SerializeToString()
    with refuses(InputError, expected="a graph that holds its weights", got="reads another file"):
        open_graphs(files, frontier.backbone, frontier.pooling, frontier.exits, made.example)


def test_made_from_the_parts_alone_with_all_exits() -> None:
    torch.manual_seed(0)
    backbone, exits, pooling = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10), POOLINGS.get("mean")
    inputs = torch.randn(5, 3, 32, 32)
    made, eager = onnx_backend(backbone, pooling, exits, inputs[:1]), EagerBackend(backbone, pooling, exits)
    with torch.inference_mode():
        ours = theirs = inputs
        for index in range(3):
            ours, theirs = made.stage(index, ours), eager.stage(index, theirs)
            found, _ = made.exit(index, ours, ((), ()), None, answer=True, carry=True)
            expected, _ = eager.exit(index, theirs, ((), ()), None, answer=True, carry=True)
            assert found is not None
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert made.exit(0, ours, ((), ()), None, answer=False, carry=True) == (None, ((), ()))


@pytest.mark.slow
def test_inputs_are_not_copied() -> None:
    given = example("cascade")
    runs = backend(given)
    with torch.inference_mode():
        hidden = runs.stage(0, given.inputs)
    assert hidden["inputs"].data_ptr() == given.inputs.data_ptr()


def test_sessions_do_not_spin_and_follow_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    given = example("ladder")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    options = backend(given)._stages[0].session.get_session_options()
    assert options.intra_op_num_threads == 2
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_the_graphs_of_another_network() -> None:
    given = example("ladder")
    backbone, exits = CifarResNet(20, num_classes=3), LinearExits((16,) * 9, (0,), 3)
    with refuses(InputError, expected="'cifar-resnet-20' with 9", got="'cifar-resnet-8' with 3"):
        OnnxBackend(given.folder, backbone, given.frontier.pooling, exits, given.inputs)


@each("part", ["backbone", "pooling", "exits"])
def test_graphs_of_other_weights_are_refused(part: str) -> None:
    given = example("ladder")
    frontier = given.frontier
    backbone, exits, pooling = copy.deepcopy(frontier.backbone), copy.deepcopy(frontier.exits), frontier.pooling
    OnnxBackend(given.folder, backbone, pooling, exits, given.inputs)
    if part == "pooling":
        pooling = POOLINGS.get("grid")
    else:
        changed = next(iter((backbone.stages if part == "backbone" else exits).parameters()))
        with torch.no_grad():
            changed[-1] += 1e-3
    with refuses(InputError, got=f"graphs of another {part}"):
        OnnxBackend(given.folder, backbone, pooling, exits, given.inputs)


@each("shares", [(0.0, 0.3, 0.6), (0.0, 0.3, 0.0)])
def test_own_heads_are_averaged(shares: tuple[float, ...]) -> None:
    torch.manual_seed(0)
    heads: dict[int, nn.Module] = {stage: nn.Linear(4, 3) for stage in (1, 2, 3)}
    backbone, pooling = Backbone("heads", [nn.Linear(4, 4) for _ in range(4)], heads, 3), POOLINGS.get("mean")
    exits, plain = LinearExits((4,) * 4, (0,), 3), LinearExits((4,) * 4, (0,), 3)
    plain.load_state_dict(exits.state_dict(), strict=False)
    exits.averaging = Averaging((1, 2, 3), torch.tensor(shares), torch.tensor([1.5, 0.7, 2.0]))
    assert fingerprint_parts(backbone, pooling, exits)["exits"] != fingerprint_parts(backbone, pooling, plain)["exits"]
    hidden, own, found = 3 * torch.randn(7, 4), {}, {}
    state: Any = ((), ())
    made = onnx_backend(backbone, pooling, exits, hidden[:1])
    with torch.inference_mode():
        for index in range(4):
            hidden = made.stage(index, hidden)
            found[index], state = made.exit(index, hidden, state, None, answer=True, carry=True)
            if index:
                own[index] = heads[index](hidden)
        for stage, expected in exits.averaging(own).items():
            torch.testing.assert_close(found[stage], expected, atol=1e-5, rtol=1e-5)


def test_an_exit_that_was_not_exported() -> None:
    given = example("ladder")
    runs = backend(given)
    missing = [index for index in range(3) if index not in runs._exits]
    if not missing:
        runs._exits.pop(0)
        missing = [0]
    with torch.inference_mode():
        hidden = runs.stage(0, given.inputs)
    with refuses(InputError, problem=f"the exit after stage {missing[0]} was not exported"):
        runs.exit(missing[0], hidden, ((), ()), None, answer=True, carry=False)
