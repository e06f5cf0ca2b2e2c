"""Images of 32 pixels enlarged to 64: plain for a frozen network, augmented for its training."""

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.features import Source
from offramp.preprocessing import Preprocessing
from offramp_bench.backbones.training import BatchMaker

__all__ = ["PREPROCESSING", "SIDE", "augment", "batch_maker"]

SIDE = 64

NORMALIZED = ("normalize", {"scale": 1.0, "mean": [127.0] * 3, "std": [128.0] * 3})

PREPROCESSING = Preprocessing(
    (("channels_first", {}), ("resize", {"size": SIDE, "mode": "bilinear"}), NORMALIZED),
)
"""The preprocessing that EfficientNet-Lite0 was pretrained with, at a smaller size."""

LARGEST_SHIFT = 0.2
"""Largest shift, as a share of half a side: three pixels of 32."""

LARGEST_GROWTH = 0.2
"""Largest change of the visible part's width or height, as a share; drawn for each direction by itself."""


def augment(images: Tensor, generator: torch.Generator, *, mirrored: bool) -> Tensor:
    """Shift, stretch, perhaps mirror, and enlarge images, all in one bilinear resampling.

    Args:
        images: `N x C x H x W`.
        generator: Source of randomness.
        mirrored: True to mirror half of the images; not for digits.

    Returns:
        `N x C x 64 x 64`, padded by reflection.
    """
    count = len(images)
    growth = 1 + LARGEST_GROWTH * (2 * torch.rand(count, 2, generator=generator) - 1)
    shift = LARGEST_SHIFT * (2 * torch.rand(count, 2, generator=generator) - 1)
    if mirrored:
        growth[:, 0] *= torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    maps = torch.cat([torch.diag_embed(growth), shift[:, :, None]], dim=2)
    places = F.affine_grid(maps, [count, images.shape[1], SIDE, SIDE], align_corners=False)
    return F.grid_sample(images.float(), places, mode="bilinear", padding_mode="reflection", align_corners=False)


def batch_maker(source: Source, *, mirrored: bool) -> BatchMaker:
    """Return a function that makes batches of augmented images; the source is held in memory, 3 KB per image.

    Args:
        source: Byte images `N x 32 x 32 x 3`.
        mirrored: True to mirror half of the images.
    """
    rows = source.read(0, len(source))
    images, labels = torch.as_tensor(rows.inputs).permute(0, 3, 1, 2), torch.as_tensor(rows.labels)
    normalize = Preprocessing((NORMALIZED,))

    def make_batch(places: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return normalize(augment(images[places], generator, mirrored=mirrored)), labels[places]

    return make_batch
