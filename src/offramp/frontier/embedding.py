"""Weights that an artifact carries, put into the network they are of."""

from collections.abc import Mapping

from torch import Tensor

from offramp.errors import InputError
from offramp.trunk import Trunk

__all__ = ["embed"]


def embed(trunk: Trunk, weights: Mapping[str, Tensor]) -> None:
    """Give a network just made the weights of an artifact, in their precision.

    Args:
        trunk: The network; changed.
        weights: Parameters and buffers by their names.
    """
    own = dict(trunk.named_parameters(remove_duplicate=False)) | dict(trunk.named_buffers(remove_duplicate=False))
    for name, tensor in weights.items():
        real = name in own and own[name].is_floating_point() and tensor.is_floating_point()
        if real:
            own[name].data = own[name].data.to(tensor.dtype)
        elif name in own and own[name].dtype != tensor.dtype:
            raise InputError(f"tensor '{name}': expected {own[name].dtype}, got {tensor.dtype}")
    try:
        trunk.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise InputError(f"weights do not fit the network '{trunk.name}': {str(error)[:500]}") from error
