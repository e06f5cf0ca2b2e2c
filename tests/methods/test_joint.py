"""The paper's method on small features: exactness, determinism, resumption, edges."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from offramp.cost._mul_adds import BackboneMulAdds, price
from offramp.errors import CorruptFileError, InputError, StoreError, UnknownNameError
from offramp.exits import LinearExits
from offramp.exits._exit_set import all_logits
from offramp.exits._gate import Gates
from offramp.features._batch import MemorySource
from offramp.functional import evidence
from offramp.functional._leaving import first_exit, should_leave
from offramp.functional._objective import GateTarget, cross_entropies, priced_losses
from offramp.functional._statistics import log_probabilities
from offramp.methods import FittedExits
from offramp.methods._joint import EpochRecord, fit_classifiers, fit_joint
from offramp.methods._settings import PAPER, ClassifierTraining, ExitKind, JointSettings
from tests.cases import each

WIDTHS = (4, 6, 8)
COSTS = BackboneMulAdds(
    stage=torch.tensor([[1e4, 1e4, 1e4]], dtype=torch.float64),
    pooling=torch.zeros(1, 3, dtype=torch.float64),
    head=torch.tensor([[0.0, 0.0, 1e3]], dtype=torch.float64),
    full=torch.tensor([3.1e4], dtype=torch.float64),
)
QUICK = JointSettings(
    cost_weights=(0.1, 1.0, 3.0), warmup_epochs=1, epochs=1, switch_every=2, batch_size=16, weight_decay=0.0, seed=3
)


def noisy_clusters(
    num_samples: int = 200, *, num_classes: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64
) -> MemorySource:
    """Classes whose features get clearer from stage to stage; the own head is nearly always right."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_samples) % num_classes
    centers = torch.randn(num_classes, sum(WIDTHS), generator=torch.Generator().manual_seed(99))
    noise = torch.cat([torch.full((width,), spread) for width, spread in zip(WIDTHS, (2.0, 1.0, 0.5), strict=True)])
    features = centers[labels] + noise * torch.randn(num_samples, sum(WIDTHS), generator=generator)
    own = 4 * torch.nn.functional.one_hot(labels, num_classes) + torch.randn(
        num_samples, num_classes, generator=generator
    )
    return MemorySource(features.to(dtype), {2: own.to(dtype)}, labels, WIDTHS)


def weights_of(fitted: FittedExits) -> dict[str, Tensor]:
    return {
        **fitted.exits.state_dict(),
        **{f"gates.{key}": value for key, value in fitted.trained_gates.state_dict().items()},
    }


def fit(settings: JointSettings, **options: object) -> FittedExits:
    fit_split, tune = noisy_clusters(), noisy_clusters(90, seed=1)
    return fit_joint(fit_split, tune, COSTS, settings, dtype=torch.float64, **options)  # type: ignore[arg-type]


@each("loss", ["weighted", "rescaled", "plain", "full", "fixed"])
@each("target", ["exit_subsequent", "exit_if_min"])
def test_many_cost_weights_at_once_equal_separate_fits(loss: ClassifierTraining, target: GateTarget) -> None:
    settings = replace(QUICK, classifier_loss=loss, gate_target=target)
    together = fit(settings)
    for index, cost_weight in enumerate(settings.cost_weights):
        alone = fit(replace(settings, cost_weights=(cost_weight,)))
        assert torch.allclose(together.trained_gates.weight[index], alone.trained_gates.weight[0], atol=1e-8, rtol=0)
        assert torch.allclose(together.trained_gates.bias[index], alone.trained_gates.bias[0], atol=1e-8, rtol=0)
        assert isinstance(together.exits, LinearExits)
        assert isinstance(alone.exits, LinearExits)
        one = together.exits if together.exits.stacked == 1 else together.exits.take(index)
        for key, value in alone.exits.state_dict().items():
            assert torch.allclose(one.state_dict()[key], value, atol=1e-8, rtol=0), key


def test_cost_weights_end_up_different() -> None:
    fitted = fit(replace(QUICK, epochs=3))
    weights = fitted.exits.state_dict()["weights.0"]
    assert not torch.allclose(weights[:, 0], weights[:, 2], atol=1e-4)
    assert not torch.allclose(fitted.trained_gates.bias[0], fitted.trained_gates.bias[2], atol=1e-4)


