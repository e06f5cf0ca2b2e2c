"""The state of a fit in one safetensors file: no pickle, written whole or not at all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from offramp.errors import CorruptFileError, StoreError
from offramp.features.sealed import whole_file

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

VERSION = "2"
"""Of the file; a checkpoint of another version is refused, since starting again is always possible."""


@dataclass(frozen=True)
class Checkpoint:
    """What was read from a file."""

    tensors: Mapping[str, Tensor]
    """Every tensor, by its full name."""
    counters: Mapping[str, int]
    """Epochs and batches done."""

    def restore(self, modules: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]) -> None:
        """Put weights and optimiser states back where they were."""
        for name, module in modules.items():
            module.load_state_dict(self._under(f"{name}."))
        for name, optimizer in optimizers.items():
            state: dict[int, dict[str, Tensor]] = {}
            for key, tensor in self._under(f"optimizer.{name}.").items():
                index, field = key.split(".")
                state.setdefault(int(index), {})[field] = tensor
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

    def _under(self, prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}


def save_checkpoint(
    path: Path,
    modules: Mapping[str, nn.Module],
    optimizers: Mapping[str, Optimizer],
    tensors: Mapping[str, Tensor],
    counters: Mapping[str, int],
    identity: Mapping[str, Any],
) -> None:
    """Write a fit's state.

    Args:
        path: The file; replaced in one step.
        modules: What is being trained.
        optimizers: What trains it.
        tensors: Anything else worth keeping.
        counters: Epochs and batches done.
        identity: What the fit depends on, as JSON can hold it: a checkpoint is of use to the same fit alone.
    """
    everything = {name: tensor.clone() for name, tensor in tensors.items()}
    for name, module in modules.items():
        everything.update({f"{name}.{key}": tensor.clone() for key, tensor in module.state_dict().items()})
    for name, optimizer in optimizers.items():
        for index, state in optimizer.state_dict()["state"].items():
            everything.update({f"optimizer.{name}.{index}.{key}": tensor.clone() for key, tensor in state.items()})
    metadata = {"version": VERSION, "counters": json.dumps(dict(counters)), "identity": json.dumps(dict(identity))}
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        save_file(everything, temporary, metadata=metadata)


def load_checkpoint(path: Path, identity: Mapping[str, Any]) -> Checkpoint:
    """Read a fit's state back.

    Args:
        path: The file.
        identity: Of the fit that goes on; it must be that of the fit which was begun.

    Returns:
        The state.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
        version = metadata["version"]
        counters, saved = json.loads(metadata["counters"]), json.loads(metadata["identity"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise CorruptFileError(f"{path} is not a checkpoint of a fit ({error}); delete it to start again") from error
    if version != VERSION:
        raise StoreError(f"{path} has version {version}, expected {VERSION}; delete it to start again")
    wanted = json.loads(json.dumps(dict(identity)))
    if saved != wanted:
        differing = sorted(key for key in wanted if saved.get(key) != wanted[key])
        raise StoreError(
            f"{path} is of another fit, it differs in {', '.join(differing)}; use another file or delete it"
        )
    return Checkpoint(tensors, counters)
