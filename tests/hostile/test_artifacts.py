"""Artifacts made up by somebody, every hash right: refused by name, or every value is in its range."""

import json
import math
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import offramp
from offramp.backbone import Factory
from offramp.backbone._making import build
from offramp.errors import ArtifactError, InputError, UnknownNameError, UntrustedNameError
from offramp.model._model import EarlyExitModel
from tests.artifact_examples import assert_same, at, change_manifest, change_tensors
from tests.cases import each
from tests.model.artifact_examples import PICTURES, resnet

REFUSALS = (ArtifactError, UnknownNameError, UntrustedNameError)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[EarlyExitModel, Path]:
    frontier, folder = resnet(), tmp_path_factory.mktemp("saved")
    frontier.save(folder, weights=True)
    return frontier, folder


@pytest.fixture
def folder(saved: tuple[EarlyExitModel, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved[1], tmp_path / "copy"))


OUT_OF_RANGE: dict[str, list[Any]] = {
    "full_accuracy": [7, 1.0001, -0.1],
    "unit.full": [0, -1.0, 1e31, 1e-31],
    "points.threshold.0.tune_metrics.accuracy": [7, 1.5, -1e-9],
    "points.threshold.0.tune_metrics.cost": [-0.3, 1e31],
    "contributions.0.1": [2, -1.5, 1e31],
    "classes": [["a", "a", "b"]],
    "calibration.samples": [-1, 10**9],
    "provenance.splits": [3, [], {"fit": 3}, {"fit": {"samples": "60"}}, {"fit": {"samples": -1}}],
    "provenance.recalibrated": [3, {}, {"samples": 1.5}],
    "provenance.latency": [3, {}, {"backend": 3}],
}
"""Values of the manifest's content that nothing measures, counts or fits."""


@each(("place", "value"), [(place, value) for place, values in OUT_OF_RANGE.items() for value in values])
def test_a_value_out_of_range_is_refused_by_its_field(folder: Path, place: str, value: Any) -> None:
    def change(whole: dict[str, Any]) -> None:
        holder, key = at(whole["content"], place)
        holder[key] = value

    change_manifest(folder, change)
    with pytest.raises(ArtifactError, match=rf"manifest\.json, field 'content\.{place.split('.')[0]}"):
        offramp.load(folder)


TENSORS_OUT_OF_RANGE: dict[str, tuple[str, str, Callable[[Tensor], Tensor]]] = {
    "full cost 0": ("points", "costs.threshold.full", torch.zeros_like),
    "full cost below 0": ("points", "costs.threshold.full", Tensor.neg),
    "full cost huge": ("points", "costs.threshold.full", lambda full: full + 1e31),
    **{
        f"{column} below 0": ("points", f"costs.gates.{column}", lambda costs: -costs - 1)
        for column in ("stage", "carry", "answer", "decide")
    },
    "stage huge": ("points", "costs.gates.stage", lambda costs: costs + 1e300),
    "temperatures tiny": ("points", "threshold.temperatures", lambda values: values * 0 + 1e-30),
    "temperatures huge": ("points", "threshold.temperatures", lambda values: values * 0 + 1e30),
    "temperatures of exits tiny": ("exits", "temperatures", lambda values: values * 0 + 1e-30),
    "conformal thresholds below 0": ("points", "threshold.conformal.0.05", lambda values: values * 0 - 1),
    "leaving huge": ("points", "threshold.leaving", lambda leaving: leaving * 1e31),
    "leaving below 0": ("points", "threshold.leaving", lambda leaving: leaving + torch.tensor([-2.0, 1.0, 1.0])),
    "variances above 1": ("points", "threshold.tuned.accuracy", lambda tuned: tuned * 0 + torch.tensor([0.0, 1.5])),
    "variances below 0": ("points", "threshold.tuned.accuracy", lambda tuned: tuned * 0 - torch.tensor([0.0, 1.5])),
    "means above 1": ("points", "threshold.tuned.accuracy", lambda tuned: tuned + 2),
    "losses above 1": ("points", "threshold.losses.accuracy", lambda losses: losses * 0 + 2),
}


@each(("file", "name", "change"), TENSORS_OUT_OF_RANGE.values())
def test_a_tensor_out_of_range_is_refused_by_its_name(
    folder: Path, file: str, name: str, change: Callable[[Tensor], Tensor]
) -> None:
    def changed(tensors: dict[str, Tensor]) -> None:
        tensors[name] = change(tensors[name]).to(tensors[name].dtype).contiguous()

    change_tensors(folder, file, changed)
    with pytest.raises(ArtifactError, match=rf"{file}-.*, tensor '{name}': expected"):
        offramp.load(folder)


def assert_in_range(frontier: EarlyExitModel) -> None:
    assert 0 <= frontier.full_accuracy <= 1
    assert frontier.unit.full is None or 0 < frontier.unit.full < math.inf
    for costs in frontier.costs.values():
        assert sum(float(table.full) for table in costs.tables) > 0
        for table in costs.tables:
            for column in (table.stage, table.carry, table.answer, table.decide):
                assert bool((column >= 0).all() & column.isfinite().all())
    for points in frontier.points.values():
        for point in points:
            assert 0 <= point.tune_metrics["accuracy"] <= 1
            assert 0 < point.tune_metrics["cost"] < math.inf
            assert bool((point.temperatures > 0).all())
            assert all(bool(value.isfinite().all()) for value in point.parameters.values())
    assert all(-1 <= one.gain <= 1 for one in frontier.contributions)
    answer = replace(frontier, chosen=next(iter(frontier.points.values()))[0]).predict(PICTURES[:2])
    assert bool(answer.probabilities.isfinite().all() & answer.relative_cost.isfinite().all())
    assert str(frontier.frontier)


