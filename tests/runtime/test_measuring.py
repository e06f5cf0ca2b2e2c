"""Timing: on what really runs, and adding up to what it takes."""

import time
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from offramp.backbone import CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone._hidden import Hidden
from offramp.errors import InputError, UnknownNameError
from offramp.exits import LadderExits, LinearExits
from offramp.exits._averaging import Averaging
from offramp.policy import POLICIES
from offramp.pooling import POOLINGS
from offramp.runtime import LatencyTable, measure_latency
from offramp.runtime._eager import EagerBackend
from tests.cases import each, refuses
from tests.model import artifact_examples
from tests.model.artifact_examples import texts

MEAN = POOLINGS.get("mean")
bert = cache(artifact_examples.bert)


class Sleep(nn.Module):
    def __init__(self, ms: float) -> None:
        super().__init__()
        self.ms = ms

    def forward(self, hidden: Tensor) -> Tensor:
        time.sleep(self.ms / 1000)
        return hidden


def sleepy(*ms: float, name: str = "sleepy") -> Backbone:
    """Stages that take so long, whatever they are given."""
    return Backbone(name, [Sleep(one) for one in ms], {len(ms) - 1: nn.Sequential(Sleep(2), nn.Linear(4, 3))}, 3)


def test_every_piece_is_there() -> None:
    exits = LinearExits((16, 32, 64), (0, 1), 10)
    table = measure_latency(CifarResNet(8), MEAN, exits, torch.randn(3, 3, 32, 32), batch_sizes=(1, 16), repeats=3)
    assert [len(rows) for rows in (table.stage, table.answer, table.carry, table.select)] == [3] * 4
    assert all(value > 0 for rows in (table.stage, table.answer, table.select) for row in rows for value in row)
    assert all(row[1] > row[0] for row in table.stage)  # sixteen take longer than one
    assert all(value == 0 for row in table.carry for value in row)
    assert set(table.decide) == {"threshold", "gates", "sampled_gates", "stopping"}
    assert (table.network, table.exits, table.threads) == (
        "cifar-resnet-8",
        "LinearExits for 10 classes",
        torch.get_num_threads(),
    )
    backbone = CifarResNet(8)
    assert table.stage_weights == tuple(sum(one.numel() for one in stage.parameters()) for stage in backbone.stages)
    assert (table.widths, table.backend) == ((16, 32, 64), "eager")
    assert table.torch == torch.__version__
    assert table.machine
    assert not table.others


def test_policies_are_timed_when_asked_for() -> None:
    exits, example = LinearExits((16, 32, 64), (0, 1), 10), torch.randn(1, 3, 32, 32)
    table = measure_latency(CifarResNet(8), MEAN, exits, example, batch_sizes=(1,), repeats=1, policies=list(POLICIES))
    assert set(table.decide) == set(POLICIES)
    assert all(row[0] > 0 for row in table.decide.values())
    few = measure_latency(CifarResNet(8), MEAN, exits, example, batch_sizes=(1,), repeats=1, policies=["eenet"])
    assert few.costs(exits, policy="eenet").tables[0].decide[0] > 0
    with refuses(InputError, expected="times of policy 'threshold'", got="eenet"):
        few.costs(exits)
    with refuses(InputError, expected="one policy", got="7 and 0"):
        measure_latency(CifarResNet(8), MEAN, exits, example, policies=[])


def test_times_are_those_of_what_runs() -> None:
    exits = LadderExits((4, 4, 4), (0, 1), 3, width=2)
    table = measure_latency(sleepy(3, 6, 9), MEAN, exits, torch.zeros(1, 4), batch_sizes=(1, 2), repeats=2)
    for row, slept in zip(table.stage, (3, 6, 9), strict=True):
        assert all(slept <= took < 10 * slept for took in row)  # a busy machine may take longer than it sleeps
    assert all(20 <= took < 200 for took in table.full)
    assert all(took >= 2 for took in table.answer[2])  # the network's own head
    assert all(took > 0 for row in (*table.answer[:2], table.carry[0]) for took in row)
    (costs,) = table.costs(exits).tables
    through = float(costs.cumulative_costs()[-1])
    assert 20 <= through < 200


