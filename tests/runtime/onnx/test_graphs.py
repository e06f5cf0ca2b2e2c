"""The conversion to ONNX builds the table of operators once and traces each of our parts once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

from offramp.backbone._backbone import Backbone
from offramp.exits import ExitSet, LadderExits, LinearExits
from offramp.exits._linear import CumulativeLinearExits
from offramp.pooling import POOLINGS
from offramp.runtime.onnx._graphs import GraphFunction, Leaf, write_graph
from offramp.runtime.onnx._network import write_network
from tests.cases import each

ANSWER = {0: "answer"}


def double(values: torch.Tensor) -> list[torch.Tensor]:
    return [2 * values]


def test_the_exporter_builds_its_table_of_operators_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, built = ONNXRegistry.from_torchlib, []

    def count(**options: Any) -> ONNXRegistry:
        built.append(options)
        return build(**options)

    monkeypatch.setattr(ONNXRegistry, "from_torchlib", staticmethod(count))
    function = GraphFunction("double", double, [Leaf("values")])
    for name in ("first.onnx", "second.onnx"):
        assert write_graph(tmp_path / name, function, [torch.ones(3, 2)], ANSWER) == ["values"]
    assert len(built) == 1
    assert ONNXRegistry.from_torchlib is count, "others get a table of their own"
    assert (tmp_path / "first.onnx").read_bytes() == (tmp_path / "second.onnx").read_bytes()


def test_without_that_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another torch may keep it elsewhere; it is as before once a graph was written with it."""
    function = GraphFunction("double", double, [Leaf("values")])
    write_graph(tmp_path / "graph.onnx", function, [torch.ones(3, 2)], ANSWER)
    monkeypatch.setattr("offramp.runtime.onnx._graphs.import_module", lambda _: None)
    assert write_graph(tmp_path / "graph.onnx", function, [torch.ones(3, 2)], ANSWER) == ["values"]


@each(
    "make",
    [
        lambda *sizes: LinearExits(*sizes, stacked=2),
        CumulativeLinearExits,
        lambda *sizes: LadderExits(*sizes, width=4),
    ],
)
def test_every_part_of_ours_is_traced_once(
    make: Callable[..., ExitSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first tracer follows it; `len(x)` in place of `x.shape[0]` would need the second, which is slower."""
    torch.manual_seed(0)
    stages = [nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    backbone, images = Backbone("two", stages, {1: head}, 3), torch.randn(4, 3, 8, 8)
    seen = POOLINGS.get("rich")
    widths = (seen(stages[0](images)).shape[1], 0)
    tracers, export = [], torch.export.export

    def record(*arguments: Any, strict: bool, **options: Any) -> torch.export.ExportedProgram:
        tracers.append(strict)
        return export(*arguments, strict=strict, **options)

    monkeypatch.setattr(torch.export, "export", record)
    write_network(backbone.eval(), seen, make(widths, (0,), 3).eval(), images, tmp_path)
    assert tracers == [False] * 4, "two stages and two exits"
