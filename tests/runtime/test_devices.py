"""Placement of tensors and waits for the device, counted on the CPU, as no other device is at hand."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from offramp.runtime._engine import Engine
from tests.cases import each
from tests.runtime.test_engine import example

WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "unique2", "_unique2"}
"""Operations whose result, or its size, has to be known on the CPU: a device would be waited for."""


class CountWaits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that would wait for a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        flags = name in ("index", "index_put_") and any(
            leaf is not None and leaf.dtype == torch.bool for leaf in args[1]
        )
        if name in WAITS or flags:
            self.waits.append(name)
        return func(*args, **(kwargs or {}))


def test_it_counts() -> None:
    with CountWaits() as mode:
        values = torch.arange(4)
        assert int(values.sum()) == 6
        values[values > 2]
        values.nonzero()
    assert mode.waits == ["_local_scalar_dense", "index", "nonzero"]


@each("kind", ["ladder", "linear", "cascade"])
def test_the_engine_waits_at_most_once_per_exit(kind: str) -> None:
    given = example(kind)
    model = given.frontier
    for row, point in enumerate(given.points):
        engine = Engine(model.backbone, model.pooling, model.exits, [point])
        with CountWaits() as mode, torch.inference_mode():
            _, exits = engine.run(given.inputs)
        assert len(mode.waits) <= int(exits.max()) + 1, (row, mode.waits)


def test_a_meta_device_reaches_every_tensor_of_the_network() -> None:
    given = example("ladder")
    hidden = given.inputs.to("meta")
    with torch.inference_mode():
        for stage in deepcopy(given.frontier.backbone).to("meta").stages:
            hidden = stage(hidden)
    assert hidden.device.type == "meta"


def test_a_batch_of_one_waits_no_more() -> None:
    given = example("ladder")
    engine = Engine(given.frontier.backbone, given.frontier.pooling, given.frontier.exits, given.points[:1])
    with CountWaits() as mode, torch.inference_mode():
        _, exits = engine.run(given.inputs[:1])
    assert len(mode.waits) <= int(exits.max()) + 1


@pytest.mark.parametrize("sizes", [(1,), (7, 1)])
def test_a_point_per_sample_waits_no_more(sizes: tuple[int, ...]) -> None:
    given = example("ladder")
    engine = Engine(given.frontier.backbone, given.frontier.pooling, given.frontier.exits, given.points[:2])
    for size in sizes:
        with CountWaits() as mode, torch.inference_mode():
            _, exits = engine.run(given.inputs[:size], point=torch.arange(size) % 2)
        assert len(mode.waits) <= int(exits.max()) + 1, mode.waits
