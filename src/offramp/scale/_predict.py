"""Batch inference over files by Ray Data, which continues after a lost driver: files with answers are skipped."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from offramp._files import as_place, write_resumable
from offramp._remote import find_file_system
from offramp.errors import InputError, MissingExtraError, StoreError
from offramp.model._predictor import Predictor
from offramp.scale._workers import open_workers

try:
    import pyarrow
    from pyarrow import dataset, parquet
except ImportError as error:
    raise MissingExtraError("inference over files needs pyarrow", hint="pip install 'offramp[ray]'") from error

__all__ = ["predict_files"]

KEY = "_predictor.json"
"""File of the settings that answers depend on: readers of Parquet skip names that begin with an underscore."""

FORMATS = {".parquet": "parquet", ".arrow": "arrow", ".csv": "csv", ".json": "json", ".jsonl": "json"}
"""Formats of inputs, by their suffix in lower case."""

MOST_NAMES = 5
"""Names of files that an error lists at most."""

MOST_BLOCKS = 10_000
"""Blocks of Ray Data at most: each takes the driver some milliseconds, and holds several files where there are more."""


def predict_files(
    predictor: Predictor, inputs: str | Path, output: str | Path, *, batch_rows: int = 4096, **options: Any
) -> list[str]:
    """Answer files of inputs, and write one Parquet file of answers for each: `a/b.parquet` for `a/b.csv`.

    A file of answers is written whole or not at all, and a file that is there is not written again: after Ctrl-C, an
    error or a lost driver, the same call continues. Apart from that, `ray.data.Dataset.map_batches` with the predictor
    does the same, with any source and sink of Ray Data. Workers get whole files, so give many, of some seconds each.

    If Ray is connected, that cluster is used and left running. Otherwise the cluster of RAY_ADDRESS is joined; without
    it, workers are started on this machine and stopped at the end.

    Args:
        predictor: `model.predictor(...)`.
        inputs: Folder or address (`s3://bucket/inputs`) of Parquet, Arrow, CSV or JSON-lines files, which do not change
            until the job has ended. Hidden files, and those whose name or folder begins with `_`, are left out.
        output: Another folder or address, for the answers to these inputs alone. Processes of other machines must see
            it, and the inputs.
        batch_rows: Rows that are read and answered together.
        **options: Options of `ray.data.Dataset.map`, such as `num_cpus`, `num_gpus` and `compute`.

    Returns:
        The names of the files that this call wrote.

    Raises:
        InputError: If there are no inputs, one of them has another format, two of them have one name without suffix, or
            one of the folders is in the other.
        StoreError: If the output holds answers of another predictor or to other inputs, or a place cannot be read.
    """
    if batch_rows < 1:
        raise InputError("batch_rows", expected="at least 1", got=f"{batch_rows}")
    work = _FileWork(predictor, _absolute(inputs), _absolute(output), batch_rows)
    _check_apart(work.inputs, work.output)
    files = _list_inputs(work.inputs)
    work.check_output()
    written = set(_list_files(work.output))
    remaining = [file for file in files if file["answers"] not in written]
    if not remaining:
        return []
    data = _ray_data()
    with open_workers(address=os.environ.get("RAY_ADDRESS") or None):  # Ray Data would join that cluster too
        blocks = data.from_items(remaining, override_num_blocks=min(len(remaining), MOST_BLOCKS))
        if isinstance(options.get("compute"), data.ActorPoolStrategy):  # actors take a class, tasks a function
            answered = blocks.map(_FileWork, fn_constructor_kwargs=vars(work), **options)
        else:
            answered = blocks.map(work, **options)
        return [str(row["answers"]) for row in answered.take_all()]


def _ray_data() -> Any:
    """Import Ray Data when first used, as that takes seconds."""
    try:
        import ray.data
    except ImportError as error:
        raise MissingExtraError("inference over files needs Ray Data", hint="pip install 'offramp[ray]'") from error
    return ray.data


def _absolute(folder: str | Path) -> str:
    """Return an address, or the path of a folder whatever the working folder of a process is."""
    place = as_place(folder)
    return str(place.absolute() if isinstance(place, Path) else place)


def _resolve(folder: str) -> str:
    """Return an address, or the path of a folder without symbolic links, which may come to lead elsewhere."""
    place = as_place(folder)
    return str(place.resolve() if isinstance(place, Path) else place)


def _check_apart(inputs: str, output: str) -> None:
    """Refuse an output that is the folder of the inputs, or one in it or above it: answers would become inputs."""
    (source, source_path), (target, target_path) = (find_file_system(_resolve(folder)) for folder in (inputs, output))
    paths = PurePosixPath(source_path), PurePosixPath(target_path)
    if source == target and (paths[0].is_relative_to(paths[1]) or paths[1].is_relative_to(paths[0])):
        raise InputError(
            "output",
            expected=f"a folder beside the inputs, neither in {inputs} nor above it",
            got=output,
            hint="choose another output",
        )


def _list_files(address: str) -> list[str]:
    """Return the files in a folder, relative to it; those of a folder that is not there are none."""
    filesystem, root = find_file_system(address)
    try:
        paths = sorted(filesystem.find(root))
    except FileNotFoundError:
        return []
    except Exception as error:  # each store has its own
        raise StoreError(
            f"cannot list the files in {address}: {error}", hint="check the address, the credentials and the network"
        ) from error
    return [path.removeprefix(root).lstrip("/") for path in paths]


def _list_inputs(address: str) -> list[dict[str, str]]:
    """Return the inputs of a job and the names of their answers, relative to their folders."""
    files: dict[str, str] = {}
    unknown: list[str] = []
    for name in _list_files(address):
        if not name or any(part.startswith(("_", ".")) for part in name.split("/")):  # "": it is a file's address
            continue
        suffix = PurePosixPath(name).suffix
        if suffix.lower() not in FORMATS:
            unknown.append(name)
            continue
        stem = name.removesuffix(suffix)
        answers = f"{stem}.parquet"
        if answers in files:
            raise InputError(
                expected="inputs that differ in name without their suffix",
                got=f"{files[answers]} and {name}",
                hint="rename one of them",
            )
        files[answers] = name
    if unknown:
        more = f" and {len(unknown) - MOST_NAMES} more" if len(unknown) > MOST_NAMES else ""
        raise InputError(
            f"inputs in {address}",
            expected=f"only {', '.join(FORMATS)} files",
            got=", ".join(unknown[:MOST_NAMES]) + more,
            hint="convert or unpack them, or leave them out by a name that begins with _",
        )
    if not files:
        raise InputError(
            f"inputs in {address}", expected=f"a folder of {', '.join(FORMATS)} files", got="none of these"
        )
    return [{"inputs": name, "answers": answers} for answers, name in files.items()]


@dataclass(frozen=True)
class _FileWork:
    """The answers to one file, in a worker."""

    predictor: Predictor
    inputs: str
    output: str
    batch_rows: int

    def __call__(self, row: dict[str, str]) -> dict[str, str]:
        """Answer a file.

        Args:
            row: Its name, and that of its answers.
        """
        filesystem, root = find_file_system(self.inputs)
        path = f"{root}/{row['inputs']}"
        kind = FORMATS[PurePosixPath(path).suffix.lower()]
        names = list(dict.fromkeys((*self.predictor.columns, *self.predictor.keep)))  # an input may be kept too
        with _explain_reading(path):
            source = dataset.dataset(path, filesystem=filesystem, format=kind)
        # If one is missing, all are read: the predictor says which it is.
        known = bool(self.predictor.columns) and set(names) <= set(source.schema.names)
        batches = source.to_batches(columns=names if known else None, batch_size=self.batch_rows)
        try:
            empty = self.predictor(pyarrow.Table.from_batches([], source.schema))
            self._write(row["answers"], map(self.predictor, _read(batches, path)), empty)
        except InputError as error:
            raise InputError(
                f"{path}: {error.problem}".removesuffix(": "), expected=error.expected, got=error.got, hint=error.hint
            ) from error
        return row

    def _write(self, name: str, batches: "Iterator[pyarrow.RecordBatch]", empty: "pyarrow.Table") -> None:
        """Write answers, whole or not at all.

        Args:
            name: Name of the file.
            batches: The answers.
            empty: Their columns.
        """
        with _open_whole(self.output, name) as temporary, parquet.ParquetWriter(temporary, empty.schema) as file:
            for batch in batches:
                file.write_batch(batch)

    def check_output(self) -> None:
        """Write the settings that answers depend on, or check that the output has the same."""
        settings = asdict(self.predictor) | {"batch_rows": self.batch_rows, "inputs": _resolve(self.inputs)}
        for name in ("artifact", "device", "threads", "trust"):  # the hash says which artifact it is
            del settings[name]
        content = json.dumps(settings, sort_keys=True, default=float)  # a budget may be a number of numpy
        place = as_place(self.output) / KEY
        if not place.exists():
            with _open_whole(self.output, KEY) as temporary:
                temporary.write_text(content, "utf-8")
        before = json.loads(place.read_bytes())
        now = json.loads(content)
        if differing := [name for name, value in now.items() if before.get(name) != value]:
            raise StoreError(
                f"{self.output} holds answers of another predictor or to other inputs",
                expected=", ".join(f"{name} {before.get(name)!r}" for name in differing),
                got=", ".join(repr(now[name]) for name in differing),
                hint="choose another output, or delete this one",
            )


def _read(batches: "Iterator[pyarrow.RecordBatch]", path: str) -> "Iterator[pyarrow.RecordBatch]":
    """Yield the batches of a file; an error says that it is of reading, not of writing the answers."""
    with _explain_reading(path):
        yield from batches


@contextmanager
def _explain_reading(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise StoreError(
            f"cannot read {path}: {error}",
            hint="write the file again if it is damaged, else check the network; then run the same call again",
        ) from error


@contextmanager
def _open_whole(folder: str, name: str) -> Iterator[Path]:
    """Write a file of a folder or an object store, so that it appears whole or not at all.

    Args:
        folder: Folder or address.
        name: Name of the file.

    Yields:
        A local path to write to; the file appears at the end.
    """
    with write_resumable(as_place(folder) / name) as temporary:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
