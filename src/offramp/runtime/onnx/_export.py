"""The export of a model to a folder that runs without torch and without this library."""

import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch

import offramp_onnx
from offramp.backbone._backbone import Backbone
from offramp.cost import Costs
from offramp.errors import InputError, OfframpWarning
from offramp.exits import ExitSet
from offramp.policy import OperatingPoint
from offramp.pooling import Pooling
from offramp.preprocessing import Preprocessing
from offramp.preprocessing._preprocessing import Attachment
from offramp.runtime._backend import Backend
from offramp.runtime._dial import Dial, same_decisions
from offramp.runtime._view import BackendView
from offramp.runtime.onnx._backend import OnnxBackend
from offramp.runtime.onnx._composing import write_single
from offramp.runtime.onnx._network import new_folder, write_manifest, write_network
from offramp.runtime.onnx._pieces import describe_point, write_policy
from offramp.runtime.onnx._readme import make_readme
from offramp_onnx import read_manifest

__all__ = ["add_points", "export_onnx"]


class Exportable(Protocol):
    """The part of `offramp.EarlyExitModel` that an export reads."""

    @property
    def backbone(self) -> Backbone: ...
    @property
    def preprocessing(self) -> Preprocessing: ...
    @property
    def pooling(self) -> Pooling: ...
    @property
    def exits(self) -> ExitSet: ...
    @property
    def costs(self) -> Mapping[str, Costs]: ...
    @property
    def points(self) -> Mapping[str, Sequence[OperatingPoint]]: ...
    @property
    def point(self) -> OperatingPoint: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def backend(self) -> Backend | None: ...
    @property
    def tuned_on(self) -> BackendView | None: ...


def export_onnx(model: Exportable, folder: str | Path, *, example: Any = None, single: bool = False) -> None:
    """Write a model into a folder that contains everything it needs to run without torch and without offramp.

    The folder holds ONNX graphs, one per stage, exit and policy; a manifest with the operating points, the
    preprocessing and the class names; `offramp_onnx.py`, which runs them; and a README.md that says how.

    Args:
        model: The model. Its current point is the default of the folder; all points of the same policy that a budget
            can pick are written. If `with_backend` tuned it on "int8" or "onnx", the graphs are those of its backend,
            and guarantees hold for them; if not, they are in single precision.
        folder: A folder to make.
        example: Raw inputs of at least one sample, as `predict` takes them: every graph is compared with torch on
            them. Not needed if the graphs are those of the backend.
        single: True to combine the graphs at the current point into one, too: `single.onnx`, for one sample at a time.

    Raises:
        InputError: If the network cannot be written as ONNX graphs, or the points were tuned on another backend.

    Warns:
        OfframpWarning: If the preprocessing has a step that `offramp_onnx.py` does not know: inputs of the folder are
            then arrays that are already prepared.
    """
    point = model.point
    points = list(Dial(model.points[point.policy]).front) if model.points.get(point.policy) else []
    default = next((row for row, other in enumerate(points) if same_decisions(other, point)), len(points))
    points[default : default + 1] = [point]  # with its guarantee; it need not be on the front
    with new_folder(Path(folder)) as place:
        _write_graphs(model, example, place)
        add_points(
            place,
            points,
            model.costs,
            default=default,
            classes=model.classes,
            preprocessing=_write_preprocessing(place, model.preprocessing),
        )
        if single:
            write_single(place, default)
        shutil.copy(offramp_onnx.__file__, place / "offramp_onnx.py")
        (place / "README.md").write_text(make_readme(read_manifest(place), point.guarantee), encoding="utf-8")


def _write_graphs(model: Exportable, example: Any, folder: Path) -> None:
    """Copy the graphs of the backend that the points were tuned on, or write them in single precision."""
    if model.tuned_on is not None and isinstance(model.backend, OnnxBackend):
        for name in ("manifest.json", *read_manifest(model.backend.folder)["files"]):
            shutil.copy(model.backend.folder / name, folder)
        return
    if model.tuned_on is not None and not getattr(model.backend, "exact", False):
        raise InputError(
            expected="a model whose points were tuned in float32 or int8",
            got=f"one tuned on the backend '{model.tuned_on.kind}'",
            hint="export the model as it was before with_backend, or model.with_backend('int8', validation)",
        )
    if example is None:
        raise InputError("example", expected="inputs to export the network with", got="none", hint="give example=...")
    inputs = model.backbone.prepare(model.preprocessing(example))
    write_network(model.backbone, model.pooling, model.exits, inputs, folder)


def _write_preprocessing(folder: Path, preprocessing: Preprocessing) -> list[Any]:
    """Write the attachments of the steps; return the steps as in a manifest, or none if the runner lacks some."""
    unknown = [name for name, _ in preprocessing.steps if name not in offramp_onnx.STEPS]
    if unknown:
        warnings.warn(
            f"offramp_onnx.py does not know the preprocessing step '{unknown[0]}': the exported network takes arrays "
            "that are already prepared",
            OfframpWarning,
            stacklevel=3,
        )
        return []
    steps = []
    for index, (name, parameters) in enumerate(preprocessing.steps):
        described = dict(parameters)
        for key, value in parameters.items():
            if isinstance(value, Attachment):
                described[key] = {"file": f"{key}_{index}.json" if index else f"{key}.json"}
                (folder / described[key]["file"]).write_bytes(value.content)
        steps.append([name, described])
    return steps


def add_points(
    folder: Path,
    points: Sequence[OperatingPoint],
    costs: Mapping[str, Costs],
    *,
    default: int = 0,
    classes: Sequence[str] = (),
    preprocessing: Sequence[Any] = (),
) -> None:
    """Add operating points and their policies to a folder of graphs.

    Args:
        folder: A folder that `write_network` wrote.
        points: The operating points that samples may be at.
        costs: The costs of each policy of the points.
        default: Index of the point that samples are at by default.
        classes: Names of the classes.
        preprocessing: The steps from raw inputs to those of the network.
    """
    manifest = read_manifest(folder)
    names = dict.fromkeys(point.policy for point in points)
    with torch.no_grad():
        policies = {name: write_policy(folder, name, manifest["num_classes"]) for name in names}
    described = [_describe_point(point, costs) for point in points]
    manifest |= {"classes": list(classes), "preprocessing": list(preprocessing)}
    write_manifest(folder, {**manifest, "policies": policies, "points": described, "default_point": default})


def _describe_point(point: OperatingPoint, costs: Mapping[str, Costs]) -> dict[str, Any]:
    """Return the manifest's entry of an operating point, with the costs of leaving at each exit."""
    return {
        **describe_point(point),
        "conformal_thresholds": {
            # The largest float instead of infinity, which JSON does not have: no score is above it either.
            str(key): value.nan_to_num(posinf=torch.finfo(value.dtype).max).tolist()
            for key, value in point.conformal_thresholds.items()
        },
        "tune_metrics": dict(point.tune_metrics),
        **({} if point.guarantee is None else {"guarantee": asdict(point.guarantee)}),
        "costs": [table.cumulative_costs(point.active).tolist() for table in costs[point.policy].tables],
        "full": [float(table.full) for table in costs[point.policy].tables],
    }
