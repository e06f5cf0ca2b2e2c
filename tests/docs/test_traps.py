"""docs/traps.md has three lines for each trap."""

import re
from pathlib import Path

TRAPS = Path(__file__).parents[2] / "docs" / "traps.md"


def test_every_trap_has_its_three_lines() -> None:
    traps = TRAPS.read_text().split("\n### ")[1:]
    assert len(traps) > 30
    for trap in traps:
        assert re.findall(r"^\* \*\*(You see|Why|Do)\*\*", trap, flags=re.MULTILINE) == ["You see", "Why", "Do"], trap