def test_of_a_cascade_the_full_network_is_its_last() -> None:
    both = cascade(sleepy(100, 100, name="first"), sleepy(3, 3, name="second"))
    exits = LadderExits((4,) * 4, (0, 2), 3, width=2)
    table = measure_latency(both, MEAN, exits, torch.zeros(1, 4), batch_sizes=(1,), repeats=1, policies=["threshold"])
    assert 8 <= table.full[0] < 100
    assert sum(row[0] for row in table.stage) >= 206


def test_texts_are_timed_at_three_lengths() -> None:
    backbone = bert()
    example = backbone.prepare(texts(6, seed=0)[0])
    exits = LadderExits((48,) * backbone.num_exits, tuple(range(backbone.num_exits - 1)), 3, width=2)
    table = measure_latency(backbone, POOLINGS.get("auto"), exits, example, batch_sizes=(1,), repeats=2)
    longest = float(backbone.sizes(example).max())
    assert table.size == longest
    assert [other.size for other in table.others] == [longest // 4, longest // 2]
    costs = table.costs(exits)
    assert len(costs.tables) == 3
    assert all((one.stage >= 0).all() and one.full >= 0 for one in costs.tables)
    for other in (table, *table.others):
        # Where the fit is exact it goes through what was measured; with a coefficient held at 0 it comes near.
        assert float(costs.of(torch.tensor([other.size])).full) == pytest.approx(other.full[0], rel=0.5)
    chosen = measure_latency(backbone, POOLINGS.get("auto"), exits, example, batch_sizes=(1,), sizes=(3, 7), repeats=1)
    assert (chosen.size, [other.size for other in chosen.others]) == (7.0, [3.0])


class Counting:
    """A backend that counts what it is asked for."""

    def __init__(self) -> None:
        self.stages = self.asked = 0

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        self.stages += 1
        return hidden

    def exit(
        self, index: int, hidden: Hidden, state: Any, classifier: Tensor | None, *, answer: bool, carry: bool
    ) -> tuple[Tensor | None, Any]:
        self.asked += answer and index == 2
        return (torch.zeros(len(hidden), 10) if answer else None), state


def test_other_backends_are_timed_as_they_are() -> None:
    backend, exits = Counting(), LinearExits((16, 32, 64), (0, 1), 10)
    table = measure_latency(CifarResNet(8), MEAN, exits, torch.zeros(1, 3, 32, 32), backend=backend, batch_sizes=(8,))
    assert isinstance(table, LatencyTable)
    assert table.backend == "Counting"
    assert backend.stages in [2 + rounds * 8 * 3 * 3 for rounds in (1, 2, 3)]  # up to the last; turns, passes, stages
    assert backend.asked == (backend.stages - 2) / 3  # the last head, in every pass


class Busy(Counting):
    """Stages of two milliseconds; of twenty in passes, not in the full network, as long as the machine is busy."""

    def __init__(self, busy_rounds: int) -> None:
        super().__init__()
        self.busy_rounds = busy_rounds

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        round_number, place = divmod(self.stages - 2, 8 * 3 * 3)
        busy = round_number < self.busy_rounds and place % 9 >= 3
        time.sleep(0.02 if busy else 0.002)
        return super().stage(index, hidden)


@each("busy_rounds", [1, 9])
def test_what_does_not_add_up_is_timed_again(busy_rounds: int) -> None:
    backend, exits = Busy(busy_rounds), LinearExits((16, 32, 64), (0, 1), 10)
    table = measure_latency(CifarResNet(8), MEAN, exits, torch.zeros(1, 3, 32, 32), backend=backend, batch_sizes=(8,))
    assert table.sum_ratio == pytest.approx(
        [(sum(row[0] for row in table.stage) + table.answer[-1][0]) / table.full[0]]
    )
    rounds = (backend.stages - 2) // (8 * 3 * 3)
    if busy_rounds == 1:
        assert rounds >= 2
        assert all(row[0] < 20 for row in table.stage)  # the first round is not kept
    else:
        assert rounds == 3
        assert all(row[0] >= 20 for row in table.stage)
        assert table.suspect_ratio == table.sum_ratio[0] > 2


def test_raw_and_empty_examples_are_refused() -> None:
    exits = LinearExits((16, 32, 64), (0, 1), 10)
    with refuses(InputError, got="ndarray", hint="give backbone.prepare(backbone.preprocessing"):
        measure_latency(CifarResNet(8), MEAN, exits, np.zeros((1, 32, 32, 3), np.uint8))
    with refuses(InputError, expected="at least one sample", got="none"):
        measure_latency(CifarResNet(8), MEAN, exits, torch.zeros(0, 3, 32, 32))


class Slow(EagerBackend):
    """Ten milliseconds a stage, and one an exit that answers."""

    def stage(self, index: int, hidden: Hidden) -> Hidden:
        time.sleep(0.01)
        return super().stage(index, hidden)

    def exit(self, index: int, *arguments: Any, answer: bool, carry: bool) -> tuple[Tensor | None, Any]:
        time.sleep(0.001 * answer)
        return super().exit(index, *arguments, answer=answer, carry=carry)


def test_the_full_network_is_run_by_the_same_backend() -> None:
    backbone, exits = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10, stacked=2)
    backend = Slow(backbone, MEAN, exits)
    table = measure_latency(backbone, MEAN, exits, torch.zeros(1, 3, 32, 32), backend=backend, batch_sizes=(8,))
    assert table.backend == "Slow"
    assert table.full[0] >= 31


