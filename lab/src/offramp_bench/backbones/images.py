"""Images of 32 pixels enlarged to 64: as a frozen network sees them, and moved, as it sees them while it is fitted."""

import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.features import Source
from offramp.preprocessing import Preprocessing
from offramp_bench.backbones.training import Deal

__all__ = ["PREPROCESSING", "SIDE", "dealt", "moved"]

SIDE = 64

NORMALIZED = ("normalize", {"scale": 1.0, "mean": [127.0] * 3, "std": [128.0] * 3})

PREPROCESSING = Preprocessing(
    (("channels_first", {}), ("resize", {"size": SIDE, "mode": "bilinear"}), NORMALIZED),
)
"""What EfficientNet-Lite0 was pretrained with, at a smaller size."""

LARGEST_SHIFT = 0.2
"""Of half a side: three pixels of 32."""

LARGEST_GROWTH = 0.2
"""How much narrower or wider what is seen may become, in each direction by itself."""


def moved(images: Tensor, generator: torch.Generator, *, mirrored: bool) -> Tensor:
    """Images shifted, stretched, perhaps mirrored, and enlarged, all in one bilinear reading.

    Args:
        images: `N x C x H x W`.
        generator: All that is random comes from it.
        mirrored: Whether half of them are: digits must not be.

    Returns:
        `N x C x 64 x 64`; where an image ends, it goes on as in a mirror.
    """
    count = len(images)
    growth = 1 + LARGEST_GROWTH * (2 * torch.rand(count, 2, generator=generator) - 1)
    shift = LARGEST_SHIFT * (2 * torch.rand(count, 2, generator=generator) - 1)
    if mirrored:
        growth[:, 0] *= torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    maps = torch.cat([torch.diag_embed(growth), shift[:, :, None]], dim=2)
    places = F.affine_grid(maps, [count, images.shape[1], SIDE, SIDE], align_corners=False)
    return F.grid_sample(images.float(), places, mode="bilinear", padding_mode="reflection", align_corners=False)


def dealt(source: Source, *, mirrored: bool) -> Deal:
    """Deals moved images of a source, which is held in memory: 3 KB an image.

    Args:
        source: Byte images `N x 32 x 32 x 3`.
        mirrored: Whether half of those dealt are.
    """
    rows = source.read(0, len(source))
    images, labels = torch.as_tensor(rows.inputs).permute(0, 3, 1, 2), torch.as_tensor(rows.labels)
    normalized = Preprocessing((NORMALIZED,))

    def deal(places: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return normalized(moved(images[places], generator, mirrored=mirrored)), labels[places]

    return deal
