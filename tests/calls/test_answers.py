"""Answers in a file: what was put is there for everybody, whoever dies."""

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from offramp.calls._answers import AnswerStore, KeptAnswer, Usage
from offramp.errors import StoreError
from tests.calls.conftest import Opener


def answer(number: float) -> KeptAnswer:
    return KeptAnswer(np.array([number, -number], np.float32), 7, 2, 0.5)


def test_what_is_put_is_got_again_by_model_and_input(tmp_path: Path, open_store: Opener) -> None:
    store = open_store(tmp_path / "new" / "answers.sqlite")
    store.put("a", {1: answer(1), 2: answer(2)}, Usage(2, 0, 0, 14, 4, 1.0))
    store.put("b", {1: answer(9)}, Usage(1, spent=0.25))
    kept = open_store(store.path).get("a", [1, 2, 3])
    assert {key: float(value.scores[0]) for key, value in kept.items()} == {1: 1.0, 2: 2.0}
    assert (kept[1].input_tokens, kept[1].output_tokens, kept[1].price) == (7, 2, 0.5)
    assert float(store.get("b", [1])[1].scores[0]) == 9.0


def test_the_first_answer_to_an_input_stays(tmp_path: Path, open_store: Opener) -> None:
    store = open_store(tmp_path / "answers.sqlite")
    store.put("a", {1: answer(1)}, Usage(1))
    store.put("a", {1: answer(2)}, Usage(1))
    assert float(store.get("a", [1])[1].scores[0]) == 1.0


def test_usage_adds_up_over_puts_and_processes(tmp_path: Path, open_store: Opener) -> None:
    store = open_store(tmp_path / "answers.sqlite")
    assert store.usage("a") == Usage()
    store.put("a", {}, Usage(3, 1, 2, 30, 5, 0.5))
    open_store(store.path).put("a", {}, Usage(1, 0, 0, 10, 1, 0.25))
    assert store.usage("a") == Usage(4, 1, 2, 40, 6, 0.75)
    assert store.usage("b") == Usage()


def test_more_inputs_than_one_query_takes(tmp_path: Path, open_store: Opener) -> None:
    store = open_store(tmp_path / "answers.sqlite")
    keys = [2**62 + key for key in range(2500)]
    store.put("a", {key: answer(key % 7) for key in keys}, Usage(len(keys)))
    assert sorted(store.get("a", keys)) == keys


def _put_until_killed(path: Path) -> None:
    store = AnswerStore(path)
    for key in range(10_000):
        store.put("a", {key: answer(1)}, Usage(1, spent=1.0))


def test_a_process_that_is_killed_loses_no_answer_and_no_price(tmp_path: Path, open_store: Opener) -> None:
    path = tmp_path / "answers.sqlite"
    store = open_store(path)
    process = multiprocessing.get_context("spawn").Process(target=_put_until_killed, args=(path,))
    process.start()
    while store.usage("a").replies < 50:
        assert process.is_alive()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    kept = open_store(path)
    count = kept.usage("a").replies
    assert 50 <= count < 10_000
    assert kept.usage("a").spent == count  # in one commit with the answer
    assert len(kept.get("a", list(range(10_000)))) == count


def test_a_file_that_is_no_database_is_refused(tmp_path: Path, open_store: Opener) -> None:
    (tmp_path / "answers.sqlite").write_text("not a database, but long enough to be read as one" * 50)
    with pytest.raises(StoreError):
        open_store(tmp_path / "answers.sqlite")
    with pytest.raises(StoreError):
        open_store(tmp_path / "answers.sqlite" / "below")
