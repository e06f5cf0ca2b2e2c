"""Trained weights of a network in a file on this machine, read without running code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from offramp.errors import InputError

__all__ = ["count_classes", "read_weights"]

WRAPPED = ("state_dict", "model")
"""Keys under which training scripts keep a network's weights beside an optimizer's."""


def read_weights(file: str | Path) -> dict[str, Tensor]:
    """Read a state dict from a safetensors file, or from what `torch.save` wrote of one.

    Args:
        file: `.safetensors`; any other ending is read by `torch.load(weights_only=True)`, which runs no code.

    Returns:
        Tensors by name, without the `module.` that data-parallel training puts before names.
    """
    place = Path(file).expanduser()
    if not place.is_file():
        raise InputError(f"expected a file of weights, found none at {place}; nothing is downloaded: save or copy it")
    content: Any
    try:
        if place.suffix == ".safetensors":
            content = load_file(place)
        else:
            content = torch.load(place, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever the readers end with
        raise InputError(
            f"{place} cannot be read as weights: {str(error)[:300]}; save them with torch.save(model.state_dict(), "
            "file) or safetensors.torch.save_file"
        ) from error
    for key in WRAPPED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(
            f"expected a state dict in {place}, names and tensors, got {type(content).__name__}; save it with "
            "torch.save(model.state_dict(), file)"
        )
    return {str(name).removeprefix("module."): value for name, value in content.items()}


def count_classes(weights: Mapping[str, Tensor], blank: Mapping[str, Tensor], blank_classes: int) -> int:
    """Tell from its weights how many classes a network has.

    Args:
        weights: Of the network.
        blank: Of the same architecture with another number of classes.
        blank_classes: That number.

    Example:
        >>> blank = {"body": torch.zeros(8, 8), "head": torch.zeros(1000, 8)}
        >>> count_classes({"body": torch.ones(8, 8), "head": torch.ones(77, 8)}, blank, 1000)
        77
    """
    both = [(weights[name], blank[name]) for name in blank if name in weights]
    heads = [mine for mine, other in both if mine.shape != other.shape and other.shape[:1] == (blank_classes,)]
    counts = {len(head) if head.ndim else 0 for head in heads}
    return counts.pop() if len(counts) == 1 else blank_classes
