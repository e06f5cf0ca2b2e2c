"""Many batches together, where nobody waits for the first answer: those who stay fill batches again."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from offramp.backbone import Backbone, Hidden
from offramp.runtime.engine import Engine
from offramp.runtime.flight import Departed, Flight

__all__ = ["run_dense"]


@torch.inference_mode()
def run_dense(
    engine: Engine, batches: Iterable[Hidden], *, point: int = 0, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Run batches to their answers, the few who stay of one joined by those of the next.

    Where `Engine.run` takes the last few of each batch through the late stages by themselves, slowly, here they wait
    where they have come to until as many are there as the first batch had samples. At most that many wait after each
    stage, so that memory does not grow with the number of batches, answers apart. Samples that differ in size are
    sorted by it first, which keeps padding small: all inputs are held for that.

    Answers are those of `Engine.run`, up to what rounding does to batches of other sizes.

    Args:
        engine: What runs them.
        batches: Inputs, as `backbone.prepare` gives them, a batch at a time.
        point: The operating point of all samples, one of the engine's.
        generator: Of the draws of a policy that samples; torch's own if left out.

    Returns:
        `N x K` probabilities and `N` exits, in the order of the samples.

    Example:
        >>> from offramp.exits import LinearExits
        >>> from offramp.policy import OperatingPoint
        >>> from offramp.backbone import POOLINGS, CifarResNet
        >>> backbone, bank = CifarResNet(8), LinearExits((16, 32, 64), (0, 1), 10)
        >>> point = OperatingPoint("threshold", {"threshold": torch.tensor(0.1)}, (0, 1, 2), torch.ones(3))
        >>> engine = Engine(backbone, POOLINGS.get("mean"), bank, [point])
        >>> probabilities, exits = run_dense(engine, torch.randn(20, 3, 32, 32).split(8))
        >>> probabilities.shape, exits.shape
        (torch.Size([20, 10]), torch.Size([20]))
    """
    left = list(_departures(engine, _flights(engine, batches, point), generator))
    count = sum(len(departed.rows) for departed in left)
    probabilities = torch.empty(count, engine.backbone.num_classes, device=engine.points.device)
    exits = torch.empty(count, dtype=torch.long, device=engine.points.device)
    for departed in left:
        probabilities[departed.rows] = departed.probabilities.float()
        exits[departed.rows] = departed.exit
    return probabilities, exits


def _flights(engine: Engine, batches: Iterable[Hidden], point: int) -> Iterator[Flight]:
    """Each batch as a flight, its samples known by their place among all."""
    placed = _by_size if engine.backbone.grows else _in_order
    for hidden, rows in placed(engine.backbone, batches):
        yield engine.start(hidden, point=torch.full((len(rows),), point), rows=rows)


def _in_order(backbone: Backbone, batches: Iterable[Hidden]) -> Iterator[tuple[Hidden, Tensor]]:
    first = 0
    for hidden in batches:
        count = backbone.batch_size(hidden, 0)
        yield hidden, torch.arange(first, first + count)
        first += count


def _by_size(backbone: Backbone, batches: Iterable[Hidden]) -> Iterator[tuple[Hidden, Tensor]]:
    """Batches as large as the first, of samples that are nearly as large as one another."""
    held = list(batches)
    if not held:
        return
    together = backbone.concatenate(held, 0)
    order = backbone.sizes(together).argsort(stable=True)
    full = max(1, backbone.batch_size(held[0], 0))
    for first in range(0, len(order), full):
        rows = order[first : first + full]
        yield backbone.trimmed(backbone.select(together, rows, 0), 0), rows


def _departures(engine: Engine, flights: Iterable[Flight], generator: torch.Generator | None) -> Iterator[Departed]:
    """All who leave, as they leave."""
    waiting: dict[int, list[Flight]] = {}
    full = 0
    for flight in flights:
        full = full or len(flight)
        yield from _onward(engine, flight, waiting, full, generator)
    while waiting:  # the least far first: those of them who stay go on with the others
        flight = engine.join(waiting.pop(min(waiting)))
        yield from _onward(engine, flight, waiting, full, generator)


def _onward(
    engine: Engine,
    flight: Flight,
    waiting: dict[int, list[Flight]],
    full: int,
    generator: torch.Generator | None,
) -> Iterator[Departed]:
    """Run a flight as far as it fills a batch, with those who wait where it comes to."""
    while len(flight):
        flight, departed = engine.step(flight, generator=generator)
        if departed is not None:
            yield departed
        if not len(flight) or len(flight) >= full:
            continue
        here = waiting.setdefault(flight.depth, [])
        here.append(flight)
        if sum(map(len, here)) < full:
            return
        flight = engine.join(waiting.pop(flight.depth))
