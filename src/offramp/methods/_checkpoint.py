"""The state of a fit in one safetensors file, written atomically and without pickle."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from offramp._files import write_resumable
from offramp.errors import CorruptFileError, StoreError

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

VERSION = "4"
"""Version of the file; other versions are refused, as a fit can always start again."""

RESTART = "delete the file to start again"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a fit as read from a file."""

    tensors: Mapping[str, Tensor]
    """All tensors, by their full names."""
    counters: Mapping[str, int]
    """Epochs and batches done."""

    def restore(self, modules: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]) -> None:
        """Load weights and optimiser states into modules and optimisers."""
        for name, module in modules.items():
            module.load_state_dict(self._with_prefix(f"{name}."))
        for name, optimizer in optimizers.items():
            state: dict[int, dict[str, Tensor]] = {}
            for key, tensor in self._with_prefix(f"optimizer.{name}.").items():
                index, field = key.split(".")
                state.setdefault(int(index), {})[field] = tensor
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

    def _with_prefix(self, prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}


def save_checkpoint(
    path: Path,
    modules: Mapping[str, nn.Module],
    optimizers: Mapping[str, Optimizer],
    tensors: Mapping[str, Tensor],
    counters: Mapping[str, int],
    identity: Mapping[str, Any],
) -> None:
    """Write the state of a fit.

    Args:
        path: The file; replaced atomically.
        modules: The modules in training.
        optimizers: Their optimisers.
        tensors: Further tensors to save.
        counters: Epochs and batches done.
        identity: Everything the fit depends on, JSON-compatible; only the same fit can load the checkpoint.
    """
    everything = {name: tensor.clone() for name, tensor in tensors.items()}
    for name, module in modules.items():
        everything.update({f"{name}.{key}": tensor.clone() for key, tensor in module.state_dict().items()})
    for name, optimizer in optimizers.items():
        for index, state in optimizer.state_dict()["state"].items():
            everything.update({f"optimizer.{name}.{index}.{key}": tensor.clone() for key, tensor in state.items()})
    metadata = {"version": VERSION, "counters": json.dumps(dict(counters)), "identity": json.dumps(dict(identity))}
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_resumable(path) as temporary:
        save_file(everything, temporary, metadata=metadata)


def load_checkpoint(path: Path, identity: Mapping[str, Any]) -> Checkpoint:
    """Read the state of a fit.

    Args:
        path: The file.
        identity: Identity of the fit to continue; it must equal the saved one.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
        version = metadata["version"]
        counters, saved = json.loads(metadata["counters"]), json.loads(metadata["identity"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise CorruptFileError(str(path), expected="a checkpoint of a fit", got=str(error), hint=RESTART) from error
    if version != VERSION:
        raise StoreError(str(path), expected=f"version {VERSION}", got=version, hint=RESTART)
    current = json.loads(json.dumps(dict(identity)))
    if saved != current:
        differing = sorted(key for key in current if saved.get(key) != current[key])
        raise StoreError(
            str(path),
            expected="a checkpoint of this fit",
            got=f"one that differs in {', '.join(differing)}",
            hint="use another file or delete it",
        )
    return Checkpoint(tensors, counters)
