"""A small function from columns of inputs to columns of answers, for engines that run functions in many processes."""

import atexit
import socket
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from offramp._files import as_place
from offramp._remote import find_file_system
from offramp.errors import ArtifactError, InputError, OfframpWarning
from offramp.model._answer import Answer, join_answers
from offramp.model._backends import backend_name
from offramp.model._columns import ANSWER_COLUMNS, Column, answer_columns, column_names, read_column, write_columns
from offramp.model._marking import is_input_error, mark_inputs
from offramp.model._networks import check_device
from offramp.model._rows import read_rows
from offramp.runtime import BACKENDS

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["Predictor", "SavedArtifact", "make_predictor", "mark_saved"]


@dataclass(frozen=True)
class SavedArtifact:
    """The place of a saved model, and its content."""

    folder: str
    """The absolute path of the folder."""
    sha256: str
    """Hash of the manifest, which has the hashes of all files."""

    @classmethod
    def at(cls, path: str | Path, sha256: str) -> "SavedArtifact":
        """Return the artifact in a folder."""
        return cls(str(Path(path).absolute()), sha256)


def mark_saved(model: "EarlyExitModel", artifact: SavedArtifact | None) -> "EarlyExitModel":
    """Record the artifact that holds a model, and return the model.

    Args:
        model: The model.
        artifact: The artifact, which holds the model up to its operating point.
    """
    object.__setattr__(model, "saved", artifact)  # a record of where the model is, which changes no answer
    return model


@dataclass(frozen=True)
class Predictor:
    """A function from a batch of inputs to a batch of answers, both as columns; `EarlyExitModel.predictor` makes one.

    A batch is a dictionary of arrays, a pandas DataFrame, or a pyarrow Table or RecordBatch, and so is the result; an
    iterator of batches gives one of results. Inputs are texts, arrays of one shape, images as bytes `H x W x C` or as
    encoded files. Answers have the columns `label`, `confidence`, `exit`, `cost`, `set`, and `error`: a bad input has
    its message there and no label, and the others of its batch are answered.

    The first call in a process loads the artifact; later ones, and copies, use it again.

    Example:
        >>> import offramp, pickle
        >>> from tempfile import TemporaryDirectory
        >>> from offramp.backbone import CifarResNet
        >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
        >>> quick = offramp.JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
        >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
        >>> model = offramp.fit(CifarResNet(8), *data, settings=quick, anyway=True, progress=False).at(cost=1.1)
        >>> with TemporaryDirectory() as folder:
        ...     model.save(folder, weights=True)
        ...     predictor = pickle.loads(pickle.dumps(model.predictor(column="image", keep=["id"])))
        ...     answers = predictor({"id": np.arange(60), "image": images.numpy()})
        >>> list(answers), bool((answers["label"] == model.predict(images).labels.numpy()).all())
        (['id', 'label', 'confidence', 'exit', 'cost', 'set', 'error'], True)
    """

    artifact: str
    """Folder or address of the artifact."""
    sha256: str
    """Hash of its manifest: another artifact in this place is refused."""
    request: tuple[tuple[str, Any], ...]
    """Conditions of the operating point, as `at` takes them."""
    columns: tuple[str, ...]
    """Columns of the inputs; empty for the only column."""
    mapping: bool
    """True if the network takes a mapping from these names."""
    keep: tuple[str, ...]
    """Columns to hand through."""
    budget: float | None
    """Cost that a sample may have; None for the operating point."""
    miscoverage: float | None
    """Miscoverage of the prediction sets; None without sets."""
    probabilities: bool
    """True adds the column `probabilities`."""
    batch_size: int
    """Samples that a stage runs at a time."""
    backend: str
    """Name of the backend."""
    device: str | None
    """Device of the network; None for the CPU."""
    threads: int | None
    """Number of torch threads; None for torch's own choice."""
    trust: tuple[str, ...]
    """Names of third-party code that may be imported."""

    def __call__(self, batch: Any) -> Any:
        """Return the answers to a batch, or an iterator of answers to an iterator of batches.

        Args:
            batch: N inputs as columns.
        """
        if isinstance(batch, Iterator):
            return map(self, batch)
        columns = self._read(batch)
        answer, rows = _open(self).answer(columns, len(next(iter(columns.values()))))
        written = answer_columns(answer, miscoverage=self.miscoverage, probabilities=self.probabilities)
        order = np.argsort(rows)
        return write_columns(batch, self.keep, {name: column[order] for name, column in written.items()})

    def _read(self, batch: Any) -> dict[str, Column]:
        """Return the columns of the inputs, after checking that these and those to keep are there."""
        names = column_names(batch)
        columns = self.columns or tuple(name for name in names if name not in self.keep)
        missing = [name for name in (*columns, *self.keep) if name not in names]
        if missing or (not self.columns and len(columns) != 1):
            raise InputError(
                expected=f"the column{'s' * (len(missing) > 1)} {', '.join(missing)}" if missing else "one column",
                got=f"columns {', '.join(map(str, names))}" if names else "no columns",  # pandas has numbers too
                hint="name the column of the inputs: model.predictor(column=..., keep=[...])",
            )
        inputs = {name: read_column(batch, name) for name in columns}
        counts = {name: len(column) for name, column in inputs.items()}
        if isinstance(batch, Mapping):  # the other kinds check it themselves
            counts |= {name: len(batch[name]) for name in self.keep}
        if len(set(counts.values())) > 1:
            raise InputError(expected="columns of one length", got=str(counts))
        return inputs


