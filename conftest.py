"""For every test and every doctest: torchvision, which timm and transformers import, finds its operators declared."""

import benchmarks.torchvision_ops  # noqa: F401
