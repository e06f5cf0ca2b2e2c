"""Folders of a checkout that the laboratory reads and writes."""

from pathlib import Path

__all__ = ["CACHE", "LAB", "RESULTS", "ROOT", "STORES", "WEIGHTS"]

LAB = Path(__file__).parents[2]
"""The folder `lab` of a checkout."""

ROOT = LAB.parent
"""The checkout itself."""

RESULTS = LAB / "results"
"""Committed results, one JSON file per benchmark."""

WEIGHTS = LAB / "weights"
"""Weights of the networks that were trained for the benchmarks; no wheel has them."""

CACHE = LAB / ".cache"
"""Features and fits that are kept between runs."""

STORES = CACHE / "stores-rich-512"
"""Feature stores of the tasks that methods are compared on; renamed whenever the default's pooling changes."""
