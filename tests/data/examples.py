"""The same few samples in every format."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pyarrow
from PIL import Image
from pyarrow import parquet

TEXTS = ["purrs", "barks", "mews", "growls", "müde"]
NAMES = ["cat", "dog", "cat", "dog", "cat"]
NUMBERS = [0, 1, 0, 1, 0]


def write_folder(folder: Path) -> Path:
    for row, name in enumerate(NAMES):
        place = folder / "pets" / name
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2 + row, 3, 3), row, np.uint8)).save(place / f"{row}.png")
    return folder / "pets"


def write_csv(folder: Path) -> Path:
    path = folder / "pets.csv"
    lines = [f"{name},{text}" for name, text in zip(NAMES, TEXTS, strict=True)]
    path.write_text("\n".join(["label,text", *lines]) + "\n", encoding="utf-8")
    return path


def write_tsv(folder: Path) -> Path:
    path = folder / "pets.tsv.gz"
    lines = [f"{name}\t{text}" for name, text in zip(NAMES, TEXTS, strict=True)]
    path.write_bytes(gzip.compress("\n".join(["label\ttext", *lines]).encode(), mtime=0))
    return path


def write_txt(folder: Path) -> Path:
    path = folder / "pets.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    return path


def write_parquet(folder: Path) -> Path:
    path = folder / "pets.parquet"
    parquet.write_table(pyarrow.table({"label": NAMES, "text": TEXTS}), path, row_group_size=2)
    return path


def write_jsonl(folder: Path) -> Path:
    path = folder / "pets.jsonl"
    lines = [json.dumps({"label": name, "text": text}) for name, text in zip(NAMES, TEXTS, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_npz(folder: Path) -> Path:
    path = folder / "pets.npz"
    np.savez(path, x=np.arange(10).reshape(5, 2), y=np.array(NAMES))
    return path


def write_saved(folder: Path) -> Path:
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["cat", "dog"])})
    data = datasets.Dataset.from_dict({"text": TEXTS, "label": NUMBERS}, features=features)
    data.save_to_disk(str(folder / "pets"))
    return folder / "pets"


WRITERS: dict[str, Callable[[Path], Path]] = {
    "folder": write_folder,
    "csv": write_csv,
    "tsv": write_tsv,
    "txt": write_txt,
    "parquet": write_parquet,
    "jsonl": write_jsonl,
    "npz": write_npz,
    "huggingface": write_saved,
}
