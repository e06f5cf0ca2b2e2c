"""Which rows a backbone is fitted on, which it never sees, and which it is scored on: "seen", "unseen", "test".

Rows are chosen by class and sample id, a hash, never by their order: files are often sorted. What goes into a part
depends on the ids alone and stays what it is.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from offramp._registry import unknown_name
from offramp.features import Source
from offramp.features._source import Rows
from offramp_bench.cifar import Sheets, data_folder
from offramp_bench.graphs import Graphs, read_columns, tu_graphs
from offramp_bench.row_ids import row_ids

__all__ = ["PARTS", "Chosen", "cifar10", "cifar100", "cifar100_long_tailed", "nci1", "ranks", "superpixels", "svhn"]

PARTS = ("seen", "unseen", "test")

UNSEEN_OF = 5
"""Of so many training rows, the network never sees one."""

IMBALANCE = 100
"""How many times as many images the first class of CIFAR-100-LT has as the last: the usual one of its literature."""

SVHN_ROWS = 10_000
"""Images there are of SVHN in either split; there are more labels."""

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class Chosen:
    """Some rows of a source of arrays, in its order.

    Args:
        source: Where they are.
        chosen: `N` booleans, which rows.
        name: What the rows are.
    """

    def __init__(self, source: Source, chosen: Booleans, *, name: str) -> None:
        self.name = name
        self._source = source
        self._rows = chosen.nonzero()[0]

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Rows:
        """Rows `start` to `stop - 1` of the chosen ones."""
        rows = self._rows[start:stop]
        first = int(rows[0])
        around = self._source.read(first, int(rows[-1]) + 1)
        here = rows - first
        return Rows(around.inputs[here], around.labels[here], around.ids[here])


def ranks(labels: Integers, ids: Integers) -> Integers:
    """The place of each row among those of its class, smallest id first: 0, 1, 2, ..."""
    order = np.lexsort((ids, labels))
    counts = np.bincount(labels)
    found = np.empty_like(labels)
    found[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return found


def cifar10(part: str) -> Source:
    """CIFAR-10: 40,000, 10,000 and 10,000 images, each with as many of every class."""
    return _images("cifar10", part, lambda sheets: _ranks(sheets) % UNSEEN_OF == UNSEEN_OF - 1)


def cifar100(part: str) -> Source:
    """CIFAR-100: 40,000, 10,000 and 10,000 images; what the given network has not seen is said by its makers."""
    return _images("cifar100", part, lambda sheets: np.arange(len(sheets)) // 100 % 5 == 4)


def cifar100_long_tailed(part: str) -> Source:
    """CIFAR-100-LT: class c of 0 to 99 has a share 100^(-c/99) of the images of class 0.

    Args:
        part: One of `PARTS`, or "long-tailed test": the rows of the test that keep these shares, too.
    """
    if part == "test":
        return cifar100("test")
    split = "test" if part == "long-tailed test" else "train"
    sheets = Sheets(data_folder() / "cifar100", split)
    rank, most = _ranks(sheets), np.bincount(sheets.labels).max()
    kept = rank < np.maximum(1, np.round(most * IMBALANCE ** (-np.arange(100) / 99)))[sheets.labels]
    if part == "long-tailed test":
        return Chosen(sheets, kept, name="cifar100/test/long-tailed")
    unseen = rank % UNSEEN_OF == UNSEEN_OF - 1
    return Chosen(sheets, kept & _part(part, unseen), name=f"cifar100/train/long-tailed/{part}")


def svhn(part: str) -> Source:
    """SVHN: 10,000 of its training images and 10,000 of its test.

    Digits of one photograph overlap, so that a photograph is seen whole or not at all.
    """
    with np.load(data_folder() / "svhn" / "train-labels.npz", allow_pickle=False) as labels:
        photographs = labels["src"][:SVHN_ROWS].tolist()
    hashed = row_ids("svhn/train/photograph", photographs)
    return _images("svhn", part, lambda _: hashed % UNSEEN_OF == UNSEEN_OF - 1, rows=SVHN_ROWS)


def superpixels(part: str) -> Graphs:
    """Digits of MNIST as graphs of about 75 regions each: 4,800, 1,200 and 1,000.

    A node has three features: its mean intensity, and where it is, from -1 to 1 down and across.
    """
    split = "test" if part == "test" else "train"
    columns = read_columns(data_folder() / "mnist_superpixels" / f"{split}.npz")
    file = f"mnist_superpixels/{split}"
    places = columns["node_pos"].astype(np.float32) / 13.5 - 1
    features = np.concatenate([columns["node_val"][:, None].astype(np.float32) / 255, places], axis=1)
    if part == "test":
        return Graphs(columns, features, file=file)
    labels = columns["y"].astype(np.int64)
    unseen = ranks(labels, row_ids(file, range(len(labels)))) % UNSEEN_OF == UNSEEN_OF - 1
    return Graphs(columns, features, file=file, rows=_part(part, unseen).nonzero()[0], name=f"{file}/{part}")


FOLDS = {"seen": range(7), "unseen": range(7, 8), "test": range(8, 10)}
"""Of the ten of NCI1."""


def nci1(part: str) -> Graphs:
    """NCI1, molecules that act against a kind of cancer or do not: about 2,880, 410 and 820."""
    if part not in FOLDS:
        raise unknown_name("part", part, FOLDS)
    return tu_graphs("NCI1", folds=FOLDS[part])


def _images(dataset: str, part: str, unseen: Callable[[Sheets], Booleans], *, rows: int | None = None) -> Source:
    folder = data_folder() / dataset
    if part == "test":
        return Sheets(folder, "test", rows)
    sheets = Sheets(folder, "train", rows)
    return Chosen(sheets, _part(part, unseen(sheets)), name=f"{sheets.name}/{part}")


def _part(part: str, unseen: Booleans) -> Booleans:
    if part not in PARTS:
        raise unknown_name("part", part, PARTS)
    return unseen if part == "unseen" else ~unseen


def _ranks(sheets: Sheets) -> Integers:
    return ranks(sheets.labels, row_ids(sheets.name, range(len(sheets))))
