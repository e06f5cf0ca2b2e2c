"""Data by what `--data` and its companions say, and the features extracted from it."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from offramp.backbone._backbone import Backbone
from offramp.cli.console import resumable
from offramp.cli.places import check_writable
from offramp.data import open_data
from offramp.data._dataset import Dataset
from offramp.errors import InputError, OverlapWarning, StoreError
from offramp.features import StoreSource
from offramp.features._extraction import make_plan
from offramp.features._ids import IdSketch
from offramp.features._source import read_ids
from offramp.features._splits import find_overlap
from offramp.features._store import Store
from offramp.model import _extraction
from offramp.model._extraction import extract_for
from offramp.model._model import EarlyExitModel
from offramp.preprocessing import Preprocessing

__all__ = [
    "Columns",
    "check_inputs",
    "check_unused",
    "classes_for",
    "extract_features",
    "feature_folder",
    "open_labelled",
    "read_classes",
]


def read_classes(file: Path | None) -> tuple[str, ...]:
    """Read class names from a file, one per line; none without a file."""
    if file is None:
        return ()
    try:
        names = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the classes from {file}: {error}", hint="give a text file, one name per line"
        ) from error
    names = [name for name in names if name]
    if not names:
        raise InputError(f"{file} is empty", hint="give the names of the classes, one per line")
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise InputError(f"{file} names the class '{duplicate}' twice", hint="give each class one line")
    return tuple(names)


def classes_for(network: Backbone | EarlyExitModel, file: Path | None) -> tuple[str, ...]:
    """Return the class names of a network: its own, else those in the file; if it has both, they must be equal.

    Args:
        network: The network, or a model of it.
        file: File that `--classes` names.
    """
    named, own = read_classes(file), network.classes
    if named and own and named != own:
        if set(named) == set(own):
            raise InputError(
                f"{file} has the classes of the network in another order",
                hint="leave --classes out: the network knows its own",
            )
        place = next((i for i, pair in enumerate(zip(named, own, strict=False)) if pair[0] != pair[1]), None)
        difference = (
            f"{len(named)} names for {len(own)} classes"
            if place is None
            else f"'{named[place]}' for class {place}, which the network calls '{own[place]}'"
        )
        raise InputError(str(file), expected="the classes of the network", got=difference, hint="leave --classes out")
    return own or named


@dataclass(frozen=True)
class Columns:
    """The columns of inputs and labels, and the split."""

    label: str
    """Column of the labels."""
    column: str | None
    """Column of the inputs."""
    split: str | None
    """Name of the split."""


def open_labelled(
    path: str,
    backbone: Backbone,
    columns: Columns,
    *,
    classes: Sequence[str],
    preprocessing: Preprocessing | None = None,
) -> Dataset:
    """Open data with labels for this network; by default the network's own preprocessing prepares the inputs."""
    data = open_data(path, classes=classes, **vars(columns))
    if not data.labelled:
        raise InputError(
            f"{path} has no labels", hint="name their column with --label, or give one sub-folder of images per class"
        )
    if data.classes and len(data.classes) != backbone.num_classes:
        shown = ", ".join(data.classes[:5]) + (", ..." if len(data.classes) > 5 else "")
        raise InputError(
            path,
            expected=f"the {backbone.num_classes} classes of the network '{backbone.name}'",
            got=f"{len(data.classes)} ({shown})",
            hint="name all classes, in the order of the network's outputs, with --classes FILE",
        )
    check_inputs(path, data, backbone, backbone.preprocessing if preprocessing is None else preprocessing)
    return data


@torch.inference_mode()
def check_inputs(path: str, data: Dataset, backbone: Backbone, preprocessing: Preprocessing) -> None:
    """Run the network on the first sample, to refuse inputs it cannot take before the long work."""
    inputs = data.read(0, 1).inputs
    try:
        hidden = backbone.prepare(preprocessing(inputs))
        with backbone.explain_errors(hidden):
            backbone(hidden)
    except InputError as error:
        kind, needed = _kind_of(inputs)
        hint = f"let its function set backbone.preprocessing = {needed}" if needed and not preprocessing.steps else ""
        raise InputError(
            f"{path} has {kind}, the network '{backbone.name}' does not take them as they are: {error}", hint=hint
        ) from error


def _kind_of(inputs: Any) -> tuple[str, str]:
    """Return the kind of raw inputs, and a call that prepares such inputs for a network."""
    if isinstance(inputs, list) and isinstance(inputs[0], str):
        return "texts", "offramp.preprocessing.text_preprocessing(tokenizer, longest=...)"
    if isinstance(inputs, list):
        return "images", "offramp.image_preprocessing(mean=..., std=...)"
    return "numbers", ""


@contextmanager
def feature_folder(store: Path | None) -> Iterator[Path]:
    """Yield the folder for features: the one given, or a temporary one; on Ctrl-C, print how to continue."""
    advice = "Run the same command again; --store FOLDER keeps what is done."
    if store is not None:
        check_writable(store, "--store")
        advice = "Run the same command again."
    with resumable(advice), _extraction.feature_folder(store) as folder:
        yield folder


@contextmanager
def check_unused(
    data: Dataset, used: Mapping[str, IdSketch], folder: Path, *, name: str, progress: bool
) -> Iterator[None]:
    """Refuse data that artifacts were fitted on, before the network runs over it; up to 1 % of it is left out.

    Inside the context, the library leaves the same rows out again, without a second warning.

    Args:
        data: The samples.
        used: The splits of the artifacts by name.
        folder: Folder of features; ids are read from there if the data is already extracted, which is faster.
        name: Name of the data, for messages.
        progress: Show a progress bar while ids are read.
    """
    try:
        ids = Store.open(folder / data.name).ids()
    except StoreError:
        ids = read_ids(data, progress=progress)
    find_overlap(ids, used, name=name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)
        yield


def extract_features(model: EarlyExitModel, data: Dataset, folder: Path, *, progress: bool) -> StoreSource:
    """Extract the features of samples with a model's network, unless they are in the folder already."""
    pooling, views = model.pooling.name, (model.preprocessing,)
    # For one sample first, to refuse a wrong size before the long work.
    widths = make_plan(model.backbone, data, poolings=(pooling,), views=views).poolings[pooling]
    for stage, (expected, got) in enumerate(zip(model.exits.widths, widths, strict=True)):
        if expected != got:
            raise InputError(
                f"exit after stage {stage}",
                expected=f"{expected} features",
                got=f"{got} from these inputs",
                hint="give inputs of the size the exits were fitted on, or fit exits for this network",
            )
    return extract_for(model, data, folder, progress=progress)
