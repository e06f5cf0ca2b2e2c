"""all-MiniLM-L6-v2 tuned to a dataset of texts by low-rank deltas, like the encoders that come with the data."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from offramp.features import Source
from offramp_bench import texts
from offramp_bench.backbones.sources import Subset
from offramp_bench.backbones.training import Recipe, fit
from offramp_bench.backbones.weights import State

__all__ = ["agnews", "sst2", "tune_encoder"]

RANK = 8

WIDTH = 384
"""Numbers per token of the encoder."""

SST2_ROWS = 9_000
"""Train rows of SST-2 that the encoder is tuned on; the validation file has the unseen ones."""


class LowRank(nn.Module):
    """A weight plus the product of two thin matrices.

    Args:
        weight: The frozen weight.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(RANK, weight.shape[1]) * weight.shape[1] ** -0.5)
        self.up = nn.Parameter(torch.zeros(weight.shape[0], RANK))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the changed weight."""
        return weight + self.up @ self.down


class _Classifier(nn.Module):
    """A text classifier that takes the output of a tokenizer as one dictionary."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, tokens: dict[str, Tensor]) -> Tensor:
        logits: Tensor = self.classifier(tokens["input_ids"], tokens["attention_mask"])
        return logits


def tune_encoder(seen: Source, recipe: Recipe, *, num_classes: int, name: str) -> State:
    """Tune low-rank deltas of every linear layer, and a head.

    Args:
        seen: The rows to tune on.
        recipe: Epochs, batch size and rates.
        num_classes: K.
        name: Name in the lines of progress.

    Returns:
        `<module>.lora_A`, `<module>.lora_B`, `head.weight` and `head.bias`.
    """
    torch.manual_seed(recipe.seed)
    head = {"head.weight": torch.zeros(num_classes, WIDTH), "head.bias": torch.zeros(num_classes)}
    classifier = texts.classifier_of(head)
    for parameter in classifier.encoder.parameters():
        parameter.requires_grad_(False)
    deltas = {}
    for key, module in classifier.encoder.named_modules():
        if isinstance(module, nn.Linear) and key.startswith("encoder."):
            deltas[key] = LowRank(module.weight)
            parametrize.register_parametrization(module, "weight", deltas[key])
    rows = seen.read(0, len(seen))
    labels, tokenize = torch.as_tensor(rows.labels), texts.tokenizer()

    def make_batch(places: Tensor, _generator: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
        batch = [rows.inputs[place] for place in places.tolist()]
        tokens = tokenize(batch, padding=True, truncation=True, max_length=texts.LONGEST, return_tensors="pt")
        return dict(tokens), labels[places]

    fit(_Classifier(classifier), make_batch, len(seen), recipe, name=name)
    return {
        **{f"{key}.lora_A": delta.down.detach() for key, delta in deltas.items()},
        **{f"{key}.lora_B": delta.up.detach() for key, delta in deltas.items()},
        **{f"head.{key}": value.detach() for key, value in classifier.head.named_parameters()},
    }


def agnews(part: str) -> Source:
    """Return rows of AG News: two of three train rows are "seen", the others "unseen"; "test" has all test rows."""
    return texts.intents("agnews", "test") if part == "test" else texts.train_rows("agnews", seen=part == "seen")


def sst2(part: str) -> Source:
    """Return rows of SST-2: "seen" are train rows, "unseen" the validation file, "test" GLUE's dev rows.

    Rows are phrases, many of them of the same sentence. A train row that shares five consecutive words, or all of its
    words, with a row of the validation file is left out.
    """
    if part != "seen":
        return texts.intents("sst2", {"unseen": "valid", "test": "test"}[part])
    unseen, train = texts.intents("sst2", "valid"), texts.intents("sst2", "train")
    unseen_phrases = {phrase for text in unseen.read(0, len(unseen)).inputs for phrase in _phrases(text)}
    rows = train.read(0, len(train))
    free = [place for place, text in enumerate(rows.inputs) if unseen_phrases.isdisjoint(_phrases(text))]
    # Ids are hashes: a random choice.
    mask = np.zeros(len(train), bool)
    mask[sorted(free, key=lambda place: int(rows.ids[place]))[:SST2_ROWS]] = True
    return Subset(train, mask, name="sst2/train/seen")


def _phrases(text: str) -> set[tuple[str, ...]]:
    """Return all runs of five words, or the whole text if it is shorter."""
    words = text.split()
    return {tuple(words[start : start + 5]) for start in range(max(1, len(words) - 4))}
