"""The commands in docs/how-to/command-line.md."""

import re
import shlex
from pathlib import Path

GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md").read_text()


def commands(name: str) -> list[list[str]]:
    """The commands of a walk-through, without `offramp`."""
    found = re.search(rf"<!-- {name} -->\n```\n(.*?)```\n<!-- /{name} -->", GUIDE, flags=re.DOTALL)
    assert found is not None
    typed = [shlex.split(line) for line in found[1].splitlines()]
    assert all(line[0] == "offramp" for line in typed)
    assert len(typed) <= 5
    return [line[1:] for line in typed]
