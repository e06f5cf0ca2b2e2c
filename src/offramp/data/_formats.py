"""The known data formats, the selection of columns, and `open_data`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from offramp._registry import Registry, unknown_name
from offramp.data._dataset import Dataset
from offramp.errors import InputError

if TYPE_CHECKING:
    import datasets

__all__ = ["FORMATS", "Selection", "TableColumns", "choose_split", "open_data"]

LABEL = "label"
FIRST_CHOICES = ("text", "image")
"""Columns that are taken as inputs if they exist."""


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table that hold the label and the inputs."""

    label: str | None
    """Column of the labels; None if there is none."""
    inputs: tuple[str, ...]
    """Columns of the inputs; several columns hold numbers."""


@dataclass(frozen=True)
class Selection:
    """The arguments of `open_data`, as every format takes them.

    Example:
        >>> Selection(label="species").columns(["species", "text", "url"])
        TableColumns(label='species', inputs=('text',))
    """

    classes: tuple[str, ...] = ()
    """Names of all classes in the order of the network's outputs; empty takes them from the data."""
    label: str = LABEL
    """Column of the labels."""
    column: str | None = None
    """Column of the inputs; None finds it."""
    split: str | None = None
    """Split to read, if the data has several."""

    def __post_init__(self) -> None:
        if len(set(self.classes)) != len(self.classes):
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise InputError("classes", expected="each class once", got=f"'{twice}' twice", hint="remove repeats")

    def label_in(self, names: Sequence[str]) -> str | None:
        """Return the column of the labels among `names`; None if the default one does not exist."""
        if self.label in names:
            return self.label
        if self.label != LABEL:
            raise unknown_name("column", self.label, names)
        return None

    def input_in(self, names: Sequence[str], label: str | None, *, kind: str = "column") -> str:
        """Return the selected column of inputs among `names`; refuse the column of the labels."""
        if self.column is None or self.column not in names:
            raise unknown_name(kind, str(self.column), names)
        if self.column == label:
            raise InputError(
                expected=f"a {kind} of inputs",
                got=f"'{label}', that of the labels",
                hint="name another: column=... or label=...",
            )
        return self.column

    def columns(self, names: Sequence[str]) -> TableColumns:
        """Find label and inputs among the columns `names`."""
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(expected="columns with different names", got=f"'{twice}' twice", hint="rename one")
        label = self.label_in(names)
        rest = [name for name in names if name != label]
        if self.column is not None:
            return TableColumns(label, (self.input_in(names, label),))
        if not rest:
            raise InputError(
                expected=f"a column of inputs beside '{label}'", got="none", hint="add one called text or image"
            )
        first = next((name for name in FIRST_CHOICES if name in rest), None)
        return TableColumns(label, (first,) if first else tuple(rest))

    def refuse_split(self, place: str | Path) -> None:
        """Refuse a split for data that has no splits."""
        if self.split is not None:
            raise InputError(
                expected=f"no split for {place}, which has none", got=f"'{self.split}'", hint="leave it out"
            )


def choose_split(path: Path, split: str | None, splits: Sequence[str]) -> str:
    """Return `split`, which must be one of `splits`."""
    if split is None:
        raise InputError(f"{path} holds the splits {', '.join(splits)}", hint=f"choose one: split='{splits[0]}'")
    if split not in splits:
        raise unknown_name("split", split, splits)
    return split


FORMATS = Registry[Callable[[Path, Selection], Dataset]]("data format")
"""Functions that open data: of files by the end of their name, of folders by their content."""
for suffix in (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz"):
    FORMATS.add(suffix, "offramp.data._table:open_table")
for suffix in (".arrow", ".json", ".json.gz", ".jsonl", ".jsonl.gz", ".parquet", ".tar"):
    FORMATS.add(suffix, "offramp.data._huggingface:open_files")
FORMATS.add(".npz", "offramp.data._npz:open_npz")
FORMATS.add("a folder of images", "offramp.data._images:open_folder")
FORMATS.add("a folder saved by Hugging Face datasets", "offramp.data._huggingface:open_saved")


def open_data(
    data: "str | Path | datasets.Dataset",
    *,
    classes: Sequence[str] = (),
    label: str = LABEL,
    column: str | None = None,
    split: str | None = None,
) -> Dataset:
    r"""Open data of any known format.

    This library reads folders of images with one sub-folder per class, `.csv` and `.tsv` with a header, `.txt` with one
    text per line (each also with `.gz`), and `.npz`. The `datasets` library reads folders that `save_to_disk` wrote,
    Parquet, JSON, Arrow and WebDataset files, patterns such as `shards/*.parquet`, and addresses.

    Opening checks all labels and cells. Rows are read from the files on demand, which must stay as they are; `.npz` and
    packed tables are held in memory. The result can be pickled; another process opens the files again. Numbers must be
    finite and within the range of single precision.

    Args:
        data: A file or folder, a pattern or address of files as text, or a `datasets.Dataset`.
        classes: Names of all classes in the order of the network's outputs. By default, integer labels are class
            numbers, and names are numbered in sorted order. If one of the names is an integer, all labels are names:
            "3" is the class with that name, not the fourth.
        label: Column of the labels; without a column `label`, or if it is empty in every row, the data is unlabelled.
        column: Column of the inputs. By default: `text`, else `image`, else all columns but the label, as numbers.
        split: Split to read, if the data has several.

    Raises:
        InputError: If the data cannot be read, is empty or invalid; the message says where.
        UnknownNameError: If there is no such class, column or split.
        MissingExtraError: If the library that reads this format is not installed.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "pets.csv").write_text("text,label\npurrs,cat\nbarks,dog\n")
        ...     rows = open_data(Path(folder, "pets.csv"), classes=["dog", "cat"]).read(0, 2)
        >>> rows.inputs, rows.labels.tolist(), rows.ids.tolist()
        (['purrs', 'barks'], [1, 0], [..., ...])
    """
    if isinstance(classes, str):
        raise InputError("classes", expected="a list of names", got=f"the text '{classes}'", hint="split it")
    selection = Selection(tuple(classes), label, column, split)
    if isinstance(data, str) and "://" in data:
        from offramp.data._huggingface import open_files  # most data does not need the library

        dataset = open_files(data, selection)
    elif isinstance(data, str | Path):
        path = Path(data).expanduser().absolute()  # another process may work in another folder
        dataset = FORMATS.get(_find_format(path))(path, selection)
    else:
        from offramp.data._huggingface import open_huggingface

        dataset = open_huggingface(data, selection)
    if not len(dataset):
        raise InputError(f"{data} is empty", hint="give at least one row")
    return dataset


def _find_format(path: Path) -> str:
    if path.is_dir():
        saved = (path / "state.json").is_file() or (path / "dataset_dict.json").is_file()
        return "a folder saved by Hugging Face datasets" if saved else "a folder of images"
    known = f"offramp opens {', '.join(FORMATS)}"
    pattern = not path.exists() and any(mark in str(path) for mark in "*?[")
    if not path.is_file() and not pattern:
        raise InputError(expected="a file or folder", got=f"nothing at {path}", hint=known)
    suffixes = [name for name in FORMATS if name.startswith(".") and path.name.lower().endswith(name)]
    if not suffixes:
        raise InputError(expected="a known format", got=path.name, hint=known)
    return ".parquet" if pattern else max(suffixes, key=len)  # `datasets` reads patterns of any suffix
