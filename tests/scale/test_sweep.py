"""Each trial once, whatever is interrupted, in this process and on workers alike."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.errors import InputError
from offramp.scale import Trial, cluster, grid, sweep

TRIALS = grid(method=["joint", "boosted"], seed=range(3))


def _noted(folder: Path) -> Callable[[Trial], dict[str, Any]]:
    """Work that leaves a file each time it is done, also in another process."""

    def work(trial: Trial) -> dict[str, Any]:
        done = folder / f"{trial['method']}-{trial['seed']}"
        done.write_text(done.read_text() + "x" if done.exists() else "x")
        return {"area": trial["seed"] / 4, "name": trial["method"]}

    return work


def _counts(folder: Path) -> list[int]:
    return [len(file.read_text()) for file in sorted(folder.iterdir())]


def test_grid() -> None:
    assert len(TRIALS) == 6
    assert TRIALS[4] == {"method": "boosted", "seed": 1}
    assert grid(method=[]) == []
    assert grid() == [{}]


@pytest.mark.parametrize("on_workers", [False, True])
def test_each_trial_once(tmp_path: Path, on_workers: bool) -> None:
    done = tmp_path / "done"
    done.mkdir()
    file = tmp_path / "deep" / "results.jsonl"

    def swept(trials: list[Trial]) -> list[Any]:
        if not on_workers:
            return sweep(trials, _noted(done), file, depends_on="one", progress=False)
        with cluster(2) as workers:
            return sweep(trials, _noted(done), file, depends_on="one", workers=workers, progress=False)

    expected = [{"area": trial["seed"] / 4, "name": trial["method"]} for trial in TRIALS]
    assert swept(TRIALS[3:]) == expected[3:]
    assert swept(TRIALS) == expected
    assert swept(TRIALS[::-1]) == expected[::-1]
    assert _counts(done) == [1] * 6
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0] == {"depends_on": "one"}
    found = {(line["trial"]["method"], line["trial"]["seed"]): line["result"] for line in lines[1:]}
    assert found == {(trial["method"], trial["seed"]): one for trial, one in zip(TRIALS, expected, strict=True)}


def test_what_was_done_in_this_process_need_not_be_done_on_workers(tmp_path: Path) -> None:
    done, file = tmp_path / "done", tmp_path / "results.jsonl"
    done.mkdir()
    alone = sweep(TRIALS[:4], _noted(done), file, depends_on="one", progress=False)
    with cluster(1) as workers:
        assert sweep(TRIALS, _noted(done), file, depends_on="one", workers=workers, progress=False)[:4] == alone
    assert _counts(done) == [1] * 6


@pytest.mark.parametrize("kept", range(0, 121, 8))
def test_goes_on_after_a_kill_at_any_byte(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "results.jsonl"
    trials = grid(seed=range(4))
    whole = sweep(trials, lambda trial: trial["seed"] * 10, file, depends_on="tens", progress=False)
    content = file.read_bytes()
    assert len(content) > 120
    file.write_bytes(content[:kept])
    assert sweep(trials, lambda trial: trial["seed"] * 10, file, depends_on="tens", progress=False) == whole
    assert file.read_bytes() == content


def test_results_are_as_they_will_be_read(tmp_path: Path) -> None:
    file, trials = tmp_path / "results.jsonl", grid(seed=[0])
    first = sweep(trials, lambda trial: {1: (2, 3)}, file, depends_on="one", progress=False)
    assert first == sweep(trials, lambda trial: None, file, depends_on="one", progress=False) == [{"1": [2, 3]}]


def test_an_error_in_a_trial_keeps_what_was_done(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"

    def work(trial: Trial) -> int:
        if trial["seed"] == 2:
            raise ZeroDivisionError("no such seed")
        return int(trial["seed"])

    with pytest.raises(ZeroDivisionError, match="no such seed"):
        sweep(grid(seed=range(4)), work, file, depends_on="one", progress=False)
    assert sweep(grid(seed=range(4)), lambda trial: 9, file, depends_on="one", progress=False) == [0, 1, 9, 9]


def test_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    sweep(grid(seed=[0]), lambda trial: 0, file, depends_on="store a", progress=False)
    with pytest.raises(InputError, match="depend on 'store a', these on 'store b'"):
        sweep(grid(seed=[0]), lambda trial: 0, file, depends_on="store b", progress=False)
    with pytest.raises(InputError, match="is there twice"):
        sweep([{"a": 1, "b": 2}, {"b": 2, "a": 1}], lambda trial: 0, file, depends_on="store a", progress=False)
    with pytest.raises(InputError, match="parameters that JSON can hold"):
        sweep([{"a": {1}}], lambda trial: 0, file, depends_on="store a", progress=False)
    with pytest.raises(InputError, match="result that JSON can hold"):
        sweep(grid(seed=[1]), lambda trial: {1}, file, depends_on="store a", progress=False)
    with pytest.raises(InputError, match="choose another file"):
        sweep(grid(seed=[1]), lambda trial: 0, tmp_path, depends_on="store a", progress=False)
    other = tmp_path / "other.csv"
    for content in ("a,b\n1,2\n", "a", '{"depends_on": 1}'):
        other.write_text(content)
        with pytest.raises(InputError, match="is not a file of results"):
            sweep(grid(seed=[1]), lambda trial: 0, other, depends_on="store a", progress=False)
        assert other.read_text() == content
