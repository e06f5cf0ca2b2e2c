"""Weights from files: the same tensors from each format, and no code run."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from offramp.backbone.adapters._weights_file import count_classes, read_weights
from offramp.errors import InputError
from tests.cases import each


def same(found: Any, expected: Any) -> bool:
    return list(found) == list(expected) and all(torch.equal(found[name], expected[name]) for name in expected)


def test_formats(tmp_path: Path) -> None:
    state = nn.Linear(3, 2).state_dict()
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "a.pth")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "b.pt")
    torch.save({f"module.{name}": value for name, value in state.items()}, tmp_path / "c.pt")
    for name in ("a.safetensors", "a.pth", "b.pt", "c.pt"):
        assert same(dict(sorted(read_weights(tmp_path / name).items())), dict(sorted(state.items()))), name


class _Evil:
    def __reduce__(self) -> Any:
        return (eval, ("1/0",))


@each("name", ["gone.pth", "text.safetensors", "text.pt", "evil.pt", "list.pt"])
def test_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.safetensors").write_text("no weights")
    (tmp_path / "text.pt").write_text("no weights")
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(_Evil()))
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InputError, match="save"):
        read_weights(tmp_path / name)


def test_classes_are_counted_in_all_heads() -> None:
    blank = {"body": torch.zeros(1000, 3), "head": torch.zeros(1000, 8), "aux": torch.zeros(1000)}
    assert count_classes(blank, blank, 1000) == 1000
    assert count_classes({**blank, "head": torch.zeros(5, 8), "aux": torch.zeros(5)}, blank, 1000) == 5
    assert count_classes({**blank, "head": torch.zeros(5, 8), "aux": torch.zeros(6)}, blank, 1000) == 1000
    assert count_classes({}, blank, 1000) == 1000
