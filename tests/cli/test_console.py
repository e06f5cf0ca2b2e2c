"""What is printed, whatever is in it."""

import io
import sys
import warnings

import pytest

from offramp.cli.console import (
    interval,
    points,
    print_json,
    print_table,
    print_text,
    say,
    show_warnings,
    tell_error,
    warn,
)
from offramp.errors import OfframpWarning
from tests.cases import each

HOSTILE = "a[/b] [bold]c [link=x]"


@each("tell", [say, warn, tell_error, print_text])
def test_brackets_are_no_markup(tell: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(tell)
    tell(HOSTILE)
    out, err = capsys.readouterr()
    assert HOSTILE in out + err


def test_warnings_of_the_library_are_told_as_ours(capsys: pytest.CaptureFixture[str]) -> None:
    with show_warnings():
        warnings.warn("take another one", OfframpWarning, stacklevel=1)
    assert capsys.readouterr().err == "Careful: take another one\n"


def test_brackets_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("[/b]", ["[/i]", "[x]"], [["[/red]", "[1]"]])
    out = capsys.readouterr().out
    assert all(text in out for text in ("[/b]", "[/i]", "[x]", "[/red]", "[1]"))


def test_people_are_told_on_stderr_and_results_are_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    say("one")
    warn("two")
    tell_error("three")
    assert not capsys.readouterr().out
    print_text("four\n\n")
    print_json({"five": (float("nan"), 1.5, None, float("inf"))})
    out, err = capsys.readouterr()
    assert out == 'four\n{\n "five": [\n  null,\n  1.5,\n  null,\n  null\n ]\n}\n'
    assert not err


def test_what_a_file_cannot_hold_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="cp1252", write_through=True))
    print_text("│ 1 % │ café")
    assert raw.getvalue() == "? 1 % ? café\n".encode("cp1252")


def test_options_in_messages(capsys: pytest.CaptureFixture[str]) -> None:
    tell_error("choose: label='y', or column=..., or split='a b'; threshold=0.5 and mylabel='y' stay")
    told = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "choose: --label y, or --column ..., or --split a b; threshold=0.5 and mylabel='y' stay" in told


def test_points_have_no_minus_zero() -> None:
    assert points(-0.0) == points(-1e-6) == "+0.00"
    assert interval((-0.01, 0.02)) == "-1.00 to +2.00"
