import math

import torch
from torch import Tensor

from offramp.exits import LadderExits
from tests.cases import each

WIDTHS = (6, 5, 4)
WIDTH, K = 8, 3


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(count: int, seed: int = 0) -> Tensor:
    """Stages of unlike scale and place."""
    rows = torch.randn(count, sum(WIDTHS), dtype=torch.float64, generator=generator(seed))
    rows[:, :6] = 0.01 * rows[:, :6] + 1
    rows[:, 6:11] = 20 * rows[:, 6:11] - 300
    return rows


def made(stages: tuple[int, ...] = (0, 1, 2), *, dropout: float = 0.1) -> LadderExits:
    """The same ladder every time, nothing at its initial value."""
    torch.manual_seed(0)
    exits = LadderExits(WIDTHS, stages, K, width=WIDTH, dropout=dropout).double()
    with torch.no_grad():
        for index, parameter in enumerate(exits.parameters()):
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator(index)))
    return exits.eval()


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    center = x.mean(1, keepdim=True)
    variance = ((x - center) ** 2).mean(1, keepdim=True)
    return (x - center) / (variance + 1e-5).sqrt() * weight + bias


def gelu(x: Tensor) -> Tensor:
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def by_formula(exits: LadderExits, rows: Tensor, sample: Tensor) -> list[Tensor]:
    """s = s + C gelu(A z + B LN(s)), logits = H LN(s), on features standardised by `sample`."""
    w = exits.state_dict()
    standard = (rows - sample.mean(0)) / sample.std(0, correction=0)
    state = normed = torch.zeros(len(rows), WIDTH, dtype=torch.float64)
    answers = []
    for rung, stage in enumerate(exits.stages):
        start = sum(WIDTHS[:stage])
        read = standard[:, start : start + WIDTHS[stage]] @ w[f"read.{stage}"].T
        mixed = normed @ w["mix"][rung].T + w["mix_bias"][rung]
        state = state + gelu(read + mixed) @ w["write"][rung].T + w["write_bias"][rung]
        normed = layer_norm(state, w["gain"][rung], w["shift"][rung])
        answers.append(normed @ w["head"][rung].T + w["head_bias"][rung])
    return answers


class TestFormula:
    @each("stages", [(0, 1, 2), (0, 2), (1,)])
    def test_written_out(self, stages: tuple[int, ...]) -> None:
        exits, sample, rows = made(stages), features(40, seed=1), features(7)
        exits.standardize(sample)
        for found, expected in zip(exits(rows), by_formula(exits, rows, sample), strict=True):
            torch.testing.assert_close(found[0], expected, rtol=1e-7, atol=1e-7)

    def test_without_standardising(self) -> None:
        exits, rows = made(), torch.randn(7, 15, dtype=torch.float64, generator=generator())
        neutral = torch.stack([torch.ones(15), -torch.ones(15)]).double()  # mean 0, deviation 1
        for found, expected in zip(exits(rows), by_formula(exits, rows, neutral), strict=True):
            torch.testing.assert_close(found[0], expected)

    def test_gradients_reach_every_rung_through_the_state(self) -> None:
        exits = made()
        exits.standardize(features(40))
        exits(features(7))[2].square().sum().backward()
        for stage in (0, 1, 2):
            gradient = exits.read[str(stage)].grad
            assert gradient is not None
            assert gradient.any()


class TestStandardising:
    def test_shift_and_scale_of_the_inputs_do_not_matter(self) -> None:
        rows = torch.randn(7, 15, dtype=torch.float64, generator=generator())
        sample = torch.randn(40, 15, dtype=torch.float64, generator=generator(1))
        scale = 10 ** torch.linspace(-1, 1, 15, dtype=torch.float64)
        first, second = made(), made()
        first.standardize(sample)
        second.standardize(sample * scale + 5)
        for found, expected in zip(second(rows * scale + 5), first(rows), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)

    def test_a_feature_silent_in_the_sample_takes_the_usual_scale_of_its_stage(self) -> None:
        exits, sample = made(), torch.randn(40, 15, dtype=torch.float64, generator=generator())
        sample[:, 3] = 2.5
        exits.standardize(sample)
        usual = sample[:, :6].std(0, correction=0).mean()
        torch.testing.assert_close(exits.scale[3], 1 / usual)

    def test_nothing_varies(self) -> None:
        exits = made()
        exits.standardize(torch.ones(3, 15, dtype=torch.float64))
        assert all(torch.isfinite(answer).all() for answer in exits(features(7)))

    @each("apart", [1e2, 1e6])
    def test_a_stage_of_small_numbers_is_heard(self, apart: float) -> None:
        # Stages differ in scale by orders of magnitude; that is what standardising is for.
        sample = torch.randn(40, 15, dtype=torch.float64, generator=generator())
        sample[:, 6:] *= apart
        exits = made()
        exits.standardize(sample)
        rows = sample[:7].clone()
        before = exits(rows)[0]
        rows[:, :6] += 1
        assert (exits(rows)[0] - before).abs().max() > 1e-3

    def test_is_saved(self) -> None:
        exits, again = made(), made()
        exits.standardize(features(40))
        again.load_state_dict(exits.state_dict())
        for found, expected in zip(again(features(7)), exits(features(7)), strict=True):
            assert torch.equal(found, expected)


class TestDropout:
    def test_only_while_training(self) -> None:
        exits, rows = made(dropout=0.5), features(7)
        exits.standardize(features(40))
        assert torch.equal(exits(rows)[0], exits(rows)[0])
        exits.train()
        torch.manual_seed(0)
        assert not torch.equal(exits(rows)[0], exits(rows)[0])

    def test_none(self) -> None:
        exits, rows = made(dropout=0.0), features(7)
        expected = exits(rows)
        for found, answer in zip(exits.train()(rows), expected, strict=True):
            assert torch.equal(found, answer)


class TestPoints:
    @each("points", [[False], [True], [False, True]])
    def test_copied_whole_or_not_at_all(self, points: list[bool]) -> None:
        # All cost weights share a ladder.
        exits, other = made(), LadderExits(WIDTHS, (0, 1, 2), K, width=WIDTH).double().eval()
        other.standardize(features(40))
        expected = (other if any(points) else exits)(features(7))
        exits.copy_points(other, torch.tensor(points))
        for found, answer in zip(exits(features(7)), expected, strict=True):
            assert torch.equal(found, answer)


class TestCost:
    def test_by_hand(self) -> None:
        # Stage 0: A 6 x 8, B and C 8 x 8, two biases of 8, a layer norm of 8 at 5; H 8 x 3 and its bias.
        exits = made()
        assert exits.mul_adds(0) == (48 + 64 + 64 + 16 + 40, 24 + 3)
        assert exits.mul_adds(1) == (40 + 64 + 64 + 16 + 40, 24 + 3)
        assert exits.carries_state
