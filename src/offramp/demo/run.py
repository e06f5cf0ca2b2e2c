"""The whole demo, from images to a report."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from offramp.backbone import cascade
from offramp.demo.digits import digits
from offramp.demo.networks import DigitsCnn, DigitsTransformer, as_backbone
from offramp.demo.training import train
from offramp.features import ArraySource, StoreSource, extract
from offramp.frontier import Frontier, fit, save
from offramp.report import Findings, find, write_report

__all__ = ["COST", "EPOCHS", "report", "run", "trained_networks"]

EPOCHS = 25
"""Of each network: about 18 s of one processor together."""


COST = 0.1
"""Of the transformer's: the point that is reported."""


def trained_networks(source: ArraySource, *, progress: bool = True) -> tuple[DigitsCnn, DigitsTransformer]:
    """A cheap network and a strong one, trained on digits: the same every time.

    Args:
        source: Images to train on.
        progress: Whether to show progress bars.
    """
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        small, large = DigitsCnn(), DigitsTransformer()
        train(small, source, epochs=EPOCHS, learning_rate=0.01, progress=progress)
        train(large, source, epochs=EPOCHS, learning_rate=0.002, moved=0.5, progress=progress)
    return small, large


def run(folder: Path, *, progress: bool = True) -> Frontier:
    """Train two networks on digits, put the cheap one before the transformer, fit off-ramps to both, save them.

    Takes about 25 s of one processor, and gives the same networks and points each time on the same machine.

    Args:
        folder: Gets the cached features (`features`) and the saved frontier (`artifact`).
        progress: Whether to show progress bars.

    Returns:
        The frontier of the cascade.
    """
    parts = digits()
    small, large = trained_networks(parts.train, progress=progress)
    with _one_thread():
        both = cascade(as_backbone(small), as_backbone(large))
        frontier = fit(both, parts.train, parts.validation, store=folder / "features", progress=progress)
        save(frontier, folder / "artifact", weights=True)
    return frontier


def report(frontier: Frontier, folder: Path, *, progress: bool = True) -> tuple[Findings, Path]:
    """Measure the demo's frontier on images that nothing has seen.

    Args:
        frontier: What `run` gave.
        folder: Gets their features (`features`) and the page (`report`).
        progress: Whether to show progress bars.

    Returns:
        What was found, and the page.
    """
    test = digits().test
    pooling = frontier.pooling.name
    with _one_thread():
        store = extract(
            frontier.backbone,
            test,
            folder / "features" / test.name,
            poolings=(pooling,),
            views=(frontier.preprocessing,),
            progress=progress,
        )
        point = frontier.choose(cost=COST).point
        found = find(frontier, StoreSource(store, pooling=pooling), point=point, name="digits nothing has seen")
        return found, write_report(found, folder / "report", source=test)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread: steps this small spend more on waiting for others, and results differ by their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
