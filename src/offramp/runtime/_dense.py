"""Many batches at once: the samples that stay of one batch are joined with those of the next."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.runtime._batch import ActiveBatch, FinishedSamples
from offramp.runtime._engine import Engine

__all__ = ["run_dense"]


@torch.inference_mode()
def run_dense(
    engine: Engine, batches: Iterable[Hidden], *, point: int = 0, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Run many batches, and keep batches full in late stages.

    `Engine.run` takes the last few samples of each batch through the late stages alone, which is slow. Here they wait
    at their stage until there are as many as the first batch had. At most that many wait after each stage, so memory
    does not grow with the number of batches, except for the results. Samples that differ in size are sorted by size
    first, which keeps padding small but holds all inputs in memory.

    Results are those of `Engine.run`, up to the rounding of other batch sizes.

    Args:
        engine: The engine.
        batches: Inputs from `backbone.prepare`, one batch at a time.
        point: The operating point of all samples, an index into the engine's.
        generator: The random generator of policies that draw; by default torch's own.

    Returns:
        `N x K` probabilities and `N` exits, in the order of the samples.
    """
    order = _sort_by_size if engine.backbone.varies_in_size else _number_rows
    started = (
        engine.start(hidden, point=torch.full((len(rows),), point), rows=rows)
        for hidden, rows in order(engine.backbone, batches)
    )
    parts = list(_run_all(engine, started, generator))
    return engine.gather(parts, sum(len(part.rows) for part in parts))


def _number_rows(backbone: Backbone, batches: Iterable[Hidden]) -> Iterator[tuple[Hidden, Tensor]]:
    """Yield each batch with the indices of its samples among all."""
    first = 0
    for hidden in batches:
        count = backbone.batch_size(hidden, 0)
        yield hidden, torch.arange(first, first + count)
        first += count


def _sort_by_size(backbone: Backbone, batches: Iterable[Hidden]) -> Iterator[tuple[Hidden, Tensor]]:
    """Yield batches of similar sizes, each as large as the first batch, with the indices of their samples."""
    inputs = list(batches)
    if not inputs:
        return
    together = backbone.concatenate(inputs, 0)
    order = backbone.sizes(together).argsort(stable=True)
    batch_size = max(1, backbone.batch_size(inputs[0], 0))
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        yield backbone.trim(backbone.select(together, rows, 0), 0), rows


def _run_all(
    engine: Engine, batches: Iterable[ActiveBatch], generator: torch.Generator | None
) -> Iterator[FinishedSamples]:
    """Yield samples as they leave."""
    waiting: dict[int, list[ActiveBatch]] = {}
    batch_size = 0
    for batch in batches:
        batch_size = batch_size or len(batch)
        yield from _run_while_full(engine, batch, waiting, batch_size, generator)
    while waiting:  # the lowest depth first: its samples that stay join those that wait deeper
        batch = engine.join(waiting.pop(min(waiting)))
        yield from _run_while_full(engine, batch, waiting, batch_size, generator)


def _run_while_full(
    engine: Engine,
    batch: ActiveBatch,
    waiting: dict[int, list[ActiveBatch]],
    batch_size: int,
    generator: torch.Generator | None,
) -> Iterator[FinishedSamples]:
    """Run a batch, joined with the samples that wait at its depth, until it is no longer full; then it waits."""
    while len(batch):
        batch, finished = engine.step(batch, generator=generator)
        if finished is not None:
            yield finished
        if not len(batch) or len(batch) >= batch_size:
            continue
        here = waiting.setdefault(batch.depth, [])
        here.append(batch)
        if sum(map(len, here)) < batch_size:
            return
        batch = engine.join(waiting.pop(batch.depth))
