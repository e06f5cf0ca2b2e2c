"""A network with exits inside, a small function and a language model as one cascade: from calls to monitoring."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

import offramp
from offramp.monitor import Monitor, Traffic, full_labels
from offramp.testing import serve_llm
from offramp_bench.bars import Bar
from offramp_bench.texts import intents, minilm, train_rows

__all__ = ["mixed"]

MAX_DROP = 0.05
"""Share of answers that may differ from the language model's."""


def mixed() -> tuple[dict[str, Any], list[Bar]]:
    """Annotate Banking77's unseen train rows, save, load, answer half of test, and monitor the other half.

    The language model is a local server that answers with the labels of the dataset.
    """
    os.environ.setdefault("OPENAI_API_KEY", "none")
    seen, unseen, test = (
        train_rows("banking77", seen=True),
        train_rows("banking77", seen=False),
        intents("banking77", "test"),
    )
    parts = [source.read(0, len(source)) for source in (seen, unseen, test)]
    labels = {str(text): str(label) for part in parts for text, label in zip(part.inputs, part.labels, strict=True)}
    small = _small_function(parts[0])
    with TemporaryDirectory() as folder, serve_llm(labels.__getitem__) as server:
        llm = offramp.llm(
            "labels",
            [str(number) for number in range(77)],
            base_url=server.base_url,
            price={"per_input_token": 1e-6, "per_output_token": 4e-6, "currency": "EUR"},
        )
        members = offramp.cascade(small, minilm("banking77"), llm)
        job = offramp.annotate(
            [str(text) for text in parts[1].inputs],
            members,
            label_budget=500,
            max_drop=MAX_DROP,
            scope="future",
            progress=False,
        )
        job.model.save(Path(folder) / "model")
        model = offramp.load(Path(folder) / "model", backbone=members)
        texts = [str(text) for text in parts[2].inputs]
        truth = np.array([int(labels[text]) for text in texts])
        half = len(texts) // 2
        monitor = Monitor(_observe(model, texts[:half], share=1.0), false_alarm=0.01)
        verdict = monitor.update(_observe(model, texts[half:], share=0.1))
        answer = model.predict(texts)
    differs = float((answer.labels.numpy() != truth).mean())
    figures: dict[str, Any] = {
        "asked": job.bill.asked,
        "inputs": job.bill.inputs,
        "bill_share": job.bill.share,
        "left_at": answer.exits.bincount(minlength=members.num_exits).tolist(),
        "price_share_on_test": float(answer.relative_cost.mean()),
        "differs_on_test": differs,
        "action": verdict.action,
    }
    return figures, [
        Bar("answers to new texts that differ", differs, MAX_DROP),
        Bar("share of the bill on new texts", figures["price_share_on_test"], 0.6),
        Bar("saved guarantee is another", float(model.point.guarantee != job.guarantee), 0),
    ]


def _small_function(seen: Any) -> offramp.Backbone:
    """Return logistic regression on hashed words, as a member."""
    words = HashingVectorizer(n_features=4096)
    classifier = LogisticRegression(max_iter=200).fit(words.transform(seen.inputs), seen.labels)

    def score(texts: Any) -> Any:
        return classifier.predict_log_proba(words.transform(texts))

    return offramp.callable_model(score, [str(number) for number in range(77)], name="words")


def _observe(model: offramp.EarlyExitModel, texts: list[str], *, share: float) -> Traffic:
    answer = model.predict(texts)
    rows = torch.rand(len(texts), generator=torch.Generator().manual_seed(0)) < share
    differs = torch.full((len(texts),), torch.nan)
    differs[rows] = (full_labels(model, texts, rows) != answer.labels[rows]).float()
    return Traffic(answer.exits, answer.probabilities.amax(1), differs)
