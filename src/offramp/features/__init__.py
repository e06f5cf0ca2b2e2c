"""Cached outcomes of a trunk, out of core: extracted once, stored, split by sample id, read in batches."""

from offramp.features.batch import Batch, BatchSource, Keys, MemorySource
from offramp.features.extract import extract, extract_shard, make_plan
from offramp.features.loader import StoreSource
from offramp.features.plan import Plan
from offramp.features.source import ArraySource, Rows, Source, sample_ids
from offramp.features.splits import check_disjoint, split_by_id
from offramp.features.stages import StageView
from offramp.features.store import Store, begin_store, compile_manifest, pending_shards

__all__ = [
    "ArraySource",
    "Batch",
    "BatchSource",
    "Keys",
    "MemorySource",
    "Plan",
    "Rows",
    "Source",
    "StageView",
    "Store",
    "StoreSource",
    "begin_store",
    "check_disjoint",
    "compile_manifest",
    "extract",
    "extract_shard",
    "make_plan",
    "pending_shards",
    "sample_ids",
    "split_by_id",
]
