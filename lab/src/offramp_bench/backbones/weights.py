"""Weights on disk, in half precision, with the figures of their network."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from offramp.errors import InputError
from offramp_bench import places

__all__ = ["FOLDER", "State", "figures", "read", "to_half_precision", "write"]

FOLDER = places.WEIGHTS

State = Mapping[str, Tensor]


def to_half_precision(state: State) -> dict[str, Tensor]:
    """Return weights with real numbers in half precision, as files hold them.

    Args:
        state: The weights of a network.
    """
    half = {key: value.half() if value.is_floating_point() else value for key, value in state.items()}
    overflows = [key for key, value in half.items() if not torch.isfinite(value).all()]
    if overflows:
        raise InputError(f"expected weights that half precision holds, got larger ones in {', '.join(overflows)}")
    return half


def write(name: str, state: State, results: Mapping[str, Any], *, folder: Path = FOLDER) -> None:
    """Save weights with their figures, and update the list of the figures of all backbones.

    Args:
        name: Name of the backbone.
        state: The weights, from `to_half_precision`.
        results: The figures, as values that JSON can hold.
        folder: The folder of all weights.
    """
    folder.mkdir(exist_ok=True)
    unfinished = folder / f"{name}.begun"
    save_file({key: value.contiguous() for key, value in state.items()}, unfinished, {"figures": json.dumps(results)})
    unfinished.chmod(0o644)  # safetensors makes files that only their owner can read
    unfinished.rename(folder / f"{name}.safetensors")
    all_figures = {path.stem: figures(path.stem, folder=folder) for path in sorted(folder.glob("*.safetensors"))}
    (folder / "figures.json").write_text(json.dumps(all_figures, indent=2) + "\n")


def read(name: str, *, folder: Path = FOLDER) -> dict[str, Tensor]:
    """Return the weights of a backbone.

    Args:
        name: Name of the backbone.
        folder: The folder of all weights.
    """
    return load_file(_path(name, folder))


def figures(name: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the figures of a backbone.

    Args:
        name: Name of the backbone.
        folder: The folder of all weights.
    """
    with safe_open(_path(name, folder), "pt") as file:
        results: dict[str, Any] = json.loads(file.metadata()["figures"])
    return results


def _path(name: str, folder: Path) -> Path:
    path = folder / f"{name}.safetensors"
    if not path.exists():
        raise InputError(f"no weights of '{name}' in {folder}; python -m offramp_bench.backbones {name} makes them")
    return path
