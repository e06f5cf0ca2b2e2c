"""The guide's commands from a folder of images to predictions, on few rows; those of texts: test_main_road.py."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from offramp.backbone.adapters.timm import timm_preprocessing
from offramp.cli import main
from tests.end_to_end.guide import commands

NAMES = ("blue", "green", "red")
SIDE = 96


def picture(row: int) -> Any:
    """Noise with a tint, which some pictures show clearly and some hardly."""
    draw = np.random.default_rng(row)
    tint = np.array([[0, 0, 1], [0, 1, 0], [1, 0, 0]])[row % 3] * draw.choice([8, 60])
    return np.clip(draw.normal(110, 40, (SIDE, SIDE, 3)) + tint, 0, 255).astype(np.uint8)


def save_network(name: str, file: Path) -> None:
    """A model of timm with random weights, but for its classifier, which is solved for."""
    torch.manual_seed(0)
    network: Any = timm.create_model(name, num_classes=3).eval()
    prepare = timm_preprocessing(network)
    rows = range(2000, 2120)
    with torch.no_grad():
        pictures = [prepare([picture(row) for row in rows[start : start + 20]]) for start in range(0, len(rows), 20)]
        features = torch.cat([network.forward_head(network.forward_features(x), pre_logits=True) for x in pictures])
        middle, spread = features.mean(0), features.std(0).clamp_min(1e-9)
        scaled = ((features - middle) / spread).double()
        goal = 6 * torch.eye(3, dtype=torch.double)[torch.tensor([row % 3 for row in rows])]
        kernel = scaled @ scaled.T + 10 * torch.eye(len(rows), dtype=torch.double)
        weight = (scaled.T @ torch.linalg.solve(kernel, goal - goal.mean(0))).T / spread
        network.classifier.weight.copy_(weight)
        network.classifier.bias.copy_(goal.mean(0) - weight.float() @ middle)
    save_file(network.state_dict(), file)


@pytest.mark.slow
def test_from_a_folder_of_images_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_network("mobilenetv3_small_050", tmp_path / "small.safetensors")
    save_network("mobilenetv3_small_100", tmp_path / "large.safetensors")
    for part, places in (("train", range(200, 300)), ("validation", range(100, 200)), ("test", range(300, 360))):
        for row in places:
            folder = tmp_path / "images" / part / NAMES[row % 3]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture(row)).save(folder / f"{row:04d}.png")
    (tmp_path / "new").mkdir()
    for row in range(300, 330):
        Image.fromarray(picture(row)).save(tmp_path / "new" / f"{row}.png")
    for typed in commands("images"):
        assert main(typed) == 0, capsys.readouterr().err
    assert (tmp_path / "pictures-report" / "report.html").is_file()
    with open("answers.csv", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    right = [row["label"] == NAMES[(300 + place) % 3] for place, row in enumerate(found)]
    assert sum(right) / len(right) > 0.6
    assert "cost (counted Mul-Adds) it is right" in capsys.readouterr().out
