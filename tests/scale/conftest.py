"""One cluster for all tests of this folder: to start one takes seconds."""

from collections.abc import Iterator

import pytest

from offramp.scale._workers import Workers, open_workers


@pytest.fixture(scope="session")
def _ray() -> Iterator[None]:
    """Two workers on this machine, which `open_workers` then finds and leaves running."""
    with open_workers(2):
        yield


@pytest.fixture
def workers(_ray: None) -> Iterator[Workers]:
    """Two workers of one thread."""
    with open_workers() as found:
        yield found
