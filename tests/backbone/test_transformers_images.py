"""Image processors of the transformers library as preprocessing, against the processors themselves."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from offramp.backbone.transformers_images import image_preparation
from offramp.errors import InputError
from tests.cases import each


@each(
    ("kind", "options", "side"),
    [
        ("ViTImageProcessor", {"size": {"height": 48, "width": 48}}, 48),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 56}}, 56),  # resized to 64, the middle taken
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}, 384),  # squashed
        ("DeiTImageProcessor", {"size": {"height": 72, "width": 72}, "crop_size": {"height": 64, "width": 64}}, 64),
        ("BitImageProcessor", {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}}, 56),
    ],
)
def test_as_the_processor_does(kind: str, options: dict[str, Any], side: int) -> None:
    processor = getattr(transformers, kind)(**options)
    preprocessing, found = image_preparation(processor.to_dict())
    photo = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    theirs = processor(Image.fromarray(photo), return_tensors="pt")["pixel_values"]
    assert found == side
    # They round to bytes after resizing, and bicubic overshoot is cut off there.
    difference = (preprocessing([photo]) - theirs).abs()
    assert float(difference.mean()) < 0.006
    assert float(torch.quantile(difference[:, :, ::2, ::2].flatten(), 0.99)) < 0.03


VIT = {"size": {"height": 64, "width": 64}, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}


@each(
    "changed",
    [
        {"size": {"height": 64, "width": 32}},
        {"size": {"shortest_edge": 64}},
        {"size": {"shortest_edge": 64, "longest_edge": 100}},
        {"size": None},
        {"resample": 1},
        {"rescale_factor": 1.0},
        {"do_resize": False},
        {"do_pad": True},
        {"do_normalize": False},
        {"image_mean": None},
        {"do_center_crop": True},
        {"do_center_crop": True, "crop_size": {"height": 128, "width": 128}},
    ],
)
def test_what_no_step_does_is_refused(changed: dict[str, Any]) -> None:
    image_preparation(VIT)
    with pytest.raises(InputError, match=r"backbone.preprocessing"):
        image_preparation({**VIT, **changed})
