"""Batches as columns: dictionaries of arrays, pandas data frames, Arrow tables and record batches.

The libraries of frames and tables are not imported to recognise them: who has such a batch has imported its library.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError
from offramp.model._answer import Answer

__all__ = ["ANSWER_COLUMNS", "Column", "answer_columns", "column_names", "read_column", "write_columns"]

Column = npt.NDArray[Any]
"""N values, or an array of N rows."""

ANSWER_COLUMNS = ("label", "confidence", "exit", "cost", "set", "probabilities", "error")
"""Columns of answers, in their order; those of `offramp predict`, and `error`."""


def column_names(batch: Any) -> list[str]:
    """Return the names of a batch's columns.

    Args:
        batch: The batch.

    Raises:
        InputError: If it is none of the kinds above.
    """
    if isinstance(batch, Mapping) or _is_frame(batch):
        return list(batch)
    if _is_table(batch):
        return list(batch.column_names)
    raise InputError(
        expected="a batch as columns: a dictionary of arrays, a pandas DataFrame or a pyarrow Table",
        got=type(batch).__name__,
        hint="give inputs that are no columns to model.predict",
    )


def read_column(batch: Any, name: str) -> Column:
    """Return a column as an array of N rows; of N objects where the values are texts, lists or bytes.

    Args:
        batch: The batch.
        name: Name of the column.
    """
    if _is_table(batch):
        column = batch.column(name)
        if not len(column):
            return np.empty(0, dtype=object)  # Arrow cannot make an empty array of each of its types
        array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        tensor = getattr(array, "to_numpy_ndarray", None)  # of Arrow's own fixed-shape tensors
        values = tensor() if tensor is not None else array.to_numpy(zero_copy_only=False)
    else:
        values = batch[name].to_numpy() if _is_frame(batch) else batch[name]
    if isinstance(values, list | tuple):
        values = to_objects(values)
    values = np.asarray(values)
    return values.astype(object) if values.dtype.kind in "SU" else values


def answer_columns(answer: Answer, *, miscoverage: float | None, probabilities: bool) -> dict[str, Column]:
    """Return answers as columns.

    A bad input has the label "" (-1 where classes have no names), exit -1 if the network could not take it, an empty
    set, and its message in `error`, which is "" for the others.

    Args:
        answer: N answers.
        miscoverage: Miscoverage of the sets; None leaves the column out.
        probabilities: True adds `N x K` probabilities.
    """
    names = np.array(answer.classes, dtype=object) if answer.classes else np.arange(answer.probabilities.shape[1])
    columns = {
        "label": np.array(answer.names, dtype=object) if answer.classes else answer.labels.numpy(),
        "confidence": answer.probabilities.amax(1).float().numpy(),
        "exit": answer.exits.numpy().astype(np.int32),
        "cost": answer.relative_cost.double().numpy(),
    }
    if miscoverage is not None:
        rows, members = answer.prediction_sets[miscoverage].numpy().nonzero()
        ends = np.searchsorted(rows, np.arange(1, len(answer)))
        sets = np.split(names[members], ends) if len(answer) else []
        columns["set"] = to_objects([labels.tolist() for labels in sets])
    if probabilities:
        columns["probabilities"] = answer.probabilities.float().numpy()
    columns["error"] = to_objects([answer.errors.get(row, "") for row in range(len(answer))])
    return columns


def write_columns(batch: Any, keep: Sequence[str], columns: Mapping[str, Column]) -> Any:
    """Return a batch of the same kind, with some of its columns and new ones.

    Args:
        batch: The batch.
        keep: Names of its columns to keep.
        columns: The new columns.
    """
    if isinstance(batch, Mapping):
        return {**{name: batch[name] for name in keep}, **columns}
    if _is_frame(batch):
        cells = {name: list(column) if column.ndim > 1 else column for name, column in columns.items()}
        return batch[list(keep)].assign(**cells)
    pyarrow = sys.modules["pyarrow"]
    item = pyarrow.string() if columns["label"].dtype == object else pyarrow.int64()
    types = {
        "label": item,
        "confidence": pyarrow.float32(),
        "exit": pyarrow.int32(),
        "cost": pyarrow.float64(),
        "set": pyarrow.list_(item),
        "probabilities": pyarrow.list_(pyarrow.float32()),
        "error": pyarrow.string(),
    }
    arrays = [pyarrow.array(list(column), types[name]) for name, column in columns.items()]
    return type(batch).from_arrays([*(batch.column(name) for name in keep), *arrays], names=[*keep, *columns])


def to_objects(values: Sequence[Any]) -> Column:
    """Return an array of N objects, whatever they are: numpy would join lists of one length."""
    objects = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        objects[row] = value
    return objects


def _is_frame(batch: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(batch, pandas.DataFrame)


def _is_table(batch: Any) -> bool:
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(batch, pyarrow.Table | pyarrow.RecordBatch)
