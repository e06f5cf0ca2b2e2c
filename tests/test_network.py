"""A network on another backend: the same interface, and what was given is what runs."""

from functools import cache
from typing import Any

import pytest
import torch

import offramp
from offramp.errors import UnknownNameError
from offramp.runtime import Backend, Compaction, CompiledBackend, EagerBackend
from tests.frontier.examples import LINEAR, PREPROCESSING, images, trunk


@cache
def network() -> offramp.EarlyExitNetwork:
    data = images(200, seed=1), images(120, seed=2)
    frontier = offramp.fit(trunk(), *data, preprocessing=PREPROCESSING, settings=LINEAR, progress=False)
    return frontier.choose(cost=0.8, policy="threshold")


class Counted(EagerBackend):
    stages = 0

    def stage(self, index: int, hidden: Any) -> Any:
        type(self).stages += 1
        return super().stage(index, hidden)


def test_a_backend_given_is_what_runs() -> None:
    given = network()
    backend: Backend = Counted(given.trunk, given.pooling, given.bank)
    inputs = images(30, seed=3)[0]
    found, expected = given.on(backend).predict(inputs), given.predict(inputs)
    assert torch.equal(found.probabilities, expected.probabilities)
    assert Counted.stages == int(expected.exits.max()) + 1


def test_a_name_makes_the_backend_once() -> None:
    given = network()
    narrow = given.on("bfloat16")
    assert isinstance(narrow.backend, EagerBackend)
    assert given.backend is None
    assert narrow.engine is narrow.engine
    assert narrow.engine.backend is narrow.backend
    assert narrow.point is given.point


def test_the_example_is_prepared_as_inputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(CompiledBackend, "warm_up", lambda self, example: seen.append(example))
    inputs = images(2, seed=3)[0]
    network().on("compiled", example=inputs)
    assert torch.equal(seen[0], PREPROCESSING(inputs))


def test_compaction_is_kept_and_replaced() -> None:
    class Never(Compaction):
        def pays(self, depth: int, count: int, staying: int) -> bool:
            return False

    given, inputs = network(), images(30, seed=3)[0]
    riding = given.on("eager", compaction=Never())
    assert isinstance(riding.on("bfloat16").compaction, Never)
    assert isinstance(riding.engine.compaction, Never)
    assert torch.equal(riding.predict(inputs).exits, given.predict(inputs).exits)


def test_unknown_names_are_told() -> None:
    with pytest.raises(UnknownNameError, match="unknown backend 'eagre'; did you mean 'eager'"):
        network().on("eagre")