def make_predictor(
    model: "EarlyExitModel",
    *,
    column: str | Sequence[str] | None,
    keep: Sequence[str],
    budget: float | None,
    miscoverage: float,
    probabilities: bool,
    batch_size: int,
    backend: str | None,
    device: str | None,
    threads: int | None,
    artifact: str | Path | None,
    trust: Collection[str],
) -> Predictor:
    """Make a predictor; `EarlyExitModel.predictor` describes the arguments."""
    if model.backend is not None and model.tuned_on is None:
        raise InputError(
            expected="a model without a backend of its own",
            got="a model from model.on(...)",
            hint="call predictor(backend=...) of the model before that",
        )
    if model.saved is None:
        raise ArtifactError(
            expected="a model that was saved or loaded, for processes to load it too",
            got="one that was not, or was changed since",
            hint="save it first, with model.save(path)",
        )
    backend = backend_name(model) if backend is None else backend
    _check_backend(model, backend, device)
    levels = model.point.conformal_thresholds
    if levels and miscoverage not in levels:
        calibrated = ", ".join(map(str, sorted(levels)))
        raise InputError("miscoverage", expected=f"one that was calibrated ({calibrated})", got=f"{miscoverage}")
    for name, number in (("batch_size", batch_size), ("threads", threads)):
        if number is not None and number < 1:
            raise InputError(name, expected="at least 1", got=f"{number}")
    model.pick_rows(budget, 1)  # refuse a budget that no point meets
    if isinstance(keep, str):
        raise InputError("keep", expected="a list of names", got=f"'{keep}'", hint=f"give ['{keep}']")
    if reserved := [name for name in keep if name in ANSWER_COLUMNS]:
        raise InputError(
            "keep",
            expected=f"names other than {', '.join(ANSWER_COLUMNS)}, which the answers have",
            got=", ".join(reserved),
            hint="rename the column",
        )
    if isinstance(artifact, Path):
        as_place(artifact)  # refuse an address that has lost a slash
    return Predictor(
        artifact=model.saved.folder if artifact is None else str(artifact),
        sha256=model.saved.sha256,
        request=tuple(model.request.describe().items()),
        columns=() if column is None else (column,) if isinstance(column, str) else tuple(column),
        mapping=column is not None and not isinstance(column, str),
        keep=tuple(dict.fromkeys(keep)),
        budget=budget,
        miscoverage=miscoverage if levels else None,
        probabilities=probabilities,
        batch_size=batch_size,
        backend=backend,
        device=device,
        threads=threads,
        trust=tuple(trust),
    )


def _check_backend(model: "EarlyExitModel", backend: str, device: str | None) -> None:
    """Refuse a backend that is unknown, or that this model or a device does not run on."""
    BACKENDS.get(backend)
    if model.tuned_on is not None:
        model.on(backend)  # refuse another backend than its own
    elif backend == "int8":
        raise InputError(
            "backend",
            expected="eager, bfloat16 or onnx",
            got="int8, in which points chosen in float32 lose accuracy",
            hint="use a model from model.with_backend('int8', ...)",
        )
    if device is not None and (backend == "onnx" or model.tuned_on is not None):
        raise InputError(
            expected=f"no device for the backend '{backend}', which runs on the CPU", got=device, hint="leave it out"
        )


@lru_cache(maxsize=2)  # one process may serve two jobs by turns; more models than that would fill its memory
def _open(predictor: Predictor) -> "_LoadedModel":
    """Load the model of a predictor, once per process."""
    if predictor.threads is not None:
        torch.set_num_threads(predictor.threads)
    check_device(predictor.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OfframpWarning)  # whoever made the predictor was warned of its point
        model = _load(predictor)
        if model.request.describe() != dict(predictor.request):
            model = model.at(**dict(predictor.request))
    if predictor.device is not None:
        model.backbone.to(predictor.device)
        model.exits.to(predictor.device)
    return _LoadedModel(model, predictor)


