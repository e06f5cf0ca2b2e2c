"""Labelled data in every form that people hold it in: the same rows, the same labels."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from offramp.data import as_source, open_data
from offramp.errors import InputError
from tests.cases import each, refuses

TEXTS, LABELS = ["one", "two", "three", "four"], ["no", "yes", "yes", "no"]
CLASSES = ("no", "yes")


def hub_dataset() -> Any:
    import datasets

    return datasets.Dataset.from_dict({"text": TEXTS, "label": LABELS})


def forms(folder: Path) -> dict[str, Any]:
    table = folder / "table.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True)))
    return {
        "lists": (TEXTS, LABELS),
        "arrays": (np.array(TEXTS, dtype=object), np.array([0, 1, 1, 0])),
        "a path": table,
        "a path as text": str(table),
        "a source": open_data(table, classes=CLASSES),
        "datasets.Dataset": hub_dataset(),
    }


def test_every_form_gives_the_same_rows(tmp_path: Path) -> None:
    for name, data in forms(tmp_path).items():
        source = as_source(data, "train", CLASSES)
        rows = source.read(0, len(source))
        assert list(rows.inputs) == TEXTS, name
        assert rows.labels.tolist() == [0, 1, 1, 0], name


def test_torch_datasets_and_loaders() -> None:
    dataset = TensorDataset(torch.arange(8.0).view(4, 2), torch.tensor([0, 1, 1, 0]))
    for data in (dataset, DataLoader(dataset, batch_size=3)):
        rows = as_source(data, "train").read(1, 3)
        assert rows.inputs.tolist() == [[2, 3], [4, 5]]
        assert rows.labels.tolist() == [1, 1]


def test_the_name_depends_on_content() -> None:
    names = {as_source((torch.full((4, 2), value), [0, 1, 0, 1]), "train").name for value in (0.0, 1.0, 1.0)}
    assert len(names) == 2


def test_several_splits_are_refused() -> None:
    import datasets

    splits = datasets.DatasetDict({"train": hub_dataset(), "test": hub_dataset()})
    with refuses(InputError, got="train, test", hint="data['train']"):
        as_source(splits, "train")


@each("data", [3, None, [1, 2], {"text": TEXTS}, (1, 2, 3)])
def test_anything_else_is_refused(data: Any) -> None:
    with refuses(InputError, expected="labelled data", hint="(inputs, labels)"):
        as_source(data, "train")
