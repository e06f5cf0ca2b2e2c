import pytest

from offramp._progress import _format_duration, progress_bar


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lines_of(capsys: pytest.CaptureFixture[str], *, step_s: float, steps: int, done: int = 0, show: bool = True) -> str:
    clock = Clock()
    with progress_bar("counting", 1000, done=done, unit="rows", show=show, clock=clock) as advance:
        for _ in range(steps):
            clock.now += step_s
            advance(10)
    out, err = capsys.readouterr()
    assert not out
    return err


def test_short_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(capsys, step_s=0.29, steps=100) == ""


def test_a_line_every_thirty_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """10 rows in 5 s: 60 rows after 30 s, 2 a second, 940 left in 470 s."""
    assert lines_of(capsys, step_s=5, steps=17).splitlines() == [
        "counting: 60 of 1,000 rows, 2 rows/s, 7 min 50 s left",
        "counting: 120 of 1,000 rows, 2 rows/s, 7 min 20 s left",
    ]


def test_the_rate_is_that_of_this_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        lines_of(capsys, step_s=40, steps=1, done=900) == "counting: 910 of 1,000 rows, 0.25 rows/s, 6 min 0 s left\n"
    )


def test_steps_longer_than_that_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(lines_of(capsys, step_s=100, steps=5).splitlines()) == 5


def test_a_note_stands_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with progress_bar("counting", 10, unit="rows", show=True, clock=clock) as advance:
        clock.now += 31
        advance(1, "2 workers")
    assert capsys.readouterr().err.endswith(" left, 2 workers\n")


def test_not_shown_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(capsys, step_s=100, steps=5, show=False) == ""


def test_durations_have_two_units() -> None:
    shown = [_format_duration(seconds) for seconds in (42, 125, 7260, 200_000)]
    assert shown == ["42 s", "2 min 5 s", "2 h 1 min", "55 h 33 min"]