def test_heads_that_are_averaged_are_not_all_asked_by_the_full_network() -> None:
    both = cascade(sleepy(100, 100, name="first"), sleepy(4, 4, name="second"))
    exits = LadderExits((4,) * 4, (0, 2), 3, width=2)
    exits.averaging = Averaging((1, 3), torch.tensor([0.0, 0.4]), torch.ones(2))
    table = measure_latency(both, MEAN, exits, torch.zeros(1, 4), batch_sizes=(1,), repeats=1, policies=["threshold"])
    assert 10 <= table.full[0] < 100


@each("name", ["eager", "bfloat16", "onnx"])
def test_backends_by_name(name: str) -> None:
    backbone = Backbone("tiny", [nn.Linear(4, 4), nn.Linear(4, 4)], {1: nn.Linear(4, 3)}, 3)
    exits, example = LadderExits((4, 4), (0,), 3, width=2), torch.randn(2, 4)
    table = measure_latency(backbone, MEAN, exits.eval(), example, backend=name, batch_sizes=(1, 2), repeats=1)
    assert table.backend == name
    assert all(took > 0 for row in (*table.stage, table.full) for took in row)


def test_unknown_backends() -> None:
    exits = LinearExits((16, 32, 64), (0, 1), 10)
    with pytest.raises(UnknownNameError, match="eager"):
        measure_latency(CifarResNet(8), MEAN, exits, torch.zeros(1, 3, 32, 32), backend="eagre")


def test_networks_elsewhere_than_on_the_cpu_are_refused() -> None:
    exits = LinearExits((16, 32, 64), (0, 1), 10)
    with refuses(InputError, got="'cifar-resnet-8' on meta", hint="backbone.cpu()"):
        measure_latency(CifarResNet(8).to("meta"), MEAN, exits, torch.zeros(1, 3, 32, 32))


@each("sizes", [(), (8, 1), (0, 1), (1, 1)])
def test_sizes_must_ascend(sizes: tuple[int, ...]) -> None:
    exits = LinearExits((16, 32, 64), (0, 1), 10)
    with refuses(InputError, problem="batch_sizes", expected="ascending"):
        measure_latency(CifarResNet(8), MEAN, exits, None, batch_sizes=sizes)
    backbone = bert()
    with refuses(InputError, problem="sizes", expected="ascending"):
        measure_latency(backbone, MEAN, exits, backbone.prepare(texts(2, seed=0)[0]), sizes=sizes)


def test_images_have_no_sizes() -> None:
    exits = LinearExits((16, 32, 64), (0, 1), 10)
    with refuses(InputError, problem="sizes", expected="none"):
        measure_latency(CifarResNet(8), MEAN, exits, torch.zeros(1, 3, 32, 32), sizes=(1, 2))
