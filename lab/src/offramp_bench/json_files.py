"""Results on disk."""

import json
from pathlib import Path
from typing import Any

from offramp._files import write_atomically

__all__ = ["write_json"]


def write_json(file: Path, content: Any, *, indent: int | None = None) -> None:
    """Write JSON, atomically, in a folder that is made if need be.

    Args:
        file: The file.
        content: Anything that JSON holds.
        indent: Spaces per level; None: all on one line.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(file) as temporary:
        temporary.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")
