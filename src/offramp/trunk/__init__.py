"""The frozen network as ordered stages, and what exits may see of it."""

from offramp.trunk.attachment import Attachment
from offramp.trunk.build import TRUNKS, build, make_trunk
from offramp.trunk.chain import ChainTrunk, chain, scores
from offramp.trunk.cifar_resnet import CifarResNet, load_cifar_resnet
from offramp.trunk.factory import Factory
from offramp.trunk.hidden import Axes, Hidden, batch_size, concatenate, select
from offramp.trunk.merged import MergedTrunk, merge
from offramp.trunk.pooling import POOLINGS, AutoPooling, FirstPooling, GridPooling, MeanPooling, Pooling
from offramp.trunk.preprocessing import STEPS, Preprocessing, image_preprocessing, photo_preprocessing
from offramp.trunk.representation import Nodes, Representation, Tokens
from offramp.trunk.rich import DEFAULT_POOLING, RichPooling
from offramp.trunk.split import SplitTrunk, split
from offramp.trunk.text import text_preprocessing
from offramp.trunk.trunk import Trunk

__all__ = [
    "DEFAULT_POOLING",
    "POOLINGS",
    "STEPS",
    "TRUNKS",
    "Attachment",
    "AutoPooling",
    "Axes",
    "ChainTrunk",
    "CifarResNet",
    "Factory",
    "FirstPooling",
    "GridPooling",
    "Hidden",
    "MeanPooling",
    "MergedTrunk",
    "Nodes",
    "Pooling",
    "Preprocessing",
    "Representation",
    "RichPooling",
    "SplitTrunk",
    "Tokens",
    "Trunk",
    "batch_size",
    "build",
    "chain",
    "concatenate",
    "image_preprocessing",
    "load_cifar_resnet",
    "make_trunk",
    "merge",
    "photo_preprocessing",
    "scores",
    "select",
    "split",
    "text_preprocessing",
]
