import shutil
from pathlib import Path

import pytest

from offramp.features import extract
from offramp.features._store import Store
from tests.features.examples import CLEAN, SHIFTED, images, small_resnet


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """70 rows in four full shards and a short one, two poolings, two views. Read it only."""
    path = tmp_path_factory.mktemp("features") / "store"
    return extract(
        small_resnet(),
        images(70),
        path,
        poolings=("grid", "mean"),
        views=(CLEAN, SHIFTED),
        batch_size=8,
        shard_mb=0.125,
        threads=1,
    )


@pytest.fixture(scope="session")
def _small_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "store"
    return extract(small_resnet(), images(12), path, views=(CLEAN,), batch_size=4, shard_mb=0.03).path


@pytest.fixture
def small_store(_small_path: Path, tmp_path: Path) -> Store:
    """12 rows in three shards: a store of one's own, to spoil."""
    shutil.copytree(_small_path, tmp_path / "store")
    return Store.open(tmp_path / "store")
