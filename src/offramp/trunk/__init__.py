"""The frozen network as ordered stages, and what exits may see of it."""

from offramp.trunk.cifar_resnet import CifarResNet, load_cifar_resnet
from offramp.trunk.hidden import Axes, Hidden, batch_size, concatenate, select
from offramp.trunk.pooling import POOLINGS, GridPooling, MeanPooling, Pooling
from offramp.trunk.preprocessing import STEPS, Preprocessing, image_preprocessing
from offramp.trunk.trunk import Trunk

__all__ = [
    "POOLINGS",
    "STEPS",
    "Axes",
    "CifarResNet",
    "GridPooling",
    "Hidden",
    "MeanPooling",
    "Pooling",
    "Preprocessing",
    "Trunk",
    "batch_size",
    "concatenate",
    "image_preprocessing",
    "load_cifar_resnet",
    "select",
]
