"""A network with exits as a folder of ONNX graphs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone import Backbone, Hidden, Pooling
from offramp.cost import Costs
from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.policy import OperatingPoint
from offramp.runtime.onnx.deciding import described_points, write_policy
from offramp.runtime.onnx.int8 import check_int8, quantized
from offramp.runtime.onnx.pieces import PieceWriter
from offramp.runtime.points import PointTable
from offramp.runtime.processor import warn_if_slow
from offramp_onnx import FORMAT, VERSION, open_session

__all__ = ["export_onnx", "identity"]

CALIBRATED = 64
"""Samples that run at once to see the ranges of their numbers."""


def export_onnx(
    backbone: Backbone,
    pooling: Pooling,
    bank: ExitBank,
    example: Hidden,
    folder: str | Path,
    *,
    points: Sequence[OperatingPoint] = (),
    costs: Mapping[str, Costs] | None = None,
    classes: Sequence[str] = (),
    int8: Hidden | None = None,
) -> None:
    """Write a network with exits as ONNX graphs: one a stage, one an exit, one a policy, and a manifest.

    Every graph is compared with torch at three batch sizes before anything is kept.

    Args:
        backbone: The frozen network.
        pooling: What exits see of a stage.
        bank: The trained exits.
        example: Inputs of at least one sample, as `backbone.prepare` gives them.
        folder: A folder to make.
        points: The operating points samples may be at; without any, all exits are written, and no policy.
        costs: What each policy of the points costs.
        classes: Names of the classes.
        int8: Inputs of some hundred samples, as `backbone.prepare` gives them, to compute stages in eight bits; their
            ranges are taken from these. Exits stay in single precision. Guarantees of points are left out: they are of
            the network that was calibrated. Networks of texts are refused: their points, chosen in single precision,
            lose too much.

    Example:
        >>> import tempfile
        >>> from offramp.exits import LinearExits
        >>> from offramp.backbone import POOLINGS, CifarResNet
        >>> backbone, bank = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10)
        >>> with tempfile.TemporaryDirectory() as place:
        ...     export_onnx(backbone, POOLINGS.get("mean"), bank, torch.randn(1, 3, 32, 32), f"{place}/graphs")
        ...     sorted(path.name for path in Path(place, "graphs").glob("stage*"))
        ['stage_00.onnx', 'stage_01.onnx', 'stage_02.onnx']
    """
    folder = Path(folder)
    narrow = {one.dtype for one in backbone.parameters() if one.is_floating_point()} - {torch.float32, torch.float64}
    if narrow:
        raise InputError(
            f"expected a network in single precision, got {narrow}; call backbone.float() before exporting"
        )
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; name a folder that does not exist yet")
    if int8 is not None:
        check_int8(backbone)
        warn_if_slow("int8")
        points = [replace(point, guarantee=None) for point in points]
    described = described_points(points, costs or {})
    backbone.eval()
    bank.eval()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as place, torch.no_grad():
        made = Path(place) / "graphs"
        made.mkdir()
        pieces = PieceWriter(backbone, pooling, bank, example, made).write(_wanted(bank, points, backbone.num_exits))
        names = dict.fromkeys(point.policy for point in points)
        policies = {name: write_policy(made, name, backbone.num_classes) for name in names}
        if int8 is not None:
            _quantize_stages(made, pieces, pytree.tree_structure(example).flatten_up_to(int8))
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "name": backbone.name,
            "made_of": identity(backbone, pooling, bank),
            "precision": "float32" if int8 is None else "int8",
            "num_classes": backbone.num_classes,
            "classes": list(classes),
            **pieces,
            "policies": policies,
            "points": described,
            "files": {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(made.glob("*.onnx"))},
        }
        text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
        (made / "manifest.json").write_text(text, encoding="utf-8")
        made.rename(folder)


def identity(backbone: Backbone, pooling: Pooling, bank: ExitBank) -> dict[str, str]:
    """What tells the graphs of one network with exits from those of another: its weights are all read.

    Args:
        backbone: The frozen network.
        pooling: What exits see of a stage.
        bank: The trained exits.
    """
    shape = [type(bank).__name__, bank.widths, bank.stages, bank.num_classes, bank.stacked, bank.averaging.stages]
    digest = sha256(json.dumps(shape).encode())
    for name, value in sorted(bank.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return {"backbone": backbone.fingerprint(), "pooling": pooling.name, "exits": digest.hexdigest()}


def _quantize_stages(folder: Path, manifest: Mapping[str, Any], samples: Sequence[Tensor]) -> None:
    """Put every stage into eight bits, by what reaches it when the samples run through the stages as they were."""
    axes = [one["batch"] for one in manifest["inputs"]]
    names = [one["name"] for one in manifest["inputs"]]
    batches: list[dict[str, Any]] = []
    size = next(leaf.shape[axis] for leaf, axis in zip(samples, axes, strict=True) if axis is not None)
    for start in range(0, size, CALIBRATED):
        chosen = torch.arange(start, min(start + CALIBRATED, size))
        taken = [
            leaf if axis is None else leaf.index_select(axis, chosen) for leaf, axis in zip(samples, axes, strict=True)
        ]
        batches.append({name: leaf.contiguous().numpy() for name, leaf in zip(names, taken, strict=True)})
    for stage in manifest["stages"]:
        if stage["file"] is None:
            continue
        path = folder / stage["file"]
        session = open_session(path, threads=torch.get_num_threads())
        given = [{name: batch[name] for name in stage["reads"]} for batch in batches]
        for batch, feeds in zip(batches, given, strict=True):
            batch.update(zip(stage["writes"], session.run(stage["writes"], feeds), strict=True))
            kept = {one["name"] for one in stage["hidden"]}
            for name in set(batch) - kept:
                del batch[name]
        quantized(path, path, given)


def _wanted(bank: ExitBank, points: Sequence[OperatingPoint], num_exits: int) -> frozenset[int]:
    """The exits that answer at some point, and those whose state later ones read."""
    if not points:
        return frozenset(range(num_exits))
    table, rows = PointTable(points), range(len(points))
    carried = {stage for stage in bank.stages if bank.carries_state and table.is_carried(stage)}
    answering = {stage for stage in range(num_exits) if table.is_active(stage, rows)}
    return frozenset(answering | carried | bank.averaging.read)
