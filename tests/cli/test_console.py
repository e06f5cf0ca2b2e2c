"""Printed text, tables and errors, with any characters in them."""

import io
import sys
import warnings

import pytest
import typer

from offramp.cli.console import (
    interval,
    points,
    print_error,
    print_json,
    print_table,
    print_text,
    resumable,
    say,
    show_warnings,
    warn,
)
from offramp.errors import GuessingError, InputError, OfframpError, OfframpWarning
from tests.cases import each

HOSTILE = "a[/b] [bold]c [link=x]"


@each("tell", [say, warn, print_error, print_text])
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
    print_error("three")
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


@each(
    ("error", "options"),
    [
        (InputError("two splits", hint="choose one: split='a b'"), "--split"),
        (InputError("no column", hint="name another: column=... or label=..."), "--column, --label"),
        (GuessingError("no better than guessing"), "--anyway"),
        (InputError("split=3 is in the data", hint="give threshold=0.5"), None),
    ],
)
def test_options_for_arguments_in_a_hint(
    capsys: pytest.CaptureFixture[str], error: OfframpError, options: str | None
) -> None:
    print_error(error)
    lines = [line.strip(" │") for line in capsys.readouterr().err.splitlines()]
    assert str(error) in lines  # as it is
    assert [line for line in lines if "command line" in line] == (
        [] if options is None else [f"On the command line: {options}"]
    )


def test_points_have_no_minus_zero() -> None:
    assert points(-0.0) == points(-1e-6) == "+0.00"
    assert interval((-0.01, 0.02)) == "-1.00 to +2.00"


class TestResumable:
    def test_says_how_to_continue(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit) as raised, resumable("Do [this]."):
            raise KeyboardInterrupt
        assert raised.value.exit_code == 130
        assert capsys.readouterr().err == "\nStopped. Do [this].\n"

    def test_once(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit), resumable("Outside."), resumable("Inside."):
            raise KeyboardInterrupt
        assert capsys.readouterr().err == "\nStopped. Inside.\n"

    def test_other_errors_pass(self) -> None:
        with pytest.raises(ValueError, match="mine"), resumable("Nothing."):
            raise ValueError("mine")
