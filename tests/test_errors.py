import pickle

import pytest

from offramp import errors
from offramp.errors import OfframpError
from tests.cases import each

# The builtin a caller would catch without knowing offramp.
BUILTINS: dict[str, type[Exception]] = {
    "ArtifactError": OSError,
    "BudgetError": ValueError,
    "BusyError": RuntimeError,
    "CorruptFileError": OSError,
    "CallError": RuntimeError,
    "DuplicateNameError": ValueError,
    "GuessingError": ValueError,
    "InputError": ValueError,
    "MissingExtraError": ImportError,
    "SplitError": ValueError,
    "SplitRefusedError": ValueError,
    "StoreError": OSError,
    "UnknownNameError": LookupError,
    "UntrustedNameError": PermissionError,
    "WorkerLostError": RuntimeError,
}


def test_every_error_is_here() -> None:
    assert sorted([*BUILTINS, "GuessingWarning", "OfframpError", "OfframpWarning", "OverlapWarning"]) == errors.__all__
    defined = {name for name, thing in vars(errors).items() if isinstance(thing, type)}
    assert defined == set(errors.__all__)


every_error = each("name", list(BUILTINS))


class TestEachError:
    @every_error
    def test_inherits_both(self, name: str) -> None:
        error = getattr(errors, name)
        assert issubclass(error, OfframpError)
        assert issubclass(error, BUILTINS[name])

    @every_error
    @each("caught_as", ["offramp", "builtin"])
    def test_is_caught_either_way(self, name: str, caught_as: str) -> None:
        error = getattr(errors, name)
        with pytest.raises(OfframpError if caught_as == "offramp" else BUILTINS[name], match="what to do next"):
            raise error("what to do next")

    @every_error
    def test_crosses_processes(self, name: str) -> None:
        # Worker processes send their errors home.
        again = pickle.loads(pickle.dumps(getattr(errors, name)("what to do next")))
        assert type(again) is getattr(errors, name)
        assert str(again) == "what to do next"


def test_the_base_is_an_exception_of_its_own() -> None:
    assert OfframpError.__bases__ == (Exception,)
    assert not issubclass(OfframpError, (ValueError, OSError, LookupError))


@every_error
def test_carries_fields(name: str) -> None:
    given = {"problem": "labels", "expected": "0 to 9", "got": 12, "hint": "leave them out"}
    error = getattr(errors, name)(**given)
    assert str(error) == "labels: expected 0 to 9, got 12; leave them out"
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert (one.problem, one.expected, one.got, one.hint) == ("labels", "0 to 9", "12", "leave them out")
