"""The tutorials run as they stand, block by block, and print what they show, numbers aside."""

import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offramp
from offramp.cli import main

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorial"
PAGES = ("a-bill-to-cut", "images", "text", "your-own-module")
BLOCK = re.compile(r"```(python|bash|text)\n(.*?)```", flags=re.DOTALL)
MINUTES = 10
"""Of reading, at most, at 200 words a minute; code and output count like text."""

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def run(page: str, capture: pytest.CaptureFixture[str], *, compare: bool = True) -> dict[str, Any]:
    """Run a page as a reader does: files that it names are written, commands are run, everything else is Python.

    Args:
        page: Name of the page.
        capture: What was printed.
        compare: Compare what each block prints with what the page shows: `comparable`.

    Returns:
        The names that the page has defined.
    """
    names: dict[str, Any] = {"__name__": "tutorial"}
    printed = ""
    capture.readouterr()
    for kind, block in BLOCK.findall((TUTORIALS / f"{page}.md").read_text()):
        file = re.match(r"# (\w+\.py)\n", block)
        if kind == "text":
            assert not compare or comparable(printed) == comparable(block)
        elif kind == "bash":
            for line in block.splitlines():
                assert main(shlex.split(line.removeprefix("offramp "))) == 0, line
        elif file:
            Path(file[1]).write_text(block)
            importlib.invalidate_caches()
        else:
            exec(compile(block, f"{page}.md", "exec"), names)
        printed = capture.readouterr().out
    return names


def comparable(text: str) -> list[str]:
    """Return the lines of an output as they are on every machine, with N in place of numbers.

    A list of numbers, or of exits that samples leave at, counts as one: its length may vary. Of a table only the header
    is kept, as rows hold nothing but numbers. The line of dropped exits is left out: there may be none.
    """
    lines = []
    for line in text.splitlines():
        if line.strip() and not re.match("[┏┡│└]|exits dropped", line):
            line = re.sub(r"[-+]?\d+(?:[.,]\d+)*", "N", " ".join(line.split()))
            line = re.sub("N at exit N(?:, N at exit N)+", "N at exit N", line)
            lines.append(re.sub("N(?:, N)+", "N", line))
    return lines


def test_outputs_are_compared_line_by_line() -> None:
    table = "┏━━━┓\n┃ {} ┃\n┡━━━┩\n│ 0.1 │\n└───┘\nAnswer({} at exit 0{}; relative cost {})\n"
    page = comparable(table.format("cost", 3, ", 1,200 at exit 1", 0.2))
    assert page == ["┃ cost ┃", "Answer(N at exit N; relative cost N)"]
    assert page == comparable("\n" + table.format(" cost", "1,003", "", "-0.25") + "exits dropped because: 2, 4\n")
    assert page != comparable(table.format("price", 3, "", 0.2))
    assert page != comparable(table.format("cost", 3, "", 0.2) + "one line more\n")
    assert page != comparable(table.format("cost", 3, "", 0.2).replace("relative cost", "cost"))


@pytest.mark.slow
def test_a_bill_to_cut(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("a-bill-to-cut", capsys)
    job = names["job"]
    assert job.bill.asked < 1500
    assert job.guarantee.at_most == 0.05
    assert names["future"].model.point.guarantee.loss == "disagreement"


@pytest.mark.slow
def test_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("timm")
    names = run("images", capsys)
    assert names["model"].full_accuracy > 0.95
    assert names["safe"].point.guarantee.at_most == 0.02
    assert float(names["answer"].relative_cost.mean()) < 0.35
    assert (folder / "digits-report" / "report.html").is_file()


@pytest.mark.slow
def test_your_own_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("your-own-module", capsys)
    assert names["coarse"].num_exits == 3
    assert names["fast"].point.guarantee.at_most == 0.01
    assert names["again"].point.guarantee == names["fast"].point.guarantee


@pytest.mark.slow
@pytest.mark.data
def test_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With fewer texts than the page's output is of."""
    from offramp_bench.texts import intents, train_rows
    from tests.end_to_end.test_main_road import save_classifier, write_rows

    _, classes = save_classifier(folder / "my-model")
    unseen, test = train_rows("banking77", seen=False), intents("banking77", "test")
    places = np.random.default_rng(2).permutation(len(unseen))
    write_rows(folder / "train.csv", unseen, classes, places[:800])
    write_rows(folder / "validation.csv", unseen, classes, places[800:2000])
    write_rows(folder / "test.csv", test, classes, np.random.default_rng(3).permutation(len(test))[:300])
    names = run("text", capsys, compare=False)
    assert names["fast"].point.guarantee.at_most == 0.01
    assert names["fast"].point.tune_metrics["cost"] < 1
    assert isinstance(names["again"], offramp.EarlyExitModel)


@pytest.mark.parametrize("page", PAGES)
def test_is_read_in_ten_minutes(page: str) -> None:
    assert {file.stem for file in TUTORIALS.glob("*.md")} == set(PAGES)
    text = (TUTORIALS / f"{page}.md").read_text()
    assert len(re.findall(r"[A-Za-z]\w+", text)) < 200 * MINUTES
    assert re.search(r"^## Where to go next$", text, flags=re.MULTILINE)
