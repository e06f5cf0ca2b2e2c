import importlib
import random
import re
import sys
from pathlib import Path

import pytest

import offramp.report
from offramp.errors import MissingExtraError
from offramp.report._canvas import Box, find_room

PAGE = Box(0, 0, 200, 100)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "offramp.report._canvas", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'offramp\[report\]'"):
        importlib.import_module("offramp.report._canvas")


def test_no_other_file_imports_matplotlib() -> None:
    folder = Path(offramp.report.__path__[0])
    assert [
        file.name
        for file in sorted(folder.glob("*.py"))
        if re.search(r"^\s*(import|from) matplotlib", file.read_text(), re.MULTILINE)
    ] == ["_canvas.py"]


def test_labels_never_touch_and_never_leave_the_page() -> None:
    draw = random.Random(0)
    markers = [(draw.uniform(0, 200), draw.uniform(0, 100)) for _ in range(30)]
    obstacles = [Box(x - 6, y - 6, 12, 12) for x, y in markers]
    placed: list[Box] = []
    for marker in markers:
        box = find_room(marker, (24, 9), bounds=PAGE, obstacles=[*obstacles, *placed])
        if box is not None:
            placed.append(box)
    assert len(placed) > 10
    for index, box in enumerate(placed):
        assert box.within(PAGE)
        assert not any(box.meets(other) for other in [*obstacles, *placed[:index]])


def test_a_label_avoids_the_crowd() -> None:
    crowd = [(x, 50.0) for x in range(0, 200, 2)]
    box = find_room((100, 50), (30, 8), bounds=PAGE, obstacles=[], crowd=crowd)
    assert box is not None
    assert not any(box.meets(Box(x, y, 0.1, 0.1)) for x, y in crowd)


def test_without_room_there_is_no_label() -> None:
    assert find_room((100, 50), (30, 8), bounds=PAGE, obstacles=[PAGE]) is None
