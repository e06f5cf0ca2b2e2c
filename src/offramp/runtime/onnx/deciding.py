"""Policies and operating points, for runtimes without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.cost import Costs
from offramp.errors import InputError
from offramp.policy import POLICIES, OperatingPoint, observe
from offramp.runtime.onnx.graphs import Leaf, called, check_graph, write_graph
from offramp_onnx import open_session

__all__ = ["described_points", "write_policy"]


def write_policy(folder: Path, name: str, num_classes: int) -> dict[str, Any]:
    """The graph of one policy's step: from logits to probabilities, who leaves, and what is remembered.

    Args:
        folder: Where to write it.
        name: Of the policy.
        num_classes: K.

    Returns:
        What the manifest says of it.
    """
    policy = POLICIES.get(name)
    carry_spec = pytree.tree_structure(policy.initial_carry(torch.zeros(1)))
    parameters = sorted(policy.parameters)
    carried = [f"carry_{place}" for place in range(carry_spec.num_leaves)]
    noisy = ["noise"] if "noise" in policy.reads else []
    leaves = [Leaf(leaf) for leaf in ("logits", "temperature", *noisy, *parameters, *carried)]

    def run(*values: Tensor) -> list[Tensor]:
        given = {leaf.name: value for leaf, value in zip(leaves, values, strict=True)}
        probabilities = torch.softmax(given["logits"] / given["temperature"], dim=1)
        seen = observe(policy.reads, given["logits"], probabilities, given.get("noise"))
        carry = pytree.tree_unflatten([given[leaf] for leaf in carried], carry_spec)
        leave, carry = policy.step(seen, carry, {parameter: given[parameter] for parameter in parameters})
        return [probabilities, leave, *pytree.tree_leaves(carry)]

    def example(count: int) -> list[Tensor]:
        draw = torch.Generator().manual_seed(count)
        drawn = [torch.rand(count, generator=draw) for _ in noisy]
        shapes = [policy.shape(one, num_exits=count, num_classes=num_classes) or (count,) for one in parameters]
        return [
            3 * torch.randn(count, num_classes, generator=draw),
            torch.rand(count, 1, generator=draw) + 0.5,
            *drawn,
            *(torch.rand(shape, generator=draw) for shape in shapes),
            *pytree.tree_leaves(policy.initial_carry(torch.zeros(count))),
        ]

    values = example(3)
    passed = called(run, values).passed[2:]
    outputs = ["probabilities", "leave"] + [
        f"new_{name}" if place is None else leaves[place].name for name, place in zip(carried, passed, strict=True)
    ]
    new = {place: output for place, output in enumerate(outputs) if output not in carried}
    path = folder / f"policy_{name}.onnx"
    graph = write_graph(
        path,
        run,
        [],
        list(zip(leaves, values, strict=True)),
        new,
        what=f"policy '{name}'",
    )
    session = open_session(path)
    for count in (1, 3, 64):
        given = example(count)
        named = {leaf.name: value.numpy() for leaf, value in zip(leaves, given, strict=True)}
        found = session.run(list(graph.writes), {key: named[key] for key in graph.reads})
        expected = called(run, given).outputs
        check_graph(found, [expected[place] for place in new], what=f"policy '{name}'")
    initial = pytree.tree_leaves(policy.initial_carry(torch.zeros(1)))
    return {
        "file": path.name,
        "reads": list(graph.reads),
        "writes": list(graph.writes),
        "parameters": parameters,
        "per_exit": sorted(policy.per_exit),
        "carry": [
            {
                "name": name,
                "becomes": output,
                "dtype": str(value.dtype).removeprefix("torch."),
                "value": value[0].tolist(),
            }
            for name, output, value in zip(carried, outputs[2:], initial, strict=True)
        ],
    }


def described_points(points: Sequence[OperatingPoint], costs: Mapping[str, Costs]) -> list[dict[str, Any]]:
    """What the manifest says of operating points, with what leaving at each exit costs.

    Args:
        points: The points.
        costs: Of each policy.
    """
    missing = {point.policy for point in points} - set(costs)
    if missing:
        raise InputError(f"expected costs of each policy, got none of {sorted(missing)}; give costs=frontier.costs")
    return [
        {
            "policy": point.policy,
            "parameters": {name: value.tolist() for name, value in sorted(point.parameters.items())},
            "active": list(point.active),
            "temperatures": point.temperatures.tolist(),
            "classifier": point.classifier,
            "conformal_thresholds": {
                # The largest number in place of infinity, which JSON does not know: no score is above it either.
                str(key): value.nan_to_num(posinf=torch.finfo(value.dtype).max).tolist()
                for key, value in point.conformal_thresholds.items()
            },
            "promised": dict(point.promised),
            **({} if point.guarantee is None else {"guarantee": asdict(point.guarantee)}),
            "costs": [table.cumulative_costs(point.active).tolist() for table in costs[point.policy].tables],
            "full": [float(table.full) for table in costs[point.policy].tables],
        }
        for point in points
    ]
