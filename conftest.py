"""For every test and every doctest: operators of torchvision are declared, and `datasets` stays local."""

import os
import tempfile

import torch

# timm and transformers import torchvision, whose compiled operators a CPU build of torch cannot load. Its models need
# none of them; its import only asks that two are declared.
_OPERATORS = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
for _name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, _name):
        _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

os.environ.setdefault("HF_HUB_OFFLINE", "1")
_CACHE = tempfile.TemporaryDirectory(prefix="offramp-datasets-")  # until the tests end
os.environ["HF_DATASETS_CACHE"] = _CACHE.name
