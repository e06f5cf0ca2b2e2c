"""The seam to any frozen network: ordered stages, each hidden state to hidden state."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from offramp.backbone.factory import Factory
from offramp.backbone.hidden import SAMPLES_FIRST, Axes, Hidden, at_length, batch_size, concatenate, select
from offramp.backbone.preprocessing import AS_IS
from offramp.backbone.raw import plain_containers
from offramp.backbone.representation import Representation
from offramp.errors import InputError, OfframpError

__all__ = ["Backbone", "check_axes"]


class Backbone(nn.Module):
    """A frozen network as L stages run in order, with an exit after each.

    A backbone is in evaluation mode and takes no gradient; the modules it is given are frozen with it, not copied.
    `depth` counts the stages that have run: 0 is the input, L the end. Where hidden states are single tensors, samples
    first, this class is all that is needed; where they are not, a subclass says what an exit may look at
    (`representation`) and how samples lie in them (`axes`).

    Args:
        name: The registered name or a description that tells the architecture apart; part of the fingerprint.
        stages: L modules, hidden state to hidden state.
        heads: The network's own classifiers by the stage they stand after, hidden state to `N x K` logits. The last
            stage must have one: it is the final exit.
        num_classes: K.

    Attributes:
        preprocessing: From raw inputs to what the network takes; nothing unless set.
        classes: Names of the classes in the order of the outputs; empty where the network does not know them.
        declared_mul_adds: What stages cost a sample, where counting cannot tell.
        factory: What makes this backbone, weights apart; None where nothing is known of it.
        input_axes: Number of axes of a batch of inputs, where they are one tensor; None, the default, takes any.

    Example:
        >>> stages = [nn.Linear(4, 8), nn.Linear(8, 8)]
        >>> backbone = Backbone("two-layers", stages, {1: nn.Linear(8, 3)}, num_classes=3)
        >>> backbone(torch.zeros(5, 4)).shape, backbone.num_exits
        (torch.Size([5, 3]), 2)
    """

    def __init__(self, name: str, stages: Sequence[nn.Module], heads: dict[int, nn.Module], num_classes: int) -> None:
        super().__init__()
        if not isinstance(name, str):
            raise InputError(f"expected a text as name of a backbone, got {name!r}")
        if len(stages) - 1 not in heads:
            raise InputError(
                f"backbone '{name}' has {len(stages)} stages and heads after stages {sorted(heads)}; "
                "the last stage needs the network's own head"
            )
        self.name = name
        self.stages = nn.ModuleList(stages)
        self.heads = nn.ModuleDict({str(stage): head for stage, head in sorted(heads.items())})
        self.num_classes = num_classes
        self.preprocessing = AS_IS
        self.classes: tuple[str, ...] = ()
        self.declared_mul_adds: Mapping[int, float] = {}
        self.factory: Factory | None = None
        self.input_axes: int | None = None
        self._placed: tuple[object, torch.device, torch.dtype | None] | None = None
        self.requires_grad_(False)
        self.eval()

    def representation(self, hidden: Hidden, stage: int) -> Representation:
        """What an exit may look at after `stage`: what pooling turns into features."""
        if not isinstance(hidden, Tensor):
            raise InputError(
                f"after stage {stage} of '{self.name}' the hidden state is a {type(hidden).__name__}, not a tensor; "
                "override `representation` to say which part of it exits look at"
            )
        return hidden

    def prepare(self, inputs: Any) -> Hidden:
        """Inputs as tensors where the backbone is, real numbers in its precision if it has one precision."""
        device, precision = self._device_and_precision()

        def convert(leaf: Any) -> Any:
            if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSU":
                return leaf  # texts: for a function, or a preparation that comes later
            tensor = leaf if isinstance(leaf, Tensor) else _tensor(leaf)
            return tensor.to(device, precision if tensor.is_floating_point() else None)

        prepared = convert(inputs) if isinstance(inputs, Tensor) else pytree.tree_map(convert, plain_containers(inputs))
        if self.input_axes is not None:
            check_axes(prepared, self.input_axes, name=self.name)
        return prepared

    def _device_and_precision(self) -> tuple[torch.device, torch.dtype | None]:
        """Where the network is, and its precision if it has one."""
        # Gathering all weights takes longer than many a stage: done again only when the first of them has changed.
        first = next(self.stages[0].parameters(), None)
        key = None if first is None else (id(first), first.device, first.dtype)
        if self._placed is None or key is None or self._placed[0] != key:
            weights = list(self.parameters())
            precisions = {weight.dtype for weight in weights if weight.is_floating_point()}
            device = weights[0].device if weights else torch.device("cpu")
            self._placed = key, device, precisions.pop() if len(precisions) == 1 else None
        return self._placed[1:]

    def axes(self, depth: int) -> Any:
        """`Axes` of the hidden state's leaves after `depth` stages: the same tree, or a prefix of it."""
        return SAMPLES_FIRST

    def sizes(self, inputs: Hidden) -> Tensor:
        """`N` sizes of the samples (tokens, nodes) where their costs differ; ones where they do not."""
        return torch.ones(self.batch_size(inputs, 0))

    @property
    def grows(self) -> bool:
        """Whether samples differ in size, and with it in cost."""
        return any(
            axes.lengths for axes in pytree.tree_leaves(self.axes(0), is_leaf=lambda node: isinstance(node, Axes))
        )

    def resized(self, inputs: Hidden, size: int) -> Hidden:
        """The first sample at another size, for counting what samples of that size cost."""
        return at_length(self.select(inputs, torch.tensor([0]), 0), size, self.axes(0))

    def batch_size(self, hidden: Hidden, depth: int) -> int:
        """Number of samples in a hidden state after `depth` stages."""
        return batch_size(hidden, self.axes(depth))

    def select(self, hidden: Hidden, keep: Tensor, depth: int) -> Hidden:
        """The samples `keep` (indices or booleans) of a hidden state after `depth` stages."""
        return select(hidden, keep, self.axes(depth))

    def trimmed(self, hidden: Hidden, depth: int) -> Hidden:
        """A hidden state after `depth` stages without padding that none of its samples needs; as it is, if unknown."""
        return hidden

    def concatenate(self, hiddens: Sequence[Hidden], depth: int) -> Hidden:
        """Join hidden states after `depth` stages into one batch."""
        return concatenate(hiddens, self.axes(depth))

    @property
    def num_exits(self) -> int:
        """L: one exit a stage, the final one included."""
        return len(self.stages)

    @property
    def full_stages(self) -> range:
        """The stages of the full network, whose cost is 1: all of them, or of a cascade its last network's."""
        return range(self.num_exits)

    @property
    def own_heads(self) -> tuple[int, ...]:
        """Stages after which the network brings a classifier of its own."""
        return tuple(int(stage) for stage in self.heads)

    def explaining(self, inputs: Hidden) -> AbstractContextManager[None]:
        """Tell what the inputs are, where a stage run inside ends with an error of its own."""
        return _Explaining(self.name, inputs)

    def own_logits(self, hidden: Hidden, stage: int) -> Tensor:
        """`N x K` scores of the network's own head after `stage`."""
        logits: Tensor = self.heads[str(stage)](hidden)
        return logits

    def forward(self, inputs: Hidden) -> Tensor:
        """The full network: every stage, then its own last head. Returns `N x K` logits."""
        hidden = inputs
        for stage in self.stages:
            hidden = stage(hidden)
        return self.own_logits(hidden, self.num_exits - 1)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: dropout or batch statistics in a frozen backbone would make its features noise."""
        return super().train(False)

    def fingerprint(self) -> str:
        """Hash of the name, the modules as they print, and every weight and buffer; a feature store is keyed by it.

        What is code is known by the name alone: give networks that compute differently different names.
        """
        digest = hashlib.sha256(json.dumps([self.name, self.num_classes, str(self)]).encode())
        for key, state in sorted(self.state_dict().items()):
            for value in pytree.tree_leaves(state):  # what quantised modules keep is packed into tuples
                if not isinstance(value, Tensor):
                    digest.update(f"{key} {value}".encode())
                    continue
                digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
                plain = value.dequantize() if value.is_quantized else value
                digest.update(plain.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def check_axes(leaf: Any, expected: int, *, name: str, batch: int | None = 0, entry: str = "") -> None:
    """Refuse inputs with another number of axes than a network takes, a missing batch axis by its name.

    Args:
        leaf: One tensor of the inputs.
        expected: The number of axes of a batch.
        name: The network's name.
        batch: The axis of the samples; None where all samples share the tensor.
        entry: The tensor's key, where the inputs are a dictionary.
    """
    if not isinstance(leaf, Tensor):
        kind = f"an array of {leaf.dtype}" if isinstance(leaf, np.ndarray) else f"a {type(leaf).__name__}"
        raise InputError(
            f"'{name}' takes a tensor of numbers{entry and f' as {entry!r}'}, got {kind}; texts need the backbone's "
            "tokenizer, a list of samples torch.stack"
        )
    if leaf.ndim == expected:
        return
    given = f"{entry and f'{entry!r} of '}{f'shape {tuple(leaf.shape)}' if leaf.ndim <= 8 else f'{leaf.ndim} axes'}"
    if leaf.ndim == expected - 1 and batch is not None:
        index = "[None]" if batch == 0 else f".unsqueeze({batch})"
        add = f"{{name: values{index} for name, values in inputs.items()}}" if entry else f"inputs{index}"
        raise InputError(
            f"'{name}' takes batches of {expected} axes, got {given}: of a single sample, the batch axis is missing; "
            f"add it with {add}"
        )
    raise InputError(f"'{name}' takes batches of {expected} axes, got {given}; give samples such as it was made for")


def _tensor(leaf: Any) -> Tensor:
    """Return an array or number as a tensor."""
    try:
        if not isinstance(leaf, str | bytes | bytearray):  # bytes would become a tensor of their numbers
            return torch.as_tensor(leaf)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"expected arrays or tensors of numbers, got {type(leaf).__name__}: {error}") from error
    raise InputError(f"expected arrays or tensors of numbers, got {type(leaf).__name__}; texts need a tokenizer")


class _Explaining(AbstractContextManager[None]):
    """Entered for every stage of every batch: a class, since a generator takes three times as long."""

    __slots__ = ("inputs", "name")

    def __init__(self, name: str, inputs: Hidden) -> None:
        self.name, self.inputs = name, inputs

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        explained = (RuntimeError, TypeError, ValueError, LookupError, AttributeError)
        # Out of memory is so whatever the inputs are.
        if not isinstance(error, explained) or isinstance(error, OfframpError) or "allocate" in str(error):
            return
        leaves = [
            f"{str(leaf.dtype).removeprefix('torch.')} of shape {tuple(leaf.shape)}"
            if hasattr(leaf, "shape")
            else type(leaf).__name__
            for leaf in pytree.tree_leaves(self.inputs)[:4]
        ]
        raise InputError(
            f"'{self.name}' cannot take these inputs ({', '.join(leaves)}): {str(error)[:300]}; give a batch of "
            "samples such as it was trained on (of a single sample, inputs[None]), prepared by backbone.preprocessing "
            "or by you"
        ) from error
