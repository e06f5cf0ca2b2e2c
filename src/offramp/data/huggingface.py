"""Datasets as Hugging Face's library saves them to disk; never from the network."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from offramp.data.arrow import ArrowInputs, label_values
from offramp.data.dataset import Dataset, StoredDataset
from offramp.data.identity import files_digest, joint_digest
from offramp.data.labels import Labels, read_labels, unlabelled
from offramp.data.location import Location
from offramp.data.selection import Selection
from offramp.data.splits import choose_split
from offramp.errors import InputError, MissingExtraError

try:
    import datasets
except ImportError as error:
    raise MissingExtraError("reading saved datasets needs datasets; pip install 'offramp[huggingface]'") from error

__all__ = ["open_huggingface"]


def open_huggingface(path: Location, selection: Selection) -> Dataset:
    """Open a folder that `save_to_disk` of `datasets.Dataset` or `datasets.DatasetDict` wrote.

    Columns are chosen as in tables, and read by their types: see `ArrowInputs`. The names of a `ClassLabel` are the
    classes, and where its labels are all -1, as test splits often have them, the data is unlabelled.

    Args:
        path: The folder.
        selection: `split` chooses from a `DatasetDict`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> datasets.disable_progress_bars()
        >>> with TemporaryDirectory() as folder:
        ...     pets = datasets.Dataset.from_dict({"text": ["purrs", "barks"], "label": ["cat", "dog"]})
        ...     pets.save_to_disk(folder)
        ...     open_huggingface(Path(folder), Selection()).read(1, 2).inputs
        ['barks']
    """
    if not isinstance(path, Path):
        raise InputError(f"expected a saved dataset on disk, got {path}; copy it, or write Parquet: that is read there")
    folder = _split(path, selection)
    if not any(folder.glob("*.arrow")):  # so an empty dataset is saved, and it cannot be loaded
        raise InputError(f"{folder} is empty; give at least one row")
    try:
        # Absolute, so that no name can be taken for an address; Arrow, so that images are decoded here, from bytes or
        # local files, where `datasets` would follow addresses.
        saved = datasets.load_from_disk(str(folder.resolve())).with_format("arrow")
    except Exception as error:  # it raises whatever it stumbles over
        raise InputError(f"{folder} cannot be read as a saved dataset: {error}; save it anew") from error
    if not len(saved):
        raise InputError(f"{folder} is empty; give at least one row")
    columns = selection.columns(saved.column_names)
    inputs = saved.select_columns(list(columns.inputs))
    make = ArrowInputs(inputs[:1], folder=folder, chosen=selection.column is not None)
    files = [Path(file["filename"]) for file in saved.cache_files]  # not all of the folder, where results are cached
    content = files_digest(folder, [file.name for file in files])
    images: Sequence[str]
    images, sizes = make.files([(0, inputs[:])]) if make.may_name_files else ((), ())
    return StoredDataset(
        partial(_read, inputs, make),
        _labels(saved, columns.label, selection, folder),
        stem="-".join(part for part in (path.resolve().name, selection.split) if part),
        content=joint_digest(content, files_digest(folder, images, sizes)) if images else content,
        columns=columns.inputs,
        keys=images if len(images) == len(saved) else (),
    )


def _read(inputs: Any, make: ArrowInputs, start: int, stop: int) -> Any:
    return make(inputs[start:stop], start)


def _split(path: Path, selection: Selection) -> Path:
    listing = path / "dataset_dict.json"
    if not listing.is_file():
        selection.refuse_split(path)
        return path
    try:
        splits = [str(name) for name in json.loads(listing.read_text())["splits"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{listing} does not list splits; save the dataset anew") from error
    return path / choose_split(path, selection.split, splits)


def _labels(saved: Any, label: str | None, selection: Selection, folder: Path) -> Labels:
    if label is None:
        return unlabelled(len(saved), selection.classes)
    values = label_values(saved.select_columns([label])[:].column(label), place=f"column '{label}' of {folder}")
    feature = saved.features[label]
    names = feature.names if isinstance(feature, datasets.ClassLabel) else ()
    return read_labels(values, classes=selection.classes, names=names, place=lambda row: f"row {row} of {folder}")
