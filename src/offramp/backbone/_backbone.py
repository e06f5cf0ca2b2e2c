"""The frozen network as ordered stages, each from hidden state to hidden state."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from offramp.backbone._factory import Factory
from offramp.backbone._hidden import SAMPLES_FIRST, Axes, Hidden, batch_size, concatenate, select, with_length
from offramp.calls import Price
from offramp.errors import InputError, OfframpError
from offramp.pooling import Representation
from offramp.preprocessing._preprocessing import AS_IS
from offramp.preprocessing._raw import plain_containers

__all__ = ["Backbone", "check_axes"]


class Backbone(nn.Module):
    """A frozen network as L stages run in order, with an exit after each.

    A backbone is in evaluation mode and takes no gradient; the modules it is given are frozen, not copied. `depth` is
    the number of stages that have run: 0 is the input, L the end. If hidden states are not single tensors with samples
    first, a subclass overrides `representation` and `axes`.

    Args:
        name: A name that identifies the architecture; part of the fingerprint.
        stages: L modules, hidden state to hidden state.
        heads: The network's own classifiers by the stage they follow, hidden state to `N x K` logits. The last stage
            must have one: it is the final exit. An encoder, which can only be in front of a cascade, has none.
        num_classes: K; 0 for an encoder.

    Attributes:
        preprocessing: From raw inputs to what the network takes; no steps by default.
        classes: Names of the classes in the order of the outputs; empty if unknown.
        declared_mul_adds: Mul-Adds per sample of stages that cannot be counted.
        price: Price of an answer, if it is the member of a cascade whose last member has one; None: free.
        factory: The recipe of this backbone without its weights; None if unknown.
        input_axes: Number of axes of a batch, if inputs are one tensor; None accepts any.

    Example:
        >>> stages = [nn.Linear(4, 8), nn.Linear(8, 8)]
        >>> backbone = Backbone("two-layers", stages, {1: nn.Linear(8, 3)}, num_classes=3)
        >>> backbone(torch.zeros(5, 4)).shape, backbone.num_exits
        (torch.Size([5, 3]), 2)
    """

    def __init__(self, name: str, stages: Sequence[nn.Module], heads: dict[int, nn.Module], num_classes: int) -> None:
        super().__init__()
        if not isinstance(name, str):
            raise InputError("name of a backbone", expected="a text", got=name)
        if heads and len(stages) - 1 not in heads:
            raise InputError(
                f"backbone '{name}'",
                expected=f"the network's own head after the last of {len(stages)} stages",
                got=f"heads after stages {sorted(heads)}",
            )
        self.name = name
        self.stages = nn.ModuleList(stages)
        self.heads = nn.ModuleDict({str(stage): head for stage, head in sorted(heads.items())})
        self.num_classes = num_classes
        self.preprocessing = AS_IS
        self.classes: tuple[str, ...] = ()
        self.declared_mul_adds: Mapping[int, float] = {}
        self.price: Price | None = None
        self.factory: Factory | None = None
        self.input_axes: int | None = None
        self._placed: tuple[object, torch.device, torch.dtype | None] | None = None
        self.requires_grad_(False)
        self.eval()

    def representation(self, hidden: Hidden, stage: int) -> Representation:
        """Return the part of the hidden state after `stage` that pooling turns into features."""
        if not isinstance(hidden, Tensor):
            raise InputError(
                f"hidden state after stage {stage} of '{self.name}'",
                expected="a tensor",
                got=f"a {type(hidden).__name__}",
                hint="override `representation` to return the part of it that exits see",
            )
        return hidden

    def prepare(self, inputs: Any) -> Hidden:
        """Return inputs as tensors on the backbone's device; floats in its precision if it has a single one."""
        device, precision = self._device_and_precision()

        def convert(leaf: Any) -> Any:
            if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSU":
                return leaf  # texts, for a function or for a later preprocessing
            tensor = leaf if isinstance(leaf, Tensor) else _tensor(leaf)
            return tensor.to(device, precision if tensor.is_floating_point() else None)

        if isinstance(inputs, Tensor):
            prepared = convert(inputs)
        elif type(inputs) is dict and all(isinstance(leaf, Tensor) for leaf in inputs.values()):  # for speed alone
            prepared = {name: convert(leaf) for name, leaf in inputs.items()}
        else:
            prepared = pytree.tree_map(convert, plain_containers(inputs))
        if self.input_axes is not None:
            check_axes(prepared, self.input_axes, name=self.name)
        return prepared

    def _device_and_precision(self) -> tuple[torch.device, torch.dtype | None]:
        """Return the network's device, and its precision if it has a single one."""
        # Gathering all weights is slower than many a stage: repeated only when the first weight has changed.
        first = next(self.stages[0].parameters(), None)
        key = None if first is None else (id(first), first.device, first.dtype)
        if self._placed is None or key is None or self._placed[0] != key:
            weights = list(self.parameters())
            precisions = {weight.dtype for weight in weights if weight.is_floating_point()}
            device = weights[0].device if weights else torch.device("cpu")
            self._placed = key, device, precisions.pop() if len(precisions) == 1 else None
        return self._placed[1:]

    def axes(self, depth: int) -> Any:  # noqa: ARG002 (subclasses read it)
        """Return the `Axes` of the hidden state's leaves after `depth` stages: the same tree, or a prefix of it."""
        return SAMPLES_FIRST

    def sizes(self, inputs: Hidden) -> Tensor:
        """Return `N` sizes (tokens, nodes) of samples whose costs differ; ones if all cost the same."""
        return torch.ones(self.batch_size(inputs, 0))

    @property
    def varies_in_size(self) -> bool:
        """True if samples differ in size, and so in cost."""
        return any(
            axes.lengths for axes in pytree.tree_leaves(self.axes(0), is_leaf=lambda node: isinstance(node, Axes))
        )

    def with_size(self, inputs: Hidden, size: int) -> Hidden:
        """Return the first sample at another size, to count or measure its cost."""
        return with_length(self.select(inputs, torch.tensor([0]), 0), size, self.axes(0))

    def batch_size(self, hidden: Hidden, depth: int) -> int:
        """Count the samples in a hidden state after `depth` stages."""
        return batch_size(hidden, self.axes(depth))

    def select(self, hidden: Hidden, keep: Tensor, depth: int) -> Hidden:
        """Return the samples `keep` (indices or booleans) of a hidden state after `depth` stages."""
        return select(hidden, keep, self.axes(depth))

    def trim(self, hidden: Hidden, depth: int) -> Hidden:  # noqa: ARG002 (subclasses read it)
        """Drop padding that no sample of a hidden state after `depth` stages needs; by default, none."""
        return hidden

    def concatenate(self, hiddens: Sequence[Hidden], depth: int) -> Hidden:
        """Join hidden states after `depth` stages into one batch."""
        return concatenate(hiddens, self.axes(depth))

    @property
    def num_exits(self) -> int:
        """L: one exit per stage, including the final one."""
        return len(self.stages)

    @property
    def full_stages(self) -> range:
        """The stages of the full network, whose relative cost is 1; of a cascade, those of its last member."""
        return range(self.num_exits)

    @property
    def own_heads(self) -> tuple[int, ...]:
        """Stages after which the network has a head of its own."""
        return tuple(int(stage) for stage in self.heads)

    def explain_errors(self, inputs: Hidden) -> AbstractContextManager[None]:
        """Turn an error of a stage run in this context into an InputError that describes the inputs."""
        return _ExplainErrors(self.name, inputs)

    def own_logits(self, hidden: Hidden, stage: int) -> Tensor:
        """Return `N x K` logits of the network's own head after `stage`."""
        logits: Tensor = self.heads[str(stage)](hidden)
        return logits

    def forward(self, inputs: Hidden) -> Tensor:
        """Run the full network: every stage, then its last head; return `N x K` logits."""
        hidden = inputs
        for stage in self.stages:
            hidden = stage(hidden)
        return self.own_logits(hidden, self.num_exits - 1)

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 (torch gives it)
        """Stay in evaluation mode: a frozen backbone must not use dropout or batch statistics."""
        return super().train(False)

    def fingerprint(self) -> str:
        """Hash the name, the printed modules, and every weight and buffer; feature stores are keyed by it.

        Code is not hashed: give networks that compute differently different names.
        """
        digest = hashlib.sha256(json.dumps([self.name, self.num_classes, str(self)]).encode())
        for key, state in sorted(self.state_dict().items()):
            for value in pytree.tree_leaves(state):  # quantised modules pack their state into tuples
                if not isinstance(value, Tensor):
                    digest.update(f"{key} {value}".encode())
                    continue
                digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
                plain = value.dequantize() if value.is_quantized else value
                digest.update(plain.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def check_axes(leaf: Any, expected: int, *, name: str, batch: int | None = 0, entry: str = "") -> None:
    """Refuse inputs whose number of axes differs from what a network takes.

    Args:
        leaf: One tensor of the inputs.
        expected: The number of axes of a batch.
        name: The network's name.
        batch: The axis of the samples; None if all samples share the tensor.
        entry: The tensor's key, if the inputs are a dictionary.
    """
    problem = f"input {entry!r} of '{name}'" if entry else f"input of '{name}'"
    if not isinstance(leaf, Tensor):
        raise InputError(
            problem,
            expected="a tensor of numbers",
            got=f"an array of {leaf.dtype}" if isinstance(leaf, np.ndarray) else f"a {type(leaf).__name__}",
            hint="texts need the backbone's tokenizer, a list of samples torch.stack",
        )
    if leaf.ndim == expected:
        return
    got = f"shape {tuple(leaf.shape)}" if leaf.ndim <= 8 else f"{leaf.ndim} axes"
    hint = "give samples like those it was trained on"
    if leaf.ndim == expected - 1 and batch is not None:
        index = "[None]" if batch == 0 else f".unsqueeze({batch})"
        add = f"{{name: values{index} for name, values in inputs.items()}}" if entry else f"inputs{index}"
        got, hint = f"{got}: the batch axis is missing", f"add it with {add}"
    raise InputError(problem, expected=f"a batch of {expected} axes", got=got, hint=hint)


def _tensor(leaf: Any) -> Tensor:
    """Return an array or number as a tensor."""
    expected, got = "arrays or tensors of numbers", type(leaf).__name__
    try:
        if not isinstance(leaf, str | bytes | bytearray):  # torch would turn bytes into numbers
            return torch.as_tensor(leaf)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(expected=expected, got=f"{got}: {error}") from error
    raise InputError(expected=expected, got=got, hint="texts need a tokenizer")


class _ExplainErrors(AbstractContextManager[None]):
    """The context of `Backbone.explain_errors`: a class, as a generator is three times slower per stage."""

    __slots__ = ("inputs", "name")

    def __init__(self, name: str, inputs: Hidden) -> None:
        self.name, self.inputs = name, inputs

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        explained = (RuntimeError, TypeError, ValueError, LookupError, AttributeError)
        # Memory can run out whatever the inputs are.
        if not isinstance(error, explained) or isinstance(error, OfframpError) or "allocate" in str(error):
            return
        leaves = [
            f"{str(leaf.dtype).removeprefix('torch.')} of shape {tuple(leaf.shape)}"
            if hasattr(leaf, "shape")
            else type(leaf).__name__
            for leaf in pytree.tree_leaves(self.inputs)[:4]
        ]
        raise InputError(
            f"'{self.name}' cannot take these inputs ({', '.join(leaves)})",
            # In the hint, which servers keep for themselves: it tells how the network is built.
            hint=f"{str(error)[:300]}; give a batch of samples like those it was trained on (a single sample as "
            "inputs[None]), prepared by backbone.preprocessing or by you",
        ) from error