def flip(raw: bytes, draw: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(draw.choice((1, 1, 2, 8))):
        changed[draw.randrange(len(changed))] ^= draw.randrange(1, 256)
    return bytes(changed)


@pytest.mark.parametrize("times", [60, pytest.param(600, marks=pytest.mark.long)])
def test_a_manifest_of_flipped_bytes_is_refused_or_in_range(folder: Path, times: int) -> None:
    file = folder / "manifest.json"
    whole, refused, loaded = file.read_bytes(), 0, 0
    for seed in range(times):
        draw = random.Random(seed)
        # Digits and signs become others half of the time: such a manifest is JSON still.
        digits = [place for place, byte in enumerate(whole) if chr(byte) in "0123456789"]
        changed = bytearray(whole)
        changed[draw.choice(digits)] = ord(draw.choice("0123456789-e."))
        file.write_bytes(flip(whole, draw) if seed % 2 else bytes(changed))
        try:
            frontier = offramp.load(folder)
        except REFUSALS as error:
            refused += str(folder) in str(error)
        else:
            loaded += 1
            assert_in_range(frontier)
    assert refused + loaded == times
    assert min(refused, loaded) > times // 10


def test_a_manifest_cut_short_is_refused(folder: Path) -> None:
    file = folder / "manifest.json"
    whole = file.read_bytes()
    for length in range(0, len(whole) - 2, len(whole) // 50):
        file.write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match=r"manifest\.json is not what `save` of a model writes.*save the model"):
            offramp.load(folder)


def test_other_white_space_and_order_say_the_same(saved: tuple[EarlyExitModel, Path], folder: Path) -> None:
    file = folder / "manifest.json"
    whole = json.loads(file.read_bytes())
    file.write_text(json.dumps(dict(reversed(whole.items())), ensure_ascii=False))
    assert_same(saved[0], offramp.load(folder), PICTURES)


class TestCascades:
    """The bound on what a file may ask for is on all networks of a cascade together."""

    DEEP = Factory("cifar_resnet", {"layers": 1202, "num_classes": 3})  # 3,000 modules, 19 million parameters

    @pytest.mark.timeout(120)
    def test_of_modules(self) -> None:
        with pytest.raises(InputError, match=r"at most .* 4,000 modules, got .* or more; give it with backbone="):
            build(Factory("cascade", members=(self.DEEP,) * 2))
        assert build(self.DEEP).num_exits == 600

    @pytest.mark.slow
    @pytest.mark.timeout(120)
    def test_of_parameters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("offramp.backbone._factory.MOST_PARAMETERS", 10**7)
        with torch.device("meta"), pytest.raises(InputError, match="at most 10,000,000 parameters"):
            build(self.DEEP)

    @each("kind", ["cifar_resnet", "timm", "transformers"])
    def test_of_every_kind(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        options: dict[str, dict[str, Any]] = {
            "cifar_resnet": {"layers": 8, "num_classes": 3},
            "timm": {"model": "test_resnet", "num_classes": 3},
            "transformers": {
                "config": {
                    "model_type": "bert",
                    "hidden_size": 16,
                    "num_attention_heads": 2,
                    "num_hidden_layers": 1,
                    "intermediate_size": 32,
                    "vocab_size": 1000,
                },
                "num_classes": 3,
                "name": "tiny",
                "mean": False,
            },
        }
        member = Factory(kind, options[kind])
        size = sum(tensor.numel() for tensor in build(member).state_dict().values())
        monkeypatch.setattr("offramp.backbone._factory.MOST_PARAMETERS", 3 * size - 1)
        build(Factory("cascade", members=(member, member)))
        with pytest.raises(InputError, match="parameters and 4,000 modules, got"):
            build(Factory("cascade", members=(member, member, member)))
        build(Factory("cascade", members=(member, member)))  # what was made before counts no longer

    def test_a_file_of_sixteen(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def change(whole: dict[str, Any]) -> None:
            factory = whole["content"]["backbone"]["factory"]
            cascade = {"name": "cascade", "options": {}, "preprocessing": [], "members": [factory] * 16}
            whole["content"]["backbone"]["factory"] = cascade

        monkeypatch.setattr("offramp.backbone._factory.MOST_PARAMETERS", 10**6)  # one has 75,000
        change_manifest(folder, change)
        with pytest.raises(ArtifactError, match=r"content\.backbone\.factory': .*at most 1,000,000 parameters"):
            offramp.load(folder)

    @pytest.mark.slow
    def test_a_head_on_the_mean_counts_too(self) -> None:
        config = {"model_type": "bert", "hidden_size": 4096, "num_attention_heads": 2, "num_hidden_layers": 1}
        options = {"config": config, "num_classes": 1_000_000, "name": "wide", "mean": True}
        with pytest.raises(InputError, match="at most 1,000,000,000 parameters"):
            build(Factory("transformers", options))
