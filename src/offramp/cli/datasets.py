"""Data as the command line names it."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from offramp.backbone import Backbone, Preprocessing
from offramp.cli.interrupts import resumable
from offramp.cli.places import check_writable
from offramp.data import Dataset, open_data
from offramp.errors import InputError, OverlapWarning, StoreError
from offramp.features import IdSketch, Store, StoreSource, extract, make_plan
from offramp.features.source import read_ids
from offramp.features.splits import find_overlap
from offramp.frontier import Frontier

__all__ = [
    "Columns",
    "check_taken",
    "check_unused",
    "classes_for",
    "features_of",
    "kept_in",
    "open_labelled",
    "read_classes",
]


def read_classes(file: Path | None) -> tuple[str, ...]:
    """The names in a file of classes, one a line; none without a file."""
    if file is None:
        return ()
    try:
        names = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the classes from {file}: {error}; give a text file, one name a line") from error
    names = [name for name in names if name]
    if not names:
        raise InputError(f"{file} is empty; give the names of the classes, one a line")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{file} names the class '{twice}' twice; give each class one line")
    return tuple(names)


def classes_for(network: Backbone | Frontier, file: Path | None) -> tuple[str, ...]:
    """Return the names of a network's classes: its own, else those of the file; of both, they must be the same.

    Args:
        network: The network, or an artifact of it.
        file: What `--classes` names.
    """
    named, own = read_classes(file), network.classes
    if named and own and named != own:
        if set(named) == set(own):
            raise InputError(
                f"{file} has the classes of the network in another order; leave --classes out: it knows its own"
            )
        place = next((i for i, pair in enumerate(zip(named, own, strict=False)) if pair[0] != pair[1]), None)
        how = (
            f"{len(named)} names for {len(own)} classes"
            if place is None
            else f"'{named[place]}' for class {place}, which the network calls '{own[place]}'"
        )
        raise InputError(f"expected {file} to have the classes of the network, got {how}; leave --classes out")
    return own or named


@dataclass(frozen=True)
class Columns:
    """Where inputs and labels are."""

    label: str
    """Column of the labels."""
    column: str | None
    """Column of the inputs."""
    split: str | None
    """Which split."""


def open_labelled(
    path: str,
    backbone: Backbone,
    columns: Columns,
    *,
    classes: Sequence[str],
    preprocessing: Preprocessing | None = None,
) -> Dataset:
    """Open data that has labels, classes of this network; it is prepared as the network says if nothing else is."""
    data = open_data(path, classes=classes, **vars(columns))
    if not data.labelled:
        raise InputError(
            f"{path} has no labels; name their column with --label, or give a sub-folder of images a class"
        )
    if data.classes and len(data.classes) != backbone.num_classes:
        shown = ", ".join(data.classes[:5]) + (", ..." if len(data.classes) > 5 else "")
        raise InputError(
            f"{path} has {len(data.classes)} classes ({shown}), the network '{backbone.name}' has "
            f"{backbone.num_classes}; name all of them, in the order of the network's outputs, with --classes FILE"
        )
    check_taken(path, data, backbone, backbone.preprocessing if preprocessing is None else preprocessing)
    return data


@torch.inference_mode()
def check_taken(path: str, data: Dataset, backbone: Backbone, preprocessing: Preprocessing) -> None:
    """Run a network on the first sample: what it does not take is told before the long work, and what to do."""
    inputs = data.read(0, 1).inputs
    try:
        hidden = backbone.prepare(preprocessing(inputs))
        with backbone.explaining(hidden):
            backbone(hidden)
    except InputError as error:
        kind, needed = _kind_of(inputs)
        hint = f". Let its function set backbone.preprocessing = {needed}" if needed and not preprocessing.steps else ""
        raise InputError(
            f"{path} has {kind}, the network '{backbone.name}' does not take them as they are: {error}{hint}"
        ) from error


def _kind_of(inputs: Any) -> tuple[str, str]:
    """What raw inputs are, and what prepares such for a network."""
    if isinstance(inputs, list) and isinstance(inputs[0], str):
        return "texts", "offramp.backbone.text_preprocessing(tokenizer, longest=...)"
    if isinstance(inputs, list):
        return "images", "offramp.image_preprocessing(mean=..., std=...)"
    return "numbers", ""


@contextmanager
def kept_in(store: Path | None) -> Iterator[Path]:
    """The folder of features: the one asked for, or one that is gone at the end; Ctrl-C says which."""
    if store is not None:
        check_writable(store, "--store")
        with resumable("Run the same command again."):
            yield store
        return
    how = "Run the same command again; --store FOLDER keeps what is done."
    with resumable(how), TemporaryDirectory(prefix="offramp-") as folder:
        yield Path(folder)


@contextmanager
def check_unused(
    data: Dataset, used: Mapping[str, IdSketch], folder: Path, *, name: str, progress: bool
) -> Iterator[None]:
    """Refuse data that artifacts were made from, before the network runs over it; up to 1 % of it is left out.

    Inside, the library leaves the same rows out again, without a second warning.

    Args:
        data: The samples.
        used: The splits of the artifacts by name.
        folder: Features of the data, where they are extracted: their ids are read faster.
        name: What the data is called, for messages.
        progress: Show a bar while ids are read.
    """
    try:
        ids = Store.open(folder / data.name).ids()
    except StoreError:
        ids = read_ids(data, progress=progress)
    find_overlap(ids, used, name=name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        yield


def features_of(frontier: Frontier, data: Dataset, folder: Path, *, progress: bool) -> StoreSource:
    """The samples' features under a frontier's network, extracted unless they are there."""
    pooling, views = frontier.pooling.name, (frontier.preprocessing,)
    # Of one sample first: nobody wants to hear of it after the whole data.
    widths = make_plan(frontier.backbone, data, poolings=(pooling,), views=views).poolings[pooling]
    for stage, (expected, got) in enumerate(zip(frontier.bank.widths, widths, strict=True)):
        if expected != got:
            raise InputError(
                f"the exit after stage {stage} reads {expected} features, these inputs give {got}; give inputs of the "
                "size the exits were fitted on, or fit exits for this network"
            )
    store = extract(frontier.backbone, data, folder / data.name, poolings=(pooling,), views=views, progress=progress)
    return StoreSource(store, pooling=pooling)
