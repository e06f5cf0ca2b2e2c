"""A folder such as a user has: a module that makes networks, and data in every format."""

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

import offramp as library
from offramp.cli import main
from offramp.features import ArraySource
from offramp.methods import FittedExits
from offramp.methods._joint import fit_joint
from offramp.methods._settings import JointSettings
from offramp.model._loading import load
from offramp.model._model import EarlyExitModel

MODELS = "workshop_models"
QUICK = replace(library.DEFAULT, cost_weights=(0.1, 1.0), least_steps=10)
"""Settings of the fits in these tests; the defaults take longer."""


def quick(
    fit: Any, tune: Any, costs: Any, settings: JointSettings = QUICK, *, checkpoint: Any = None, on_epoch: Any = None
) -> FittedExits:
    """The default method with settings that take little time."""
    return fit_joint(fit, tune, costs, settings, checkpoint=checkpoint, on_epoch=on_epoch)


SOURCE = '''
import sys
from pathlib import Path

import torch
from torch import nn

import offramp
from offramp.backbone import CifarResNet
from offramp.preprocessing._images import image_preprocessing
from offramp.preprocessing._text import text_preprocessing

MODELS = {}
PREPARED = image_preprocessing(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


def make(depth=3, classes=3, width=256, inputs=16, seed=0, name="tiny"):
    """A network whose head was solved for, once, on samples like those of the workshop."""
    torch.manual_seed(seed)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)]
    body, head = nn.Sequential(nn.Linear(inputs, width), *blocks), nn.Linear(width, classes)
    file = Path(__file__).with_name(f"{depth}-{classes}-{width}-{inputs}-{seed}.pt")
    if not file.exists():
        torch.save(solved(body, inputs, classes), file)
    head.load_state_dict(torch.load(file))
    return offramp.split(nn.Sequential(body, head), torch.zeros(2, inputs), name=name)


def solved(body, inputs, classes):
    labels = torch.arange(300) % classes
    centres = torch.eye(inputs)[:classes] * 2
    with torch.no_grad():
        features = body(centres[labels] + torch.randn(300, inputs))
        features = torch.cat([features, torch.ones(300, 1)], 1)
        ridge = features.T @ features + 0.1 * torch.eye(features.shape[1])
        found = torch.linalg.solve(ridge, features.T @ (4 * torch.eye(classes)[labels]))
    return {"weight": found[:-1].T.contiguous(), "bias": found[-1]}


def small():
    return make(depth=2, width=64, name="small")


def pictures(layers=8):
    torch.manual_seed(0)
    backbone = CifarResNet(layers, num_classes=3)
    backbone.preprocessing = PREPARED
    return backbone


def texts(layers=2):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification

    from offramp.backbone.adapters.transformers import text_backbone

    torch.manual_seed(0)
    words = Tokenizer(models.WordLevel({"?": 0, "good": 1, "bad": 2, "dull": 3, "day": 4, "very": 5}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    sizes = dict(num_hidden_layers=layers, hidden_size=64, num_attention_heads=2, intermediate_size=128, vocab_size=8)
    model = BertForSequenceClassification(BertConfig(num_labels=3, initializer_range=0.5, **sizes)).eval()
    known = [f"{'very ' * count}{name} day" for count in range(4) for name in ("bad", "dull", "good")]
    with torch.no_grad():  # the head is solved for on all sentences there are
        pooled = model.bert(**text_preprocessing(words, longest=8)(known)).pooler_output.double()
        scores = 4 * torch.eye(3, dtype=torch.double).repeat(4, 1)
        found = torch.linalg.lstsq(pooled, scores, driver="gelsd").solution
        model.classifier.weight.copy_(found.T)
        model.classifier.bias.zero_()
    return text_backbone(model, tokenizer=words, longest=8)


def silly():
    return {"not": "a backbone"}


def fails():
    weights = {}
    return weights["layer1"]


def leaves():
    sys.exit(3)


class Undecided(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, inputs):
        mixed = self.one(inputs)
        return self.head(self.two(mixed) if mixed.sum() > 0 else mixed)


def refused():
    return offramp.split(Undecided(), torch.zeros(2, 4))
'''


def samples(count: int, *, seed: int, classes: int = 3) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Points around a centre a class, some of them hard to tell."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, classes, count)
    inputs = np.eye(16)[labels] * 2 + draw.normal(size=(count, 16))
    return inputs.astype(np.float32), labels


NAMES = ("bad", "dull", "good")


