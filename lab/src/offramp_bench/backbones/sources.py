"""Parts of each dataset: "seen" (a backbone is fitted on it), "unseen" (it is not) and "test".

Samples are chosen by class and sample id, a hash, never by their order, because files are often sorted. The parts
depend on the ids alone and do not change.
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

__all__ = ["PARTS", "Subset", "cifar10", "cifar100", "cifar100_long_tailed", "nci1", "ranks", "superpixels", "svhn"]

PARTS = ("seen", "unseen", "test")

UNSEEN_OF = 5
"""One in so many training samples is unseen."""

IMBALANCE = 100
"""Images of the first class of CIFAR-100-LT per image of the last; the usual value in the literature."""

SVHN_ROWS = 10_000
"""Images of SVHN in either split; there are more labels."""

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class Subset:
    """Some rows of a source of arrays, in its order.

    Args:
        source: The source.
        mask: `N` booleans, true for the rows to keep.
        name: Name of the rows.
    """

    def __init__(self, source: Source, mask: Booleans, *, name: str) -> None:
        self.name = name
        self._source = source
        self._rows = mask.nonzero()[0]

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Rows:
        """Read rows `start` to `stop - 1` of those kept."""
        rows = self._rows[start:stop]
        first = int(rows[0])
        span = self._source.read(first, int(rows[-1]) + 1)
        places = rows - first
        return Rows(span.inputs[places], span.labels[places], span.ids[places])


def ranks(labels: Integers, ids: Integers) -> Integers:
    """Return the rank of each row within its class, 0 for the smallest id."""
    order = np.lexsort((ids, labels))
    counts = np.bincount(labels)
    within_class = np.empty_like(labels)
    within_class[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return within_class


def cifar10(part: str) -> Source:
    """Return CIFAR-10: 40,000, 10,000 and 10,000 images, with equally many of each class."""
    return _images("cifar10", part, lambda sheets: _ranks(sheets) % UNSEEN_OF == UNSEEN_OF - 1)


def cifar100(part: str) -> Source:
    """Return CIFAR-100: 40,000, 10,000 and 10,000 images, by the split of the network that comes with the data."""
    return _images("cifar100", part, lambda sheets: np.arange(len(sheets)) // 100 % 5 == 4)


def cifar100_long_tailed(part: str) -> Source:
    """Return CIFAR-100-LT: class c of 0 to 99 has 100^(-c/99) times as many images as class 0.

    Args:
        part: One of `PARTS`, or "long-tailed test": a part of the test with the same shares of classes.
    """
    if part == "test":
        return cifar100("test")
    split = "test" if part == "long-tailed test" else "train"
    sheets = Sheets(data_folder() / "cifar100", split)
    rank, most = _ranks(sheets), np.bincount(sheets.labels).max()
    kept = rank < np.maximum(1, np.round(most * IMBALANCE ** (-np.arange(100) / 99)))[sheets.labels]
    if part == "long-tailed test":
        return Subset(sheets, kept, name="cifar100/test/long-tailed")
    unseen = rank % UNSEEN_OF == UNSEEN_OF - 1
    return Subset(sheets, kept & _part(part, unseen), name=f"cifar100/train/long-tailed/{part}")


def svhn(part: str) -> Source:
    """Return SVHN: 10,000 of its training images and 10,000 of its test images.

    Digits of one photograph overlap, so that all images of a photograph are in the same part.
    """
    with np.load(data_folder() / "svhn" / "train-labels.npz", allow_pickle=False) as labels:
        photographs = labels["src"][:SVHN_ROWS].tolist()
    hashes = row_ids("svhn/train/photograph", photographs)
    return _images("svhn", part, lambda _: hashes % UNSEEN_OF == UNSEEN_OF - 1, rows=SVHN_ROWS)


def superpixels(part: str) -> Graphs:
    """Return digits of MNIST as graphs of about 75 regions each: 4,800, 1,200 and 1,000 graphs.

    A node has three features: its mean intensity, and its position, from -1 to 1 down and across.
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
"""The folds of NCI1 in each part, of ten."""


def nci1(part: str) -> Graphs:
    """Return NCI1, molecules that are active against a kind of cancer or not: about 2,880, 410 and 820."""
    if part not in FOLDS:
        raise unknown_name("part", part, FOLDS)
    return tu_graphs("NCI1", folds=FOLDS[part])


def _images(dataset: str, part: str, unseen: Callable[[Sheets], Booleans], *, rows: int | None = None) -> Source:
    folder = data_folder() / dataset
    if part == "test":
        return Sheets(folder, "test", rows)
    sheets = Sheets(folder, "train", rows)
    return Subset(sheets, _part(part, unseen(sheets)), name=f"{sheets.name}/{part}")


def _part(part: str, unseen: Booleans) -> Booleans:
    if part not in PARTS:
        raise unknown_name("part", part, PARTS)
    return unseen if part == "unseen" else ~unseen


def _ranks(sheets: Sheets) -> Integers:
    return ranks(sheets.labels, row_ids(sheets.name, range(len(sheets))))
