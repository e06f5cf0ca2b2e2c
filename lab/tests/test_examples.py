"""The examples in docstrings of what others may use run."""

from pathlib import Path

from tests.cases import check_examples, each

SRC = Path(__file__).parents[1] / "src"


@each("folder", ["page", "rivals"])
def test_give_what_they_say(folder: str) -> None:
    check_examples(SRC, *sorted((SRC / "offramp_bench" / folder).rglob("*.py")))
