"""A network's stages with narrow weights: half the memory to read, and the fast matrix units of newer processors."""

import copy

import torch
from torch import fx, nn

__all__ = ["narrowed"]


def narrowed(stages: nn.ModuleList, dtype: torch.dtype) -> nn.ModuleList:
    """The stages with weights in another precision; they are to be run under `torch.autocast`.

    Scale and shift of norms stay as they are, for norms take narrow values with them, and so do buffers: statistics,
    positions and masks lose more in being rounded than they gain. What stays is shared with the stages given.

    Args:
        stages: A backbone's; they are not touched.
        dtype: The precision.

    Example:
        >>> conv, norm = narrowed(nn.ModuleList([nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)]), torch.bfloat16)
        >>> conv.weight.dtype, norm.weight.dtype
        (torch.bfloat16, torch.float32)
    """
    made: dict[int, object] = {}  # what a copy stands for, by the original's id: the memory of `copy.deepcopy`
    for module in stages.modules():
        # Shared with the original: what else a module keeps need not let itself be copied.
        made |= {id(kept): kept for kept in vars(module).values() if not isinstance(kept, dict | nn.Module | fx.Graph)}
        own = list(module.parameters(recurse=False))
        # Of the layers with nothing but vectors, a PReLU alone is no norm.
        is_norm = bool(own) and all(one.ndim == 1 for one in own) and not isinstance(module, nn.PReLU)
        for parameter in own:
            stays = is_norm or not parameter.is_floating_point()
            made[id(parameter)] = parameter if stays else nn.Parameter(parameter.to(dtype), requires_grad=False)
        made |= {id(buffer): buffer for buffer in module.buffers(recurse=False)}
    return copy.deepcopy(stages, made).eval()
