"""Compiled stages and exits: the numbers of torch by itself, at every batch size, and nothing compiled twice."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from offramp.errors import InputError
from offramp.exits import ExitBank, LadderExits, LinearExits
from offramp.runtime import Backend, CompiledBackend, EagerBackend
from offramp.trunk import POOLINGS, Hidden, Trunk, scores, split
from tests.runtime.test_eager import Tagger, texts

POOLING = POOLINGS.get("auto")


def maps() -> Trunk:
    """Two stages of maps that lie channels last, as a network of convolutions leaves them."""
    torch.manual_seed(0)
    stages = [nn.Conv2d(2, 4, 3, padding=1), nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU())]
    head = nn.Sequential(nn.Flatten(), nn.Linear(144, 3))
    network = Trunk("maps", stages, {1: head}, num_classes=3)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def passed(backend: Backend, network: Trunk, bank: ExitBank, hidden: Hidden, count: int) -> list[Tensor]:
    """Answers of all exits."""
    state: Any = bank.initial_state(count), ()
    classifier = None if bank.stacked == 1 else torch.arange(count) % bank.stacked
    answers = []
    with torch.inference_mode():
        for index in range(network.num_exits):
            hidden = backend.stage(index, hidden)
            logits, state = backend.exit(index, hidden, state, classifier, answer=True, carry=True)
            assert logits is not None
            answers.append(logits)
    return answers


def compared(network: Trunk, bank: ExitBank, backend: CompiledBackend, hidden: Hidden, count: int) -> None:
    expected = passed(EagerBackend(network, POOLING, bank), network, bank, hidden, count)
    found = passed(backend, network, bank, hidden, count)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape == (count, 3)
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def banks() -> dict[str, ExitBank]:
    torch.manual_seed(1)
    return {
        "linear": LinearExits((64, 64), (0,), 3, stacked=2),
        "ladder": LadderExits((64, 64), (0,), 3, width=4),
    }


@pytest.fixture(params=["captured", pytest.param("inductor", marks=pytest.mark.slow)])
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capturing decides when to compile again, and takes a second; the C++ behind it, which takes minutes, does not."""
    if request.param == "captured":
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("kind", ["linear", "ladder"])
def test_nothing_is_compiled_after_the_warm_up(kind: str) -> None:
    network, bank = maps(), banks()[kind]
    backend = CompiledBackend(network, POOLING, bank, batch_sizes=(1, 3))
    before = counters["stats"]["unique_graphs"]
    backend.warm_up(torch.randn(1, 2, 8, 8))
    programs = counters["stats"]["unique_graphs"]
    assert programs - before == 2 * 2 * 2  # stages and exits, two each, at two sizes
    with torch.compiler.set_stance("fail_on_recompile"):
        for count in range(1, 8):  # beyond the largest size, too
            images = torch.randn(count, 2, 8, 8)
            compared(network, bank, backend, images, count)
            compared(network, bank, backend, images.contiguous(memory_format=torch.channels_last), count)
            compared(network, bank, backend, images.repeat(2, 1, 1, 1)[::2], count)
    assert counters["stats"]["unique_graphs"] == programs


@pytest.mark.usefixtures("compiler")
def test_texts_of_any_length() -> None:
    torch.manual_seed(0)
    network = split(Tagger(), texts(), at=["blocks.1"])
    bank = LinearExits((48,) * network.num_exits, tuple(range(network.num_exits - 1)) or (0,), 3)
    backend = CompiledBackend(network, POOLING, bank, batch_sizes=(2,))
    backend.warm_up(network.prepare(texts()))
    programs = counters["stats"]["unique_graphs"]
    with torch.compiler.set_stance("fail_on_recompile"):
        for count, length in ((1, 1), (1, 2), (2, 3), (3, 9), (2, 16), (2, 48)):
            mask = torch.ones(count, length, dtype=torch.long)
            mask[-1, (length + 1) // 2 :] = 0
            hidden = {"ids": torch.randint(1, 20, (count, length)), "mask": mask}
            compared(network, bank, backend, hidden, count)
    assert counters["stats"]["unique_graphs"] == programs


def test_what_cannot_be_compiled_runs_by_itself() -> None:
    network = scores(lambda given: np.asarray(given.tolist())[:, :3], 3, name="first-three", mul_adds=3)
    bank = LinearExits((3,), (0,), 3)
    backend = CompiledBackend(network, POOLING, bank, batch_sizes=(2,))
    compared(network, bank, backend, torch.randn(3, 4), 3)


def test_an_exit_that_has_nothing_to_do_does_nothing() -> None:
    network, bank = maps(), banks()["linear"]
    backend = CompiledBackend(network, POOLING, bank)
    state = object()
    assert backend.exit(0, None, state, None, answer=False, carry=True) == (None, state)


@pytest.mark.parametrize("sizes", [(), (4, 2), (0, 1), (2, 2)])
def test_sizes_must_ascend(sizes: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="ascending batch sizes"):
        CompiledBackend(maps(), POOLING, banks()["linear"], batch_sizes=sizes)


def test_graphs_are_refused() -> None:
    class Anything(Trunk):
        grows = True

    network = Anything("graphs", [nn.Linear(2, 2)], {0: nn.Linear(2, 3)}, num_classes=3)
    with pytest.raises(InputError, match=r"samples of 'graphs' have any shape.* use backend 'eager'"):
        CompiledBackend(network, POOLING, banks()["linear"])
