from pathlib import Path

import pytest

from tests.cases import each

SEEN: list[tuple[int, str, int]] = []


@each("number", [1, 2])
@each(("word", "count"), [("a", 1), ("b", 2)])
def test_every_case_is_run(number: int, word: str, count: int) -> None:
    SEEN.append((number, word, count))


def test_none_was_left_out() -> None:
    assert SEEN in ([], [(1, "a", 1), (1, "b", 2), (2, "a", 1), (2, "b", 2)])  # none where this test runs alone


@each("name", ["x", "y"])
def test_every_case_has_a_folder_of_its_own(tmp_path: Path, name: str) -> None:
    assert not list(tmp_path.iterdir())
    (tmp_path / name).write_text(name)


def test_a_case_that_fails_is_named() -> None:
    @each("number", [1, 2, 3])
    def fails(number: int) -> None:
        assert number != 2

    with pytest.raises(AssertionError) as caught:
        fails()
    assert caught.value.__notes__ == ["case: {'number': 2}"]


def test_no_cases() -> None:
    with pytest.raises(AssertionError, match="cannot fail"):
        each("number", [])
