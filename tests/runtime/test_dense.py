"""Batches run together answer as each by itself, and late stages run full batches."""

from typing import Any

import torch
from torch import Tensor

from offramp.backbone import CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._splitting import split
from offramp.exits import LinearExits
from offramp.policy import OperatingPoint
from offramp.pooling import POOLINGS
from offramp.runtime._batch import Compaction
from offramp.runtime._dense import run_dense
from offramp.runtime._eager import EagerBackend
from offramp.runtime._engine import Engine
from tests.backbone.examples import Words, texts
from tests.cases import each


class Noting(EagerBackend):
    """Notes how many samples each stage ran, and how long the longest was."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.ran: dict[int, list[int]] = {}
        self.lengths: list[int] = []

    def stage(self, index: int, hidden: Any) -> Any:
        self.ran.setdefault(index, []).append(self._backbone.batch_size(hidden, index))
        if index == 0 and isinstance(hidden, dict):
            self.lengths.append(max(leaf.shape[1] for leaf in hidden.values()))
        return super().stage(index, hidden)


def engine(backbone: Backbone, example: Any, *, levels: tuple[float, ...] = (0.5,), **options: Any) -> Engine:
    """Random exits, at thresholds that a share `levels` of the samples stays below at the first."""
    torch.manual_seed(0)
    pooling = POOLINGS.get("mean")
    widths, hidden = [], example
    for index, stage in enumerate(backbone.stages):
        hidden = stage(hidden)
        widths.append(pooling(backbone.representation(hidden, index)).shape[1])
    early = tuple(range(backbone.num_exits - 1))
    exits = LinearExits(tuple(widths), early, backbone.num_classes).eval().requires_grad_(False)
    for parameter in exits.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    backend = Noting(backbone, pooling, exits)
    # Later exits are less sure, so that some stay to the end.
    temperatures, active = 1.0 + 2 * torch.arange(backbone.num_exits), tuple(range(backbone.num_exits))
    at_once = OperatingPoint("threshold", {"threshold": torch.tensor(0.0)}, active, temperatures)
    sure = Engine(backbone, pooling, exits, [at_once], backend=backend).run(example)[0].amax(1)
    points = [
        OperatingPoint("threshold", {"threshold": sure.quantile(level)}, active, temperatures) for level in levels
    ]
    backend.ran.clear()
    backend.lengths.clear()
    return Engine(backbone, pooling, exits, points, backend=backend, **options)


def resnet() -> tuple[Backbone, Tensor]:
    torch.manual_seed(1)
    return CifarResNet(8, num_classes=3), torch.randn(100, 3, 16, 16)


def batches(inputs: Tensor, size: int) -> list[Tensor]:
    return [inputs[first : first + size] for first in range(0, len(inputs), size)]


def alike(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    assert torch.equal(found[1], expected[1])


@each("size", [1, 7, 16, 100, 200])
def test_answers_are_those_of_one_batch(size: int) -> None:
    backbone, inputs = resnet()
    runs = engine(backbone, inputs)
    expected = runs.run(inputs)
    assert len(set(expected[1].tolist())) > 1
    alike(run_dense(runs, batches(inputs, size)), expected)


def test_those_who_stay_fill_batches_again() -> None:
    backbone, inputs = resnet()
    runs = engine(backbone, inputs, levels=(0.3,))
    assert isinstance(runs.backend, Noting)
    run_dense(runs, batches(inputs, 10))
    ran = runs.backend.ran
    assert ran[0] == [10] * 10
    for stage in (1, 2):
        assert 0 < sum(ran[stage]) < 100
        assert all(10 <= count < 20 for count in ran[stage][:-1])
        assert len(ran[stage]) <= sum(ran[stage]) // 10 + 1


def test_the_point_is_the_one_asked_for() -> None:
    backbone, inputs = resnet()
    runs = engine(backbone, inputs, levels=(0.2, 0.9))
    cheap, dear = (run_dense(runs, batches(inputs, 16), point=point) for point in (0, 1))
    alike(cheap, runs.run(inputs, point=torch.zeros(100, dtype=torch.long)))
    alike(dear, runs.run(inputs, point=torch.ones(100, dtype=torch.long)))
    assert cheap[1].sum() < dear[1].sum()


def test_samples_that_ride_along() -> None:
    class Never(Compaction):
        def pays(self, depth: int, count: int, staying: int) -> bool:
            return False

    backbone, inputs = resnet()
    riding = engine(backbone, inputs, compaction=Never())
    alike(run_dense(riding, batches(inputs, 16)), engine(backbone, inputs).run(inputs))


def test_nothing_at_all() -> None:
    backbone, inputs = resnet()
    runs = engine(backbone, inputs)
    for given in ([], [inputs[:0]]):
        probabilities, exits = run_dense(runs, given)
        assert probabilities.shape == (0, 3)
        assert exits.shape == (0,)


def test_texts_are_sorted_and_answered_in_their_order() -> None:
    torch.manual_seed(0)
    backbone, given = split(Words().eval(), texts()), texts(40, length=12, seed=5)
    given["mask"] = (torch.arange(12) <= torch.randint(12, (40, 1))).long()
    given["ids"] *= given["mask"]
    runs = engine(backbone, given)
    expected = runs.run(given)
    assert len(set(expected[1].tolist())) > 1
    assert isinstance(runs.backend, Noting)
    runs.backend.lengths.clear()
    parts = [backbone.select(given, torch.arange(first, first + 8), 0) for first in range(0, 40, 8)]
    alike(run_dense(runs, parts), expected)
    assert runs.backend.lengths == sorted(runs.backend.lengths)
    assert runs.backend.lengths[0] < 12
