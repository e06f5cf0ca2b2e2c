"""The formats that data may have, what of it to read, and the one way to open it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.data.dataset import Dataset
from offramp.errors import InputError
from offramp.registry import Registry, unknown_name

if TYPE_CHECKING:
    import datasets

__all__ = ["FORMATS", "Columns", "Selection", "choose_split", "open_data"]

LABEL = "label"
FIRST_CHOICES = ("text", "image")
"""Columns that are the inputs if they are there, whatever else is."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table that hold the label and the inputs."""

    label: str | None
    """Column of the labels, if there is one."""
    inputs: tuple[str, ...]
    """Columns of the inputs; more than one are numbers."""


@dataclass(frozen=True)
class Selection:
    """What a caller of `open_data` asked for, as every format is given it.

    Example:
        >>> Selection(label="species").columns(["species", "text", "url"])
        Columns(label='species', inputs=('text',))
    """

    classes: tuple[str, ...] = ()
    """Names of all classes in the order of the network's outputs; empty to take them from the data."""
    label: str = LABEL
    """Column of the labels."""
    column: str | None = None
    """Column of the inputs; None to find it."""
    split: str | None = None
    """Split, where the data has several."""

    def __post_init__(self) -> None:
        if len(set(self.classes)) != len(self.classes):
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise InputError(f"expected each class once, got '{twice}' twice; give the names without repeats")

    def label_in(self, names: Sequence[str]) -> str | None:
        """Return the label's column among `names`; None if there is none and none was asked for."""
        if self.label in names:
            return self.label
        if self.label != LABEL:
            raise unknown_name("column", self.label, names)
        return None

    def input_in(self, names: Sequence[str], label: str | None, *, kind: str = "column") -> str:
        """Return the chosen input among `names`, which is not the label: with that, any network would be right."""
        if self.column is None or self.column not in names:
            raise unknown_name(kind, str(self.column), names)
        if self.column == label:
            raise InputError(
                f"expected a {kind} of inputs, got '{label}', that of the labels; name another: column=... or label=..."
            )
        return self.column

    def columns(self, names: Sequence[str]) -> Columns:
        """Find label and inputs among the columns `names`."""
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"expected columns with a name of their own, got '{twice}' twice; rename one")
        label = self.label_in(names)
        rest = [name for name in names if name != label]
        if self.column is not None:
            return Columns(label, (self.input_in(names, label),))
        if not rest:
            raise InputError(f"expected a column of inputs beside '{label}', got none; add one called text or image")
        first = next((name for name in FIRST_CHOICES if name in rest), None)
        return Columns(label, (first,) if first else tuple(rest))

    def refuse_split(self, place: str | Path) -> None:
        """Refuse a choice of split for data that has no splits."""
        if self.split is not None:
            raise InputError(f"expected no split for {place}, which has none, got '{self.split}'; leave it out")


def choose_split(path: Path, split: str | None, splits: Sequence[str]) -> str:
    """Return the split that was asked for, which must be one of `splits`."""
    if split is None:
        raise InputError(f"{path} holds the splits {', '.join(splits)}; choose one: split='{splits[0]}'")
    if split not in splits:
        raise unknown_name("split", split, splits)
    return split


FORMATS = Registry[Callable[[Path, Selection], Dataset]]("data format")
"""What opens data: for files by the end of their name, for folders by what lies inside."""
for suffix in (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz"):
    FORMATS.add(suffix, "offramp.data.table:open_table")
for suffix in (".arrow", ".json", ".json.gz", ".jsonl", ".jsonl.gz", ".parquet", ".tar"):
    FORMATS.add(suffix, "offramp.data.huggingface:open_files")
FORMATS.add(".npz", "offramp.data.npz:open_npz")
FORMATS.add("a folder of images", "offramp.data.images:open_folder")
FORMATS.add("a folder saved by Hugging Face datasets", "offramp.data.huggingface:open_saved")


def open_data(
    data: "str | Path | datasets.Dataset",
    *,
    classes: Sequence[str] = (),
    label: str = LABEL,
    column: str | None = None,
    split: str | None = None,
) -> Dataset:
    r"""Open data, whatever its format.

    Read by this library: a folder of images with one sub-folder per class, `.csv` and `.tsv` with a header, `.txt` with
    one text per line (each also with `.gz`), and `.npz`. Everything else is read by the `datasets` library: what
    `save_to_disk` wrote, files of Parquet, JSON, Arrow and WebDataset, patterns such as `shards/*.parquet`, and
    addresses.

    Opening reads labels, and of tables and npz all. The result can be pickled: elsewhere it opens the files again when
    rows are asked for. Numbers must be finite and within the range of single precision.

    Args:
        data: A file or folder, a pattern or address of files as text, or a `datasets.Dataset`.
        classes: Names of all classes in the order of the network's outputs. Without them the order is the data's own:
            integer labels as they stand, names sorted. Where one of the names is a whole number, labels are names, "3"
            the class called so and not the fourth.
        label: Column of the labels; where there is no column `label`, or it is empty in every row, the data is
            unlabelled.
        column: Column of the inputs. Without it: `text`, else `image`, else all that is not the label, as numbers.
        split: Which split to take, where the data has several.

    Raises:
        InputError: Nothing there can be read, or it is empty, or not what it should be; the message says where.
        UnknownNameError: There is no such class, column or split.
        MissingExtraError: The library that reads this format is not installed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "pets.csv").write_text("text,label\npurrs,cat\nbarks,dog\n")
        ...     data = open_data(Path(folder, "pets.csv"), classes=["dog", "cat"])
        >>> rows = data.read(0, 2)
        >>> rows.inputs, rows.labels.tolist(), rows.ids.tolist()
        (['purrs', 'barks'], [1, 0], [..., ...])
    """
    if isinstance(classes, str):
        raise InputError(f"expected classes as a list of names, got the text '{classes}'; split it")
    selection = Selection(tuple(classes), label, column, split)
    if isinstance(data, str) and "://" in data:
        from offramp.data.huggingface import open_files  # not above: most data does without the library

        dataset = open_files(data, selection)
    elif isinstance(data, str | Path):
        path = Path(data).expanduser().absolute()  # as another process may work in another folder
        dataset = FORMATS.get(_format(path))(path, selection)
    else:
        from offramp.data.huggingface import open_huggingface

        dataset = open_huggingface(data, selection)
    if not len(dataset):
        raise InputError(f"{data} is empty; give at least one row")
    return dataset


def _format(path: Path) -> str:
    if path.is_dir():
        saved = (path / "state.json").is_file() or (path / "dataset_dict.json").is_file()
        return "a folder saved by Hugging Face datasets" if saved else "a folder of images"
    takes = f"offramp opens {', '.join(FORMATS)}"
    pattern = not path.exists() and any(mark in str(path) for mark in "*?[")
    if not path.is_file() and not pattern:
        raise InputError(f"expected a file or folder, found nothing at {path}; {takes}")
    suffixes = [name for name in FORMATS if name.startswith(".") and path.name.lower().endswith(name)]
    if not suffixes:
        raise InputError(f"expected a format that offramp knows, got {path.name}; {takes}")
    return ".parquet" if pattern else max(suffixes, key=len)  # whatever the suffix, `datasets` reads patterns
