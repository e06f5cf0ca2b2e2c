"""Frontiers of every kind, small and fitted once for all tests of a process, with inputs to ask them."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

import offramp
from offramp.backbone import CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone.adapters.transformers import text_backbone
from offramp.model._model import EarlyExitModel
from offramp.preprocessing import Preprocessing
from tests.model import cascade_examples, examples
from tests.model.examples import LINEAR, PREPROCESSING, SMALL, images

FEW = replace(SMALL, warmup_epochs=1)


def fitted(backbone: Backbone, *, settings: offramp.JointSettings = FEW, **options: Any) -> EarlyExitModel:
    data = images(90, seed=1), images(60, seed=2)
    return offramp.fit(backbone, *data, settings=settings, anyway=True, progress=False, **options)


@cache
def resnet(settings: offramp.JointSettings = FEW) -> EarlyExitModel:
    return fitted(examples.backbone(), settings=settings, preprocessing=PREPROCESSING)


@cache
def half() -> EarlyExitModel:
    return fitted(examples.backbone().half(), preprocessing=PREPROCESSING)


@cache
def linked() -> EarlyExitModel:
    torch.manual_seed(1)
    first = CifarResNet(8, num_classes=3)
    both = cascade(first, examples.backbone(), name="weak and strong")
    # Seeing more, the second network's own exits make the first one useless.
    return fitted(both, preprocessing=PREPROCESSING, fitting=offramp.FittingOptions(pooling="auto"))


@cache
def linked_apart() -> EarlyExitModel:
    """The first network sees images of half the side."""
    first, second = CifarResNet(8, num_classes=3), examples.backbone()
    smaller = Preprocessing((PREPROCESSING.steps[0], ("resize", {"size": 16, "mode": "bilinear"})))
    first.preprocessing = smaller.followed_by(Preprocessing(PREPROCESSING.steps[1:]))
    second.preprocessing = PREPROCESSING
    return fitted(cascade(first, second))


@cache
def averaged() -> EarlyExitModel:
    """Two networks that know more together than either."""
    data = cascade_examples.vectors(300, seed=1), cascade_examples.vectors(200, seed=2)
    return offramp.fit(cascade_examples.pair(), *data, settings=cascade_examples.FEW, anyway=True, progress=False)


def bert(seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = dict.fromkeys(("num_hidden_layers", "num_labels"), 3)
    sizes |= {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 30}
    model = BertForSequenceClassification(BertConfig(**sizes))  # type: ignore[no-untyped-call]
    return text_backbone(model, name="tiny-bert")


def texts(count: int, *, seed: int) -> tuple[dict[str, Any], Any]:
    draw = np.random.default_rng(seed)
    mask = (np.arange(8) < draw.integers(2, 9, (count, 1))).astype(np.int64)
    ids = draw.integers(1, 30, (count, 8)) * mask
    return {"input_ids": ids, "attention_mask": mask}, ids[:, 0] % 3


@cache
def of_texts() -> EarlyExitModel:
    return offramp.fit(bert(), texts(80, seed=1), texts(60, seed=2), settings=FEW, anyway=True, progress=False)


PICTURES, VECTORS, TEXTS = images(20, seed=3)[0], cascade_examples.vectors(20, seed=3)[0], texts(20, seed=3)[0]
MADE_BY_NAME: dict[str, tuple[Callable[[], EarlyExitModel], Any]] = {
    "ladder": (resnet, PICTURES),
    "linear": (lambda: resnet(LINEAR), PICTURES),
    "paper": (lambda: resnet(replace(offramp.PAPER, cost_weights=(0.03, 0.3), warmup_epochs=1, epochs=1)), PICTURES),
    "cumulative": (lambda: resnet(replace(LINEAR, exits="cumulative")), PICTURES),
    "half precision": (half, PICTURES),
    "cascade": (linked, PICTURES),
    "cascade of other preprocessing": (linked_apart, PICTURES),
}
"""Models whose network has a known factory, with inputs."""

GIVEN: dict[str, tuple[Callable[[], EarlyExitModel], Any]] = {
    "averaged": (averaged, VECTORS),
    "texts": (of_texts, TEXTS),
}
"""Models whose network, or the function that makes it, the caller has to pass, with inputs."""
