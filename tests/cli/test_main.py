"""The command as a whole: what it ends with, and what reaches a user when something is wrong."""

import builtins
import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

from offramp.cli import main as package_main
from offramp.cli import options
from offramp.cli.main import COMMANDS, app, main
from offramp.pooling import _rich as pooling
from tests.cases import each
from tests.cli.workshop import Shell

COMMAND: Any = typer.main.get_command(app)
NAMES = [command.__name__ for command in COMMANDS]
SLOW = ("torch", "numpy", "pydantic", "rich.console")
"""Modules that the help must not import: each takes a noticeable part of a second."""


def test_the_package_gives_the_same_command() -> None:
    assert package_main is main
    assert list(COMMAND.commands) == NAMES


def test_nothing_asked_for_shows_three_commands_that_parse(offramp: Shell) -> None:
    for line in ((), ("--debug",)):
        ran = offramp(*line)
        assert (ran.status, ran.err) == (0, "")
        shown = re.findall(r"^  offramp (.*)", ran.out, flags=re.MULTILINE)
        assert [shlex.split(typed)[0] for typed in shown] == ["demo", "estimate", "fit"]
        for command, *arguments in map(shlex.split, shown):
            with COMMAND.commands[command].make_context(command, arguments) as context:
                assert context.params
        assert "offramp --help" in ran.out


def test_help_lists_every_command(offramp: Shell) -> None:
    ran = offramp("--help")
    assert ran.status == 0
    assert all(re.search(rf"^  {name} ", ran.out, flags=re.MULTILINE) for name in NAMES)


def test_version(offramp: Shell) -> None:
    ran = offramp("--version")
    assert (ran.status, ran.out) == (0, f"offramp {version('offramp')}\n")


