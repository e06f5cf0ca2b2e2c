"""Change a saved artifact and make its hashes right again, as somebody with bad intentions would."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

import offramp

Content = dict[str, Any]


def change_manifest(folder: Path, change: Callable[[Content], object]) -> None:
    """Change what a manifest says, its content included."""
    file = folder / "manifest.json"
    whole = json.loads(file.read_bytes())
    change(whole)
    file.write_bytes(json.dumps(whole, sort_keys=True, indent=1).encode())


def tensor_file(folder: Path, name: str) -> Path:
    """Return the path of the file that the manifest has under a name such as 'exits'."""
    entry = json.loads((folder / "manifest.json").read_bytes())["files"][name]
    return folder / f"{name}-{entry['sha256'][:16]}.safetensors"


def change_tensors(folder: Path, name: str, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors of a file, its hash and its name included."""
    tensors = load_file(tensor_file(folder, name))
    change(tensors)
    change_bytes(folder, name, save(tensors))


def change_bytes(folder: Path, name: str, raw: bytes) -> None:
    """Put other bytes in place of a file, its hash and its name included."""
    tensor_file(folder, name).unlink()
    entry = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    change_manifest(folder, lambda whole: whole["files"].update({name: entry}))
    tensor_file(folder, name).write_bytes(raw)


def at(whole: Content, path: str) -> tuple[Any, Any]:
    """The object or list that holds a place such as `content.points.threshold.0.active`, and its key."""
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in way:
        whole = whole[part]  # type: ignore[index]
    return whole, last


def assert_same(one: offramp.EarlyExitModel, other: offramp.EarlyExitModel, inputs: Any) -> None:
    """Two frontiers say the same, point by point, bit by bit."""
    assert {policy: len(points) for policy, points in one.points.items()} == {
        policy: len(points) for policy, points in other.points.items()
    }
    assert str(one) == str(other)
    assert one.provenance == other.provenance
    assert list(one.contributions) == list(other.contributions)
    assert torch.equal(one.temperatures, other.temperatures)
    for policy, points in one.points.items():
        for index in {0, len(points) // 2, len(points) - 1}:
            answers = [
                replace(frontier, chosen=frontier.points[policy][index]).predict(inputs) for frontier in (one, other)
            ]
            assert_same_answers(*answers)


def assert_same_answers(one: offramp.Answer, other: offramp.Answer) -> None:
    assert torch.equal(one.labels, other.labels)
    assert torch.equal(one.probabilities, other.probabilities)
    assert torch.equal(one.exits, other.exits)
    assert torch.equal(one.relative_cost, other.relative_cost)
    assert one.prediction_sets.keys() == other.prediction_sets.keys()
    for level, sets in one.prediction_sets.items():
        assert torch.equal(sets, other.prediction_sets[level])
