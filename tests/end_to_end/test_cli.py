"""The guide's commands, from raw texts and from a folder of images to predictions, on fewer rows."""

import csv
import gzip
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.cifar import cifar10, data_folder
from offramp.cli import main

GUIDE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
NAMES = "airplane automobile bird cat deer dog frog horse ship truck".split()


def commands(name: str) -> list[list[str]]:
    """What the guide says to type, without `offramp`."""
    found = re.search(rf"<!-- {name} -->\n```\n(.*?)```\n<!-- /{name} -->", GUIDE, flags=re.DOTALL)
    assert found is not None
    typed = [shlex.split(line) for line in found[1].splitlines()]
    assert all(line[0] == "offramp" for line in typed)
    assert len(typed) <= 5
    return [line[1:] for line in typed]


def answers() -> list[dict[str, str]]:
    with open("answers.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.data
def test_from_raw_text_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = {}
    for split, rows in (("train", 1200), ("val", 400), ("test", 300)):
        with gzip.open(data_folder() / "clinc150" / f"{split}.tsv.gz", "rt", encoding="utf-8") as file:
            header, *lines = file.read().splitlines()
        chosen = [lines[row] for row in np.random.default_rng(0).permutation(len(lines))[:rows]]
        chosen = [line for line in chosen if int(line.split("\t")[0]) < 150]
        with gzip.open(f"{split}.tsv.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join([header, *chosen]) + "\n")
        expected[split] = [line.split("\t", 1) for line in chosen]
    Path("new.txt").write_text("".join(f"{text}\n" for _, text in expected["test"]), "utf-8")
    for typed in commands("texts"):
        assert main([word.replace("$DATA", str(tmp_path)) for word in typed]) == 0, capsys.readouterr().err
    assert (tmp_path / "intents-report" / "report.html").is_file()
    found = answers()
    right = [row["label"] == label for row, (label, _) in zip(found, expected["test"], strict=True)]
    assert sum(right) / len(right) > 0.3  # eight samples a class to fit on, an eighth of the cost: far above chance
    assert "of the cost it is right" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.data
def test_from_a_folder_of_images_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = cifar10("test", rows=1000).read(0, 1000)
    for part, places in (("train", range(400)), ("validation", range(400, 700)), ("test", range(700, 1000))):
        for row in places:
            folder = tmp_path / "images" / part / NAMES[rows.labels[row]]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rows.inputs[row]).save(folder / f"{row:04d}.png")
    (tmp_path / "new").mkdir()
    for row in range(700, 800):
        Image.fromarray(rows.inputs[row]).save(tmp_path / "new" / f"{row}.png")
    for typed in commands("images"):
        assert main(typed) == 0, capsys.readouterr().err
    assert (tmp_path / "pictures-report" / "report.html").is_file()
    found = answers()
    right = [row["label"] == NAMES[rows.labels[700 + place]] for place, row in enumerate(found)]
    assert sum(right) / len(right) > 0.75
    assert "They agree on 100.0 % of the samples" in capsys.readouterr().out