@each("exits", ["linear", "cumulative", "ladder"])
def test_same_seed_same_weights_other_seed_others(exits: ExitKind) -> None:
    settings = replace(QUICK, exits=exits)
    first, second = weights_of(fit(settings)), weights_of(fit(settings))
    assert all(torch.equal(first[key], second[key]) for key in first)
    other = weights_of(fit(replace(settings, seed=4)))
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_the_callers_random_numbers_are_left_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    fit(QUICK)
    assert torch.equal(torch.rand(3), expected)


@each("exits", ["linear", "ladder"])
@each("stop_after", [1, 2, 3])
def test_a_fit_that_was_interrupted_goes_on_as_if_it_was_not(tmp_path: Path, exits: ExitKind, stop_after: int) -> None:
    settings = replace(QUICK, exits=exits, warmup_epochs=2, epochs=2, distillation=0.5)
    whole = weights_of(fit(settings))

    def interrupt(record: EpochRecord) -> None:
        if record.epoch == stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(settings, checkpoint=tmp_path / "fit.safetensors", on_epoch=interrupt)
    seen: list[int] = []
    resumed = weights_of(
        fit(settings, checkpoint=tmp_path / "fit.safetensors", on_epoch=lambda record: seen.append(record.epoch))
    )
    assert seen == list(range(stop_after + 1, 5))
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)


def test_a_finished_checkpoint_gives_the_same_exits_without_training(tmp_path: Path) -> None:
    first = weights_of(fit(QUICK, checkpoint=tmp_path / "fit.safetensors"))
    again = weights_of(
        fit(QUICK, checkpoint=tmp_path / "fit.safetensors", on_epoch=lambda record: pytest.fail("trained again"))
    )
    assert all(torch.equal(first[key], again[key]) for key in first)


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    fit(QUICK, checkpoint=tmp_path / "fit.safetensors")
    with pytest.raises(StoreError, match="data"):
        fit_joint(
            noisy_clusters(100),
            noisy_clusters(90),
            COSTS,
            QUICK,
            checkpoint=tmp_path / "fit.safetensors",
            dtype=torch.float64,
        )


def test_a_ladder_fitted_on_one_row_keeps_its_features() -> None:
    one = noisy_clusters(1)
    fitted = fit_joint(one, noisy_clusters(30, seed=1), COSTS, replace(QUICK, exits="ladder"), dtype=torch.float64)
    assert (fitted.exits.state_dict()["scale"] > 0).all()


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    fit(QUICK, checkpoint=tmp_path / "fit.safetensors")
    with pytest.raises(StoreError, match="learning_rate"):
        fit(replace(QUICK, learning_rate=0.5), checkpoint=tmp_path / "fit.safetensors")


@each("content", [b"", b"not a checkpoint", b"\x10\0\0\0\0\0\0\0{}"])
def test_a_broken_checkpoint_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fit.safetensors"
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"fit\.safetensors"):
        fit(QUICK, checkpoint=path)


@each("exits", ["linear", "cumulative", "ladder"])
def test_exits_learn_and_dearer_compute_leaves_earlier(exits: ExitKind) -> None:
    settings = replace(
        QUICK, exits=exits, warmup_epochs=10, epochs=10, cost_weights=(0.01, 10.0), scale_rates_by_depth=False
    )
    fitted = fit(settings)
    test = noisy_clusters(300, seed=5)
    batch = next(test.in_order(batch_size=300))
    with torch.no_grad():
        answers = all_logits(fitted.exits, batch.features, batch.own_logits)
    accuracy = (answers.argmax(-1) == batch.labels[:, None]).double().mean(1)[0]
    assert accuracy[0] > 0.5  # chance is a third
    assert accuracy[1] > accuracy[0]
    assert fitted.trained_gates.bias[1].mean() > fitted.trained_gates.bias[0].mean()


