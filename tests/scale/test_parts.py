"""Parquet files hold the answers of the network, row by row."""

from pathlib import Path

import pytest
import torch
from pyarrow import parquet

import offramp
from offramp.errors import StoreError
from offramp.scale._parts import write_answers
from tests.cases import each


def answer(count: int, classes: int, *, seed: int = 0) -> offramp.Answer:
    draw = torch.Generator().manual_seed(seed)
    probabilities = torch.rand(count, classes, generator=draw).softmax(1)
    sets = {level: torch.rand(count, classes, generator=draw) < share for level, share in ((0.05, 0.5), (0.1, 0.2))}
    exits = torch.randint(4, (count,), generator=draw)
    return offramp.Answer(probabilities.argmax(1), probabilities, exits, (1 + exits) / 4, sets)


@each(("count", "classes"), [(50, 5), (1, 2), (3, 2), (0, 4)])
@each("named", [True, False])
def test_every_cell(count: int, classes: int, named: bool, tmp_path: Path) -> None:
    given, names = answer(count, classes), [f"class é {number}" for number in range(classes)]
    calls = names if named else list(range(classes))
    inputs = [f"image {row}.png" for row in range(count)]
    write_answers(tmp_path / "a.parquet", inputs, given, miscoverage=0.1, classes=names if named else ())
    found = parquet.read_table(tmp_path / "a.parquet", page_checksum_verification=True)
    assert found.column_names == ["input", "label", "confidence", "exit", "cost", "set", "probabilities"]
    expected = [
        {
            "input": inputs[row],
            "label": calls[int(given.labels[row])],
            "confidence": float(given.probabilities[row].max()),
            "exit": int(given.exits[row]),
            "cost": float(given.relative_cost[row]),
            "set": [calls[number] for number in range(classes) if given.prediction_sets[0.1][row, number]],
            "probabilities": given.probabilities[row].tolist(),
        }
        for row in range(count)
    ]
    assert found.to_pylist() == expected


def test_the_same_answers_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_answers(tmp_path / name, ["x"] * 9, answer(9, 3), miscoverage=0.05)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write .*gone/a\.parquet: .*make room or give permission"):
        write_answers(tmp_path / "gone" / "a.parquet", ["x"], answer(1, 2), miscoverage=0.05)
