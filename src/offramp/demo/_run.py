"""The demo, from images to a report."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from offramp.backbone._cascading import cascade
from offramp.demo._digits import digits
from offramp.demo._networks import DigitsCnn, DigitsTransformer, as_backbone
from offramp.demo._training import train
from offramp.features import ArraySource
from offramp.model._extraction import extract_for
from offramp.model._fitting import fit
from offramp.model._model import EarlyExitModel
from offramp.report import find, write_report
from offramp.report._findings import Findings

__all__ = ["COST", "EPOCHS", "report", "run", "trained_networks"]

EPOCHS = 25
"""Epochs of each network: about 18 s on one processor together."""


COST = 0.1
"""Relative cost of the reported point."""


def trained_networks(source: ArraySource, *, progress: bool = True) -> tuple[DigitsCnn, DigitsTransformer]:
    """Train a cheap network and a strong one on digits, deterministically.

    Args:
        source: Images to train on.
        progress: Show progress bars.
    """
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        small, large = DigitsCnn(), DigitsTransformer()
        train(small, source, epochs=EPOCHS, learning_rate=0.01, progress=progress)
        train(large, source, epochs=EPOCHS, learning_rate=0.002, moved=0.5, progress=progress)
    return small, large


def run(folder: Path, *, progress: bool = True) -> EarlyExitModel:
    """Train two networks on digits, fit exits to their cascade, and save the model.

    Takes about 25 s on one processor; networks and points are the same each time on the same machine.

    Args:
        folder: Folder for the cached features (`features`) and the saved model (`artifact`).
        progress: Show progress bars.

    Returns:
        The model of the cascade.
    """
    parts = digits()
    small, large = trained_networks(parts.train, progress=progress)
    with _one_thread():
        both = cascade(as_backbone(small), as_backbone(large))
        model = fit(both, parts.train, parts.validation, store=folder / "features", progress=progress)
        model.save(folder / "artifact", weights=True)
    return model


def report(model: EarlyExitModel, folder: Path, *, progress: bool = True) -> tuple[Findings, Path]:
    """Evaluate the demo's model on held-out images and write a report.

    Args:
        model: The model that `run` returned.
        folder: Folder for their features (`features`) and the page (`report`).
        progress: Show progress bars.

    Returns:
        The findings, and the path of the page.
    """
    test = digits().test
    with _one_thread():
        features = extract_for(model, test, folder / "features", progress=progress)
        findings = find(model, features, point=model.at(cost=COST).point, name="Held-out digits")
        command = f"offramp predict {shlex.quote(str(folder / 'artifact'))} --data IMAGES --out answers.csv"
        return findings, write_report(findings, folder / "report", source=test, command=command)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: small steps are faster so, and results depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
