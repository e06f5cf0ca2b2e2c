"""Graph datasets from the folder named by OFFRAMP_DATA, for benchmarks and tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError
from offramp.features._source import Rows
from offramp_bench.cifar import data_folder
from offramp_bench.row_ids import row_ids

__all__ = ["Columns", "Graphs", "read_columns", "tu_graphs"]


Columns = Mapping[str, npt.NDArray[Any]]
"""A file of graphs: `y`, `num_nodes`, `num_edges`, `edge_src`, `edge_dst`, and the columns of its nodes."""


class Graphs:
    """Some graphs of a file. The file is held in memory: the largest has 1,800,000 edges.

    Args:
        columns: The file.
        features: `M x C`, one row per node of the whole file.
        file: Name of the file; ids are made from it and the row in it.
        rows: Row numbers of the graphs; all if left out.
        name: Name of these rows.
    """

    def __init__(
        self,
        columns: Columns,
        features: npt.NDArray[np.float32],
        *,
        file: str,
        rows: npt.NDArray[np.int64] | None = None,
        name: str | None = None,
    ) -> None:
        numbers = {key: columns[key].astype(np.int64) for key in ("y", "num_nodes", "num_edges")}
        self._labels, self._nodes, self._edges = numbers.values()
        self._rows = np.arange(len(self._labels)) if rows is None else rows
        self._file = file
        self.name = file if name is None else name
        self._features = features
        self._ends = np.stack([columns["edge_src"], columns["edge_dst"]])

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Rows:
        """Read graphs `{"x": M x C, "edge_index": 2 x E, "nodes": n}`."""
        return self.at(np.arange(start, min(stop, len(self))))

    def at(self, places: npt.NDArray[np.int64]) -> Rows:
        """Read any graphs, in any order.

        Args:
            places: `n` numbers from 0 to N-1.
        """
        rows = self._rows[places]
        nodes, edges = self._nodes[rows], self._edges[rows]
        # The file numbers nodes from 0 in each graph, a batch over all graphs.
        first = np.repeat(np.cumsum(nodes) - nodes, edges)
        inputs = {
            "x": self._features[_blocks(self._nodes, rows)],
            "edge_index": self._ends[:, _blocks(self._edges, rows)] + first,
            "nodes": nodes,
        }
        return Rows(inputs, self._labels[rows], row_ids(self._file, rows.tolist()))


def _blocks(counts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions in the chosen blocks, where block i is `counts[i]` long."""
    ends = np.cumsum(counts)
    return np.concatenate([np.arange(ends[row] - counts[row], ends[row]) for row in rows.tolist()])


def read_columns(path: Path) -> Columns:
    """Read a file of graphs."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def tu_graphs(name: str, *, folds: Sequence[int] | None = None) -> Graphs:
    """Return graphs of TU Dortmund in the order of their file; features are one-hot tags (IMDBBINARY has one tag).

    Args:
        name: "MUTAG", "PROTEINS", "ENZYMES", "NCI1" or "IMDBBINARY".
        folds: Folds to keep, 0 to 9; all graphs if left out. A few of MUTAG and PROTEINS are in no fold.
    """
    folder = data_folder() / "tu_graphs"
    if not (folder / f"{name}.npz").exists():
        known = sorted(path.stem for path in folder.glob("*.npz"))
        raise InputError(f"no graphs '{name}' in {folder}; there are {', '.join(known) or 'none'}")
    columns, file = read_columns(folder / f"{name}.npz"), f"tu_graphs/{name}"
    tags = columns["node_tag"].astype(np.int64)
    features = np.eye(tags.max() + 1, dtype=np.float32)[tags]
    if folds is None:
        return Graphs(columns, features, file=file)
    rows = np.isin(columns["fold"], list(folds)).nonzero()[0]
    return Graphs(columns, features, file=file, rows=rows, name=f"{file}/folds-{'-'.join(map(str, folds))}")
