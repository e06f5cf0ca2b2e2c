"""Where a frontier came from."""

import json
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch

from offramp.features import BatchSource
from offramp.methods import JointSettings

__all__ = ["provenance"]


def provenance(settings: JointSettings, **splits: BatchSource) -> dict[str, Any]:
    """How a frontier was obtained, as JSON holds it.

    Args:
        settings: How it was fitted.
        **splits: The samples of each split.
    """
    return {
        "offramp": version("offramp"),
        "torch": torch.__version__,
        "settings": json.loads(json.dumps(asdict(settings))),
        "splits": {name: {"samples": source.num_samples} for name, source in splits.items()},
    }
