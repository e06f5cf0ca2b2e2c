"""The formats data may have on disk, and the one way to open them all."""

from collections.abc import Callable, Sequence

from offramp.data.dataset import Dataset
from offramp.data.location import Location, locate, names_in
from offramp.data.selection import LABEL, Selection
from offramp.data.shards import is_pattern, is_shard_name
from offramp.data.splits import split_of_file
from offramp.errors import InputError
from offramp.registry import Registry

__all__ = ["FORMATS", "open_data"]

Opener = Callable[[Location, Selection], Dataset]

FORMATS = Registry[Opener]("data format")
"""What opens data: for files by the end of their name, for folders by what lies inside."""
for suffix in (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz"):
    FORMATS.add(suffix, "offramp.data.table:open_table")
FORMATS.add(".npz", "offramp.data.npz:open_npz")
FORMATS.add(".parquet", "offramp.data.parquet:open_parquet")
FORMATS.add(".tar", "offramp.data.webdataset:open_webdataset")
FORMATS.add("a folder of images", "offramp.data.folder:open_folder")
FORMATS.add("a folder of .parquet shards", "offramp.data.parquet:open_parquet")
FORMATS.add("a folder of .tar shards", "offramp.data.webdataset:open_webdataset")
FORMATS.add("a folder saved by Hugging Face datasets", "offramp.data.huggingface:open_huggingface")


def open_data(
    path: str | Location,
    *,
    classes: Sequence[str] = (),
    label: str = LABEL,
    column: str | None = None,
    split: str | None = None,
) -> Dataset:
    r"""Open the data at a path, whatever its format.

    Folders hold images in a sub-folder a class, shards of Parquet or WebDataset, or what
    `datasets.Dataset.save_to_disk` wrote. Files are `.csv` and `.tsv` with a header, `.txt` with one text a line (each
    also with `.gz`), `.parquet`, `.npz` and `.tar`. All but saved datasets may also lie at an address.

    Opening reads labels and where the rows lie, and of tables and npz all. What it gives can be pickled: elsewhere it
    opens the files again when rows are asked for.

    Numbers must be finite and within the range of single precision in every format; others are refused, by Parquet,
    WebDataset and saved datasets when their rows are read, by the rest at once.

    Args:
        path: The file or folder, the pattern of tar files (`pets-{000..009}.tar`), or the address of any of these, as
            text, such as `s3://bucket/pets.parquet`.
        classes: Names of all classes in the order of the network's outputs. Without them the order is the data's own:
            integer labels as they stand, names sorted. Where one of the names is a whole number, labels are names, "3"
            the class called so and not the fourth.
        label: Column of the labels; where there is no column `label`, or it is empty in every row, the data is
            unlabelled.
        column: Column of the inputs. Without it: `text`, else `image`, else all that is not the label, as numbers. Of
            WebDataset the ending of a member, such as `left.png`.
        split: Which split to take, where the data has several.

    Raises:
        InputError: Nothing there can be read, or it is empty, or not what it should be; the message says where.
        UnknownNameError: There is no such class, column or split.
        MissingExtraError: The library that reads this format is not installed.

    Example:
        >>> from pathlib import Path
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
    place = locate(path)
    selection = Selection(tuple(classes), label, column, split)
    dataset = FORMATS.get(_format(place))(place, selection)
    if not len(dataset):
        raise InputError(f"{place} is empty; give at least one row")
    return dataset


def _format(path: Location) -> str:
    if path.is_dir():
        return _folder_format(path)
    takes = f"offramp opens {', '.join(FORMATS)}"
    if not path.is_file() and not (is_pattern(path) and path.name.lower().endswith(".tar")):
        raise InputError(f"expected a file or folder, found nothing at {path}; {takes}")
    suffixes = [name for name in FORMATS if name.startswith(".") and path.name.lower().endswith(name)]
    if not suffixes:
        raise InputError(f"expected a format that offramp knows, got {path.name}; {takes}")
    return max(suffixes, key=len)


def _folder_format(path: Location) -> str:
    names = {*names_in(path)}
    if {"state.json", "dataset_info.json"} <= names or "dataset_dict.json" in names:
        return "a folder saved by Hugging Face datasets"
    for suffix in (".parquet", ".tar"):
        if any(is_shard_name(name, suffix) for name in names):
            return f"a folder of {suffix} shards"
    # As downloaded from the Hugging Face hub, the shards are one folder further.
    further = names_in(path / "data") if "data" in names and (path / "data").is_dir() else []
    hub = any(is_shard_name(name, ".parquet") and split_of_file(path / name) for name in further)
    return "a folder of .parquet shards" if hub else "a folder of images"
