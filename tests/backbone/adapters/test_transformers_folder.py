"""Folders that `save_pretrained` wrote: the same answers as the library's own, and every missing part named."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers import BertConfig, BertModel

import offramp
from offramp.backbone.adapters._transformers_folder import image_processor_preprocessing
from offramp.backbone.adapters.transformers import _class_names
from offramp.errors import InputError, MissingExtraError, SplitRefusedError
from tests.backbone.adapters.factory_examples import embedded
from tests.backbone.adapters.folder_examples import NAMES, save_text_folder, tiny_bert, tiny_tokenizer
from tests.cases import each, refuses

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 nobody w9"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "my-model"
    save_text_folder(place)
    return place


class TestTexts:
    def test_answers_and_names_are_the_networks_own(self, tmp_path: Path) -> None:
        model = save_text_folder(tmp_path / "my-model")
        backbone = offramp.split(f"hf:{tmp_path / 'my-model'}")
        encoded = tiny_tokenizer()(TEXTS, return_tensors="pt", padding=True)
        with torch.no_grad():
            expected = model(encoded["input_ids"], encoded["attention_mask"]).logits
        assert backbone.classes == NAMES
        torch.testing.assert_close(backbone(backbone.prepare(backbone.preprocessing(TEXTS))), expected)
        made = embedded(backbone)
        assert made.fingerprint() == backbone.fingerprint()
        assert made.classes == NAMES

    def test_what_makes_it_again_is_plain_json(self, folder: Path) -> None:
        factory = offramp.split(f"hf:{folder}").factory
        assert factory is not None
        assert factory.name == "transformers"
        assert json.loads(json.dumps(factory.options)) == factory.options
        assert "my-model" not in json.dumps(factory.options)

    def test_as_long_as_asked_for(self, folder: Path) -> None:
        backbone = offramp.split(f"hf:{folder},longest=3")
        assert backbone.preprocessing(TEXTS)["input_ids"].shape == (3, 3)

    def test_placeholders_are_no_names(self, tmp_path: Path) -> None:
        save_text_folder(tmp_path / "a", names=[f"LABEL_{number}" for number in range(4)])
        assert offramp.split(f"hf:{tmp_path / 'a'}").classes == ()

    @each(
        "mapping", [None, {}, {0: "a"}, {0: "a", 1: "a"}, {0: "a", 2: "b"}, {0: "", 1: "b"}, {0: "a", 1: "b", 2: "c"}]
    )
    def test_a_mapping_that_is_not_one_name_a_class_says_nothing(self, mapping: dict[int, str] | None) -> None:
        config = type("Config", (), {"id2label": mapping})
        assert _class_names(config, 2) == ()


class TestRefused:
    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"nothing is downloaded.*save_pretrained"):
            offramp.split(f"hf:{tmp_path / 'bert-base-uncased'}")

    @each(
        ("file", "told"),
        [
            ("config.json", "got no config.json"),
            ("model.safetensors", r"safetensors.*model.save_pretrained\(folder\)"),
            ("tokenizer.json", r"tokenizer.save_pretrained\(folder\)"),
        ],
    )
    def test_a_file_that_is_missing(self, folder: Path, file: str, told: str) -> None:
        (folder / file).unlink()
        with pytest.raises(InputError, match=told):
            offramp.split(f"hf:{folder}")

    @each("content", [b"", b"{", b"[]", b"\xff", b'{"architectures": ["BertForSequenceClassif'])
    def test_a_configuration_that_is_none(self, folder: Path, content: bytes) -> None:
        (folder / "config.json").write_bytes(content)
        with pytest.raises(InputError, match="save the folder again"):
            offramp.split(f"hf:{folder}")

    @each("file", ["model.safetensors", "tokenizer.json"])
    def test_a_file_cut_short(self, folder: Path, file: str) -> None:
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[: len(content) // 2])
        with pytest.raises(InputError, match="save it again"):
            offramp.split(f"hf:{folder}")

    def test_an_encoder_without_its_head(self, folder: Path) -> None:
        encoder: Any = BertModel  # untyped
        encoder(tiny_bert().config).save_pretrained(folder)
        with pytest.raises(InputError, match=r"ForSequenceClassification .* BertModel"):
            offramp.split(f"hf:{folder}")
        _change_config(folder, architectures=["BertForSequenceClassification"])
        with refuses(InputError, got="classifier.bias"):
            offramp.split(f"hf:{folder}")

    def test_an_adapter_alone(self, folder: Path) -> None:
        (folder / "config.json").rename(folder / "adapter_config.json")
        with pytest.raises(InputError, match="merge_and_unload"):
            offramp.split(f"hf:{folder}")

    def test_quantised_weights(self, folder: Path) -> None:
        _change_config(folder, quantization_config={"load_in_8bit": True})
        with pytest.raises(SplitRefusedError, match="float32"):
            offramp.split(f"hf:{folder}")

    def test_another_task(self, folder: Path) -> None:
        _change_config(folder, problem_type="multi_label_classification")
        with pytest.raises(SplitRefusedError, match="multi label"):
            offramp.split(f"hf:{folder}")

    def test_code_of_the_folder_is_not_run(self, folder: Path, tmp_path: Path) -> None:
        (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Config: pass\n")
        evil = {"AutoConfig": "evil.Config", "AutoModelForSequenceClassification": "evil.Config"}
        _change_config(folder, auto_map=evil)
        content = json.loads((folder / "tokenizer_config.json").read_text())
        content |= {"auto_map": {"AutoTokenizer": ["evil.Config", "evil.Config"]}}
        (folder / "tokenizer_config.json").write_text(json.dumps(content))
        backbone = offramp.split(f"hf:{folder}")
        assert backbone.classes == NAMES
        assert not (tmp_path / "ran").exists()

    def test_without_the_library(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(MissingExtraError, match=r"offramp\[transformers\]"):
            offramp.split(f"hf:{folder}")


def _change_config(folder: Path, **entries: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | entries))


class TestImages:
    def test_answers_are_the_networks_own(self, tmp_path: Path) -> None:
        torch.manual_seed(0)
        library: Any = transformers
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        config = library.ViTConfig(image_size=64, patch_size=16, id2label={0: "dog", 1: "cat", 2: "ant"}, **sizes)
        model = library.ViTForImageClassification(config).eval()
        model.save_pretrained(tmp_path)
        with pytest.raises(InputError, match="AutoImageProcessor"):
            offramp.split(f"hf:{tmp_path}")
        processor = library.ViTImageProcessor(size={"height": 64, "width": 64})
        processor.save_pretrained(tmp_path)
        with pytest.raises(InputError, match="leave it out"):
            offramp.split(f"hf:{tmp_path},longest=3")
        backbone = offramp.split(f"hf:{tmp_path}")
        photos = [np.random.default_rng(seed).integers(0, 256, (80, 100, 3), dtype=np.uint8) for seed in range(2)]
        theirs = processor([Image.fromarray(photo) for photo in photos], return_tensors="pt")["pixel_values"]
        prepared = backbone.preprocessing(photos)
        torch.testing.assert_close(prepared, theirs, rtol=0, atol=0.01)  # they round to bytes in between
        with torch.no_grad():
            torch.testing.assert_close(backbone(theirs), model(theirs).logits)
        assert backbone.classes == ("dog", "cat", "ant")
        made = embedded(backbone)
        assert (made.fingerprint(), made.classes) == (backbone.fingerprint(), backbone.classes)


def test_the_librarys_messages_are_as_they_were(folder: Path) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity()
    offramp.split(f"hf:{folder}")
    assert logging.get_verbosity() == before


def test_a_configuration_of_ours_is_the_librarys(folder: Path) -> None:
    assert BertConfig.from_pretrained(folder).id2label == dict(enumerate(NAMES))


@each(
    ("kind", "options", "side"),
    [
        ("ViTImageProcessor", {"size": {"height": 48, "width": 48}}, 48),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 56}}, 56),  # resized to 64, the middle taken
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}, 384),  # squashed
        ("DeiTImageProcessor", {"size": {"height": 72, "width": 72}, "crop_size": {"height": 64, "width": 64}}, 64),
        ("BitImageProcessor", {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}}, 56),
    ],
)
def test_as_the_processor_does(kind: str, options: dict[str, Any], side: int) -> None:
    processor = getattr(transformers, kind)(**options)
    preprocessing, found = image_processor_preprocessing(processor.to_dict())
    photo = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    theirs = processor(Image.fromarray(photo), return_tensors="pt")["pixel_values"]
    assert found == side
    # They round to bytes after resizing, and bicubic overshoot is cut off there.
    difference = (preprocessing([photo]) - theirs).abs()
    assert float(difference.mean()) < 0.006
    assert float(torch.quantile(difference[:, :, ::2, ::2].flatten(), 0.99)) < 0.03


VIT = {"size": {"height": 64, "width": 64}, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}


@each(
    "changed",
    [
        {"size": {"height": 64, "width": 32}},
        {"size": {"shortest_edge": 64}},
        {"size": {"shortest_edge": 64, "longest_edge": 100}},
        {"size": None},
        {"resample": 1},
        {"rescale_factor": 1.0},
        {"do_resize": False},
        {"do_pad": True},
        {"do_normalize": False},
        {"image_mean": None},
        {"do_center_crop": True},
        {"do_center_crop": True, "crop_size": {"height": 128, "width": 128}},
    ],
)
def test_what_no_step_does_is_refused(changed: dict[str, Any]) -> None:
    image_processor_preprocessing(VIT)
    with pytest.raises(InputError, match=r"backbone.preprocessing"):
        image_processor_preprocessing({**VIT, **changed})
