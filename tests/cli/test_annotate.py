"""Annotation on the command line: answers, a bill, a model to go on with; what is estimated, resumed and refused."""

import csv
from pathlib import Path

import pytest

from tests.cli.workshop import Shell

MODULE = """
import numpy as np, offramp
CLASSES = ["even", "odd", "huge"]
def embed(texts):
    return np.array([[len(text) % 2, len(text) > 40, 1.0] for text in texts], np.float32)
def ask(texts):
    with open("asked.txt", "a") as file:
        file.writelines(f"{text}\\n" for text in texts)
    return [CLASSES[2 if len(text) > 40 else len(text) % 2] for text in texts]
def encoder():
    return offramp.encoder("workshop_calls:embed")
def last():
    return offramp.callable_model("workshop_calls:ask", CLASSES, price={"per_call": 0.25, "currency": "EUR"})
def vague():
    return offramp.encoder(lambda texts: np.zeros((len(texts), 2)), name="vague")
"""
MODELS = ("--model", "workshop_calls:encoder", "--model", "workshop_calls:last")
TRUST = ("--trust", "workshop_calls:encoder", "--trust", "workshop_calls:last")
OPTIONS = ("--label-budget", "150", "--max-drop", "0.05")


@pytest.fixture
def texts(offramp: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("workshop_calls.py").write_text(MODULE)
    with open("texts.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text"])
        writer.writerows([f"{number} " + "x" * (number % 60)] for number in range(2000))
    return tmp_path


def asked() -> list[str]:
    return Path("asked.txt").read_text().splitlines()


def test_from_a_table_to_answers_and_a_model(offramp: Shell, texts: Path) -> None:
    line = ("annotate", *MODELS, "--data", "texts.csv", *OPTIONS, "--scope", "future", "--out", "answers.csv")
    found = offramp.json(*line, "--artifact", "model")
    with open("answers.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open("texts.csv", newline="") as file:
        lengths = [len(row["text"]) for row in csv.DictReader(file)]
    truth = ["huge" if length > 40 else ("even", "odd")[length % 2] for length in lengths]
    wrong = sum(row["label"] != name for row, name in zip(rows, truth, strict=True))
    assert wrong <= 0.05 * len(rows)
    assert len(asked()) == len(set(asked())) == found["bill"]["asked"] < 700
    assert (found["bill"]["spent"], found["bill"]["full"]) == (0.25 * found["bill"]["asked"], 500.0)
    assert (found["bill"]["currency"], found["failed"], found["guarantee"]["at_most"]) == ("EUR", 0, 0.05)
    ran = offramp("predict", "model", "--data", "texts.csv", "--out", "more.csv", *TRUST)
    assert ran.status == 0
    assert (
        "at the point that it was saved at, with this guarantee: with 95 % confidence it answers at most 5 %"
        in ran.told
    )
    assert "EUR per 1,000" in ran.told
    Path("labelled.csv").write_text("\n".join(["text,label", *(f"{'y' * length},huge" for length in range(400, 700))]))
    ran = offramp("evaluate", "model", "--data", "labelled.csv", "--report", "report", "--anyway", *TRUST)
    assert ran.status == 0
    assert "The bill: 250 EUR per 1,000 before" in ran.out
    assert "250 EUR before" in (texts / "report" / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")


def test_a_dry_run_and_then_the_job(offramp: Shell, texts: Path) -> None:
    line = ("annotate", *MODELS, "--data", "texts.csv", *OPTIONS, "--out", "answers.csv")
    estimate = offramp.json(*line, "--dry-run")
    assert len(asked()) == estimate["answers"] == 60
    assert not Path("answers.csv").exists()
    ran = offramp(*line)
    assert ran.status == 0
    assert len(asked()) == len(set(asked()))
    assert "2,000 answers in answers.csv" in ran.told
    assert "Guaranteed: with 95 % confidence at most 5 % of these 2,000 answers differ" in ran.told
    before = len(asked())
    assert offramp(*line).status == 0
    assert len(asked()) == before  # everything was kept
    assert "Estimated: about" in offramp(*line, "--dry-run").told


def test_it_does_not_pay(offramp: Shell, texts: Path) -> None:
    models = ("--model", "workshop_calls:vague", "--model", "workshop_calls:last")
    line = ("annotate", *models, "--data", "texts.csv", *OPTIONS, "--out", "answers.csv")
    ran = offramp(*line)
    assert ran.status == 1
    assert "it does not pay: expected a guarantee of at most 5 % that spares a tenth of the calls" in ran.told
    assert "after 150 answers the cheap members would answer" in ran.told
    assert len(asked()) == 150
    ran = offramp(*line, "--anyway")
    assert ran.status == 0
    assert "Every input was asked: no answer differs." in ran.told
    assert len(asked()) == len(set(asked())) == 2000


def test_a_spending_cap(offramp: Shell, texts: Path) -> None:
    line = ("annotate", *MODELS, "--data", "texts.csv", *OPTIONS, "--out", "answers.csv", "--max-spend", "10")
    ran = offramp(*line)
    assert ran.status == 1
    assert "10" in ran.told
    assert len(asked()) <= 41 + 110  # what is in flight is one batch


def test_a_file_that_is_no_table(offramp: Shell, texts: Path) -> None:
    ran = offramp("annotate", *MODELS, "--data", "texts.csv", "--out", "answers.json")
    assert ran.status == 1
    assert "a name that ends with .csv, got 'answers.json'" in ran.told
