"""Extraction and batch inference on many workers, of one machine or a cluster."""

from offramp.scale._extract import extract_on_cluster
from offramp.scale._predict import predict_on_cluster

__all__ = ["extract_on_cluster", "predict_on_cluster"]
