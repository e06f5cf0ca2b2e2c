"""The export of a network with exits to a folder of ONNX graphs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.cost import Costs
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.policy import OperatingPoint
from offramp.pooling import Pooling
from offramp.runtime._points import PointTable
from offramp.runtime._processor import warn_if_slow
from offramp.runtime.onnx._composing import write_single
from offramp.runtime.onnx._int8 import check_int8, quantize_graph
from offramp.runtime.onnx._pieces import PieceWriter, write_policy
from offramp_onnx import FORMAT, VERSION, open_session

__all__ = ["describe_point", "export_onnx", "fingerprint_parts"]

CALIBRATION_BATCH = 64
"""Samples per batch when the ranges of activations are measured."""


def export_onnx(
    backbone: Backbone,
    pooling: Pooling,
    exits: ExitSet,
    example: Hidden,
    folder: str | Path,
    *,
    points: Sequence[OperatingPoint] = (),
    costs: Mapping[str, Costs] | None = None,
    classes: Sequence[str] = (),
    int8: Hidden | None = None,
    single: int | None = None,
) -> None:
    """Write a network with exits as ONNX graphs, one per stage, exit and policy, and a manifest.

    Every graph is compared with torch at three batch sizes before the folder is made.

    Args:
        backbone: The frozen network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        example: Inputs of at least one sample, from `backbone.prepare`.
        folder: A folder to make.
        points: The operating points that samples may be at; without any, all exits are written, and no policy.
        costs: The costs of each policy of the points.
        classes: Names of the classes.
        int8: Inputs of a few hundred samples, from `backbone.prepare`, to run the stages in int8, calibrated on them.
            Exits stay in float32. Points lose their guarantees, which hold for the network in float32. Text networks
            with points are refused: in int8 they lose too much at points that were chosen in float32.
        single: Index of a point; at this point the graphs are also combined into one, `single.onnx`, for one sample at
            a time.

    Example:
        >>> import tempfile
        >>> from offramp.exits import LinearExits
        >>> from offramp.backbone import CifarResNet
        >>> from offramp.pooling import POOLINGS
        >>> backbone, exits = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10)
        >>> with tempfile.TemporaryDirectory() as place:
        ...     export_onnx(backbone, POOLINGS.get("mean"), exits, torch.randn(1, 3, 32, 32), f"{place}/graphs")
        ...     sorted(path.name for path in Path(place, "graphs").glob("stage*"))
        ['stage_00.onnx', 'stage_01.onnx', 'stage_02.onnx']
    """
    folder = Path(folder)
    dtypes = {weight.dtype for weight in backbone.parameters() if weight.is_floating_point()}
    if narrow := dtypes - {torch.float32, torch.float64}:
        raise InputError(
            expected="a network in single precision",
            got=", ".join(map(str, narrow)),
            hint="call backbone.float() before exporting",
        )
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty", hint="name a folder that does not exist yet")
    if int8 is not None:
        if points:
            check_int8(backbone)
        warn_if_slow("int8")
        points = [replace(point, guarantee=None) for point in points]
    described_points = _describe_points(points, costs or {})
    backbone.eval()
    exits.eval()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as place, torch.no_grad():
        graphs = Path(place) / "graphs"
        graphs.mkdir()
        needed = _needed_exits(exits, points, backbone.num_exits)
        pieces = PieceWriter(backbone, pooling, exits, example, graphs).write(needed)
        names = dict.fromkeys(point.policy for point in points)
        policies = {name: write_policy(graphs, name, backbone.num_classes) for name in names}
        if int8 is not None:
            _quantize_stages(graphs, pieces, pytree.tree_structure(example).flatten_up_to(int8))
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "name": backbone.name,
            "made_of": fingerprint_parts(backbone, pooling, exits),
            "precision": "float32" if int8 is None else "int8",
            "num_classes": backbone.num_classes,
            "classes": list(classes),
            **pieces,
            "policies": policies,
            "points": described_points,
            "files": {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(graphs.glob("*.onnx"))},
        }
        text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
        (graphs / "manifest.json").write_text(text, encoding="utf-8")
        if single is not None:
            write_single(graphs, single)
        graphs.rename(folder)


def fingerprint_parts(backbone: Backbone, pooling: Pooling, exits: ExitSet) -> dict[str, str]:
    """Return what identifies the network that graphs were exported from; all weights are read."""
    shape = [type(exits).__name__, exits.widths, exits.stages, exits.num_classes, exits.stacked, exits.averaging.stages]
    digest = sha256(json.dumps(shape).encode())
    for name, value in sorted(exits.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return {"backbone": backbone.fingerprint(), "pooling": pooling.name, "exits": digest.hexdigest()}


def _describe_points(points: Sequence[OperatingPoint], costs: Mapping[str, Costs]) -> list[dict[str, Any]]:
    """Return the manifest's entries of operating points, with the costs of leaving at each exit."""
    missing = {point.policy for point in points} - set(costs)
    if missing:
        raise InputError(
            "costs",
            expected="costs for every policy of the points",
            got=f"none for {', '.join(sorted(missing))}",
            hint="pass costs=model.costs",
        )
    return [
        {
            **describe_point(point),
            "conformal_thresholds": {
                # The largest float instead of infinity, which JSON does not have: no score is above it either.
                str(key): value.nan_to_num(posinf=torch.finfo(value.dtype).max).tolist()
                for key, value in point.conformal_thresholds.items()
            },
            "tune_metrics": dict(point.tune_metrics),
            **({} if point.guarantee is None else {"guarantee": asdict(point.guarantee)}),
            "costs": [table.cumulative_costs(point.active).tolist() for table in costs[point.policy].tables],
            "full": [float(table.full) for table in costs[point.policy].tables],
        }
        for point in points
    ]