def sentences(count: int, *, seed: int) -> tuple[list[str], list[str]]:
    draw = np.random.default_rng(seed)
    labels = [NAMES[label] for label in draw.integers(0, 3, count)]
    # No two alike, for splits must not share any: the last word is one the tokenizer does not know.
    days = (f"{label} day {seed}x{row}" for row, label in enumerate(labels))
    return [f"{'very ' * int(draw.integers(0, 4))}{day}" for day in days], labels


def write_images(folder: Path, count: int, *, seed: int, sides: Sequence[int] = (32,)) -> None:
    draw = np.random.default_rng(seed)
    for row in range(count):
        place = folder / NAMES[row % 3]
        place.mkdir(parents=True, exist_ok=True)
        side = sides[row % len(sides)]
        pixels = draw.normal(90, 40, (side, side, 3)) + 60 * np.eye(3)[row % 3]
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(place / f"{row:03}.png")


def furnish(folder: Path) -> None:
    """Write the module and the data."""
    (folder / f"{MODELS}.py").write_text(SOURCE)
    for seed, (name, count) in enumerate((("train", 160), ("val", 120), ("test", 90))):
        inputs, labels = samples(count, seed=seed)
        np.savez(folder / f"{name}.npz", x=inputs, y=labels)
    inputs, labels = samples(90, seed=2)
    np.savez(folder / "full.npz", x=inputs)
    header = ",".join([*(f"x{column}" for column in range(16)), "kind"])
    rows = [",".join([*map(str, row), str(label)]) for row, label in zip(inputs, labels, strict=True)]
    (folder / "test.csv").write_text("\n".join([header, *rows]) + "\n")
    columns: dict[str, Any] = {f"x{column:02}": inputs[:, column] for column in range(16)}
    parquet.write_table(pyarrow.table({**columns, "label": labels}), folder / "test.parquet")
    saved = datasets.Dataset.from_dict({"x": inputs.tolist(), "label": labels.tolist()})
    datasets.DatasetDict({"test": saved}).save_to_disk(str(folder / "saved"))
    for seed, name in enumerate(("texts-train", "texts-val", "texts-test")):
        texts, kinds = sentences(60, seed=seed)
        lines = [f"{kind}\t{text}" for kind, text in zip(kinds, texts, strict=True)]
        (folder / f"{name}.tsv").write_text("\n".join(["label\ttext", *lines]) + "\n")
    (folder / "new.txt").write_text("very good day\nbad day\ndull\n")
    (folder / "names.txt").write_text("\n".join(NAMES) + "\n")
    write_images(folder / "images", 12, seed=0)
    write_images(folder / "sizes", 40, seed=0, sides=(32, 24))


@dataclass(frozen=True)
class Ran:
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str

    @property
    def told(self) -> str:
        """The message on stderr, without frames and line breaks."""
        return " ".join("".join(" " if letter in "│╭╮╰╯─" else letter for letter in self.err).split())

    @property
    def json(self) -> Any:
        """All of stdout as JSON; there must be nothing else."""
        return json.loads(self.out)


class Shell:
    """Runs commands in the workshop, in this process."""

    def __init__(self, capture: Any) -> None:
        self._capture = capture

    def __call__(self, *arguments: object) -> Ran:
        self._capture.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = self._capture.readouterr()
        assert "Traceback" not in out + err
        return Ran(status, out, err)

    def json(self, *arguments: object) -> Any:
        """Run a command that must succeed with `--json`, and return its output."""
        ran = self(*arguments, "--json")
        assert ran.status == 0, ran.err
        return ran.json


EXTRACTION = import_module("offramp.features._extraction")
"""The module, not the function of the same name."""


@contextmanager
def stopped_after(monkeypatch: pytest.MonkeyPatch, target: str, count: int) -> Iterator[None]:
    """Ctrl-C inside, when a function has been called so many times."""
    place, _, name = target.rpartition(".")
    try:
        owner: Any = import_module(place)  # not by its dotted name: a function may be called as the module it is in
    except ModuleNotFoundError:
        module, _, owner_name = place.rpartition(".")
        owner = getattr(import_module(module), owner_name)
    original = getattr(owner, name)
    calls = itertools.count()

    def stopping(*arguments: Any, **options: Any) -> Any:
        if next(calls) >= count:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stopping)
        yield


def opened(artifact: Path) -> EarlyExitModel:
    sys.path.insert(0, str(Path.cwd()))
    return load(artifact, trust=[f"{MODELS}:make", f"{MODELS}:small", f"{MODELS}:pictures"])


def test_source() -> ArraySource:
    inputs, labels = samples(90, seed=2)
    return ArraySource(inputs, labels, name="test")
