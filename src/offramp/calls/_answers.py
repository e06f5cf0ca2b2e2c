"""Answers of called models, kept in one SQLite file so that nothing is paid for twice."""

import sqlite3
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from offramp.errors import StoreError

__all__ = ["AnswerStore", "KeptAnswer", "Usage"]

_TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    model TEXT NOT NULL, input INTEGER NOT NULL, scores BLOB NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, price REAL NOT NULL,
    PRIMARY KEY (model, input)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usage (
    model TEXT PRIMARY KEY, replies INTEGER NOT NULL, malformed INTEGER NOT NULL, failures INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, spent REAL NOT NULL
) WITHOUT ROWID;
"""

_ADD_USAGE = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (model) DO UPDATE SET
    replies = replies + excluded.replies, malformed = malformed + excluded.malformed,
    failures = failures + excluded.failures, input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens, spent = spent + excluded.spent
"""

_AT_ONCE = 500  # ids per query: SQLite allows 999 parameters in its oldest builds


@dataclass(frozen=True)
class KeptAnswer:
    """One answer of a called model."""

    scores: npt.NDArray[np.float32]
    """`K` class scores."""
    input_tokens: int = 0
    """Tokens that the model read."""
    output_tokens: int = 0
    """Tokens that it wrote."""
    price: float = 0.0
    """Price that was paid."""


@dataclass(frozen=True)
class Usage:
    """The use of a called model: replies, and what they cost."""

    replies: int = 0
    """Inputs that it replied to, malformed replies included."""
    malformed: int = 0
    """Replies that were no answer."""
    failures: int = 0
    """Calls that failed."""
    input_tokens: int = 0
    """Tokens that it read, as it reported them."""
    output_tokens: int = 0
    """Tokens that it wrote."""
    spent: float = 0.0
    """Sum of the prices, malformed replies included."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))


class AnswerStore:
    """Answers by model and input, in a SQLite file; safe for several threads and processes.

    An answer is committed when it is put: a process that is killed loses none. Inputs are kept as hashes only.

    Args:
        path: The file; it is made if it does not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as stack:
                connection = sqlite3.connect(self.path, timeout=60, check_same_thread=False, isolation_level=None)
                stack.callback(connection.close)
                # Write-ahead log: a commit survives the death of the process, and readers do not wait.
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.executescript(_TABLES)
                stack.pop_all()
            self._connection = connection
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"answers cannot be kept in '{self.path}': {error}", hint="give another file, or delete this one"
            ) from error

    def get(self, model: str, inputs: Sequence[int]) -> dict[int, KeptAnswer]:
        """Return the kept answers of a model, by input.

        Args:
            model: Identity of the model: its name and version.
            inputs: Hashes of the inputs.
        """
        kept = {}
        for start in range(0, len(inputs), _AT_ONCE):
            part = [int(key) for key in inputs[start : start + _AT_ONCE]]
            query = (
                "SELECT input, scores, input_tokens, output_tokens, price FROM answers "
                f"WHERE model = ? AND input IN ({','.join('?' * len(part))})"
            )
            with self._lock:
                rows = self._connection.execute(query, (model, *part)).fetchall()
            for key, scores, *numbers in rows:
                kept[key] = KeptAnswer(np.frombuffer(scores, np.float32), *numbers)
        return kept

    def put(self, model: str, answers: Mapping[int, KeptAnswer], usage: Usage) -> None:
        """Keep answers of a model, by the hash of the input, and add to its usage, in one commit.

        Args:
            model: Identity of the model.
            answers: The answers; an earlier answer to an input stays.
            usage: What the call cost, malformed replies included.
        """
        rows = [
            (model, int(key), kept.scores.tobytes(), kept.input_tokens, kept.output_tokens, kept.price)
            for key, kept in answers.items()
        ]
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?)", rows)
                self._connection.execute(_ADD_USAGE, (model, *astuple(usage)))
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise StoreError(f"answers cannot be kept in '{self.path}': {error}") from error

    def usage(self, model: str) -> Usage:
        """Return the use of a model by everybody who kept answers here."""
        with self._lock:
            row = self._connection.execute("SELECT * FROM usage WHERE model = ?", (model,)).fetchone()
        return Usage() if row is None else Usage(*row[1:])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()