def test_early_stopping_keeps_the_best_epoch_of_each_cost_weight() -> None:
    records: list[EpochRecord] = []
    fitted = fit(replace(QUICK, epochs=30, patience=2, learning_rate=0.3), on_epoch=records.append)
    assert len(records) < 31  # stopped
    judged = torch.tensor([record.tune_priced_loss for record in records if record.phase == "joint"])
    assert (judged.argmin(0) < len(judged) - 1).any()  # the last epoch was not the best, so keeping it would show
    batch = next(noisy_clusters(90, seed=1).in_order(batch_size=90))
    prices = torch.tensor(QUICK.cost_weights, dtype=torch.float64)
    relative = price(COSTS, fitted.exits, decision=9 * 3 + 6).tables[0].relative_costs()
    with torch.no_grad():
        log_p = log_probabilities(all_logits(fitted.exits, batch.features, batch.own_logits))
        scores = Gates.scores(fitted.trained_gates(evidence(log_p[..., :-1, :])))
        paid = priced_losses(cross_entropies(log_p, batch.labels), relative, prices)
    kept = paid.gather(-1, first_exit(should_leave(scores))[..., None]).mean((1, 2))
    assert torch.allclose(kept, judged.min(0).values.double(), atol=1e-6)


def test_samples_of_many_sizes_are_priced_at_their_mean() -> None:
    source = noisy_clusters()
    batch = next(source.in_order(batch_size=200))
    sizes = 1.0 + torch.arange(200) % 4
    sized = MemorySource(batch.features, batch.own_logits, batch.labels, WIDTHS, sizes=sizes)

    def row(*numbers: float) -> Tensor:
        return torch.tensor([numbers], dtype=torch.float64)

    zero = row(0, 0, 0)
    growing = BackboneMulAdds(
        stage=torch.cat([row(10, 10, 10), row(1, 2, 3), row(0, 0, 4)]),
        pooling=torch.cat([row(1, 1, 1), row(5, 6, 7), zero]),
        head=torch.cat([row(0, 0, 9), zero, zero]),
        full=torch.tensor([39.0, 6.0, 4.0], dtype=torch.float64),
    )
    mean, square = 2.5, 7.5  # of 1, 2, 3, 4
    constant = BackboneMulAdds(
        stage=row(10 + mean, 10 + 2 * mean, 10 + 3 * mean + 4 * square),
        pooling=row(1 + 5 * mean, 1 + 6 * mean, 1 + 7 * mean),
        head=row(0, 0, 9),
        full=torch.tensor([39 + 6 * mean + 4 * square], dtype=torch.float64),
    )
    tune = noisy_clusters(90, seed=1)
    found = fit_joint(sized, tune, growing, QUICK, dtype=torch.float64)
    expected = fit_joint(source, tune, constant, QUICK, dtype=torch.float64)
    for key, value in weights_of(expected).items():
        torch.testing.assert_close(weights_of(found)[key], value)
    other = fit_joint(source, tune, growing, QUICK, dtype=torch.float64)  # all of size 1
    assert not torch.allclose(other.trained_gates.bias, found.trained_gates.bias, atol=1e-6)


@each("samples", [1, 10, 300])
def test_the_papers_settings_train_both_sides_of_few_samples(samples: int) -> None:
    # 300 samples are two batches per epoch: a switch after 50 batches would never reach the classifiers.
    fit_split, tune = noisy_clusters(samples), noisy_clusters(90, seed=1)

    def train(classifier_loss: ClassifierTraining, epochs: int) -> FittedExits:
        settings = replace(PAPER, classifier_loss=classifier_loss, epochs=epochs, patience=epochs + 1)
        return fit_joint(fit_split, tune, COSTS, settings, dtype=torch.float64)

    untouched, trained = train("fixed", 10), train("weighted", 10)
    assert untouched.trained_gates.weight.abs().max() > 1e-3
    for stage in ("0", "1"):
        before, after = (fitted.exits.state_dict()[f"weights.{stage}"] for fitted in (untouched, trained))
        assert not torch.allclose(after, before.expand_as(after), atol=1e-3)


def test_fixed_classifiers_do_not_move_after_warm_up() -> None:
    fixed = fit(replace(QUICK, classifier_loss="fixed", epochs=3)).exits.state_dict()
    warmed = fit(replace(QUICK, classifier_loss="fixed", epochs=0)).exits.state_dict()
    assert all(torch.equal(fixed[key], warmed[key]) for key in warmed)


