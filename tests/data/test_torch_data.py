from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

from offramp.data._torch_data import TorchSource
from offramp.errors import InputError
from offramp.features import ArraySource
from offramp.preprocessing._row_hashes import hash_rows
from tests.cases import each

INPUTS = torch.arange(24, dtype=torch.float32).reshape(8, 3)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
PAIRS = TensorDataset(INPUTS, LABELS)


class Listed(Dataset[Any]):
    """Samples of a list."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, row: int) -> Any:
        return self.samples[row]


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([])


class Noisy(Dataset[Any]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, row: int) -> Any:
        return torch.randn(2), 0


def test_rows_are_those_of_arrays() -> None:
    source, arrays = TorchSource(PAIRS, name="toy"), ArraySource(INPUTS, LABELS, name="toy")
    for start, stop in ((0, 8), (2, 5), (7, 8), (3, 3)):
        rows, expected = source.read(start, stop), arrays.read(start, stop)
        assert rows.labels.tolist() == expected.labels.tolist()
        assert rows.ids.tolist() == expected.ids.tolist()
        if start < stop:
            torch.testing.assert_close(rows.inputs, expected.inputs)
    with pytest.raises(InputError, match="row range within 0 to 8"):
        source.read(5, 9)


def test_the_name_follows_the_content() -> None:
    names = [
        TorchSource(data, name="toy").name
        for data in (PAIRS, TensorDataset(INPUTS + 1, LABELS), TensorDataset(INPUTS, 2 - LABELS), Subset(PAIRS, [0, 1]))
    ]
    assert len({*names}) == 4
    assert all(name.startswith("toy-") for name in names)
    assert TorchSource(TensorDataset(INPUTS.clone(), LABELS), name="toy").name == names[0]


@each("size", [(3, 2), None])
def test_texts_and_images_are_lists(size: tuple[int, int] | None) -> None:
    images = [Image.new("RGB", size or (3 + row, 2), (row, row, row)) for row in range(3)]
    arrays = [np.asarray(image) for image in images]
    for samples in (images, arrays):
        rows = TorchSource(Listed([(image, row) for row, image in enumerate(samples)])).read(0, 3)
        assert rows.inputs == samples
        assert rows.ids.tolist() == hash_rows(arrays).tolist()
    rows = TorchSource(Listed([("purrs", np.int64(0)), ("barks", torch.tensor(1))])).read(0, 2)
    assert (rows.inputs, rows.labels.tolist()) == (["purrs", "barks"], [0, 1])


def test_dictionaries_and_names() -> None:
    data = Listed([({"a": torch.ones(2) * row, "b": torch.tensor(row)}, name) for row, name in enumerate("yxy")])
    rows = TorchSource(data, classes=("x", "y")).read(0, 3)
    assert rows.inputs["a"].shape == (3, 2)
    assert rows.inputs["b"].tolist() == [0, 1, 2]
    assert rows.labels.tolist() == [1, 0, 1]
    with pytest.raises(InputError, match="the network does not know its classes"):
        TorchSource(data)


def test_a_loader_is_its_dataset_whatever_the_order() -> None:
    before = torch.get_rng_state()
    plain = TorchSource(PAIRS, name="toy")
    for loader in (DataLoader(PAIRS, batch_size=3), DataLoader(PAIRS, batch_size=3, shuffle=True, drop_last=True)):
        source = TorchSource(loader, name="toy")
        assert source.name == plain.name
        assert source.read(0, 8).ids.tolist() == plain.read(0, 8).ids.tolist()
    assert torch.equal(torch.get_rng_state(), before)


@each(
    "options",
    [
        {"sampler": SubsetRandomSampler([5, 1, 4])},
        {"sampler": [4, 1, 5, 1]},
        {"batch_sampler": [[4, 1], [5]]},
    ],
)
def test_a_sampler_says_which_rows(options: dict[str, Any]) -> None:
    source = TorchSource(DataLoader(PAIRS, **options))
    assert source.read(0, len(source)).inputs.tolist() == INPUTS[[1, 4, 5]].tolist()
    assert source.read(0, len(source)).labels.tolist() == LABELS[[1, 4, 5]].tolist()


def test_a_loader_pads_and_ids_stay() -> None:
    texts = [torch.arange(1, 2 + row) for row in range(4)]

    def pad(samples: list[Any]) -> tuple[Any, Any]:
        padded = pad_sequence([sample[0] for sample in samples], batch_first=True)
        return padded, torch.tensor([sample[1] for sample in samples])

    data = Listed([(text, row % 2) for row, text in enumerate(texts)])
    source = TorchSource(DataLoader(data, collate_fn=pad))
    assert source.read(0, 4).inputs.shape == (4, 4)
    assert source.read(0, 2).inputs.shape == (2, 2)
    assert source.read(0, 4).ids[:2].tolist() == source.read(0, 2).ids.tolist()
    with pytest.raises(InputError, match=r"make no batch.*collate_fn of a DataLoader"):
        TorchSource(data).read(0, 4)


@each(
    ("data", "message"),
    [
        (Streamed(), "samples by number, got Streamed"),
        (DataLoader(Streamed()), "samples by number, got Streamed"),
        (DataLoader(PAIRS, batch_size=None), "batch_size=None"),
        (Listed([]), "is empty"),
        (Listed([torch.zeros(2)]), r"pairs \(input, label\), got Tensor"),
        (Listed([(torch.zeros(2), 0.5)]), "one integer or name per sample"),
        (Listed([(torch.zeros(2), torch.tensor([1, 0]))]), "one integer or name per sample"),
        (Listed([(object(), 0)]), "make no batch"),
        (
            DataLoader(PAIRS, collate_fn=lambda samples: {"inputs": samples}),
            r"collate_fn: expected a pair \(inputs, labels\), got dict",
        ),
        (Noisy(), "remove random transforms"),
    ],
)
def test_what_is_no_source_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TorchSource(data)


def test_batches_of_a_subclass_count_as_they_come() -> None:
    class Halved(BatchSampler):
        def __iter__(self) -> Iterator[list[int]]:
            yield from ([row for row in batch if row < 4] for batch in super().__iter__())

    source = TorchSource(DataLoader(PAIRS, batch_sampler=Halved(SequentialSampler(PAIRS), 2, False)))
    assert source.read(0, 4).inputs.tolist() == INPUTS[:4].tolist()
