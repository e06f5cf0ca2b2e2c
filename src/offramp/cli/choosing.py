"""The operating point that the options of a command select, and the warnings that go with it."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offramp.cli.console import say, warn
from offramp.cli.options import (
    AccuracyOption,
    ConfidenceOption,
    CostOption,
    LatencyMsOption,
    LossOption,
    MaxDropOption,
    PolicyOption,
)
from offramp.cli.places import find_address, find_name
from offramp.errors import BudgetError, InputError

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel
    from offramp.runtime import LatencyTable

__all__ = [
    "PointOptions",
    "check_share",
    "choose_point",
    "read_latency",
    "read_run",
    "warn_of_backend",
    "warn_of_busy",
    "warn_of_full_sets",
    "with_latency_file",
    "with_point_options",
]


@dataclass(frozen=True)
class PointOptions:
    """The options that select an operating point, named as the arguments of `EarlyExitModel.at`."""

    cost: CostOption = None
    accuracy: AccuracyOption = None
    latency_ms: LatencyMsOption = None
    max_drop: MaxDropOption = None
    confidence: ConfidenceOption = None
    loss: LossOption = None
    policy: PolicyOption = None

    @property
    def selectors(self) -> list[str]:
        """Options in use of which at most one may be given."""
        values = {
            "--cost": self.cost,
            "--accuracy": self.accuracy,
            "--max-drop": self.max_drop,
            "--latency-ms": self.latency_ms,
        }
        return [name for name, value in values.items() if value is not None]


def read_latency(path: Path | None, batch_size: int | None) -> "tuple[LatencyTable | None, int]":
    """Read a latency table and the batch size to use; warn if it was measured on another machine."""
    from offramp.runtime import LatencyTable
    from offramp.runtime._processor import processor_name

    if path is None:
        if batch_size is not None:
            raise InputError(
                expected="--latency FILE with --latency-batch-size",
                got=f"only --latency-batch-size {batch_size}",
                hint=f"make the file with offramp inspect --measure --batch-size {batch_size} --out FILE",
            )
        return None, 1
    table = LatencyTable.load(path)
    if table.machine != processor_name():
        warn(f"the times in {path} were measured on '{table.machine}', this machine is '{processor_name()}'.")
    warn_of_busy(table)
    return table, table.batch_sizes[0] if batch_size is None else batch_size


def read_run(latency: Path | None, backend: str | None, batch_size: int | None) -> tuple[str | None, int | None]:
    """Return the backend and the batch size to run with: as given, else as a latency file recommends.

    Args:
        latency: The file, if given.
        backend: Name of a backend, if given.
        batch_size: Batch size, if given.
    """
    from offramp.runtime import BACKENDS, LatencyTable

    if latency is None:
        return backend, batch_size
    table = LatencyTable.load(latency)
    if backend is None and table.backend in BACKENDS:
        backend = table.backend
    if batch_size is None and table.fastest_run is not None:
        batch_size = table.fastest_run.batch_size
        say(f"{latency} recommends batches of {batch_size} on '{table.backend}'.")
    return backend, batch_size


def warn_of_busy(table: "LatencyTable") -> None:
    """Warn if the measured times are not consistent with each other."""
    if table.suspect_ratio is not None:
        warn(
            f"the machine was busy: stages add up to {table.suspect_ratio:.2f} of the full network's time; measure "
            "again when it is idle."
        )


def with_latency_file(model: "EarlyExitModel", latency: Path | None, batch_size: int | None) -> "EarlyExitModel":
    """Return the model with measured times as costs, if a file is given."""
    table, measured_batch_size = read_latency(latency, batch_size)
    return model if table is None else model.with_latency(table, batch_size=measured_batch_size)


def warn_of_backend(model: "EarlyExitModel", backend: str) -> None:
    """Warn if the model's times were measured with another backend than the one that is going to run."""
    if model.unit.full_ms is None:
        return
    provenance = model.provenance.get("latency")
    measured = provenance.get("backend") if isinstance(provenance, dict) else None
    if measured != backend:
        warn(
            f"the times were measured with backend '{measured or 'unknown'}', but '{backend}' is going to run and "
            f"takes other times. Measure it: offramp inspect --measure --backend {backend} --out FILE"
        )


