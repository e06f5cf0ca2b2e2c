"""The stages and exits of a network as a folder of ONNX graphs with a manifest."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.pooling import Pooling
from offramp.runtime._processor import warn_if_slow
from offramp.runtime.onnx._int8 import quantize_graph
from offramp.runtime.onnx._pieces import PieceWriter
from offramp_onnx import FORMAT, VERSION, open_session

__all__ = ["fingerprint_parts", "new_folder", "write_manifest", "write_network"]

CALIBRATION_BATCH = 64
"""Samples per batch when the ranges of activations are measured."""


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder to write to, which becomes `folder` at the end if nothing fails."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty", hint="name a folder that does not exist yet")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as place:
        written = Path(place) / "graphs"
        written.mkdir()
        yield written
        written.rename(folder)


def write_network(
    backbone: Backbone, pooling: Pooling, exits: ExitSet, example: Hidden, folder: Path, *, int8: bool = False
) -> None:
    """Write a network with exits as ONNX graphs, one per stage and exit, and a manifest without operating points.

    Every graph is compared with torch at three batch sizes.

    Args:
        backbone: The frozen network.
        pooling: The features that exits see of a stage.
        exits: The trained exits.
        example: Inputs of at least one sample, from `backbone.prepare`.
        folder: An empty folder.
        int8: True for stages in int8, calibrated on the example, which then has a few hundred samples. Exits stay in
            float32.
    """
    dtypes = {weight.dtype for weight in backbone.parameters() if weight.is_floating_point()}
    if narrow := dtypes - {torch.float32, torch.float64}:
        raise InputError(
            expected="a network in single precision",
            got=", ".join(map(str, narrow)),
            hint="call backbone.float() before exporting",
        )
    if int8:
        warn_if_slow("int8")
    backbone.eval()
    exits.eval()
    with torch.no_grad():
        pieces = PieceWriter(backbone, pooling, exits, example, folder).write()
        if int8:
            _quantize_stages(folder, pieces, pytree.tree_leaves(example))
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "name": backbone.name,
        "made_of": fingerprint_parts(backbone, pooling, exits),
        "precision": "int8" if int8 else "float32",
        "num_classes": backbone.num_classes,
        "classes": [],
        "preprocessing": [],
        **pieces,
        "policies": {},
        "points": [],
    }
    write_manifest(folder, manifest)


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest, with the hashes of the graphs and attachments in its folder.

    Args:
        folder: The folder.
        manifest: The other entries.
    """
    path = folder / "manifest.json"
    path.unlink(missing_ok=True)
    files = sorted(file for file in folder.iterdir() if file.suffix in (".onnx", ".json"))
    hashes = {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
    path.write_text(json.dumps({**manifest, "files": hashes}, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def fingerprint_parts(backbone: Backbone, pooling: Pooling, exits: ExitSet) -> dict[str, str]:
    """Return what identifies the network that graphs were exported from; all weights are read."""
    shape = [type(exits).__name__, exits.widths, exits.stages, exits.num_classes, exits.stacked, exits.averaging.stages]
    digest = sha256(json.dumps(shape).encode())
    for name, value in sorted(exits.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return {"backbone": backbone.fingerprint(), "pooling": pooling.name, "exits": digest.hexdigest()}


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
