"""The same few samples in every format."""

import gzip
import json
import tarfile
from collections.abc import Callable
from io import BytesIO
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


def write_shards(folder: Path) -> Path:
    place = folder / "pets"
    place.mkdir()
    for shard, rows in enumerate((slice(0, 2), slice(2, 5))):
        table = pyarrow.table({"label": NAMES[rows], "text": TEXTS[rows]})
        parquet.write_table(table, place / f"train-{shard:05}-of-00002.parquet")
    return place


def write_npz(folder: Path) -> Path:
    path = folder / "pets.npz"
    np.savez(path, x=np.arange(10).reshape(5, 2), y=np.array(NAMES))
    return path


def write_saved(folder: Path) -> Path:
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["cat", "dog"])})
    data = datasets.Dataset.from_dict({"text": TEXTS, "label": NUMBERS}, features=features)
    data.save_to_disk(str(folder / "pets"))
    return folder / "pets"


def add_member(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, BytesIO(content))


def png(height: int, value: int) -> bytes:
    file = BytesIO()
    Image.fromarray(np.full((height, 3, 3), value, np.uint8)).save(file, "png")
    return file.getvalue()


def write_tar(folder: Path) -> Path:
    path = folder / "pets.tar"
    with tarfile.open(path, "w") as archive:
        for row, (name, text) in enumerate(zip(NAMES, TEXTS, strict=True)):
            add_member(archive, f"some/{row}.cls", name.encode())
            add_member(archive, f"some/{row}.txt", text.encode())
    return path


def write_tars(folder: Path) -> Path:
    place = folder / "pets"
    place.mkdir()
    for shard, rows in enumerate((range(0, 2), range(2, 5))):
        with tarfile.open(place / f"train-{shard:06}.tar", "w") as archive:
            for row in rows:
                add_member(archive, f"some/{row}.json", json.dumps({"label": NAMES[row], "size": 3}).encode())
                add_member(archive, f"some/{row}.png", png(2 + row, row))
    return place


WRITERS: dict[str, Callable[[Path], Path]] = {
    "folder": write_folder,
    "csv": write_csv,
    "tsv": write_tsv,
    "txt": write_txt,
    "parquet": write_parquet,
    "shards": write_shards,
    "npz": write_npz,
    "huggingface": write_saved,
    "tar": write_tar,
    "tars": write_tars,
}