def check_share(name: str, share: float | None, *, most: float = 2, example: float = 0.6) -> None:
    """Refuse an option that is not a share, for example one in percent."""
    if share is not None and not 0 < share <= most:
        meant = f"did you mean {share / 100:g}?" if 2 < share <= 100 else ""
        raise InputError(name, expected=f"a number between 0 and 1, such as {example}", got=f"{share:g}", hint=meant)


def with_point_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter `point_options` by one option per field of `PointOptions`.

    Args:
        command: A function with a parameter `point_options`.

    Example:
        >>> @with_point_options
        ... def show(point_options: PointOptions) -> None:
        ...     print(point_options.cost)
        >>> show(cost=0.6, policy=None)
        0.6
    """
    names = [field.name for field in fields(PointOptions)]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        options = PointOptions(**{name: values.pop(name) for name in names if name in values})
        command(point_options=options, **values)

    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        own = signature(PointOptions).parameters.values() if name == "point_options" else (parameter,)
        parameters += [entry.replace(kind=Parameter.KEYWORD_ONLY) for entry in own]
    wrapper.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def choose_point(
    model: "EarlyExitModel", options: PointOptions, artifact: Path, *, budget: float | None = None
) -> "EarlyExitModel":
    """Return the model at the point that the options select.

    If they select none: the point that it was saved at by `offramp annotate`, or the default point, with a message.

    Args:
        model: The model.
        options: The options given.
        artifact: Folder that the model was loaded from.
        budget: Average relative cost to keep, if the point is to move; the model is then at that cost.
    """
    from offramp.cli.networks import trust_options

    selectors = options.selectors
    if budget is not None:
        if selectors:
            raise InputError(expected=f"{selectors[0]} or --budget", got="both", hint="leave one out")
        check_share("--budget", budget)
        selectors, options = ["--budget"], replace(options, cost=budget)
    if len(selectors) > 1:
        raise InputError(
            expected="only one of --cost, --accuracy, --max-drop and --latency-ms",
            got=" and ".join(selectors),
            hint="keep one of them",
        )
    for name, value in (("--confidence", options.confidence), ("--loss", options.loss)):
        if value is not None and options.max_drop is None:
            raise InputError(
                expected=f"--max-drop with {name}", got=f"only {name} {value}", hint=f"add it, or leave {name} out"
            )
    if options.latency_ms is not None and model.unit.full_ms is None:
        raise InputError(
            expected="--latency FILE with --latency-ms",
            got="none",
            hint="make the file with offramp inspect --measure --out FILE, and give it here or to fit",
        )
    check_share("--cost", options.cost)
    check_share("--accuracy", options.accuracy)
    check_share("--max-drop", options.max_drop, most=0.99, example=0.01)
    check_share("--confidence", options.confidence, most=0.9999999, example=0.95)
    if not selectors and options.policy is None and model.chosen is not None:
        say(f"{find_name(artifact)}: at the point that it was saved at{_with_guarantee(model)}")
        return model
    try:
        with warnings.catch_warnings(record=True) as cautions:
            warnings.simplefilter("always")
            chosen = model.at(**vars(options))
    except BudgetError as error:
        more = f"all points: offramp inspect {find_address(artifact)}{trust_options(model)}"
        hint = f"{error.hint}; {more}" if error.hint else more
        raise BudgetError(error.problem, expected=error.expected, got=error.got, hint=hint) from error
    for caution in cautions:
        warn(f"{find_name(artifact)}: {caution.message}")
    if not selectors and chosen.point.guarantee is not None:
        say(f"{find_name(artifact)}: took the cheapest point with this guarantee: {chosen.point.guarantee}")
    return chosen


def _with_guarantee(model: "EarlyExitModel") -> str:
    return "" if model.point.guarantee is None else f", with this guarantee: {model.point.guarantee}"


def warn_of_full_sets(model: "EarlyExitModel") -> None:
    """Warn of classes that are in every prediction set because they have too few calibrate samples."""
    points = model.points[model.policy]
    for miscoverage, thresholds in sorted(points[-1].conformal_thresholds.items()):
        if thresholds.ndim == 2 and (unknown := int(thresholds.isinf().any(0).sum())):
            warn(
                f"{unknown} of {thresholds.shape[1]} classes are in every prediction set of miscoverage "
                f"{miscoverage:g} at some exit: they have too few calibrate samples; at least "
                f"{math.ceil(1 / miscoverage) - 1} per class are needed"
            )
