"""The scripts of examples/ run as they stand, on small networks and data made here; nothing is downloaded."""

import csv
import re
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from offramp.demo._run import run as make_demo
from tests.cli.workshop import NAMES, sentences, write_images
from tests.demo.examples import trained

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:no guarantee"),  # so few samples are not enough for one
]


class Example:
    """Runs a script in this process, where torchvision can be imported and trained networks are kept."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self._patch, self._capture = folder, monkeypatch, capture

    def __call__(self, name: str, *arguments: object) -> str:
        self._patch.chdir(self.folder)
        self._patch.setattr(tempfile, "tempdir", str(self.folder))
        self._patch.setattr(sys, "argv", [name, *map(str, arguments)])
        self._patch.syspath_prepend(str(EXAMPLES))
        self._patch.setattr("offramp.demo.trained_networks", lambda train: trained())
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return self._capture.readouterr().out


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Example:
    return Example(tmp_path, monkeypatch, capsys)


def test_are_short_and_listed() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = sorted(EXAMPLES.glob("*.py"))
    assert files
    for file in files:
        source = file.read_text(encoding="utf-8")
        assert len(source.splitlines()) < 80, file.name
        assert f"[{file.name}]({file.name})" in page, file.name
        assert f"python examples/{file.name}" in source, file.name


def test_own_module(run: Example) -> None:
    out = run("own_module.py")
    assert "497 samples, full network" in out
    assert out.count("'label'") == 5


def test_callables_and_a_bill(run: Example) -> None:
    out = run("callables_and_a_bill.py")
    assert "with 95 % confidence at most 5 % of these 1,497 answers differ" in out
    assert "EUR instead of 14.97" in out


def test_text_classifier(run: Example) -> None:
    save_texts(run.folder / "model")
    files = []
    for seed, (name, count) in enumerate((("train", 160), ("validation", 160), ("test", 90))):
        files.append(run.folder / f"{name}.csv")
        with files[-1].open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *zip(*sentences(count, seed=seed), strict=True)])
    out = run("text_classifier.py", run.folder / "model", *files)
    assert "90 samples, full network" in out
    expected = [label for _, label in zip(range(3), sentences(90, seed=2)[1], strict=False)]
    assert re.findall(r"\{'label': '(\w+)', 'score': ", out) == expected
    assert "90 texts in" in out


def test_image_classifier(run: Example) -> None:
    folders = []
    for seed, (name, count) in enumerate((("train", 90), ("validation", 90), ("test", 60))):
        write_images(run.folder / name, count, seed=seed, sides=(40, 64))
        folders.append(run.folder / name)
    save_timm("test_resnet", folders[0], run.folder / "weights.safetensors")
    out = run("image_classifier.py", "test_resnet", "weights.safetensors", *folders)
    assert "60 samples, full network" in out
    assert "at exit" in out
    assert "saved in" in out


def test_serve_and_turn_the_dial(run: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.demo._run.trained_networks", lambda train, *, progress: trained())
    make_demo(tmp_path, progress=False)
    out = run("serve_and_turn_the_dial.py", tmp_path / "artifact")
    table = [line.split() for line in out.splitlines() if line.startswith("    ")]
    costs = {budget: float(cost) for budget, cost, *_ in table[:4]}
    assert costs["0.03"] < costs["0.05"] < costs["0.1"] == costs["none"]
    assert float(table[4][1]) == costs["0.05"]  # the operator's point


def test_own_method(run: Example) -> None:
    rows = [line for line in run("own_method.py").splitlines() if line.endswith("%")]
    assert [row.split()[0] for row in rows] == ["own_method:fit", "default", "boosted"]
    assert all(float(row.split()[-2]) > 50 for row in rows)


def save_texts(folder: Path) -> None:
    """Write a tiny classifier of transformers whose head was solved for, and its tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = {word: place for place, word in enumerate(["[PAD]", "[UNK]", "good", "bad", "dull", "day", "very"])}
    plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    made: Any = PreTrainedTokenizerFast
    tokenizer = made(tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 128, "vocab_size": 8, "max_position_embeddings": 16, "initializer_range": 0.5}
    names = dict(enumerate(NAMES))
    config: Any = BertConfig
    network: Any = BertForSequenceClassification
    model = network(config(id2label=names, label2id={name: place for place, name in names.items()}, **sizes)).eval()
    texts, labels = sentences(200, seed=9)
    with torch.no_grad():
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        pooled = model.bert(inputs["input_ids"], inputs["attention_mask"]).pooler_output.double()
        scores = 4 * torch.eye(3, dtype=torch.double)[[NAMES.index(label) for label in labels]]
        model.classifier.weight.copy_(torch.linalg.lstsq(pooled, scores, driver="gelsd").solution.T)
        model.classifier.bias.zero_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_timm(name: str, images: Path, weights: Path) -> None:
    """Write weights of a tiny model of timm whose head was solved for on a folder of images."""
    import timm

    import offramp
    from offramp.data import open_data

    torch.manual_seed(0)
    network: Any = timm.create_model(name, num_classes=3).eval()
    state = {key: value.contiguous() for key, value in network.state_dict().items()}
    save_file(state, weights)
    prepare = offramp.split(f"timm:{name},weights={weights}").preprocessing
    source = open_data(str(images))
    rows = source.read(0, len(source))
    with torch.no_grad():
        features = network.forward_head(network.forward_features(prepare(rows.inputs)), pre_logits=True)
        features = (features - features.mean(0)).double()
        scores = 4 * torch.eye(3, dtype=torch.double)[torch.as_tensor(rows.labels)]
        ridge = features.T @ features + 1e-3 * features.var() * len(features) * torch.eye(features.shape[1])
        weight = torch.linalg.solve(ridge, features.T @ (scores - scores.mean(0))).T.float()
        mean = network.forward_head(network.forward_features(prepare(rows.inputs)), pre_logits=True).mean(0)
        head = network.get_classifier()
        head.weight.copy_(weight)
        head.bias.copy_(-weight @ mean)
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, weights)
