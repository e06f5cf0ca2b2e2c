"""The same work on many workers, of one machine or of a cluster: extraction, batch inference, sweeps."""

from offramp.scale.cluster import Workers, check_portable, cluster
from offramp.scale.extract import extract_on_cluster
from offramp.scale.forecast import Constants, Forecast, forecast
from offramp.scale.predict import JobSummary, predict_on_cluster
from offramp.scale.sweep import Trial, grid, sweep

__all__ = [
    "Constants",
    "Forecast",
    "JobSummary",
    "Trial",
    "Workers",
    "check_portable",
    "cluster",
    "extract_on_cluster",
    "forecast",
    "grid",
    "predict_on_cluster",
    "sweep",
]