def describe_point(point: OperatingPoint) -> dict[str, Any]:
    """Return what the decisions of an operating point depend on, as in a manifest."""
    return {
        "policy": point.policy,
        "parameters": {name: value.tolist() for name, value in sorted(point.parameters.items())},
        "active": list(point.active),
        "temperatures": point.temperatures.tolist(),
        "classifier": point.classifier,
    }


def _needed_exits(exits: ExitSet, points: Sequence[OperatingPoint], num_exits: int) -> frozenset[int]:
    """Return the exits that are active at some point, and those whose state later ones read."""
    if not points:
        return frozenset(range(num_exits))
    table, rows = PointTable(points), range(len(points))
    carried = {stage for stage in exits.stages if exits.carries_state and table.is_carried(stage)}
    active = {stage for stage in range(num_exits) if table.is_active(stage, rows)}
    return frozenset(active | carried | exits.averaging.read)


def _quantize_stages(folder: Path, manifest: Mapping[str, Any], samples: Sequence[Tensor]) -> None:
    """Quantize every stage by the inputs that reach it in float32."""
    axes = [leaf["batch"] for leaf in manifest["inputs"]]
    names = [leaf["name"] for leaf in manifest["inputs"]]
    size = next(leaf.shape[axis] for leaf, axis in zip(samples, axes, strict=True) if axis is not None)
    batches: list[dict[str, Any]] = []
    for start in range(0, size, CALIBRATION_BATCH):
        rows = torch.arange(start, min(start + CALIBRATION_BATCH, size))
        leaves = [
            leaf if axis is None else leaf.index_select(axis, rows) for leaf, axis in zip(samples, axes, strict=True)
        ]
        batches.append({name: leaf.contiguous().numpy() for name, leaf in zip(names, leaves, strict=True)})
    for stage in manifest["stages"]:
        if stage["file"] is None:
            continue
        path = folder / stage["file"]
        session = open_session(path, threads=torch.get_num_threads())
        inputs = [{name: batch[name] for name in stage["reads"]} for batch in batches]
        hidden = {leaf["name"] for leaf in stage["hidden"]}
        for batch, feeds in zip(batches, inputs, strict=True):
            batch.update(zip(stage["writes"], session.run(stage["writes"], feeds), strict=True))
            for name in set(batch) - hidden:
                del batch[name]
        quantize_graph(path, path, inputs)
