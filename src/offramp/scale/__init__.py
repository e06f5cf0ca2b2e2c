"""The same work on many workers, of one machine or of a cluster: extraction and batch inference."""

from offramp.scale.cluster import Workers, check_portable, cluster
from offramp.scale.extract import extract_on_cluster
from offramp.scale.predict import JobSummary, predict_on_cluster

__all__ = [
    "JobSummary",
    "Workers",
    "check_portable",
    "cluster",
    "extract_on_cluster",
    "predict_on_cluster",
]
