"""Cached outputs of a backbone, out of core: extracted once, stored, split by sample id, read in batches."""

from offramp.features._batch import BatchSource
from offramp.features._extraction import extract
from offramp.features._loader import StoreSource
from offramp.features._source import ArraySource, Source
from offramp.features._splits import split_by_id

__all__ = ["ArraySource", "BatchSource", "Source", "StoreSource", "extract", "split_by_id"]