def _load(predictor: Predictor) -> "EarlyExitModel":
    """Load the artifact, from its folder or a copy of its address."""
    from offramp.model._loading import load  # imported here, as it imports the model

    folder = _fetch(predictor.artifact) if "://" in predictor.artifact else predictor.artifact
    if not Path(folder, "manifest.json").exists():
        raise ArtifactError(
            f"the process on {socket.gethostname()} sees no artifact at {predictor.artifact}",
            hint="save it to a folder that all machines share, or copy it to an object store and give its address: "
            "model.predictor(artifact='s3://bucket/my-offramp')",
        )
    try:
        model = load(folder, trust=predictor.trust)
    except ArtifactError as error:
        if "backbone=" not in error.hint:
            raise
        hint = "save it so that it can be loaded without a network: model.save(path, weights=True)"
        raise ArtifactError(error.problem, expected=error.expected, got=error.got, hint=hint) from error
    if model.saved is None or model.saved.sha256 != predictor.sha256:
        raise ArtifactError(
            predictor.artifact,
            expected="the artifact that the predictor was made for",
            got="another one, which was saved there since",
            hint="load it and make a new predictor",
        )
    return model


def _fetch(address: str) -> str:
    """Copy an artifact from an object store; the copy is removed when the process ends, as files may be mapped."""
    from offramp.model._hub import download, is_hub_address  # imported here, as it imports how a model is saved

    if is_hub_address(address):
        return str(download(address))
    filesystem, path = find_file_system(address)
    folder = mkdtemp(prefix="offramp-")
    atexit.register(rmtree, folder, ignore_errors=True)
    try:
        filesystem.get(path.rstrip("/") + "/", folder + "/", recursive=True)
    except Exception as error:  # each store has its own
        raise ArtifactError(
            f"the process on {socket.gethostname()} cannot read {address}: {error}",
            hint="check the address and the access that processes have to it",
        ) from error
    return folder


class _LoadedModel:
    """A model in a process that answers batches.

    Args:
        model: The model, on its device.
        predictor: The settings.
    """

    def __init__(self, model: "EarlyExitModel", predictor: Predictor) -> None:
        self._model, self._settings = model, predictor
        self._running: EarlyExitModel | None = None

    def answer(self, columns: Mapping[str, Column], count: int) -> tuple[Answer, npt.NDArray[np.int64]]:
        """Return answers to N inputs in any order, and the row of each.

        Args:
            columns: Columns of the inputs.
            count: N.
        """
        settings, rows, unread = self._settings, list[int](), dict[int, str]()

        def pieces() -> Iterator[Any]:
            rows.clear()
            for start in range(0, count, settings.batch_size):
                places = range(start, min(start + settings.batch_size, count))
                for samples, own in read_rows(columns, places, unread):
                    rows.extend(own)
                    yield samples if settings.mapping else next(iter(samples.values()))

        model = self._on_backend(next(pieces(), None)) if self._running is None else self._running
        try:
            answer = model.answer_many(pieces(), budget=settings.budget)
        except Exception as error:
            if not is_input_error(error):
                raise
            parts = [model.predict(piece, budget=settings.budget, on_error="mark") for piece in pieces()]
            answer = join_answers(parts)
        if unread:
            answer = join_answers([answer, mark_inputs(model, list(unread.values()))])
        return answer, np.array([*rows, *unread], dtype=np.int64)

    def _on_backend(self, piece: Any) -> "EarlyExitModel":
        """Return the model on its backend, compiled with inputs of a piece where it needs that.

        Args:
            piece: The first inputs; None if there are none.
        """
        example, settings = None, self._settings
        if settings.backend == "onnx" and self._model.tuned_on is None:
            example = None if piece is None else _take_good(self._model, piece)
            if example is None:
                return self._model  # no input can be answered: compile with a later batch
        self._running = self._model.on(settings.backend, example=example)
        return self._running


def _take_good(model: "EarlyExitModel", piece: Any) -> Any:
    """Return up to two inputs that a model answers; None if there are none."""
    answer = model.predict(piece, on_error="mark")
    good = [row for row in range(len(answer)) if row not in answer.errors][:2]
    if not good:
        return None
    if isinstance(piece, Mapping):
        return {name: values[good] for name, values in piece.items()}
    return [piece[row] for row in good] if isinstance(piece, list) else piece[good]
