"""One cluster for all tests of this folder: to start one takes seconds."""

from collections.abc import Iterator

import pytest

from offramp.scale import Workers, cluster


@pytest.fixture(scope="session")
def _ray() -> Iterator[None]:
    """Two workers on this machine, which `cluster` then finds and leaves running."""
    with cluster(2):
        yield


@pytest.fixture
def workers(_ray: None) -> Iterator[Workers]:
    """Two workers of one thread."""
    with cluster() as found:
        yield found
