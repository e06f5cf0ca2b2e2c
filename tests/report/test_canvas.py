import importlib
import re
import sys
from pathlib import Path

import pytest

import offramp.report
from offramp.errors import MissingExtraError


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "offramp.report.canvas", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'offramp\[report\]'"):
        importlib.import_module("offramp.report.canvas")


def test_no_other_file_imports_matplotlib() -> None:
    folder = Path(offramp.report.__path__[0])
    assert [
        file.name
        for file in sorted(folder.glob("*.py"))
        if re.search(r"^\s*(import|from) matplotlib", file.read_text(), re.MULTILINE)
    ] == ["canvas.py"]
