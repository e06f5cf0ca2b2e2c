"""For every test and every doctest: operators of torchvision are declared, and `datasets` stays local."""

import os
import tempfile

import benchmarks.torchvision_ops  # noqa: F401  # timm and transformers import torchvision

os.environ.setdefault("HF_HUB_OFFLINE", "1")
_CACHE = tempfile.TemporaryDirectory(prefix="offramp-datasets-")  # until the tests end
os.environ["HF_DATASETS_CACHE"] = _CACHE.name
