"""Output in notebooks, with a stand-in for IPython."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from offramp._notebook import html_table, show_in_notebook
from offramp._progress import progress_bar
from tests.test_progress import Clock


class Notebook:
    """The part of IPython that displays, in a process with a kernel or without."""

    def __init__(self, kernel: object) -> None:
        self.shell = SimpleNamespace(kernel=kernel)
        self.shown: list[dict[str, str]] = []
        self.display = SimpleNamespace(display=self.show)

    def get_ipython(self) -> Any:
        return self.shell

    def show(self, formats: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        self.shown.append(formats)
        return SimpleNamespace(update=self.update)

    def update(self, formats: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(formats)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    played = Notebook(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", played)
    return played


def test_a_table_holds_its_texts_escaped() -> None:
    shown = html_table("<a>", ["<b>"], [["<c>"], ["d"]], ["<e>"])
    assert shown == (
        "<p>&lt;a&gt;</p><table><tr><th>&lt;b&gt;</th></tr><tr><td>&lt;c&gt;</td></tr><tr><td>d</td></tr></table>"
        "<p>&lt;e&gt;</p>"
    )


def test_outside_notebooks_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert show_in_notebook("<p>a</p>", "a") is None
    terminal = Notebook(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert show_in_notebook("<p>a</p>", "a") is None
    terminal.shell = None  # type: ignore[assignment]  # IPython imported by a script
    assert show_in_notebook("<p>a</p>", "a") is None
    assert terminal.shown == []


def test_what_is_shown_can_be_replaced(notebook: Notebook) -> None:
    replace = show_in_notebook("<p>a</p>", "a")
    assert replace is not None
    replace("<p>b</p>", "b")
    assert notebook.shown == [
        {"text/html": "<p>a</p>", "text/plain": "a"},
        {"text/html": "<p>b</p>", "text/plain": "b"},
    ]


def test_a_bar_moves_and_ends_full(notebook: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with progress_bar("<counting>", 40, done=10, unit="rows", show=True, clock=clock) as advance:
        for step_s in (0.05, 0.05, 0.4):
            clock.now += step_s
            advance(10, "note")
    assert [formats["text/plain"] for formats in notebook.shown] == [
        "<counting>: 10 of 40 rows",
        "<counting>: 40 of 40 rows, 60 rows/s, 0 s left, note",
        "<counting>: 40 of 40 rows, 60 rows/s, 0 s left, note",
    ]
    assert notebook.shown[-1]["text/html"] == (
        '<p><progress value="40" max="40"></progress> &lt;counting&gt;: 40 of 40 rows, 60 rows/s, 0 s left, note</p>'
    )
    assert capsys.readouterr() == ("", "")


def test_a_bar_stops_where_the_work_failed(notebook: Notebook) -> None:
    def fail() -> None:
        with progress_bar("counting", 40, unit="rows", show=True, clock=Clock()) as advance:
            advance(7)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert notebook.shown[-1]["text/plain"] == "counting: 7 of 40 rows"


def test_a_bar_that_is_not_shown_is_not_shown(notebook: Notebook) -> None:
    with progress_bar("counting", 40, unit="rows", show=False) as advance:
        advance(40)
    assert notebook.shown == []