def test_classifiers_alone_are_a_warm_up_as_long_as_the_fit() -> None:
    settings = replace(QUICK, warmup_epochs=2, epochs=3, classifier_loss="fixed")
    fit_split, tune = noisy_clusters(dtype=torch.float32), noisy_clusters(90, seed=1, dtype=torch.float32)
    found = fit_classifiers(fit_split, tune, COSTS, settings)
    expected = fit_joint(fit_split, tune, COSTS, replace(settings, warmup_epochs=5, epochs=0))
    for key, value in expected.exits.state_dict().items():
        assert torch.equal(found.exits.state_dict()[key], value)
    assert found.gates is None
    assert found.exits.stacked == 1
    with pytest.raises(InputError, match="choose the policy 'threshold'"):
        _ = found.trained_gates


def test_two_classes_one_early_exit_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 2
    features = torch.randn(64, 6, generator=generator) + labels[:, None]
    source = MemorySource(features, {1: torch.randn(64, 2, generator=generator)}, labels, (4, 2))
    ones = torch.ones(1, 2, dtype=torch.float64)
    costs = BackboneMulAdds(ones, ones, ones, full=torch.tensor([3.0], dtype=torch.float64))
    fitted = fit_joint(source, source, costs, QUICK)
    assert fitted.trained_gates.weight.shape == (3, 1, 4)
    assert all(value.isfinite().all() for value in weights_of(fitted).values())


def test_a_class_never_seen_in_fit_is_no_trouble() -> None:
    fit_split, tune = noisy_clusters(), noisy_clusters(90, seed=1)
    source = MemorySource(
        torch.cat([batch.features for batch in fit_split.in_order(batch_size=200)]),
        {2: torch.zeros(200, 4, dtype=torch.float64)},
        torch.arange(200) % 3,
        WIDTHS,
    )
    wider = MemorySource(
        torch.cat([batch.features for batch in tune.in_order(batch_size=90)]),
        {2: torch.zeros(90, 4, dtype=torch.float64)},
        torch.arange(90) % 4,
        WIDTHS,
    )
    fitted = fit_joint(source, wider, COSTS, QUICK, dtype=torch.float64)
    assert all(value.isfinite().all() for value in weights_of(fitted).values())


def test_features_that_are_not_numbers_are_refused() -> None:
    source = noisy_clusters()
    bad = MemorySource(
        torch.full((20, sum(WIDTHS)), torch.nan, dtype=torch.float64),
        {2: torch.zeros(20, 3, dtype=torch.float64)},
        torch.zeros(20, dtype=torch.long),
        WIDTHS,
    )
    with pytest.raises(InputError, match="nan"):
        fit_joint(bad, source, COSTS, QUICK, dtype=torch.float64)


def test_an_empty_split_is_refused() -> None:
    empty = MemorySource(torch.zeros(0, sum(WIDTHS)), {2: torch.zeros(0, 3)}, torch.zeros(0, dtype=torch.long), WIDTHS)
    with pytest.raises(InputError, match="tune"):
        fit_joint(noisy_clusters(), empty, COSTS, QUICK)


@each("change", [{"cost_weights": ()}, {"cost_weights": (-1.0,)}, {"batch_size": 0}, {"epochs": -1}])
def test_settings_that_make_no_sense_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        replace(QUICK, **change)  # type: ignore[arg-type]


@each("change", [{"exits": "ladr"}, {"classifier_loss": "wieghted"}, {"gate_target": "exit_if"}])
def test_settings_that_do_not_exist_suggest_those_that_do(change: dict[str, object]) -> None:
    with pytest.raises(UnknownNameError, match="did you mean"):
        replace(QUICK, **change)  # type: ignore[arg-type]


def test_watching_the_exits_changes_nothing() -> None:
    settings = replace(QUICK, epochs=2)
    watched: list[Tensor] = []
    seen = fit(settings, on_exits=lambda fitted: watched.append(fitted.trained_gates.weight.detach().clone()))
    assert len(watched) == settings.warmup_epochs + settings.epochs
    assert torch.equal(watched[0][0], watched[0][1])  # gates are not trained during warm-up
    assert not torch.equal(watched[1], watched[2])
    expected = weights_of(fit(settings))
    assert all(torch.equal(value, expected[name]) for name, value in weights_of(seen).items())
