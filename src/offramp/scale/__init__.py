"""Extraction on many workers, and batch inference over files that continues after a lost driver."""

from offramp.scale._extract import extract_on_cluster
from offramp.scale._predict import predict_files

__all__ = ["extract_on_cluster", "predict_files"]
