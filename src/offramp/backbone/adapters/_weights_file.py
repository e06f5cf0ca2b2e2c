"""Trained weights in a file on this machine, read without running code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from offramp.errors import InputError

__all__ = ["count_classes", "read_weights"]

WRAPPERS = ("state_dict", "model")
"""Keys under which training scripts save a network's weights beside an optimizer's."""


def read_weights(file: str | Path) -> dict[str, Tensor]:
    """Read a state dict from a safetensors file, or from a file that `torch.save` wrote.

    Args:
        file: `.safetensors`; files of any other suffix are read by `torch.load(weights_only=True)`.

    Returns:
        Tensors by name, without the prefix `module.` of data-parallel training.
    """
    path = Path(file).expanduser()
    if not path.is_file():
        raise InputError(
            expected="a file of weights",
            got=f"none at {path}, and nothing is downloaded",
            hint="save the weights there, or copy them",
        )
    content: Any
    try:
        if path.suffix == ".safetensors":
            content = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers may raise anything
        raise InputError(
            f"{path} cannot be read as weights: {str(error)[:300]}",
            hint="save them with torch.save(model.state_dict(), file) or safetensors.torch.save_file",
        ) from error
    for key in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(
            f"{path}",
            expected="a state dict, tensors by name",
            got=type(content).__name__,
            hint="save it with torch.save(model.state_dict(), file)",
        )
    return {str(name).removeprefix("module."): value for name, value in content.items()}


def count_classes(weights: Mapping[str, Tensor], blank: Mapping[str, Tensor], blank_classes: int) -> int:
    """Infer the number of classes of a network from its weights.

    Args:
        weights: The network's state dict.
        blank: A state dict of the same architecture with another number of classes.
        blank_classes: That number.
    """
    pairs = [(weights[name], blank[name]) for name in blank if name in weights]
    heads = [weight for weight, other in pairs if weight.shape != other.shape and other.shape[:1] == (blank_classes,)]
    counts = {len(head) if head.ndim else 0 for head in heads}
    return counts.pop() if len(counts) == 1 else blank_classes
