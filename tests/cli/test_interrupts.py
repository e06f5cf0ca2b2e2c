"""Ctrl-C, wherever it comes."""

import pytest
import typer

from offramp.cli.interrupts import resumable


def test_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as raised, resumable("Do [this]."):
        raise KeyboardInterrupt
    assert raised.value.exit_code == 130
    assert capsys.readouterr().err == "\nStopped. Do [this].\n"


def test_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), resumable("Outside."), resumable("Inside."):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "\nStopped. Inside.\n"


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="mine"), resumable("Nothing."):
        raise ValueError("mine")
