"""The contract of every kind of exits, and the answers of all exits put together."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from offramp.backbone._hidden import select
from offramp.errors import InputError
from offramp.exits import EXITS, ExitSet, LadderExits, LinearExits
from offramp.exits._exit_set import all_logits, stack_exits
from offramp.exits._linear import CumulativeLinearExits
from offramp_bench.rivals.boosted_exits import BoostedExits
from offramp_bench.rivals.cascaded_exits import CascadedExits
from offramp_bench.rivals.ensembled_exits import EnsembledExits
from tests.cases import each, refuses

WIDTHS = (6, 5, 4, 7)
K = 3

Build = Callable[[tuple[int, ...], tuple[int, ...], int], ExitSet]
KINDS: dict[str, Build] = {
    "linear": LinearExits,
    "cumulative": CumulativeLinearExits,
    "ladder": lambda widths, stages, num_classes: LadderExits(widths, stages, num_classes, width=9),
    "boosted": BoostedExits,
    "cascaded": CascadedExits,
    "ensembled": lambda widths, stages, num_classes: EnsembledExits(LinearExits(widths, stages, num_classes)),
    "ensembled ladder": lambda widths, stages, num_classes: EnsembledExits(
        LadderExits(widths, stages, num_classes, width=64)
    ),
}
# By hand, what a counter of products leaves out: a bias an output, 5 an element of a layer norm, 1 a class for what is
# added of the answer before, 3 a class for a softmax.
UNCOUNTED: dict[str, Callable[[int], int]] = {
    "linear": lambda stage: K,
    "cumulative": lambda stage: K,
    "ladder": lambda stage: 2 * 9 + 5 * 9 + K,
    "boosted": lambda stage: 2 * K if stage else K,
    "cascaded": lambda stage: K + 5 * K if stage else K,
    "ensembled": lambda stage: K + 3 * K + K,
    "ensembled ladder": lambda stage: 2 * 64 + 5 * 64 + K + 3 * K + K,
}
every_kind = each("name", list(KINDS))
# All stages, the last one's head the network's own, gaps where other heads are, a single exit.
every_choice_of_stages = each("stages", [(0, 1, 2, 3), (0, 1, 2), (0, 2), (1, 3), (2,)])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(count: int, widths: tuple[int, ...] = WIDTHS, seed: int = 0) -> Tensor:
    return torch.randn(count, sum(widths), dtype=torch.float64, generator=generator(seed))


def made(name: str, stages: tuple[int, ...] = (0, 1, 2), num_classes: int = K, *, seed: int = 1) -> ExitSet:
    """Make exits with no parameter at its initial value, in double precision, in evaluation mode."""
    torch.manual_seed(0)
    exits = KINDS[name](WIDTHS, stages, num_classes).double().eval()
    with torch.no_grad():
        for parameter in exits.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator(seed)))
            seed += 100
    if isinstance(exits, LadderExits):
        exits.standardize(3 * features(50, seed=9) + 1)
    return exits


def steps(exits: ExitSet, rows: Tensor, point: Tensor | None = None) -> Iterator[tuple[int, Tensor, Any]]:
    """Every exit in order: its stage, its answer, the state after it."""
    state = exits.initial_state(len(rows))
    for stage in exits.stages:
        answer, state = exits.step(stage, rows[:, exits.columns(stage)], state, point)
        yield stage, answer, state


class TestContract:
    def test_every_bank_is_here(self) -> None:
        assert {type(made(name)) for name in KINDS} == {EXITS.get(name) for name in EXITS if name != "none"}

    @every_kind
    @every_choice_of_stages
    def test_exit_by_exit_is_all_at_once(self, name: str, stages: tuple[int, ...]) -> None:
        exits, rows = made(name, stages), features(8)
        at_once = exits(rows)
        assert len(at_once) == len(stages)
        for expected, (stage, answer, _) in zip(at_once, steps(exits, rows), strict=True):
            assert stage in stages
            assert expected.shape == (1, 8, K)
            torch.testing.assert_close(answer, expected[0])

    @every_kind
    @every_choice_of_stages
    @each("seed", range(3))
    def test_samples_may_leave_at_every_exit(self, name: str, stages: tuple[int, ...], seed: int) -> None:
        exits, rows = made(name, stages), features(30)
        at_once = dict(zip(stages, exits(rows), strict=True))
        draw = generator(seed)
        waiting, state = torch.arange(30), exits.initial_state(30)
        for stage in stages:
            answer, state = exits.step(stage, rows[waiting][:, exits.columns(stage)], state, None)
            torch.testing.assert_close(answer, at_once[stage][0, waiting])
            stay = (torch.rand(len(waiting), generator=draw) < 0.6).nonzero().squeeze(1)
            stay = stay[torch.randperm(len(stay), generator=draw)]
            state, waiting = select((state, waiting), stay)
        assert len(waiting) < 30

    @every_kind
    def test_nobody_left(self, name: str) -> None:
        exits = made(name)
        assert [answer.shape for answer in exits(features(0))] == [(1, 0, K)] * 3
        assert all(answer.shape == (0, K) for _, answer, _ in steps(exits, features(0)))

    @every_kind
    def test_an_exit_sees_its_stage_and_none_that_follow(self, name: str) -> None:
        exits, rows = made(name), features(4)
        before = exits(rows)
        for position, stage in enumerate(exits.stages):
            changed = rows.clone()
            changed[:, exits.columns(stage)] += 1
            after = exits(changed)
            for earlier in range(position):
                assert torch.equal(after[earlier], before[earlier])
            assert not torch.allclose(after[position], before[position])
            for later in range(position + 1, len(exits.stages)):
                assert torch.allclose(after[later], before[later]) != exits.carries_state

    @every_kind
    def test_a_stage_without_an_exit_is_never_read(self, name: str) -> None:
        exits, rows = made(name, (0, 2)), features(4)
        changed = rows.clone()
        changed[:, [*range(6, 11), *range(15, 22)]] = 1e6
        for found, expected in zip(exits(changed), exits(rows), strict=True):
            assert torch.equal(found, expected)

    @every_kind
    def test_columns(self, name: str) -> None:
        assert [made(name).columns(stage) for stage in range(4)] == [
            slice(0, 6),
            slice(6, 11),
            slice(11, 15),
            slice(15, 22),
        ]

    @every_kind
    @each("num_classes", [2, 1000])
    def test_few_and_many_classes(self, name: str, num_classes: int) -> None:
        exits, rows = made(name, (0, 1), num_classes), features(5)
        at_once = exits(rows)
        for expected, (_, answer, _) in zip(at_once, steps(exits, rows), strict=True):
            assert answer.shape == (5, num_classes)
            torch.testing.assert_close(answer, expected[0])

    @every_kind
    def test_half_precision(self, name: str) -> None:
        exits, rows = made(name), features(20)
        expected = exits(rows)
        exits.bfloat16()
        found = exits(rows.bfloat16())
        for answer, reference, (_, stepped, _) in zip(found, expected, steps(exits, rows.bfloat16()), strict=True):
            assert answer.dtype == stepped.dtype == torch.bfloat16
            torch.testing.assert_close(answer.double(), reference, rtol=0.05, atol=0.15)
            torch.testing.assert_close(stepped, answer[0], rtol=0.05, atol=0.05)

    @every_kind
    @each("stages", [(1, 0), (0, 0), (-1, 0), (0, 4)])
    def test_refuses_stages(self, name: str, stages: tuple[int, ...]) -> None:
        with refuses(InputError, expected="0 to 3", got=repr(stages)):
            KINDS[name](WIDTHS, stages, K)

    @every_kind
    def test_refuses_one_class(self, name: str) -> None:
        with refuses(InputError, expected="2 classes", got="1"):
            KINDS[name](WIDTHS, (0,), 1)

    @every_kind
    def test_products_are_counted(self, name: str) -> None:
        exits = made(name, (0, 1, 2))
        state = exits.initial_state(5)
        for stage in exits.stages:
            with FlopCounterMode(display=False) as counter:
                _, state = exits.step(stage, features(5)[:, exits.columns(stage)], state, None)
            products = counter.get_total_flops() / 2 / 5
            assert sum(exits.mul_adds(stage)) == products + UNCOUNTED[name](stage)

    @each("name", ["boosted", "ensembled"])
    def test_a_state_of_answers_costs_by_the_class(self, name: str) -> None:
        few, many = made(name, num_classes=2), made(name, num_classes=9)
        for stage in few.stages:
            for part in (0, 1):
                assert 9 * few.mul_adds(stage)[part] == 2 * many.mul_adds(stage)[part]

    @each("name", ["linear", "cumulative", "ladder"])
    def test_carrying_does_not_depend_on_the_classes(self, name: str) -> None:
        few, many = made(name, num_classes=2), made(name, num_classes=9)
        for stage in few.stages:
            assert few.mul_adds(stage)[0] == many.mul_adds(stage)[0]
            assert 9 * few.mul_adds(stage)[1] == 2 * many.mul_adds(stage)[1]


class TestAllLogits:
    @every_kind
    def test_order(self, name: str) -> None:
        exits, rows = made(name, (0, 2)), features(5)
        own = {stage: torch.randn(5, K, dtype=torch.float64, generator=generator(stage)) for stage in (3, 1)}
        found = all_logits(exits, rows, own)
        assert found.shape == (1, 5, 4, K)
        trained = exits(rows)
        torch.testing.assert_close(found[0, :, 0], trained[0][0])
        torch.testing.assert_close(found[0, :, 1], own[1])
        torch.testing.assert_close(found[0, :, 2], trained[1][0])
        torch.testing.assert_close(found[0, :, 3], own[3])

    def test_own_heads_are_shared_by_all_cost_weights(self) -> None:
        exits = LinearExits(WIDTHS, (0, 1, 2), K, stacked=4).double()
        own = torch.randn(5, K, generator=generator())
        found = all_logits(exits, features(5), {3: own})
        assert found.shape == (4, 5, 4, K)
        assert found.dtype == torch.float64
        for w in range(4):
            torch.testing.assert_close(found[w, :, 3], own.double())

    def test_a_trained_exit_comes_before_the_networks_own_head(self) -> None:
        exits, rows = made("linear", (0, 1, 2, 3)), features(5)
        found = all_logits(exits, rows, {3: torch.zeros(5, K)})
        torch.testing.assert_close(found[0, :, 3], exits(rows)[3][0])

    def test_refuses_a_stage_without_an_answer(self) -> None:
        with refuses(InputError, got="after stages [1, 3]"):
            all_logits(made("linear", (0, 2)), features(5), {})

    def test_samples_lie_last_in_memory(self) -> None:
        answers = [torch.randn(2, 5, K, generator=generator(exit)) for exit in range(4)]
        found = stack_exits(answers)
        assert found.shape == (2, 5, 4, K)
        for exit, answer in enumerate(answers):
            assert torch.equal(found[:, :, exit], answer)
        assert found.permute(3, 0, 2, 1).is_contiguous()
