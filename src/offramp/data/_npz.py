"""Numpy archives: labels under a usual name, and all other arrays as inputs."""

import zipfile
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from offramp.data._dataset import Dataset, StoredDataset, check_numbers
from offramp.data._files import check_unpacked, hash_file
from offramp.data._formats import LABEL, Selection
from offramp.data._labels import Labels, read_labels
from offramp.errors import InputError

__all__ = ["open_npz"]

LABELS = ("y", "labels", "label")


def open_npz(path: Path, selection: Selection) -> Dataset:
    """Open a `.npz` archive; all its arrays are loaded, but never pickles.

    Args:
        path: The file. Labels are the array `y`, `labels` or `label`. One other array is the inputs, several are a
            dictionary. Numbers keep their type, but must be finite and within the range of single precision.
        selection: `column` names the only array of inputs, `label` the array of labels.
    """
    selection.refuse_split(path)
    arrays = _load(path)
    label = _find_label(path, arrays, selection)
    inputs = {name: array for name, array in arrays.items() if name != label}
    if selection.column is not None:
        name = selection.input_in(list(arrays), label, kind="array")
        inputs = {name: arrays[name]}
    if not inputs:
        raise InputError(expected=f"an array of inputs in {path}", got=", ".join(arrays) or "none", hint="add one")
    used = inputs if label is None else {**inputs, label: arrays[label]}
    if len({array.shape[:1] for array in used.values()}) != 1 or () in {array.shape for array in used.values()}:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in used.items())
        raise InputError(
            expected=f"arrays with one row per sample in {path}", got=shapes, hint="name the inputs: column=..."
        )
    for name, array in inputs.items():
        check_numbers(array, partial(_describe_row, path, name))
    labels = Labels.missing(len(next(iter(inputs.values()))), selection.classes)
    if label is not None:
        array = arrays[label]
        values = array if array.ndim != 1 or array.dtype.kind in "biu" else array.tolist()
        labels = read_labels(values, classes=selection.classes, place=lambda row: f"row {row} of {path}")
    return StoredDataset(Arrays(inputs), labels, stem=path.stem, content=hash_file(path), columns=tuple(inputs))


def _describe_row(path: Path, name: str, row: int) -> str:
    return f"row {row} of '{name}' of {path}"


@final
class Arrays:
    """The inputs of consecutive rows: one array or a dictionary; texts are a list.

    Args:
        arrays: The arrays by name.
        first: Number of their first row.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]], first: int = 0) -> None:
        self._arrays, self._first = arrays, first

    def __call__(self, start: int, stop: int) -> Any:
        """Return a copy of the inputs of rows `start` to `stop - 1`."""
        rows = {
            name: array.tolist() if array.dtype.kind == "U" else array for name, array in self._cut(start, stop).items()
        }
        return rows if len(rows) > 1 else next(iter(rows.values()))

    def part(self, start: int, stop: int) -> "Arrays":
        """Return the inputs of these rows only."""
        return Arrays(self._cut(start, stop), start)

    def _cut(self, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
        return {name: array[start - self._first : stop - self._first].copy() for name, array in self._arrays.items()}


def _find_label(path: Path, arrays: Mapping[str, Any], selection: Selection) -> str | None:
    if selection.label != LABEL:
        return selection.label_in(list(arrays))
    names = [name for name in LABELS if name in arrays]
    if len(names) > 1:
        raise InputError(
            expected=f"one array of labels in {path}", got=", ".join(names), hint=f"choose one: label='{names[0]}'"
        )
    return names[0] if names else None


def _load(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a valid .npz file: {error}", hint="write it again with numpy.savez") from error
    check_unpacked(size, packed=path.stat().st_size, place=str(path))
    try:
        with np.load(path, allow_pickle=False) as loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except (SyntaxError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is not a valid .npz file: {error}", hint="write it again with numpy.savez") from error
    except (OSError, EOFError, KeyError, MemoryError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read: {error}",
            hint="save arrays of numbers or texts with numpy.savez; pickled objects are not loaded",
        ) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufU":
            kind = array.dtype if isinstance(array, np.ndarray) else "no array"
            raise InputError(
                expected=f"numbers or texts in {path}", got=f"{kind} under '{name}'", hint="convert or remove it"
            )
    return arrays
