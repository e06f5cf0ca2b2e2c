"""Programs of scripts/, imported as modules."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "load_script"]

ROOT = Path(__file__).parents[1]


def load_script(name: str) -> Any:
    """Import scripts/NAME.py."""
    spec = spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
