"""Networks of libraries, made again by name."""

import json
from dataclasses import replace

import torch

from offramp.artifact._network import embed
from offramp.backbone._backbone import Backbone
from offramp.backbone._making import build


def embedded(backbone: Backbone) -> Backbone:
    """The backbone made again from what it says of itself, as JSON brings it back, with the same weights put in."""
    assert backbone.factory is not None
    options = json.loads(json.dumps(dict(backbone.factory.options)))
    torch.manual_seed(99)  # other weights, until they are put in
    made = build(replace(backbone.factory, options=options))
    assert made.fingerprint() != backbone.fingerprint()
    embed(made, {name: tensor.clone() for name, tensor in backbone.state_dict().items()})
    return made
