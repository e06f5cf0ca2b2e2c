"""Numpy archives: labels under a usual name, and whatever else is in the file as inputs."""

import zipfile
import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.data.dataset import Dataset, StoredDataset
from offramp.data.identity import file_digest
from offramp.data.labels import read_labels, unlabelled
from offramp.data.location import Location, opened
from offramp.data.selection import LABEL, Selection
from offramp.data.single_precision import first_unfit
from offramp.data.unpacking import check_unpacked
from offramp.errors import InputError

__all__ = ["open_npz"]

LABELS = ("y", "labels", "label")


def open_npz(path: Location, selection: Selection) -> Dataset:
    """Open a `.npz` archive; all its arrays are loaded, but never pickles.

    Args:
        path: The file. Labels are the array `y`, `labels` or `label`; one other array is the inputs as they are,
            several are a dictionary. Numbers keep their type, but must be finite and within the range of single
            precision.
        selection: `column` names the one array to take as inputs, `label` the array of labels.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     np.savez(Path(folder, "toy.npz"), x=np.eye(3), y=[0, 1, 0])
        ...     data = open_npz(Path(folder, "toy.npz"), Selection())
        >>> data.read(1, 3).inputs.shape, data.read(1, 3).labels.tolist()
        ((2, 3), [1, 0])
    """
    selection.refuse_split(path)
    arrays = _loaded(path)
    label = _label(path, arrays, selection)
    inputs = {name: array for name, array in arrays.items() if name != label}
    if selection.column is not None:
        chosen = selection.input_in(list(arrays), label, kind="array")
        inputs = {chosen: arrays[chosen]}
    if not inputs:
        raise InputError(f"expected an array of inputs in {path}, got {', '.join(arrays) or 'nothing'}; add one")
    used = inputs if label is None else {**inputs, label: arrays[label]}
    if len({array.shape[:1] for array in used.values()}) != 1 or () in {array.shape for array in used.values()}:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in used.items())
        raise InputError(f"expected arrays with one row a sample in {path}, got {shapes}; name the inputs: column=...")
    for name, array in inputs.items():
        if wrong := first_unfit(array):
            raise InputError(
                f"expected a finite single-precision number in row {wrong[0]} of '{name}' of {path}, got "
                f"{array[wrong]}; fill it in or leave the row out"
            )
    count = len(next(iter(inputs.values())))
    labels = unlabelled(count, selection.classes)
    if label is not None:
        array = arrays[label]
        values = array if array.ndim != 1 or array.dtype.kind in "biu" else array.tolist()
        labels = read_labels(values, classes=selection.classes, place=lambda row: f"row {row} of {path}")
    return StoredDataset(
        partial(_rows, inputs),
        labels,
        stem=path.stem,
        content=file_digest(path),
        columns=tuple(inputs),
    )


def _rows(inputs: Mapping[str, npt.NDArray[Any]], start: int, stop: int) -> Any:
    rows = {
        name: array[start:stop].tolist() if array.dtype.kind == "U" else array[start:stop].copy()
        for name, array in inputs.items()
    }
    return rows if len(rows) > 1 else next(iter(rows.values()))


def _label(path: Location, arrays: Mapping[str, Any], selection: Selection) -> str | None:
    if selection.label != LABEL:
        return selection.label_in(list(arrays))
    found = [name for name in LABELS if name in arrays]
    if len(found) > 1:
        raise InputError(f"expected one array of labels in {path}, got {', '.join(found)}; choose: label='{found[0]}'")
    return found[0] if found else None


def _loaded(path: Location) -> dict[str, npt.NDArray[Any]]:
    _refuse_bomb(path)
    with opened(path) as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (OSError, EOFError, KeyError, MemoryError, NotImplementedError, RuntimeError, ValueError) as error:
            what = f"{path} cannot be read as arrays without pickles: {error}"
            raise InputError(f"{what}; save numbers or texts") from error
        except (SyntaxError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{path} is broken: {error}; write it anew") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufU":
            kind = array.dtype if isinstance(array, np.ndarray) else "no array"
            raise InputError(f"expected numbers or texts in {path}, got {kind} under '{name}'; convert or remove it")
    return arrays


def _refuse_bomb(path: Location) -> None:
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is broken: {error}; write it anew with numpy.savez") from error
    check_unpacked(size, packed=path.stat().st_size, place=str(path))
