"""The examples in docstrings run; those of one folder: `scripts/test tests/test_examples.py -k policy`."""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.cases import check_examples

SRC = Path(__file__).parents[1] / "src"
FOLDERS: dict[str, list[Path]] = defaultdict(list)
for _file in sorted(SRC.rglob("*.py")):
    _parts = _file.relative_to(SRC).parts
    if _parts[-1] != "__main__.py":
        FOLDERS[_parts[1] if len(_parts) > 2 else "offramp"].append(_file)


@pytest.mark.parametrize("folder", FOLDERS)
def test_give_what_they_say(folder: str) -> None:
    check_examples(SRC, *FOLDERS[folder])
