"""Cached outcomes of a backbone, out of core: extracted once, stored, split by sample id, read in batches."""

from offramp.features.batch import Batch, BatchSource, Keys, MemorySource
from offramp.features.extract import extract, extract_shard, make_plan
from offramp.features.loader import StoreSource
from offramp.features.plan import Plan
from offramp.features.row_hashes import hash_rows
from offramp.features.sketch import IdSketch
from offramp.features.source import ArraySource, Rows, Source
from offramp.features.splits import keep_apart, split_by_id
from offramp.features.stages import StageView
from offramp.features.store import Store, begin_store, compile_manifest, pending_shards

__all__ = [
    "ArraySource",
    "Batch",
    "BatchSource",
    "IdSketch",
    "Keys",
    "MemorySource",
    "Plan",
    "Rows",
    "Source",
    "StageView",
    "Store",
    "StoreSource",
    "begin_store",
    "compile_manifest",
    "extract",
    "extract_shard",
    "hash_rows",
    "keep_apart",
    "make_plan",
    "pending_shards",
    "split_by_id",
]
