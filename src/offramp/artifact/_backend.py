"""The backend in an artifact, if points were tuned on one: its kind, and the graphs of ONNX Runtime."""

import re
import reprlib
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from offramp.artifact._format import SAVE_AGAIN, Artifact, Field
from offramp.artifact._tensors import Tensors
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.errors import ArtifactError, InputError
from offramp.exits import ExitSet
from offramp.pooling import Pooling
from offramp.runtime import BACKENDS
from offramp.runtime._view import BackendView

if TYPE_CHECKING:
    from offramp.runtime.onnx._backend import OnnxBackend

__all__ = ["backend_content", "backend_tensors", "read_backend"]

PRECISIONS = {"onnx": "float32", "int8": "int8"}
"""Backends whose graphs are saved, and the precision of their stages; others are made again by their names."""

_FILE = re.compile(r"manifest\.json|\w+\.onnx", re.ASCII)


def backend_content(view: BackendView | None) -> dict[str, Any] | None:
    """Return the manifest's entry of the backend that points were tuned on.

    Args:
        view: The network as the backend computes it; None if the points hold for the network itself.
    """
    if view is None:
        return None
    example = _encode(_onnx(view).example, {}) if view.kind in PRECISIONS else None
    return {"kind": view.kind, "made_from": view.made_from, "example": example}


def backend_tensors(view: BackendView | None) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of the files "graphs" and "example"; none if the backend is made again by its name.

    Args:
        view: As for `backend_content`.
    """
    if view is None or view.kind not in PRECISIONS:
        return {}
    example: dict[str, Tensor] = {}
    _encode(_onnx(view).example, example)
    files = _onnx(view).read_files()
    graphs = {name: torch.frombuffer(bytearray(content), dtype=torch.uint8) for name, content in files.items()}
    return {"graphs": graphs, "example": example}


def read_backend(artifact: Artifact, backbone: Backbone, pooling: Pooling, exits: ExitSet) -> BackendView | None:
    """Read the backend that points were tuned on; None if they hold for the network itself.

    Args:
        artifact: The artifact.
        backbone: The network.
        pooling: The features that exits see of a stage.
        exits: The exits.
    """
    field = artifact.content.at("backend")
    if field.value is None:
        return None
    kind, made_from = field.at("kind").one_of(BACKENDS), field.at("made_from").text()
    make = BACKENDS.get(kind)
    backbone.eval()  # the backend may hold a copy
    if kind in PRECISIONS:
        return BackendView(backbone, _read_graphs(artifact, backbone, pooling, exits), kind, made_from=made_from)
    try:
        backend = make(backbone, pooling, exits, None)
    except InputError as error:
        raise ArtifactError(f"{field.file}, field '{field.place}.kind': {error}") from error
    return BackendView(backbone, backend, kind, made_from=made_from)


def _read_graphs(artifact: Artifact, backbone: Backbone, pooling: Pooling, exits: ExitSet) -> "OnnxBackend":
    """Open the graphs of an artifact, and run one sample through all of them."""
    from offramp.runtime.onnx._backend import open_graphs  # imported here: ONNX Runtime is optional

    field, graphs, leaves = artifact.content.at("backend"), Tensors(artifact, "graphs"), Tensors(artifact, "example")
    example = _decode(field.at("example"), leaves)
    leaves.check_all_read()
    files = {}
    for name, tensor in graphs.named.items():
        if not _FILE.fullmatch(name):
            expected = "the name of a graph (.onnx), or manifest.json"
            raise graphs.wrong(reprlib.repr(name), expected=expected, got="another")
        files[name] = graphs.read(name, (tensor.numel(),), dtype=torch.uint8).numpy().tobytes()
    if "manifest.json" not in files:
        raise graphs.wrong("manifest.json", expected="a tensor", got="none")
    try:
        backend = open_graphs(files, backbone, pooling, exits, example)
        _run_once(backend, backbone, exits)
    except Exception as error:  # whatever a manifest or a graph makes the libraries end with
        raise ArtifactError(f"{graphs.file}: cannot run the graphs: {str(error)[:500]}", hint=SAVE_AGAIN) from error
    if backend.precision != PRECISIONS[field.at("kind").text()]:
        raise field.at("kind").wrong(f"the backend of these graphs, which are in {backend.precision}")
    return backend


@torch.inference_mode()
def _run_once(backend: "OnnxBackend", backbone: Backbone, exits: ExitSet) -> None:
    """Run one sample through all stages and exits: graphs may open and yet not fit together."""
    hidden, expected = backend.example, (1, backbone.num_classes)
    state: Any = (exits.initial_state(1), ())
    classifier = None if exits.stacked == 1 else torch.zeros(1, dtype=torch.long)
    for index in range(backbone.num_exits):
        hidden = backend.stage(index, hidden)
        logits, state = backend.exit(index, hidden, state, classifier, answer=True, carry=True)
        shape = None if logits is None else tuple(logits.shape)
        if shape != expected:
            raise InputError(f"exit after stage {index}", expected=f"logits of shape {expected}", got=f"{shape}")


def _onnx(view: BackendView) -> "OnnxBackend":
    return cast("OnnxBackend", view.backend)


def _encode(tree: Hidden, leaves: dict[str, Tensor]) -> Any:
    """Return the structure of a tree, with a name for each tensor, which is added to `leaves`.

    Example:
        >>> _encode({"ids": torch.zeros(1), "masks": (torch.ones(1),)}, {})
        {'dict': [['ids', '0'], ['masks', {'tuple': ['1']}]]}
    """
    if isinstance(tree, Tensor):
        name = str(len(leaves))
        leaves[name] = tree
        return name
    if type(tree) is dict and all(isinstance(key, str) for key in tree):
        return {"dict": [[key, _encode(value, leaves)] for key, value in tree.items()]}  # their order matters
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [_encode(value, leaves) for value in tree]}
    raise InputError(
        expected="inputs of the backbone as tensors, or as dictionaries, lists or tuples of tensors",
        got=type(tree).__name__,
        hint="let prepare of the backbone return those, or call with_backend where the model runs",
    )


def _decode(field: Field, leaves: Tensors) -> Hidden:
    """Return the tree that `_encode` described."""
    if isinstance(field.value, str):
        stored = leaves.named.get(field.text(), torch.empty(0))
        return leaves.read(field.text(), tuple(stored.shape), dtype=stored.dtype)
    match list(field.entries().items()):
        case [("dict", entries)]:
            pairs = [entry.items() for entry in entries.items()]
            if all(len(pair) == 2 for pair in pairs):
                return {key.text(): _decode(value, leaves) for key, value in pairs}
        case [("list", entries)]:
            return [_decode(entry, leaves) for entry in entries.items()]
        case [("tuple", entries)]:
            return tuple(_decode(entry, leaves) for entry in entries.items())
    raise field.wrong("the name of a tensor, or an object of one entry: dict (pairs), list or tuple")
