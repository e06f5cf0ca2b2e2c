"""One cluster for all tests of this folder: to start one takes seconds."""

from collections.abc import Iterator

import pytest
import torch

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


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """As many as a worker has: bytes depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
