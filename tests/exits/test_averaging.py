"""Averages of the answers of several networks, against the formula."""

import copy

import torch
from torch import Tensor

from offramp.exits import LadderExits, LinearExits
from offramp.exits._averaging import Averaging
from offramp.exits._exit_set import all_logits
from offramp.exits._linear import CumulativeLinearExits
from tests.cases import each

STAGES = (1, 4, 6)
SHARES, TEMPERATURES = (0.0, 0.3, 0.6), (0.5, 2.0, 1.5)


def logits(count: int = 7, num_classes: int = 4, *, dtype: torch.dtype = torch.float64) -> dict[int, Tensor]:
    draw = torch.Generator().manual_seed(num_classes)
    return {
        stage: (3 * torch.randn(count, num_classes, dtype=torch.float64, generator=draw)).to(dtype) for stage in STAGES
    }


def averaging(shares: tuple[float, ...] = SHARES, *, dtype: torch.dtype = torch.float64) -> Averaging:
    return Averaging(STAGES, torch.tensor(shares, dtype=dtype), torch.tensor(TEMPERATURES, dtype=dtype))


def closed_form(given: dict[int, Tensor], shares: tuple[float, ...] = SHARES) -> list[Tensor]:
    """Probabilities of every head, one after the other."""
    found: list[Tensor] = []
    for stage, share, temperature in zip(STAGES, shares, TEMPERATURES, strict=True):
        own = (given[stage] / temperature).softmax(1)
        found.append((1 - share) * own + share * found[-1] if found else own)
    return found


