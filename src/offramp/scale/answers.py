"""Answers as Parquet, the columns those of `offramp predict`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offramp.errors import MissingExtraError
from offramp.features.sealed import file_sha256, whole_file
from offramp.network import Answer

try:
    import pyarrow
    from pyarrow import parquet
except ImportError as error:
    raise MissingExtraError("answers as Parquet need pyarrow: pip install 'offramp[ray]'") from error

__all__ = ["write_answers"]


def write_answers(
    path: Path, inputs: Sequence[str], answer: Answer, *, miscoverage: float, classes: Sequence[str] = ()
) -> tuple[int, str]:
    """Write answers into a Parquet file, which is there as a whole or not at all.

    Columns are `input` (what to know it by), `label`, `confidence`, `exit` (from 0), `cost` (a share of the full
    network's), `set` (a list) and `probabilities` (a list, in the order of the classes). Pages carry checksums.

    Args:
        path: The file.
        inputs: What to know each of N inputs by.
        answer: Of those inputs.
        miscoverage: Of the prediction sets: one that the answer has.
        classes: Names of the classes; their numbers if empty.

    Returns:
        Bytes and sha256 of what was written here: another writer may have put its own in its place by now.

    Example:
        >>> import torch
        >>> from tempfile import TemporaryDirectory
        >>> probabilities = torch.tensor([[0.9, 0.1], [0.4, 0.6]])
        >>> answer = Answer(
        ...     torch.tensor([0, 1]), probabilities, torch.tensor([0, 2]), torch.tensor([0.25, 1.0]),
        ...     {0.05: torch.tensor([[True, False], [True, True]])},
        ... )
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "a.parquet")
        ...     _ = write_answers(file, ["0", "1"], answer, miscoverage=0.05, classes=["cat", "dog"])
        ...     rows = parquet.read_table(file).to_pylist()
        >>> rows[1]["label"], rows[1]["exit"], rows[0]["set"], rows[1]["set"]
        ('dog', 2, ['cat'], ['cat', 'dog'])
    """
    count, num_classes = answer.probabilities.shape
    chosen = answer.prediction_sets[miscoverage].numpy()
    ends = np.concatenate([np.zeros(1, np.int64), chosen.sum(1).cumsum()]).astype(np.int32)
    probabilities = pyarrow.array(answer.probabilities.flatten().numpy(), pyarrow.float32())
    table = pyarrow.table(
        {
            "input": pyarrow.array(list(inputs), pyarrow.string()),
            "label": _named(answer.labels.numpy(), classes),
            "confidence": pyarrow.array(answer.probabilities.amax(1).numpy(), pyarrow.float32()),
            "exit": pyarrow.array(answer.exits.numpy(), pyarrow.int32()),
            "cost": pyarrow.array(answer.relative_cost.numpy(), pyarrow.float64()),
            "set": pyarrow.ListArray.from_arrays(pyarrow.array(ends), _named(chosen.nonzero()[1], classes)),
            "probabilities": pyarrow.ListArray.from_arrays(
                pyarrow.array(np.arange(count + 1, dtype=np.int32) * num_classes), probabilities
            ),
        }
    )
    with whole_file(path) as temporary:
        parquet.write_table(table, temporary, write_page_checksum=True)
        return temporary.stat().st_size, file_sha256(temporary)


def _named(labels: Any, classes: Sequence[str]) -> Any:
    """Classes by their names, or by their numbers where they have none."""
    if not classes:
        return pyarrow.array(labels, pyarrow.int64())
    return pyarrow.array(list(classes), pyarrow.string()).take(pyarrow.array(labels, pyarrow.int64()))
