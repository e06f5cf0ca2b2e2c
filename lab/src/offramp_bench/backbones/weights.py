"""Weights on disk: half precision, with the figures of the network they make."""

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

__all__ = ["FOLDER", "State", "figures", "halved", "read", "write"]

FOLDER = places.WEIGHTS

State = Mapping[str, Tensor]


def halved(state: State) -> dict[str, Tensor]:
    """Real numbers in half precision, as they are kept.

    Args:
        state: Of a network.
    """
    half = {key: value.half() if value.is_floating_point() else value for key, value in state.items()}
    lost = [key for key, value in half.items() if not torch.isfinite(value).all()]
    if lost:
        raise InputError(f"expected weights that half precision holds, got larger ones in {', '.join(lost)}")
    return half


def write(name: str, state: State, found: Mapping[str, Any], *, folder: Path = FOLDER) -> None:
    """Keep weights with the figures found of them, here and in the list of all.

    Args:
        name: Of the backbone.
        state: As `halved` gives it.
        found: What JSON holds.
        folder: Where.
    """
    folder.mkdir(exist_ok=True)
    begun = folder / f"{name}.begun"
    save_file({key: value.contiguous() for key, value in state.items()}, begun, {"figures": json.dumps(found)})
    begun.chmod(0o644)  # it was made for nobody else to read
    begun.rename(folder / f"{name}.safetensors")
    listed = {path.stem: figures(path.stem, folder=folder) for path in sorted(folder.glob("*.safetensors"))}
    (folder / "figures.json").write_text(json.dumps(listed, indent=2) + "\n")


def read(name: str, *, folder: Path = FOLDER) -> dict[str, Tensor]:
    """Weights as they are kept.

    Args:
        name: Of the backbone.
        folder: Where they are.
    """
    return load_file(_path(name, folder))


def figures(name: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """What is kept beside weights.

    Args:
        name: Of the backbone.
        folder: Where they are.
    """
    with safe_open(_path(name, folder), "pt") as file:
        found: dict[str, Any] = json.loads(file.metadata()["figures"])
    return found


def _path(name: str, folder: Path) -> Path:
    path = folder / f"{name}.safetensors"
    if not path.exists():
        raise InputError(f"no weights of '{name}' in {folder}; python -m offramp_bench.backbones {name} makes them")
    return path