class TestAnswers:
    @each("num_classes", [2, 4, 1000])
    def test_formula(self, num_classes: int) -> None:
        given = logits(num_classes=num_classes)
        answers = averaging()(given)
        assert list(answers) == list(STAGES)
        assert answers[1] is given[1]
        for stage, expected in zip(STAGES[1:], closed_form(given)[1:], strict=True):
            torch.testing.assert_close(answers[stage].exp(), expected)
            torch.testing.assert_close(answers[stage].exp().sum(1), torch.ones(7, dtype=torch.float64))

    def test_a_share_of_nothing_leaves_logits_as_they_are(self) -> None:
        given = logits()
        for stage, answer in averaging((0.0, 0.0, 0.0))(given).items():
            assert answer is given[stage]

    def test_a_head_alone_between_two_that_average(self) -> None:
        given, shares = logits(), (0.0, 0.0, 0.6)
        answers = averaging(shares)(given)
        assert answers[4] is given[4]
        torch.testing.assert_close(answers[6].exp(), closed_form(given, shares)[2])

    def test_head_by_head_is_all_at_once_also_for_those_who_stay(self) -> None:
        given, together = logits(12), averaging()
        at_once = together(given)
        waiting, state = torch.arange(12), None
        for stage in STAGES:
            answer, state = together.step(stage, given[stage][waiting], state)
            torch.testing.assert_close(answer, at_once[stage][waiting])
            assert state.shape == (len(waiting), 4)
            stay = torch.arange(len(waiting) - 1, 0, -2)
            waiting, state = waiting[stay], state[stay]

    def test_the_order_of_the_dictionary_does_not_matter(self) -> None:
        given = logits()
        backwards = averaging()({stage: given[stage] for stage in reversed(STAGES)})
        for stage, answer in averaging()(given).items():
            assert torch.equal(backwards[stage], answer)

    def test_other_stages_are_let_through(self) -> None:
        given, state = torch.randn(3, 4), torch.randn(3, 4)
        answer, after = averaging().step(2, given, state)
        assert answer is given
        assert after is state

    def test_nobody_left(self) -> None:
        given = {stage: values[:0] for stage, values in logits().items()}
        assert [answer.shape for answer in averaging()(given).values()] == [(0, 4)] * 3

    def test_answers_that_could_not_be_surer(self) -> None:
        sure = torch.tensor([[400.0, -400.0], [-400.0, 400.0]])
        both = Averaging((0, 1), torch.tensor([0, 0.5]), torch.tensor([0.2, 0.2]))
        found = both({0: sure, 1: -sure})[1]
        assert found.isfinite().all()
        torch.testing.assert_close(found.exp(), torch.full((2, 2), 0.5))

    @each("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_averaged_in_full(self, dtype: torch.dtype) -> None:
        given = logits(dtype=dtype)
        answers = averaging(dtype=torch.float32)(given)
        expected = closed_form({stage: values.double() for stage, values in given.items()})
        for stage, wanted in zip(STAGES[1:], expected[1:], strict=True):
            assert answers[stage].dtype == torch.float32
            torch.testing.assert_close(answers[stage].exp().double(), wanted, rtol=1e-5, atol=1e-6)

    def test_networks_of_different_precision(self) -> None:
        given = logits()
        mixed = averaging(dtype=torch.float32)({1: given[1].bfloat16(), 4: given[4].float(), 6: given[6].bfloat16()})
        for stage, wanted in zip(STAGES[1:], closed_form(given)[1:], strict=True):
            torch.testing.assert_close(mixed[stage].exp().double(), wanted, rtol=0.05, atol=0.05)


class TestRead:
    @each(
        ("shares", "read"),
        [
            ((0, 0, 0), set()),
            ((0, 0.3, 0), {1}),
            ((0, 0, 0.3), {4}),
            ((0, 0.3, 0.3), {1, 4}),
        ],
    )
    def test_is_the_head_before_one_that_averages(self, shares: tuple[float, ...], read: set[int]) -> None:
        assert averaging(shares).read == read

    def test_of_none(self) -> None:
        assert Averaging((), torch.zeros(0), torch.zeros(0)).read == frozenset()


def exit_sets() -> list[LinearExits | LadderExits]:
    widths, stages = (3,) * 7, (0, 2, 3, 5)
    return [
        LinearExits(widths, stages, 4, stacked=2),
        CumulativeLinearExits(widths, stages, 4),
        LadderExits(widths, stages, 4, width=5),
    ]


class TestInABank:
    @each("kind", range(3))
    def test_own_heads_answer_averaged(self, kind: int) -> None:
        exits = exit_sets()[kind].double()
        exits.averaging = averaging()
        given = logits(5)
        found = all_logits(exits, torch.randn(5, 21, dtype=torch.float64), given)
        for stage, expected in zip(STAGES[1:], closed_form(given)[1:], strict=True):
            torch.testing.assert_close(found[:, :, stage].exp(), expected.expand(exits.stacked, -1, -1))
        torch.testing.assert_close(found[:, :, 1], given[1].expand(exits.stacked, -1, -1))

    @each("kind", range(3))
    def test_survives_copies_and_precisions(self, kind: int) -> None:
        exits = exit_sets()[kind]
        exits.averaging = averaging(dtype=torch.float32)
        made = [copy.deepcopy(exits), exits.take(0), exits.take(0).take(0)]
        made += [exits.stack(3), exits.stack(3).take(2)] if isinstance(exits, LinearExits) else []
        for other in made:
            assert other.averaging.stages == STAGES
            assert torch.equal(other.averaging.shares, torch.tensor(SHARES))
            assert torch.equal(other.averaging.temperatures, torch.tensor(TEMPERATURES))
        again = exit_sets()[kind]
        again.averaging = averaging((0.0, 0.0, 0.0), dtype=torch.float32)
        again.load_state_dict(exits.state_dict())
        assert torch.equal(again.averaging.shares, torch.tensor(SHARES))
        half = copy.deepcopy(exits).bfloat16()
        given = logits(dtype=torch.bfloat16)
        found = all_logits(half, torch.zeros(7, 21), given)
        assert found.dtype == torch.bfloat16
        expected = closed_form({stage: values.double() for stage, values in given.items()})[2]
        torch.testing.assert_close(found[0, :, 6].exp().double(), expected, rtol=0.1, atol=0.02)
