"""docs/paper-to-code.md names everything in the paper, and only what exists."""

import importlib
import pkgutil
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper-to-code.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def numbers(text: str) -> list[int]:
    """The numbers in the first column of a table: `5`, `5, 6`, `2 to 10`."""
    found: list[int] = []
    for cell in re.findall(r"^\| ([\d, to]+) \|", text, flags=re.MULTILINE):
        for part in cell.split(","):
            first, _, last = part.strip().partition(" to ")
            found += range(int(first), int(last or first) + 1)
    return found


def exists(name: str) -> bool:
    """Check that a dotted name is a module, an attribute of one, or a field of a class there."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        owner, _, field = name.rpartition(".")
        try:
            return field in getattr(pkgutil.resolve_name(owner), "__annotations__", {})
        except (ImportError, AttributeError):
            return False
    return True


def test_every_equation_line_figure_and_table_has_a_row() -> None:
    assert sorted(numbers(section("Equations"))) == list(range(1, 33))
    assert set(numbers(section("Algorithm 1"))) == set(range(1, 29))
    assert numbers(section("Figures")) == list(range(1, 22))
    assert numbers(section("Tables")) == list(range(1, 5))


def test_every_name_exists() -> None:
    importlib.import_module("offramp_bench.torchvision_ops")  # before anything loads transformers
    names = set(re.findall(r"`(offramp(?:_bench)?(?:\.\w+)+)`", PAGE))
    assert len(names) > 60
    assert [name for name in sorted(names) if not exists(name)] == []


def test_every_test_exists() -> None:
    files = set(re.findall(r"`([\w/]+\.(?:py|json))`", PAGE))
    assert len(files) > 20
    assert [file for file in sorted(files) if not (ROOT / file).is_file()] == []


def test_rows_without_code_say_why() -> None:
    for row in PAGE.splitlines():
        if row.startswith("|") and "not here" in row and "GRIT" not in row:
            assert re.search(r"not here[:;] \w+", row), row
