"""Networks of libraries, made again by name."""

import json
from dataclasses import replace

import torch

from offramp.frontier.embedding import embed
from offramp.trunk import Trunk, build


def embedded(trunk: Trunk) -> Trunk:
    """The trunk made again from what it says of itself, as JSON brings it back, with the same weights put in."""
    assert trunk.factory is not None
    options = json.loads(json.dumps(dict(trunk.factory.options)))
    torch.manual_seed(99)  # other weights, until they are put in
    made = build(replace(trunk.factory, options=options))
    assert made.fingerprint() != trunk.fingerprint()
    embed(made, {name: tensor.clone() for name, tensor in trunk.state_dict().items()})
    return made
