"""Stages in bfloat16: the numbers of torch's own autocast, with weights, masks and answers kept right."""

from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import offramp
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone._splitting import split
from offramp.backbone.adapters._callable import callable_model
from offramp.errors import InputError
from offramp.exits import LadderExits, LinearExits
from offramp.exits._averaging import Averaging
from offramp.pooling import POOLINGS
from offramp.runtime._eager import EagerBackend, FoldedAveraging, FoldedLadder, with_weights_as
from tests.cases import each, refuses
from tests.model.examples import LINEAR, PREPROCESSING, SMALL, backbone, images

POOLING = POOLINGS.get("auto")


class Block(nn.Module):
    """Attention with an additive mask, as text encoders have it: the lowest number of single precision at padding."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.norm = nn.Linear(16, 48), nn.LayerNorm(16)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        low = (1 - mask[:, None, :].to(torch.float32)) * torch.finfo(torch.float32).min
        query, key, value = self.mix(x).chunk(3, dim=-1)
        out: Tensor = self.norm(x + F.scaled_dot_product_attention(query, key, value, low.expand(-1, x.shape[1], -1)))
        return out


class Tagger(nn.Module):
    """Texts to classes; the mask is an input of whole numbers that every block reads."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(16, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, mask)
        weights = mask[..., None].to(x.dtype)
        logits: Tensor = self.head((x * weights).sum(1) / weights.sum(1).clamp_min(1))
        return logits


def texts() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    mask = torch.ones(6, 9, dtype=torch.long)
    mask[1, 4:], mask[2, 1:] = 0, 0
    return {"ids": torch.randint(1, 20, (6, 9), generator=draw), "mask": mask}


def untrained(network: Backbone, inputs: Any) -> LinearExits:
    """Exits after every stage but the last."""
    widths = []
    with torch.inference_mode():
        hidden = inputs
        for index, stage in enumerate(network.stages):
            hidden = stage(hidden)
            widths.append(POOLING(network.representation(hidden, index)).shape[1])
    return LinearExits(tuple(widths), tuple(range(network.num_exits - 1)), network.num_classes)


def narrow(network: Backbone, inputs: Any) -> EagerBackend:
    return EagerBackend(network, POOLING, untrained(network, inputs), dtype=torch.bfloat16)


def test_stages_compute_what_autocast_computes() -> None:
    network = backbone()
    hidden = expected = PREPROCESSING(images(5, seed=1)[0])
    backend = narrow(network, hidden)
    with torch.inference_mode():
        for index, stage in enumerate(network.stages):
            hidden = backend.stage(index, hidden)
            with torch.autocast("cpu", torch.bfloat16):
                expected = stage(expected)  # weights are rounded at every call
            assert hidden.dtype == torch.bfloat16
            assert torch.equal(hidden, expected)


def test_the_backbone_is_not_touched() -> None:
    network = backbone()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    fingerprint = network.fingerprint()
    backend = narrow(network, PREPROCESSING(images(2, seed=1)[0]))
    backend.stage(0, torch.zeros(1, 3, 32, 32))
    assert network.fingerprint() == fingerprint
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


def test_norms_and_buffers_stay_and_are_shared() -> None:
    norms = nn.LayerNorm(4), nn.PReLU(4), nn.LayerNorm(4, bias=False), nn.RMSNorm(4)
    stages = nn.ModuleList([nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), *norms]).train()
    made = with_weights_as(stages, torch.bfloat16)
    assert not any(module.training for module in made.modules())
    narrow_names = {name for name, value in made.named_parameters() if value.dtype == torch.bfloat16}
    assert narrow_names == {"0.0.weight", "0.0.bias", "2.weight"}
    assert made[0][1].running_var is stages[0][1].running_var  # type: ignore[index]
    assert made[1].weight is stages[1].weight
    assert all(value.dtype == torch.float32 for value in stages.parameters())


def test_answers_are_in_full_precision() -> None:
    network, inputs = backbone(), PREPROCESSING(images(5, seed=1)[0])
    exits = untrained(network, inputs)
    plain, backend = (EagerBackend(network, POOLING, exits, dtype=dtype) for dtype in (None, torch.bfloat16))
    state: Any = exits.initial_state(5), ()
    hidden, reached = inputs, inputs
    with torch.inference_mode():
        for index in range(network.num_exits):
            hidden, reached = backend.stage(index, hidden), plain.stage(index, reached)
            found, _ = backend.exit(index, hidden, state, None, answer=True, carry=False)
            expected, _ = plain.exit(index, reached, state, None, answer=True, carry=False)
            assert found is not None
            assert expected is not None
            assert found.dtype == torch.float32
            assert not torch.equal(found, expected)
            torch.testing.assert_close(found, expected, atol=0.03 * float(expected.abs().max()), rtol=0)
        # The network's own head reads the narrow map, and computes on it as it would on any other.
        assert found is not None
        assert torch.equal(found, network.own_logits(hidden.float(), network.num_exits - 1))


