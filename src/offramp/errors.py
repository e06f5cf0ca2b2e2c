"""Every error `offramp` raises, in one tree, and its warnings.

Each also inherits the builtin a caller would catch without knowing `offramp`. An error carries what was expected, what
was given and what to do next as fields; its message is made of them.
"""

import reprlib

__all__ = [
    "ArtifactError",
    "BudgetError",
    "BusyError",
    "CallError",
    "CorruptFileError",
    "DuplicateNameError",
    "GuessingError",
    "GuessingWarning",
    "InputError",
    "MissingExtraError",
    "OfframpError",
    "OfframpWarning",
    "OverlapWarning",
    "SplitError",
    "SplitRefusedError",
    "StoreError",
    "UnknownNameError",
    "UntrustedNameError",
    "WorkerLostError",
]


class OfframpError(Exception):
    """Base of every error raised on purpose.

    Args:
        problem: The subject or the whole message, where expected and given do not say it.
        expected: A noun phrase: what the function takes.
        got: The value or a description of what it was given.
        hint: What to do next, imperative, lower case, without a full stop.

    Example:
        >>> str(InputError("classes", expected="3 different names", got=["a", "a"], hint="leave classes out"))
        "classes: expected 3 different names, got ['a', 'a']; leave classes out"
    """

    def __init__(self, problem: str = "", *, expected: str = "", got: object = "", hint: str = "") -> None:
        self.problem = problem
        self.expected = expected
        self.got = got if isinstance(got, str) else reprlib.repr(got)
        self.hint = hint
        given = f"got {self.got}" if self.got else ""
        wanted = f"expected {expected}" if expected else ""
        statement = ", ".join(part for part in (wanted, given) if part)
        message = ": ".join(part for part in (problem, statement) if part)
        super().__init__("; ".join(part for part in (message, hint) if part))


class InputError(OfframpError, ValueError):
    """An argument or a dataset is not what a function takes."""


class UnknownNameError(OfframpError, LookupError):
    """No object is registered under a name."""


class DuplicateNameError(OfframpError, ValueError):
    """Another object is already registered under a name."""


class StoreError(OfframpError, OSError):
    """A feature store or checkpoint cannot be written, read or continued."""


class CorruptFileError(StoreError):
    """A file's content does not match its checksum."""


class ArtifactError(OfframpError, OSError):
    """A saved model cannot be written or read, or its content is not valid."""


class UntrustedNameError(OfframpError, PermissionError):
    """A saved model names third-party code that the caller has not allowed."""


class SplitError(OfframpError, ValueError):
    """Splits share samples, or a split is empty."""


class BusyError(OfframpError, RuntimeError):
    """Another process is writing to the same place, or a scheduler has more to do than it can: try again later."""


class BudgetError(OfframpError, ValueError):
    """No operating point meets the request."""


class CallError(OfframpError, RuntimeError):
    """A call of a model failed, its reply is malformed, or a spending cap forbids it.

    Args:
        problem: As for `OfframpError`, like `expected`, `got` and `hint`.
        expected: See there.
        got: See there.
        hint: See there.
        retry_after_s: Seconds to wait before the next call, if the model asked for it.
        temporary: True if a later attempt may succeed.
    """

    def __init__(
        self,
        problem: str = "",
        *,
        expected: str = "",
        got: object = "",
        hint: str = "",
        retry_after_s: float | None = None,
        temporary: bool = True,
    ) -> None:
        super().__init__(problem, expected=expected, got=got, hint=hint)
        self.retry_after_s = retry_after_s
        self.temporary = temporary


class GuessingError(OfframpError, ValueError):
    """The full network is no better than answering the most frequent class."""


class SplitRefusedError(OfframpError, ValueError):
    """A network cannot be cut into stages; the message has the reason and what to try."""


class MissingExtraError(OfframpError, ImportError):
    """An optional library is not installed."""


class WorkerLostError(OfframpError, RuntimeError):
    """A job ended its worker every time it was tried, or workers did not start."""


class OfframpWarning(UserWarning):
    """Base of all warnings; the call continues."""


class GuessingWarning(OfframpWarning):
    """The full network is no better than answering the most frequent class, and the caller goes on anyway."""


class OverlapWarning(OfframpWarning):
    """A few samples of a split are also in an earlier one, and were left out of the later one."""
