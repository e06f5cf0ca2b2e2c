"""Small graph datasets of TU Dortmund, from the folder named by OFFRAMP_DATA: what benchmarks and tests share."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.cifar import data_folder
from offramp.errors import InputError
from offramp.features import Rows, Source, sample_ids

__all__ = ["tu_graphs"]


class _Graphs:
    """Some graphs of a file, held whole: the largest has 270,000 edges."""

    def __init__(self, path: Path, folds: Sequence[int] | None) -> None:
        with np.load(path, allow_pickle=False) as saved:
            columns = {name: saved[name].astype(np.int64) for name in saved.files}
        fold, labels = columns["fold"], columns["y"]
        self._rows = np.arange(len(labels)) if folds is None else np.isin(fold, list(folds)).nonzero()[0]
        self._file = f"tu_graphs/{path.stem}"
        self.name = self._file if folds is None else f"{self._file}/folds-{'-'.join(map(str, folds))}"
        self._labels = labels
        self._nodes, self._edges = columns["num_nodes"], columns["num_edges"]
        self._features = np.eye(columns["node_tag"].max() + 1, dtype=np.float32)[columns["node_tag"]]
        self._ends = np.stack([columns["edge_src"], columns["edge_dst"]])

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Rows:
        """Graphs `{"x": M x C, "edge_index": 2 x E, "nodes": n}`."""
        rows = self._rows[start:stop]
        nodes, edges = self._nodes[rows], self._edges[rows]
        # The file counts nodes from 0 in each graph, a batch counts them through.
        first = np.repeat(np.cumsum(nodes) - nodes, edges)
        inputs = {
            "x": self._features[_blocks(self._nodes, rows)],
            "edge_index": self._ends[:, _blocks(self._edges, rows)] + first,
            "nodes": nodes,
        }
        return Rows(inputs, self._labels[rows], sample_ids(self._file, rows.tolist()))


def _blocks(counts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the chosen blocks lie, if block i is `counts[i]` long."""
    ends = np.cumsum(counts)
    return np.concatenate([np.arange(ends[row] - counts[row], ends[row]) for row in rows.tolist()])


def tu_graphs(name: str, *, folds: Sequence[int] | None = None) -> Source:
    """Graphs in the order of their file, a node's tag as one of its features (IMDBBINARY has but one tag).

    Args:
        name: "MUTAG", "PROTEINS", "ENZYMES", "NCI1" or "IMDBBINARY".
        folds: Only those of the ten, 0 to 9; a few graphs of MUTAG and PROTEINS are in none.
    """
    folder = data_folder() / "tu_graphs"
    if not (folder / f"{name}.npz").exists():
        known = sorted(path.stem for path in folder.glob("*.npz"))
        raise InputError(f"no graphs '{name}' in {folder}; there are {', '.join(known) or 'none'}")
    return _Graphs(folder / f"{name}.npz", folds)
