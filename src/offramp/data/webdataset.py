"""WebDataset: tar files in which members of one name but for the ending are a sample."""

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from offramp.data.dataset import Dataset, StoredDataset
from offramp.data.identity import files_digest, large_file_digest
from offramp.data.image_files import is_image_name
from offramp.data.labels import Labels, read_labels, unlabelled
from offramp.data.location import Location, folder_name
from offramp.data.packed_texts import PackedTexts
from offramp.data.selection import LABEL, Selection
from offramp.data.shards import expand_pattern, find_shards, map_shards
from offramp.data.tar import read_members
from offramp.data.tar_inputs import TarInputs, decode_text
from offramp.errors import InputError
from offramp.registry import unknown_name

__all__ = ["open_webdataset"]

KINDS = ("image", "npy", "txt")
"""What inputs may be; the first that is there is taken."""
CLASS = "cls"
MOST_SHOWN = 10


def open_webdataset(path: Location, selection: Selection) -> Dataset:
    """Open tar files as the library webdataset writes them.

    A member is called by a sample's key, a dot and an ending: `n01/tom.jpg`, `n01/tom.cls`. Inputs are images, else
    `.npy` arrays of one shape, else `.txt`. Labels are in `.cls`, a number or a name, or in the field `label` of
    `.json`. Other members, and hidden ones, are passed over. The key is what a row is called in answers.

    Opening goes through all headers, and a header lies before each member: at an address, where few bytes take as long
    as many, nearly all is fetched once. After that, rows are read where they lie.

    Args:
        path: A tar file, a folder of `*.tar` in the order of their names, or a pattern (`pets-{000..009}.tar`).
        selection: `column` is the ending of the inputs, such as `left.png`; `label` the ending, or the field of
            `.json`, of the labels; `split` chooses among shards called `train-000.tar` and the like.

    Example:
        >>> import tarfile
        >>> from io import BytesIO
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with tarfile.open(Path(folder, "pets.tar"), "w") as archive:
        ...         for name, content in (("tom.txt", b"purrs"), ("tom.cls", b"1")):
        ...             member = tarfile.TarInfo(name)
        ...             member.size = len(content)
        ...             archive.addfile(member, BytesIO(content))
        ...     data = open_webdataset(Path(folder, "pets.tar"), Selection())
        ...     data.read(0, 1).inputs, data.read(0, 1).labels.tolist(), data.keys(0, 1)
        (['purrs'], [1], ['tom'])
    """
    stem = path.stem
    if path.is_dir():
        folder, names, stem = path, find_shards(path, selection, ".tar"), folder_name(path)
    else:
        selection.refuse_split(path)
        # A file may be called like a pattern, too.
        folder, names = (path.parent, [path.name]) if path.is_file() else expand_pattern(path)
    column = selection.column.lower() if selection.column is not None else None
    shards = map_shards(partial(_index, column=column, label=selection.label), folder, names)
    inputs = _inputs(path, folder, names, shards, column)
    return StoredDataset(
        inputs,
        _labels(shards, inputs, selection),
        stem="-".join(part for part in (stem, selection.split) if part),
        content=large_file_digest(path) if path.is_file() else files_digest(folder, names),
        columns=() if column is None else (column,),
        keys=inputs.keys,
    )


@dataclass(frozen=True)
class _Shard:
    """What a tar file holds, sample by sample."""

    keys: PackedTexts
    """What each is called."""
    starts: dict[str, npt.NDArray[np.int64]]
    """By kind of input, the first byte of each sample's; -1 where it has none."""
    sizes: dict[str, npt.NDArray[np.int64]]
    """Its bytes."""
    labels: list[str | None]
    """As they stand in the file."""
    endings: frozenset[str]
    """All that there are."""