def test_masks_of_texts_stay_whole_numbers_and_hide_padding() -> None:
    torch.manual_seed(0)
    network, inputs = split(Tagger(), texts()), texts()
    backend = narrow(network, inputs)

    def answers(given: Any) -> Tensor:
        hidden = given
        for index in range(network.num_exits):
            hidden = backend.stage(index, hidden)
        kinds = {value.dtype for value in hidden.values()}
        assert kinds == {torch.int64, torch.bfloat16}
        found, _ = backend.exit(network.num_exits - 1, hidden, ((), ()), None, answer=True, carry=False)
        assert found is not None
        return found

    with torch.inference_mode():
        found = answers(inputs)
        torch.testing.assert_close(found, network(inputs), atol=0.05, rtol=0)
        other = {**inputs, "ids": torch.where(inputs["mask"] == 0, 7, inputs["ids"])}
        assert torch.equal(answers(other), found)


def test_functions_in_a_cascade_are_not_copied() -> None:
    class Scorer:
        def __init__(self) -> None:
            self.lock = Lock()  # cannot be copied

        def __call__(self, inputs: Any) -> Any:
            return np.asarray(inputs.float()).mean((2, 3))

    both = cascade(callable_model(Scorer(), 3, name="colours", mul_adds=1), backbone())
    inputs = PREPROCESSING(images(4, seed=1)[0])
    backend = EagerBackend(both, POOLING, LinearExits((3, 256, 512, 1024), (1, 2), 3), dtype=torch.bfloat16)
    with torch.inference_mode():
        hidden = inputs
        for index in range(both.num_exits):
            hidden = backend.stage(index, hidden)
    assert hidden["hidden"].dtype == torch.bfloat16


@each("settings", [LINEAR, SMALL])
def test_few_samples_leave_elsewhere(settings: offramp.JointSettings) -> None:
    data = images(200, seed=1), images(120, seed=2)
    frontier = offramp.fit(backbone(), *data, preprocessing=PREPROCESSING, settings=settings, progress=False)
    network = frontier.at(cost=0.8, policy="threshold")
    inputs = images(200, seed=3)[0]
    plain, rounded = network.predict(inputs), network.on("bfloat16").predict(inputs)
    assert len(set(plain.exits.tolist())) > 1
    assert not torch.equal(rounded.probabilities, plain.probabilities)
    assert (rounded.labels != plain.labels).sum() <= 4
    assert (rounded.exits != plain.exits).sum() <= 10


@each("dtype", [torch.float16, torch.float64, torch.int8])
def test_other_precisions_are_refused(dtype: torch.dtype) -> None:
    with refuses(InputError, problem="dtype", got=str(dtype)):
        EagerBackend(backbone(), POOLING, LinearExits((256, 512, 1024), (0, 1), 3), dtype=dtype)


@pytest.mark.data
def test_a_trained_network_keeps_its_answers() -> None:
    from offramp_bench.cifar import cifar10, resnet

    network, rows = resnet(20), cifar10("test").read(0, 500)
    inputs = network.prepare(network.preprocessing(rows.inputs))
    backend = EagerBackend(network, POOLING, untrained(network, inputs[:1]), dtype=torch.bfloat16)
    hidden = inputs
    with torch.inference_mode():
        for index in range(network.num_exits):
            hidden = backend.stage(index, hidden)
        found, _ = backend.exit(network.num_exits - 1, hidden, ((), ()), None, answer=True, carry=False)
        expected = network(inputs)
    assert found is not None
    labels = torch.as_tensor(rows.labels)
    right, before = ((logits.argmax(1) == labels).float().mean() for logits in (found, expected))
    assert before > 0.9
    assert abs(right - before) <= 0.01
    assert (found.argmax(1) != expected.argmax(1)).float().mean() <= 0.01
    torch.testing.assert_close(found, expected, atol=0.02 * float(expected.abs().max()), rtol=0)


def test_on_a_named_device() -> None:
    network = backbone().to(torch.device("cpu"))
    backend = narrow(network, PREPROCESSING(images(2, seed=1)[0]))
    with torch.device("cpu"):
        assert backend.stage(0, torch.zeros(1, 3, 32, 32)).device.type == "cpu"


def test_a_folded_ladder_computes_as_the_ladder() -> None:
    torch.manual_seed(0)
    exits = LadderExits((6, 4, 5), (0, 2), 3, width=8).eval()
    exits.standardize(3 + 5 * torch.randn(50, 15))
    for parameter in exits.parameters():
        torch.nn.init.normal_(parameter)
    folded = FoldedLadder(exits)
    state = folded_state = exits.initial_state(7)
    with torch.no_grad():
        for stage in (0, 2):
            features = 3 + 5 * torch.randn(7, exits.widths[stage])
            expected, state = exits.step(stage, features, state, None)
            found, folded_state = folded.step(stage, features, folded_state, answer=True)
            assert found is not None
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(folded_state, state, atol=1e-4, rtol=1e-4)


def test_folded_averaging_computes_as_the_averaging() -> None:
    averaging = Averaging((1, 3, 4, 6), torch.tensor([0.0, 0.3, 0.0, 0.6]), torch.tensor([1.5, 0.7, 1.0, 2.0]))
    folded = FoldedAveraging(averaging)
    assert folded.read == averaging.read == {1, 4}
    draw = torch.Generator().manual_seed(0)
    state: Any = ()
    folded_state: Any = ()
    for stage in (1, 3, 4, 6):
        logits = 3 * torch.randn(5, 4, generator=draw)
        expected, state = averaging.step(stage, logits, state)
        found, folded_state = folded.step(stage, logits, folded_state)
        torch.testing.assert_close(found, expected)
    assert folded.step(6, logits.bfloat16(), folded_state)[0].dtype == torch.float32
