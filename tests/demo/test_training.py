"""Training learns, is repeatable, and touches nobody's random numbers."""

import torch
import torch.nn.functional as F

from offramp.demo._digits import PREPROCESSING, digits
from offramp.demo._networks import DigitsCnn
from offramp.demo._training import _shifted, train


def trained(*, seed: int) -> DigitsCnn:
    torch.manual_seed(0)
    network = DigitsCnn()
    train(network, digits().train, epochs=2, learning_rate=0.01, moved=0.5, seed=seed, progress=False)
    return network


def test_training_learns_what_it_has_not_seen() -> None:
    network = trained(seed=0)
    assert not network.training
    rows = digits().test.read(0, 497)
    with torch.no_grad():
        guesses = network(PREPROCESSING(rows.inputs)).argmax(1)
    assert (guesses == torch.as_tensor(rows.labels)).double().mean() > 0.8


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    one, again, other = (trained(seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["head.weight"], other["head.weight"])


def test_random_numbers_of_others_are_left_alone() -> None:
    network = DigitsCnn()
    state = torch.get_rng_state()
    train(network, digits().train, epochs=1, learning_rate=0.01, progress=False)
    assert torch.equal(torch.get_rng_state(), state)


def test_images_move_by_up_to_a_pixel_into_places_without_ink() -> None:
    images = PREPROCESSING(digits().train.read(0, 200).inputs)
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(_shifted(images, 0.0, generator), images)
    padded = F.pad(images, (1, 1, 1, 1), value=-1.0)
    places = torch.stack([padded[:, :, top : top + 8, left : left + 8] for top in range(3) for left in range(3)])
    same = (places == _shifted(images, 1.0, generator)).flatten(2).all(2)
    assert same.any(0).all()
    assert same.any(1).all()
    assert 0.4 < (_shifted(images, 0.5, generator) == images).flatten(1).all(1).double().mean() < 0.7
