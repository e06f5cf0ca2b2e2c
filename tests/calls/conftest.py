"""Files of answers that are closed when a test ends."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from offramp.calls._answers import AnswerStore

Opener: TypeAlias = Callable[[Path], AnswerStore]
"""A function that opens a file of answers."""


@pytest.fixture
def open_store() -> Iterator[Opener]:
    """Open files of answers, and close them when the test ends."""
    with ExitStack() as stack:

        def open_one(path: Path) -> AnswerStore:
            store = AnswerStore(path)
            stack.callback(store.close)
            return store

        yield open_one
