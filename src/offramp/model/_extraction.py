"""Features of the data that a model is given: extracted into a folder, temporary unless the caller names one."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offramp._remote import is_address
from offramp.data import as_source
from offramp.errors import InputError
from offramp.features import BatchSource, Source, StoreSource, extract

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["extract_for", "extracted", "feature_folder"]


@contextmanager
def feature_folder(store: str | Path | None) -> Iterator[Path]:
    """Give the folder for cached features: the caller's, or a temporary one that is removed at the end."""
    if store is not None:
        if is_address(str(store)):
            raise InputError(
                "store",
                expected="a folder",
                got=f"'{store}'",
                hint="give a folder; offramp.features.extract writes features to an address",
            )
        yield Path(store)
    else:
        with tempfile.TemporaryDirectory(prefix="offramp-") as folder:
            yield Path(folder)


@contextmanager
def extracted(
    model: "EarlyExitModel", data: Any, name: str, *, store: str | Path | None, progress: bool
) -> Iterator[BatchSource]:
    """Yield the cached features of the data, extracted with the model's network; cached features are yielded unchanged.

    Args:
        model: The model.
        data: Labelled data as `offramp.fit` takes it, or cached features.
        name: First part of the name of the features.
        store: Folder for the features; a temporary one if left out.
        progress: Show a progress bar.
    """
    if hasattr(data, "in_order"):
        yield data
        return
    source = as_source(data, name, model.classes)
    with feature_folder(store) as folder:
        yield extract_for(model, source, folder, progress=progress)


def extract_for(model: "EarlyExitModel", source: Source, folder: Path, *, progress: bool) -> StoreSource:
    """Extract the features of a source as a model's exits see them, unless they are in the folder already.

    Args:
        model: The model.
        source: The samples.
        folder: Folder of feature stores, each in a folder of its source's name.
        progress: Show a progress bar.
    """
    pooling, views = model.pooling.name, (model.preprocessing,)
    backbone = model.feature_backbone
    place = folder / (source.name if model.tuned_on is None else f"{source.name}-{model.tuned_on.kind}")
    store = extract(backbone, source, place, poolings=(pooling,), views=views, progress=progress)
    return StoreSource(store, pooling=pooling)
