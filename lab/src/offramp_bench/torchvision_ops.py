"""Lets torchvision be imported beside a CPU build of torch, where its compiled operators cannot be loaded.

Its models need none of them; its import only asks that two are declared.
"""

from typing import Any

import torch

__all__ = ["LIBRARY"]

LIBRARY: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
for _name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, _name):
        LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
