"""Weights that an artifact carries, put into the network they are of."""

from collections.abc import Mapping

from torch import Tensor

from offramp.backbone import Backbone
from offramp.errors import InputError

__all__ = ["embed"]


def embed(backbone: Backbone, weights: Mapping[str, Tensor]) -> None:
    """Give a network just made the weights of an artifact, in their precision.

    Args:
        backbone: The network; changed.
        weights: Parameters and buffers by their names.
    """
    own = dict(backbone.named_parameters(remove_duplicate=False)) | dict(backbone.named_buffers(remove_duplicate=False))
    for name, tensor in weights.items():
        real = name in own and own[name].is_floating_point() and tensor.is_floating_point()
        if real:
            own[name].data = own[name].data.to(tensor.dtype)
        elif name in own and own[name].dtype != tensor.dtype:
            raise InputError(f"tensor '{name}': expected {own[name].dtype}, got {tensor.dtype}")
    try:
        backbone.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise InputError(f"weights do not fit the network '{backbone.name}': {str(error)[:500]}") from error