def test_run_as_a_module() -> None:
    ran = subprocess.run([sys.executable, "-m", "offramp.cli", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("offramp ")
    assert not ran.stderr


class TestUsage:
    """Errors that typer detects: printed with the usage, status 2."""

    @each(
        ("line", "told"),
        [
            ("inspects", "No such command 'inspects'. Did you mean 'inspect'?"),
            ("fit --model x --train y", "Missing option '--out'"),
            ("evaluate --data a", "Missing argument 'ARTIFACT'"),
            ("inspect a b", "unexpected extra argument"),
            ("fit --chance 3", "No such option: --chance"),
            ("fit --epoch 3", "--epochs"),
            ("fit --model", "requires an argument"),
            ("predict a --data b --out c.csv --cost abc", "'--cost': Input should be a valid number"),
            ("predict a --data b --out c.csv --batch-size 0", "--batch-size"),
            ("estimate --model x --data y --samples 3", "--samples"),
            ("fit --model x --train y --out z --epochs 0", "--epochs"),
            ("fit --model x --train y --out z --seed one", "--seed"),
        ],
    )
    def test_told_with_what_was_expected(self, offramp: Shell, line: str, told: str) -> None:
        ran = offramp(*line.split())
        assert ran.status == 2
        assert not ran.out
        assert told in ran.told
        assert "unexpected error" not in ran.told


class TestUnforeseen:
    @pytest.fixture
    def broken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(path: Path, trust: object, **options: object) -> None:
            raise ZeroDivisionError("[/bold] of nothing")

        monkeypatch.setattr("offramp.cli.networks.open_artifact", fail)

    @pytest.mark.usefixtures("broken")
    def test_is_one_panel(self, offramp: Shell) -> None:
        ran = offramp("inspect", "anything")
        assert ran.status == 1
        assert not ran.out
        assert "ZeroDivisionError: [/bold] of nothing" in ran.told
        assert "--debug" in ran.told
        assert ran.err.count("╭") == 1

    @pytest.mark.usefixtures("broken")
    @each("place", [0, 1, 2])
    def test_is_raised_with_debug_wherever_that_stands(self, offramp: Shell, place: int) -> None:
        line = ["inspect", "anything"]
        line.insert(place, "--debug")
        with pytest.raises(ZeroDivisionError):
            offramp(*line)

    @each("file", ["report.html", None])
    def test_a_full_disk_is_not(self, offramp: Shell, monkeypatch: pytest.MonkeyPatch, file: str | None) -> None:
        def fail(path: Path, trust: object, **options: object) -> None:
            raise OSError(28, "No space left on device", file)

        monkeypatch.setattr("offramp.cli.networks.open_artifact", fail)
        ran = offramp("inspect", "anything")
        assert ran.status == 1
        place = "" if file is None else ": report.html"
        assert f"No space left on device{place}; free space or choose another folder" in ran.told

    def test_so_is_what_was_foreseen(self, offramp: Shell) -> None:
        with pytest.raises(OSError, match="is not there"):
            offramp("inspect", "no-such-folder", "--debug")


def test_an_error_of_the_library_names_the_options(offramp: Shell) -> None:
    ran = offramp("inspect", "--model", "workshop_models:make", "--data", "saved")
    assert ran.status == 1
    assert "choose one: split='test' On the command line: --split" in ran.told


class TestHelp:
    """As a new user reads it."""

    @each("width", [80, 120])
    @each("name", ["", *NAMES])
    def test_is_whole_and_without_markup(
        self, offramp: Shell, monkeypatch: pytest.MonkeyPatch, name: str, width: int
    ) -> None:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", width)
        ran = offramp(*([name] if name else []), "--help")
        assert ran.status == 0
        assert not ran.err
        assert max(map(len, ran.out.splitlines())) <= width
        assert "[bold]" not in ran.out
        assert "[/" not in ran.out
        assert "[dim]" not in ran.out
        assert "…" not in ran.out  # something that did not fit
        assert "`" not in ran.out

    @each("name", NAMES)
    def test_describes_every_option(self, name: str) -> None:
        for parameter in COMMAND.commands[name].params:
            assert parameter.help, parameter.name
            assert parameter.help[0].isupper() or parameter.help[0] == "[", parameter.name
            assert parameter.help.removesuffix("[/dim]").endswith("."), parameter.name

    @each("name", NAMES)
    def test_says_what_holds_without_an_option(self, name: str) -> None:
        for parameter in COMMAND.commands[name].params:
            left_out = parameter.default is None and not parameter.required and parameter.param_type_name == "option"
            known_from_name = parameter.name in ("split", "report", "accuracy", "backbone")
            if left_out and not known_from_name:
                assert "Without it" in parameter.help, parameter.name

    @each("name", NAMES)
    def test_examples_parse(self, name: str) -> None:
        examples = re.findall(r"\[bold\]Example\[/bold\]: offramp (.*)", COMMAND.commands[name].help)
        assert examples
        for example in examples:
            command, *arguments = shlex.split(example)
            assert command == name
            with COMMAND.commands[name].make_context(name, arguments) as context:
                assert context.params


def test_stopped_while_torch_is_imported(offramp: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def interrupt(name: str, *rest: Any) -> Any:
        if name == "offramp.cli.networks":
            raise KeyboardInterrupt
        return real(name, *rest)

    monkeypatch.setattr("builtins.__import__", interrupt)
    ran = offramp("inspect", "anything")
    assert ran.status == 130
    assert ran.told == "Stopped. Run the same command again."


class TestQuick:
    """Neither help nor completion waits for torch."""

    @each("line", [["--version"], ["--help"], [], *([name, "--help"] for name in NAMES)])
    def test_without_torch(self, line: list[str]) -> None:
        code = (
            f"import sys; from offramp.cli import main; main(sys.argv[1:]); print([name for name in {SLOW} if name in "
            "sys.modules])"
        )
        ran = subprocess.run([sys.executable, "-c", code, *line], capture_output=True, text=True, check=True)
        assert ran.stdout.splitlines()[-1] == "[]"

    @each(
        ("words", "expected"),
        [
            ("fi", ["fit"]),
            ("fit --t", ["--train", "--trust"]),
            ("fit --seed 3 --method p", ["paper"]),
            ("predict hf://owner/name --ou", ["--out"]),
            ("inspect hf://owner/name --ou", ["--out"]),
        ],
    )
    def test_completion(self, words: str, expected: list[str]) -> None:
        completion = {
            "_OFFRAMP_COMPLETE": "complete_bash",
            "COMP_WORDS": f"offramp {words}",
            "COMP_CWORD": str(len(words.split())),
        }
        code = (
            f"import atexit, sys; from offramp.cli import main; atexit.register(lambda: print([name for name in {SLOW} "
            "if name in sys.modules])); main([])"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **completion}, capture_output=True, text=True, check=True
        )
        assert ran.stdout.split("\n") == [*expected, "[]", ""]

    @pytest.mark.slow
    def test_in_little_time(self, tmp_path: Path) -> None:
        """At most 2.5 times the processor time of importing what the command line is built on."""
        completion = {"_OFFRAMP_COMPLETE": "complete_bash", "COMP_WORDS": "offramp fit --tr", "COMP_CWORD": "2"}
        command = [sys.executable, "-m", "offramp.cli"]
        lines: dict[str, tuple[list[str], dict[str, str]]] = {
            "imports": ([sys.executable, "-c", "import typer, rich"], {}),
            "--version": ([*command, "--version"], {}),
            "--help": ([*command, "--help"], {}),
            "predict --help": ([*command, "predict", "--help"], {}),
            "completion": (command, completion),
        }
        # Compiled files, as an installation has them.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        kept["PYTHONPYCACHEPREFIX"] = str(tmp_path)
        times: dict[str, list[float]] = {name: [] for name in lines}
        for _ in range(6):
            for name, (line, more) in lines.items():
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(line, env={**kept, **more}, stdout=subprocess.DEVNULL, check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                times[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        medians = {name: statistics.median(took[1:]) for name, took in times.items()}  # the first time compiles
        assert all(took <= 2.5 * medians["imports"] for took in medians.values()), medians


def test_the_default_pooling_is_that_of_the_library() -> None:
    assert options.DEFAULT_POOLING == pooling.DEFAULT_POOLING
