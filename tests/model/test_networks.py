"""Networks as people hold them: modules, folders, pipelines, lists of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import offramp
from offramp.backbone import Cascade
from offramp.errors import InputError
from offramp.model._networks import as_backbone
from tests.backbone.adapters.folder_examples import NAMES, save_text_folder, tiny_bert, tiny_tokenizer
from tests.cases import refuses

QUICK = offramp.JointSettings(exits="ladder", classifier_loss="fixed", warmup_epochs=1, epochs=1, ladder_width=8)


def module(width: int = 8) -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(3)]
    return nn.Sequential(nn.Linear(4, width), *blocks, nn.Linear(width, 3))


def vectors(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, 4, generator=draw), torch.randint(3, (count,), generator=draw)


def texts(count: int, seed: int) -> tuple[list[str], list[str]]:
    draw = np.random.default_rng(seed)
    words = draw.integers(0, 30, (count, 6))
    return [" ".join(f"w{word}" for word in row) for row in words], [NAMES[number] for number in words[:, 0] % 4]


def pipeline() -> Any:
    from transformers import TextClassificationPipeline

    made: Any = TextClassificationPipeline  # untyped
    return made(model=tiny_bert(), tokenizer=tiny_tokenizer())


def test_a_module_is_split_on_the_first_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    data = vectors(60, 1), vectors(40, 2)
    model = offramp.fit(module(), *data, settings=QUICK, anyway=True)
    split = offramp.split(module(), data[0][0][:2])
    assert model.backbone.num_exits == split.num_exits
    assert f"split 'sequential' into {split.num_exits} stages" in capsys.readouterr().err
    expected = offramp.fit(split, *data, settings=QUICK, anyway=True, progress=False)
    inputs = vectors(20, 3)[0]
    found = model.at(cost=1.2).predict(inputs)
    assert torch.equal(found.probabilities, expected.at(cost=1.2).predict(inputs).probabilities)


def test_a_list_is_a_cascade() -> None:
    model = offramp.fit(
        [module(4), module(16)], vectors(60, 1), vectors(40, 2), settings=QUICK, anyway=True, progress=False
    )
    assert isinstance(as_backbone([module(4), module(16)], lambda: vectors(2, 1)[0]), Cascade)
    assert model.at(cost=1.2).predict(vectors(5, 3)[0]).labels.shape == (5,)


def test_a_folder_and_a_pipeline_take_texts_and_names(tmp_path: Path) -> None:
    save_text_folder(tmp_path / "folder")
    answers = []
    for network in (f"hf:{tmp_path / 'folder'}", pipeline()):
        model = offramp.fit(network, texts(60, 1), texts(40, 2), settings=QUICK, anyway=True, progress=False)
        assert model.classes == NAMES
        answers.append(model.at(cost=1.2).predict(texts(9, 3)[0]))
        assert set(answers[-1].names) <= set(NAMES)
    assert torch.equal(answers[0].probabilities, answers[1].probabilities)


def test_a_model_of_texts_needs_its_tokenizer() -> None:
    with refuses(InputError, got="texts or images", hint="pipeline"):
        offramp.fit(tiny_bert(), (texts(60, 1)[0], list(range(4)) * 15), (texts(40, 2)[0], list(range(4)) * 10))
    encoded = {name: torch.as_tensor(value) for name, value in tiny_tokenizer()(texts(60, 1)[0], padding=True).items()}
    labels = torch.arange(60) % 4
    halves = [
        ({name: value[part] for name, value in encoded.items()}, labels[part]) for part in (slice(40), slice(40, 60))
    ]
    model = offramp.fit(tiny_bert(), *halves, settings=QUICK, anyway=True, progress=False)
    assert model.classes == NAMES


@pytest.mark.parametrize("network", [3, None, torch.zeros(3), object()])
def test_anything_else_is_refused(network: Any) -> None:
    with refuses(InputError, expected="a torch module, a backbone, 'hf:FOLDER', a transformers pipeline"):
        offramp.fit(network, vectors(60, 1), vectors(40, 2))


def test_a_device_is_where_the_network_goes() -> None:
    network = offramp.split(module(), vectors(2, 0)[0])
    model = offramp.fit(
        network, vectors(60, 1), vectors(40, 2), settings=QUICK, device="cpu", anyway=True, progress=False
    )
    assert {parameter.device.type for parameter in model.backbone.parameters()} == {"cpu"}
    for device in ("quantum", "cuda:99"):
        with refuses(InputError, problem="device", got=device):
            offramp.fit(module(), vectors(60, 1), vectors(40, 2), device=device)


def test_options_of_another_kind_are_refused() -> None:
    for options in ({"fitting": {"pooling": "mean"}}, {"calibration": None}, {"cost": 0.5}):
        with refuses(InputError, expected="Options(...)"):
            offramp.fit(module(), vectors(60, 1), vectors(40, 2), **options)
