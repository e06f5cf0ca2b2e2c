"""The state of a fit in one safetensors file: no pickle, written whole or not at all."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from offramp.errors import CorruptFileError, StoreError
from offramp.methods.settings import JointSettings

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]


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
    settings: JointSettings,
) -> None:
    """Write a fit's state.

    Args:
        path: The file; replaced in one step.
        modules: What is being trained.
        optimizers: What trains it.
        tensors: Anything else worth keeping.
        counters: Epochs and batches done.
        settings: Of the fit: a checkpoint is of use to the same settings alone.
    """
    everything = {name: tensor.clone() for name, tensor in tensors.items()}
    for name, module in modules.items():
        everything.update({f"{name}.{key}": tensor.clone() for key, tensor in module.state_dict().items()})
    for name, optimizer in optimizers.items():
        for index, state in optimizer.state_dict()["state"].items():
            everything.update({f"optimizer.{name}.{index}.{key}": tensor.clone() for key, tensor in state.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    metadata = {"counters": json.dumps(dict(counters)), "settings": json.dumps(asdict(settings))}
    save_file(everything, temporary, metadata=metadata)
    os.replace(temporary, path)


def load_checkpoint(path: Path, settings: JointSettings) -> Checkpoint:
    """Read a fit's state back.

    Args:
        path: The file.
        settings: Of the fit that goes on; they must be those it was begun with.

    Returns:
        The state.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
        counters, saved = json.loads(metadata["counters"]), json.loads(metadata["settings"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise CorruptFileError(f"{path} is not a checkpoint of a fit ({error}); delete it to start again") from error
    wanted = json.loads(json.dumps(asdict(settings)))
    if saved != wanted:
        differing = sorted(key for key in wanted if saved.get(key) != wanted[key])
        raise StoreError(f"{path} was begun with other settings ({', '.join(differing)}); use those, or delete it")
    return Checkpoint(tensors, counters)