def _index(file: Location, *, column: str | None, label: str) -> _Shard:
    rows, texts = dict[str, int](), dict[str, str]()
    starts, sizes = ({kind: array("q") for kind in KINDS} for _ in range(2))
    labels: list[str | None] = []
    endings = set[str]()
    for name, start, size, read in read_members(file):
        above, slash, last = name.removeprefix("./").rpartition("/")
        stem, dot, ending = last.partition(".")
        if not dot or not stem:
            continue  # hidden, or not of a sample
        ending = ending.lower()
        endings.add(ending)
        key = f"{above}{slash}{stem}"
        row = rows.setdefault(key, len(rows))
        if row == len(labels):
            labels.append(None)
            for numbers in (*starts.values(), *sizes.values()):
                numbers.append(-1)
        kind = _kind(ending) if column in (None, ending) else None
        if kind is not None:
            if starts[kind][row] >= 0:
                raise InputError(
                    f"expected one {kind} a sample, got one more of '{key}' in {file}: {last}; name the ending to "
                    f"read: column='{ending}'"
                )
            starts[kind][row], sizes[kind][row] = start, size
        value = None
        if ending == (CLASS if label == LABEL else label.lower()) and ending != column:
            value = decode_text(read(), place=f"{name} in {file}").strip()
        elif ending == "json" and labels[row] is None:
            value = _field(read(), label, f"{name} in {file}")
        if value is not None:
            labels[row] = texts.setdefault(value, value)  # not a text of its own for every row
    return _Shard(PackedTexts(rows), _arrays(starts), _arrays(sizes), labels, frozenset(endings))


def _kind(ending: str) -> str | None:
    last = ending.rpartition(".")[2]
    if is_image_name(f"a.{last}"):
        return "image"
    return last if last in KINDS else None


def _arrays(numbers: dict[str, "array[int]"]) -> dict[str, npt.NDArray[np.int64]]:
    return {kind: np.array(values, np.int64) for kind, values in numbers.items()}


def _field(content: bytes, name: str, place: str) -> str | None:
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise InputError(f"{place} cannot be read as JSON: {error}; write it anew") from error
    value = fields.get(name) if isinstance(fields, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | str | None):
        raise InputError(f"expected '{name}' of {place} as an integer or a name, got {value!r}; convert it")
    return None if value is None else str(value)


def _inputs(
    path: Location, folder: Location, names: Sequence[str], shards: Sequence[_Shard], column: str | None
) -> TarInputs:
    endings = sorted(frozenset[str]().union(*(shard.endings for shard in shards)))
    if not endings:
        raise InputError(f"{path} is empty; give at least one sample")
    if column is not None and column not in endings:
        raise unknown_name("ending", column, endings)
    kind = next((kind for kind in KINDS if any((shard.starts[kind] >= 0).any() for shard in shards)), None)
    if kind is None:
        found = ", ".join(f".{ending}" for ending in ([column] if column else endings)[:MOST_SHOWN])
        raise InputError(f"expected samples with an image, .npy or .txt in {path}, got {found}; add or convert them")
    starts = np.concatenate([shard.starts[kind] for shard in shards])
    inputs = TarInputs(
        folder,
        names,
        [len(shard.keys) for shard in shards],
        keys=PackedTexts(key for shard in shards for key in shard.keys),
        starts=starts,
        sizes=np.concatenate([shard.sizes[kind] for shard in shards]),
        kind=kind,
    )
    without = np.flatnonzero(starts < 0)
    if len(without):
        what = f".{column}" if column else {"image": "image"}.get(kind, f".{kind}")
        raise InputError(f"{inputs.place(int(without[0]))} has no {what}; add it, or leave the sample out")
    return inputs


def _labels(shards: Sequence[_Shard], inputs: TarInputs, selection: Selection) -> Labels:
    values = [label for shard in shards for label in shard.labels]
    if any(values):
        return read_labels(values, classes=selection.classes, place=inputs.place)
    if selection.label != LABEL:
        raise InputError(
            f"expected labels in .{selection.label}, or in that field of .json, found none; name another: label=..."
        )
    return unlabelled(len(values), selection.classes)
