"""Where a frontier came from."""

import json
from dataclasses import asdict, is_dataclass
from importlib.metadata import version
from typing import Any

import torch

from offramp.features import BatchSource

__all__ = ["provenance"]


def provenance(method: str, settings: Any, **splits: BatchSource) -> dict[str, Any]:
    """Return how a frontier was obtained, as JSON holds it.

    Args:
        method: Name of the method that trained the exits.
        settings: Its settings; kept where they are a dataclass.
        **splits: The samples of each split.
    """
    fields = asdict(settings) if is_dataclass(settings) and not isinstance(settings, type) else {}
    return {
        "offramp": version("offramp"),
        "torch": torch.__version__,
        "method": method,
        "settings": json.loads(json.dumps(fields, default=str)),
        "splits": {name: {"samples": source.num_samples} for name, source in splits.items()},
    }
