"""Every error `offramp` raises, in one tree, and its warnings.

Each also inherits the builtin a caller would catch without knowing `offramp`. A message says what was expected, what
came, and what to do next.
"""

__all__ = [
    "ArtifactError",
    "BudgetError",
    "BusyError",
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
    """Base of every error raised on purpose."""


class InputError(OfframpError, ValueError):
    """An argument or a dataset is not what a function takes."""


class UnknownNameError(OfframpError, LookupError):
    """A name nothing is registered under."""


class DuplicateNameError(OfframpError, ValueError):
    """A name that something else is registered under already."""


class StoreError(OfframpError, OSError):
    """A feature store or checkpoint cannot be written, read or continued."""


class CorruptFileError(StoreError):
    """A file's content is not what its checksum says."""


class ArtifactError(OfframpError, OSError):
    """A saved frontier cannot be written or read, or is not what it says it is."""


class UntrustedNameError(OfframpError, PermissionError):
    """A name in a saved frontier stands for code that the caller has not allowed."""


class SplitError(OfframpError, ValueError):
    """Splits share samples, or a split is empty."""


class BusyError(OfframpError, RuntimeError):
    """Another process is writing to the same place."""


class BudgetError(OfframpError, ValueError):
    """No operating point meets what was asked for."""


class GuessingError(OfframpError, ValueError):
    """A full network that is right no more often than the commonest class comes."""


class SplitRefusedError(OfframpError, ValueError):
    """A network that cannot be cut into stages, with the reason and what to try."""


class MissingExtraError(OfframpError, ImportError):
    """A library that an optional part builds on is not there."""


class WorkerLostError(OfframpError, RuntimeError):
    """A job that took its worker down each time it was tried, or workers that did not start."""


class OfframpWarning(UserWarning):
    """Something the caller should know; the work goes on."""


class GuessingWarning(OfframpWarning):
    """The full network is right no more often than the commonest class comes, and the caller goes on anyway."""


class OverlapWarning(OfframpWarning):
    """A few samples of a split are in an earlier one too, and were left out of the later."""
