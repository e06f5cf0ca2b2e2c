"""The file of answers: what remains of one that was interrupted in the middle of a line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from offramp.cli.predictions import Predictions, read_traffic
from offramp.errors import InputError
from offramp.model._answer import Answer
from tests.cases import each

CLASSES = ('a "quote"', "two\nlines", "naïve, \u2028 really")


def answer(count: int, first: int) -> Answer:
    labels = (torch.arange(first, first + count)) % 3
    probabilities = torch.nn.functional.one_hot(labels, 3) * 0.7 + 0.1
    return Answer(labels, probabilities, labels, labels / 4 + 0.25, {0.1: probabilities > 0.5 - labels[:, None]})


def keys(count: int, first: int) -> list[str]:
    return [str(row) for row in range(first, first + count)]


def opened(file: Path, key: str = "key", batch_size: int = 4) -> Predictions:
    return Predictions(file, key, point="stopping", batch_size=batch_size, classes=CLASSES, miscoverage=0.1)


def written(file: Path, batches: int = 3) -> bytes:
    predictions = opened(file)
    for batch in range(batches):
        predictions.add(keys(4, 4 * batch), answer(4, 4 * batch))
    predictions.finish()
    return file.read_bytes()


@each("suffix", [".csv", ".jsonl"])
def test_cut_anywhere_it_becomes_the_same_file(tmp_path: Path, suffix: str) -> None:
    whole = written(tmp_path / f"whole{suffix}")
    file, part = tmp_path / f"a{suffix}", tmp_path / f"a{suffix}.part"
    for cut in range(0, len(whole), 13):
        opened(file)
        part.write_bytes(whole[:cut])
        predictions = opened(file)
        assert predictions.done % 4 == 0
        for start in range(predictions.done, 12, 4):
            predictions.add(keys(4, start), answer(4, start))
        summary = predictions.finish()
        assert file.read_bytes() == whole
        assert summary == {"rows": 12, "cost": pytest.approx(0.5)}
        assert not part.exists()


@each("suffix", [".csv", ".jsonl"])
def test_nothing_that_was_done_is_done_again(tmp_path: Path, suffix: str) -> None:
    predictions = opened(tmp_path / f"a{suffix}")
    predictions.add(keys(4, 0), answer(4, 0))
    predictions.add(keys(4, 4), answer(4, 4))
    assert opened(tmp_path / f"a{suffix}").done == 8


@each("suffix", [".csv", ".jsonl"])
@each("garbage", [b"\xff\xfe\x00", b"{}\n[]\n", b'"', b"row,label\n1,2\n", b"null\n"])
def test_garbage_is_begun_anew(tmp_path: Path, suffix: str, garbage: bytes) -> None:
    opened(tmp_path / f"a{suffix}")
    (tmp_path / f"a{suffix}.part").write_bytes(garbage)
    assert opened(tmp_path / f"a{suffix}").done == 0
    assert written(tmp_path / f"a{suffix}") == written(tmp_path / f"b{suffix}")


@each("other", [("another", 4), ("key", 2)])
def test_of_another_key_it_is_begun_anew(tmp_path: Path, other: tuple[str, int]) -> None:
    opened(tmp_path / "a.csv").add(keys(4, 0), answer(4, 0))
    assert opened(tmp_path / "a.csv", *other).done == 0


def test_the_last_file_stays_until_the_next_is_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("the last")
    predictions = opened(tmp_path / "a.csv")
    predictions.add(keys(4, 0), answer(4, 0))
    assert (tmp_path / "a.csv").read_text() == "the last"
    predictions.finish()
    assert (tmp_path / "a.csv").read_text().startswith("input,label,")


def test_names_and_numbers(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", batches=1)
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").split("\n")[:-1]]
    assert [row["label"] for row in rows] == [*CLASSES, CLASSES[0]]
    assert rows[0]["set"] == [CLASSES[0]]
    assert rows[1]["set"] == list(CLASSES)
    numbered = Predictions(tmp_path / "b.jsonl", "key", point="at", batch_size=4, classes=(), miscoverage=0.1)
    numbered.add(keys(4, 0), answer(4, 0))
    numbered.finish()
    assert [json.loads(line)["label"] for line in (tmp_path / "b.jsonl").read_text().splitlines()] == [0, 1, 2, 0]


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    predictions = opened(tmp_path / "a.csv")
    (tmp_path / "a.csv.part").unlink()
    (tmp_path / "a.csv.part").mkdir()
    with pytest.raises(InputError, match=r"cannot continue writing .*; make room, then run the same command again"):
        predictions.add(keys(4, 0), answer(4, 0))


class TestTraffic:
    """Answers that are read from a file for a monitor."""

    @each("suffix", [".csv", ".jsonl"])
    def test_read_back(self, tmp_path: Path, suffix: str) -> None:
        written(tmp_path / f"a{suffix}")
        traffic, points = read_traffic(tmp_path / f"a{suffix}")
        assert points == {"stopping"}
        assert traffic.exits.tolist() == [0, 1, 2] * 4
        assert traffic.confidence.tolist() == pytest.approx([0.8] * 12)
        assert len(traffic.shadowed) == 0

    @each("suffix", [".csv", ".jsonl"])
    def test_the_full_networks_label_beside(self, tmp_path: Path, suffix: str) -> None:
        file = tmp_path / f"a{suffix}"
        how = {"point": "at", "batch_size": 4, "classes": CLASSES, "miscoverage": 0.1, "shadowed": True}
        predictions = Predictions(file, "key", **how)  # type: ignore[arg-type]
        predictions.add(keys(4, 0), answer(4, 0), {1: 1, 3: 2})
        predictions.add(keys(4, 4), answer(4, 4), {})
        again = Predictions(file, "key", **how)  # type: ignore[arg-type]
        assert again.done == 8
        again.finish()
        traffic, _ = read_traffic(file)
        assert np.array_equal(traffic.disagreement, [np.nan, 0, np.nan, 1, *[np.nan] * 4], equal_nan=True)

    @each("suffix", [".csv", ".jsonl"])
    def test_answers_without_names(self, tmp_path: Path, suffix: str) -> None:
        file = tmp_path / f"a{suffix}"
        predictions = Predictions(file, "key", point="at", batch_size=4, classes=(), miscoverage=0.1, shadowed=True)
        predictions.add(keys(4, 0), answer(4, 0), {0: 0, 1: 0})
        predictions.finish()
        assert read_traffic(file)[0].shadowed.tolist() == [0, 1]


def test_answers_that_do_not_say_their_point(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("exit,confidence,label,point\n0,0.5,1,\n1,0.6,0,here\n")
    (tmp_path / "b.csv").write_text("exit,confidence,label\n0,0.5,1\n")
    assert [read_traffic(tmp_path / name)[1] for name in ("a.csv", "b.csv")] == [{"here"}, set()]


@each(
    ("name", "content", "told"),
    [
        ("a.csv", "exit,label\n0,3\n", "exit, confidence and label in .*a.csv, got no 'confidence' in row 0"),
        ("a.csv", "exit,confidence,label\n0,0.5,1\n1,sure,1\n", "could not convert string to float: 'sure' in row 1"),
        ("a.csv", "exit,confidence,label\n0,1.5,1\n", "a.csv: expected confidences between 0 and 1, got 1.5"),
        ("a.csv", "exit,confidence,label\n0\n", "in row 0; give a file that offramp predict wrote, .csv or .jsonl"),
        ("a.jsonl", "3\n", "in row 0; give a file that offramp predict wrote"),
        ("a.jsonl", "{", "in row 0; give a file that offramp predict wrote"),
        ("a.csv", b"\xff\xfe\x00", "a.csv is not a text file"),
        ("b.csv", None, "cannot read .*b.csv: No such file"),
    ],
)
def test_what_is_no_answers(tmp_path: Path, name: str, content: str | bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=told):
        read_traffic(tmp_path / name)
