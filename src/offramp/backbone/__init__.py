"""The frozen network as ordered stages, and what exits may see of it."""

from offramp.backbone.attachment import Attachment
from offramp.backbone.backbone import Backbone
from offramp.backbone.build import BACKBONES, build, make_backbone
from offramp.backbone.cascade import Cascade, cascade, scores
from offramp.backbone.cifar_resnet import CifarResNet, load_cifar_resnet
from offramp.backbone.factory import Factory
from offramp.backbone.hidden import Axes, Hidden, batch_size, concatenate, select
from offramp.backbone.merged import MergedBackbone, merge
from offramp.backbone.pooling import POOLINGS, AutoPooling, FirstPooling, GridPooling, MeanPooling, Pooling
from offramp.backbone.preprocessing import STEPS, Preprocessing, image_preprocessing, photo_preprocessing
from offramp.backbone.representation import Nodes, Representation, Tokens
from offramp.backbone.rich import DEFAULT_POOLING, RichPooling
from offramp.backbone.split import SplitBackbone, split
from offramp.backbone.text import text_preprocessing

__all__ = [
    "BACKBONES",
    "DEFAULT_POOLING",
    "POOLINGS",
    "STEPS",
    "Attachment",
    "AutoPooling",
    "Axes",
    "Backbone",
    "Cascade",
    "CifarResNet",
    "Factory",
    "FirstPooling",
    "GridPooling",
    "Hidden",
    "MeanPooling",
    "MergedBackbone",
    "Nodes",
    "Pooling",
    "Preprocessing",
    "Representation",
    "RichPooling",
    "SplitBackbone",
    "Tokens",
    "batch_size",
    "build",
    "cascade",
    "concatenate",
    "image_preprocessing",
    "load_cifar_resnet",
    "make_backbone",
    "merge",
    "photo_preprocessing",
    "scores",
    "select",
    "split",
    "text_preprocessing",
]
