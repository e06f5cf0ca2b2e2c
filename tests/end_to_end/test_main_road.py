"""The main road of a Hugging Face user, from the built wheel: a folder, CSV files, four commands, answers with names.

The environment is a new one. It holds the wheel, and what the wheel asks for with its extras: those packages alone,
linked from the environment that runs the tests instead of downloaded again. What the wheel needs and does not ask for
is missing there.
"""

import csv
import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sklearn.linear_model import LogisticRegression

from offramp_bench.cifar import data_folder
from offramp_bench.texts import intents, minilm_itself, train_rows
from tests.end_to_end.guide import commands

ROOT = Path(__file__).parents[2]
EXTRAS = ("report", "text", "transformers")
SMALL = 0.01
"""Scale of the pooler, by which its tanh is all but linear."""


def install(folder: Path) -> Path:
    """Build the wheel, install it into a new environment, and return the environment's command."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("offramp-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    python = folder / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    (metadata,) = site.glob("offramp-*.dist-info/METADATA")
    asked = [line.partition(": ")[2] for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist")]
    for name in needed(asked):
        link(name, site)
    return folder / "env" / "bin" / "offramp"


def needed(requirements: list[str]) -> set[str]:
    """The packages that requirements bring along, those of the extras included."""
    waiting: list[tuple[Requirement, tuple[str, ...]]] = [(Requirement(text), EXTRAS) for text in requirements]
    found: set[str] = set()
    seen = set()
    while waiting:
        requirement, extras = waiting.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            continue
        name = canonicalize_name(requirement.name)
        if (name, *requirement.extras) not in seen:
            seen.add((name, *requirement.extras))
            found.add(name)
            own = tuple(requirement.extras)
            waiting += [(Requirement(text), own) for text in distribution(name).requires or ()]
    return found


def link(name: str, site: Path) -> None:
    package = distribution(name)
    for top in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(package.locate_file(top))))


def save_classifier(folder: Path) -> tuple[Any, list[str]]:
    """Save a 77-label BERT with outputs, and names, in an order of their own; return it and the names by label."""
    from transformers import AutoTokenizer, BertForSequenceClassification

    from offramp_bench.texts import _folder

    tuned = minilm_itself("banking77")
    names: list[str] = json.loads((data_folder() / "banking77" / "classes.json").read_text())
    order = np.random.default_rng(0).permutation(len(names)).tolist()
    config: Any = tuned.encoder.config
    config.id2label = {place: names[label] for place, label in enumerate(order)}
    config.label2id = {name: place for place, name in config.id2label.items()}
    made: Any = BertForSequenceClassification  # untyped
    model = made(config).eval()
    model.bert.load_state_dict(tuned.encoder.state_dict())
    loaded: Any = AutoTokenizer
    tokenizer = loaded.from_pretrained(_folder(), model_max_length=64)
    rows = train_rows("banking77", seen=True)
    read = rows.read(0, len(rows))
    some = np.random.default_rng(1).permutation(len(rows))[:1500]
    features = np.concatenate(
        [first_tokens(model, tokenizer, read.inputs[part].tolist()) for part in np.split(some, 20)]
    )
    found = LogisticRegression(C=10, max_iter=300).fit(features, read.labels[some])
    assert found.classes_.tolist() == list(range(len(names)))
    with torch.no_grad():
        width = config.hidden_size
        model.bert.pooler.dense.weight.copy_(SMALL * torch.eye(width))
        model.bert.pooler.dense.bias.zero_()
        model.classifier.weight.copy_(torch.from_numpy(found.coef_[order] / SMALL))
        model.classifier.bias.copy_(torch.from_numpy(found.intercept_[order]))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return (model, tokenizer), names


@torch.no_grad()
def first_tokens(model: Any, tokenizer: Any, texts: list[str]) -> Any:
    encoded = tokenizer(texts, return_tensors="pt", padding=True, truncation=True)
    return model.bert(**encoded).last_hidden_state[:, 0].numpy()


@torch.no_grad()
def answers_of(network: Any, texts: list[str]) -> list[str]:
    """Return the answers of transformers itself."""
    model, tokenizer = network
    found = []
    for start in range(0, len(texts), 100):
        encoded = tokenizer(texts[start : start + 100], return_tensors="pt", padding=True, truncation=True)
        found += [model.config.id2label[label] for label in model(**encoded).logits.argmax(1).tolist()]
    return found


def write_rows(file: Path, source: Any, names: list[str], rows: Any) -> list[tuple[str, str]]:
    read = source.read(0, len(source))
    chosen = [(read.inputs[row], names[read.labels[row]]) for row in rows]
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([("text", "label"), *chosen])
    return chosen


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.timeout(1800)
def test_from_a_folder_to_answers_with_names(tmp_path: Path) -> None:
    command = install(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    network, names = save_classifier(work / "my-model")
    unseen, test = train_rows("banking77", seen=False), intents("banking77", "test")
    places = np.random.default_rng(2).permutation(len(unseen))
    write_rows(work / "train.csv", unseen, names, places[:1200])
    write_rows(work / "validation.csv", unseen, names, places[1200:2000])
    chosen = np.random.default_rng(3).permutation(len(test))[:400]
    rows = write_rows(work / "test.csv", test, names, chosen)
    write_rows(work / "new.csv", test, names, chosen)
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "OFFRAMP_DATA")}

    def offramp(*arguments: str) -> Any:
        ran = subprocess.run(
            [str(command), *arguments, "--json"],
            cwd=work,
            env={**kept, "HF_ENDPOINT": "http://127.0.0.1:9"},  # nobody answers there: nothing may be fetched
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    estimate, fit, evaluate, predict = commands("texts")
    assert offramp(*estimate, "--samples", "200")["full_accuracy"] > 0.75
    fitted = offramp(*fit)
    own_order = [network[0].config.id2label[place] for place in range(len(names))]
    assert fitted["classes"] == own_order != sorted(own_order)

    (work / "my-model").rename(tmp_path / "elsewhere")  # the artifact needs neither the folder nor anybody's code
    measured = offramp(*evaluate)
    assert (work / "intents-report" / "report.html").is_file()
    assert measured["classes"] == own_order
    offramp(*predict, "--shadow", "1")
    with (work / "answers.csv").open(encoding="utf-8") as file:
        answers = list(csv.DictReader(file))
    theirs = answers_of(network, [text for text, _ in rows])
    assert [row["full"] for row in answers] == theirs  # the full network, by name
    assert {row["label"] for row in answers} <= set(names)
    right = [row["label"] == label for row, (_, label) in zip(answers, rows, strict=True)]
    assert np.mean(right) == pytest.approx(measured["chosen"]["accuracy"], abs=0.003)
    assert np.mean(right) > np.mean([answer == label for answer, (_, label) in zip(theirs, rows, strict=True)]) - 0.05
    assert np.mean([float(row["cost"]) for row in answers]) < 0.9
    assert not list(work.rglob("*.py"))
