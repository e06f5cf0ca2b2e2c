"""The rows to annotate: texts that the tuned MiniLM has not seen, its answers, and untuned embeddings."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch

from offramp.backbone.adapters.transformers import MeanClassifier
from offramp_bench import places
from offramp_bench.texts import LONGEST, classifier_of, intents, minilm_itself, tokenizer, train_rows

__all__ = ["SPLITS", "AnnotationRows", "load_rows"]

SPLITS = {"banking77": ("test",), "clinc150": ("val", "test")}
"""Splits of each dataset that are annotated beside the unseen part of its train split."""

BATCH = 100
"""Texts per batch of a network."""


@dataclass(frozen=True)
class AnnotationRows:
    """Rows to annotate, with the inputs of the cheap member and the answers of the expensive one."""

    texts: list[str]
    """`N` texts."""
    embeddings: npt.NDArray[np.float32]
    """`N x 384` means of the untuned MiniLM's outputs."""
    answers: npt.NDArray[np.int64]
    """`N` classes that the tuned MiniLM gives: the expensive model."""
    labels: npt.NDArray[np.int64]
    """`N` labels of the dataset."""
    num_classes: int
    """Number of classes."""


@cache
def load_rows(task: str) -> AnnotationRows:
    """Return the rows of a dataset; networks run once, then their outputs are read from a file.

    Args:
        task: "banking77" or "clinc150".
    """
    sources = [train_rows(task, seen=False), *(intents(task, split) for split in SPLITS[task])]
    parts = [source.read(0, len(source)) for source in sources]
    texts = [str(text) for part in parts for text in part.inputs]
    labels = np.concatenate([part.labels for part in parts])
    file = places.STORES / "annotation" / f"{task}.npz"
    if not file.exists():
        tuned = minilm_itself(task)
        plain = classifier_of({"head.weight": torch.eye(384), "head.bias": torch.zeros(384)})
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, embeddings=_run(plain, texts), scores=_run(tuned, texts))
    with np.load(file) as arrays:
        embeddings, scores = arrays["embeddings"], arrays["scores"]
    return AnnotationRows(texts, embeddings, scores.argmax(1), labels, scores.shape[1])


def _run(network: MeanClassifier, texts: list[str]) -> npt.NDArray[np.float32]:
    """Return the outputs of a network for texts."""
    tokens, outputs = tokenizer(), []
    with torch.inference_mode():
        for start in range(0, len(texts), BATCH):
            some = texts[start : start + BATCH]
            batch = tokens(some, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
            outputs.append(network(batch["input_ids"], batch["attention_mask"]).numpy())
    return np.concatenate(outputs)
