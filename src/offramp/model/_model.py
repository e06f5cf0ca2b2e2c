"""The early-exit model: a frozen network with exits, all its operating points, and the current one."""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from offramp.backbone import Factory
from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.cost import Costs
from offramp.cost._unit import CostUnit
from offramp.data._labelled import LabelledData
from offramp.errors import InputError, OfframpWarning
from offramp.exits import ExitSet
from offramp.features import BatchSource
from offramp.features._ids import IdSketch
from offramp.model._answer import NOT_FINITE, Answer
from offramp.model._backends import refuse_tuned, with_backend
from offramp.model._choose import Request, choose_point
from offramp.model._evaluation import Evaluation, evaluate
from offramp.model._frontier import Contribution, Frontier
from offramp.model._hub import push
from offramp.model._marking import OnError, predict_marking, refuse_errors
from offramp.model._outcomes import Outcomes, compute_outcomes
from offramp.model._predictor import Predictor, SavedArtifact, make_predictor, mark_saved
from offramp.model._recalibrate import recalibrate
from offramp.model._saving import save
from offramp.model._times import with_latency
from offramp.policy import OperatingPoint
from offramp.pooling import Pooling
from offramp.preprocessing import Preprocessing
from offramp.runtime import BACKENDS, Backend, BudgetController, Dial, LatencyTable
from offramp.runtime._batch import Compaction
from offramp.runtime._budget import WINDOW
from offramp.runtime._dense import run_dense
from offramp.runtime._dial import same_decisions
from offramp.runtime._engine import Engine
from offramp.runtime._view import BackendView
from offramp.uncertainty import prediction_set
from offramp.uncertainty._conformal import ConformalVariant
from offramp.uncertainty._risk import RiskBound

__all__ = ["EarlyExitModel"]


@dataclass(frozen=True, repr=False)
class EarlyExitModel:
    """A frozen network with trained exits, its operating points from cheap to accurate, and the current point.

    `offramp.fit` makes one, `offramp.load` reads one. Samples that have left are not computed any further: each stage
    runs on those that remain.

    Example:
        >>> import offramp
        >>> from offramp.backbone import CifarResNet
        >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
        >>> quick = offramp.JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
        >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
        >>> model = offramp.fit(CifarResNet(8), *data, settings=quick, anyway=True, progress=False)
        >>> fast = model.at(cost=1.1)
        >>> fast.predict(images).labels.shape, fast.predict_many(images.split(16)).labels.shape
        (torch.Size([60]), torch.Size([60]))
        >>> controller = fast.controller(0.8)  # keep an average budget on a stream
        >>> for batch in images.split(20):
        ...     answer = fast.predict(batch, budget=controller.next_budget)
        ...     controller.record(answer.relative_cost)
        >>> controller.count
        60
        >>> fast.on("bfloat16").predict(images).labels.shape
        torch.Size([60])
    """

    backbone: Backbone
    """The frozen network."""
    preprocessing: Preprocessing
    """Conversion of raw inputs into what the backbone takes."""
    pooling: Pooling
    """Conversion of a hidden state into the features an exit sees."""
    exits: ExitSet
    """The trained exits."""
    costs: Mapping[str, Costs]
    """Costs per policy, in `unit`."""
    points: Mapping[str, Sequence[OperatingPoint]]
    """Operating points per policy, ascending in cost on the tune split; the first policy decides by default."""
    temperatures: Tensor
    """`W x L` temperatures of the exits."""
    full_accuracy: float
    """Accuracy of the full network on the tune split."""
    contributions: Sequence[Contribution] = ()
    """Gain on the tune split of each cascade member, then of each early exit."""
    classes: tuple[str, ...] = ()
    """Class names in the order of the network's outputs; empty if unknown."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Versions, settings and sizes of the splits the model was fitted with."""
    splits: Mapping[str, IdSketch] = field(default_factory=dict)
    """Hashed ids of the samples of "fit", "tune", "calibrate" and, if there is one, "recalibrate"."""
    unit: CostUnit = CostUnit()
    """Unit of the costs: Mul-Adds, milliseconds, or money."""
    embedded: bool = False
    """True if the artifact it was loaded from holds the network's weights: saving writes them again."""
    request: Request = field(default_factory=Request)
    """Conditions that `at` was given; the default point if there are none."""
    chosen: OperatingPoint | None = None
    """The point that meets the request; found on first use if left out."""
    backend: Backend | None = None
    """Computation of stages and exits; plain torch if left out."""
    compaction: Compaction | None = None
    """Rule for removing finished samples from a batch; at once if left out."""
    tuned_on: BackendView | None = None
    """The network as its backend computes it, if temperatures and points were tuned on that: `with_backend`."""
    saved: SavedArtifact | None = field(default=None, init=False, repr=False, compare=False)
    """The artifact that holds this model, from `save` or `load`; None for a changed copy: `replace` leaves it out."""

    def __repr__(self) -> str:
        points = ", ".join(f"{len(points)} points by {policy}" for policy, points in self.points.items())
        cost = None if self.chosen is None else self.chosen.tune_metrics.get("cost")
        at = "" if cost is None else f", at relative cost {cost:.3g}"
        return f"EarlyExitModel({self.backbone.name}, {self.backbone.num_exits} exits, {points}{at})"

    def _repr_html_(self) -> str:
        return f"<p><code>{escape(repr(self))}</code></p>{self.frontier._repr_html_()}"

    @property
    def policy(self) -> str:
        """Name of the policy that decides: the requested one, else the first that `fit` was given."""
        return self.request.policy or next(iter(self.points))

    @cached_property
    def point(self) -> OperatingPoint:
        """The current operating point; warns if it is the default and nothing can be guaranteed."""
        if self.chosen is not None:
            return self.chosen
        try:
            tune_samples = int(self.provenance["splits"]["tune"]["samples"])
        except (KeyError, TypeError, ValueError):  # made by hand, or from a file that says something else
            tune_samples = None
        choice = choose_point(
            self.points,
            self.request,
            full_accuracy=self.full_accuracy,
            full_ms=self.unit.full_ms,
            tune_samples=tune_samples,
        )
        if choice.caution:
            warnings.warn(choice.caution, OfframpWarning, stacklevel=3)
        if choice.point.guarantee is None or self._computes_as_calibrated:
            return choice.point
        warnings.warn(
            "nothing is guaranteed: the network was calibrated in its own precision, and its backend is less precise; "
            "model.with_backend(...) calibrates on a backend",
            OfframpWarning,
            stacklevel=3,
        )
        return replace(choice.point, guarantee=None)

    @property
    def _computes_as_calibrated(self) -> bool:
        """True if guarantees hold for the numbers that the backend computes."""
        return self.backend is None or self.tuned_on is not None or getattr(self.backend, "exact", False)

    @cached_property
    def frontier(self) -> Frontier:
        """Table of the operating points of `policy`, measured on the tune split."""
        return Frontier(
            network=self.backbone.name,
            num_exits=self.backbone.num_exits,
            policy=self.policy,
            points=tuple(self.points[self.policy]),
            full_accuracy=self.full_accuracy,
            unit=self.unit,
            contributions=tuple(self.contributions),
        )

    def at(
        self,
        *,
        cost: float | None = None,
        accuracy: float | None = None,
        latency_ms: float | None = None,
        max_drop: float | None = None,
        confidence: float | None = None,
        loss: str | None = None,
        bound: RiskBound | None = None,
        policy: str | None = None,
    ) -> "EarlyExitModel":
        """Return the same model at the operating point that meets a request.

        `max_drop` is guaranteed; other requests are met on the tune split. Without any: `max_drop=0.01` at 95 %
        confidence if the calibrate split allows it; else the cheapest point that is not below the full network on the
        tune split, with a warning.

        Args:
            cost: Spend at most this share of the full network's cost: the most accurate point that costs no more.
                `predict(budget=...)` of any model of the same policy and classifiers picks the same point.
            accuracy: Reach this accuracy: the cheapest point that does.
            latency_ms: Take at most this many milliseconds per sample on average; needs `with_latency`.
            max_drop: Lose at most this against the full network, on average over new samples like those of the
                calibrate split: the cheapest point for which that can be guaranteed; docs/how-to/guarantees.md.
            confidence: Confidence of the guarantee; 0.95 if left out.
            loss: Loss that is bounded: "accuracy" (the default); "disagreement", the share of answers that change,
                which needs no labels and is no less; "brier", the Brier score.
            bound: Test behind the guarantee: "ltt", Learn then Test (the default), or "wsr", the bound of
                Waudby-Smith and Ramdas.
            policy: Policy that decides; the first that `fit` was given if left out.

        Raises:
            BudgetError: If no point meets the request; if there are too few samples for a guarantee, with how many
                would do.

        Warns:
            OfframpWarning: If nothing is requested and nothing can be guaranteed.
        """
        request = Request(cost, accuracy, latency_ms, max_drop, confidence, loss, bound, policy)
        model = replace(self, request=request, chosen=None)
        return mark_saved(replace(model, chosen=model.point), self.saved)

    @torch.inference_mode()
    def predict(
        self,
        inputs: Any,
        *,
        budget: float | Sequence[float] | Tensor | None = None,
        generator: torch.Generator | None = None,
        on_error: OnError = "raise",
    ) -> Answer:
        """Classify a batch of raw inputs.

        Args:
            inputs: N inputs as the preprocessing takes them: arrays or tensors, a list of images, a list of texts, or
                the output of a tokenizer. For one input, add the batch axis: `inputs[None]`, `[text]`.
            budget: Spend at most this share of the full network's cost, or `N` shares, one per sample: each sample is
                at the most accurate point of the `dial` within its budget. At `point` if left out.
            generator: Random numbers for a policy that samples; torch's own if left out.
            on_error: "raise" refuses the batch if one of its inputs is bad. "mark" answers the others, gives a bad
                input the label -1 and puts its message into `Answer.errors`.

        Raises:
            BudgetError: If a budget is lower than the cost of the cheapest point.
            InputError: If the network cannot take the inputs, such as a single one without a batch axis.
        """
        if on_error == "mark":
            return predict_marking(self, inputs, budget, generator)
        if on_error != "raise":
            raise InputError("on_error", expected="raise or mark", got=on_error)
        hidden, sizes = self.prepare(inputs)
        rows = self.pick_rows(budget, len(sizes))
        return refuse_errors(self.answer(*self.engine.run(hidden, point=rows, generator=generator), sizes, rows))

    def predict_many(
        self, batches: Iterable[Any], *, budget: float | None = None, generator: torch.Generator | None = None
    ) -> Answer:
        """Classify many batches together: a higher throughput than `predict`, but all answers come at the end.

        Samples that have not left are merged with those of the next batch, so that the late stages run full batches
        too, as large as the first one given. Inputs that differ in size, such as texts, are sorted by it. Memory does
        not grow with the batches, except for the answers and, where they are sorted, the inputs.

        Args:
            batches: Raw inputs, one batch at a time, each as `predict` takes them.
            budget: As for `predict`; one for all.
            generator: As for `predict`.

        Returns:
            The answers of all batches, in their order: those of `predict`, up to rounding.
        """
        return refuse_errors(self.answer_many(batches, budget=budget, generator=generator))

    @torch.inference_mode()
    def answer_many(
        self, batches: Iterable[Any], *, budget: float | None = None, generator: torch.Generator | None = None
    ) -> Answer:
        """Classify many batches as `predict_many` does, but mark inputs without a finite answer, not refuse them.

        Args:
            batches: As for `predict_many`.
            budget: As for `predict_many`.
            generator: As for `predict`.
        """
        sizes = [torch.empty(0)]

        def prepare_all() -> Iterator[Hidden]:
            for inputs in batches:
                hidden, batch_sizes = self.prepare(inputs)
                sizes.append(batch_sizes)
                yield hidden

        row = self.pick_rows(budget, 1)
        point = 0 if row is None else int(row)
        probabilities, exits = run_dense(self.engine, prepare_all(), point=point, generator=generator)
        all_sizes = torch.cat(sizes)
        rows = None if row is None else row.expand(len(all_sizes))
        return self.answer(probabilities, exits, all_sizes, rows)

    def evaluate(
        self,
        data: "LabelledData | BatchSource",
        *,
        points: Sequence[OperatingPoint] | None = None,
        store: str | Path | None = None,
        seed: int = 0,
        anyway: bool = False,
        progress: bool = True,
    ) -> Evaluation:
        """Measure operating points on samples that nothing was fitted on, with 95 % intervals.

        Args:
            data: Labelled samples as `fit` takes them, or their cached features.
            points: Points of any policy; the current point if left out.
            store: Folder for the cached features, so that an interrupted run continues; a temporary one if left out.
            seed: Seed of the bootstrap.
            anyway: Continue with a warning where the full network is no better than guessing.
            progress: Show a progress bar.

        Raises:
            GuessingError: If the full network is no better than the most frequent class, at 95 %, one-sided.
            SplitError: If more than 1 % of the samples were used to fit the model; fewer are left out with an
                `OverlapWarning`.
        """
        points = (self.point,) if points is None else points
        return evaluate(self, data, points, store=store, seed=seed, anyway=anyway, progress=progress)

    def recalibrate(
        self,
        data: Any,
        *,
        labelled: bool = False,
        conformal: ConformalVariant = "pooled",
        store: str | Path | None = None,
        progress: bool = True,
    ) -> "EarlyExitModel":
        """Return the same points, calibrated on other samples: those that the model meets in production.

        The full network runs over the samples once, and agreement with it can be guaranteed; no labels are needed. With
        labels, accuracy can be guaranteed too, and prediction sets are calibrated anew; without, they stay as they are.
        Points, temperatures and the order in which points are tested stay in any case.

        Args:
            data: Samples that nothing was fitted on: raw inputs as `predict` takes them, a source of them, or their
                cached features; with `labelled`, labelled samples as `fit` takes them, or their cached features.
            labelled: True if the labels are true: accuracy and Brier score can then be guaranteed too, and prediction
                sets are calibrated on these samples.
            conformal: With labels, how prediction sets are calibrated; docs/reference/prediction-sets.md.
            store: Folder for the cached features, so that an interrupted run continues; a temporary one if left out.
            progress: Show a progress bar.

        Returns:
            The model at its default point; call `at(max_drop=..., loss="disagreement")`, then `save`.

        Raises:
            SplitError: If the exits were fitted or tuned on more than 1 % of these samples; fewer are left out with an
                `OverlapWarning`.
        """
        return recalibrate(self, data, labelled=labelled, conformal=conformal, store=store, progress=progress)

    def with_latency(self, table: LatencyTable, *, batch_size: int = 1) -> "EarlyExitModel":
        """Return the model with measured times instead of Mul-Adds as costs, at its default point.

        Args:
            table: Times of this network and its exits: `offramp.runtime.measure_latency`.
            batch_size: Samples per batch; at 1, a point's time is the time of one sample.
        """
        return with_latency(self, table, batch_size=batch_size)

    def save(self, path: str | Path, *, factory: Factory | None = None, weights: bool | None = None) -> None:
        """Write the model into a folder: exits, temperatures, thresholds, costs, all points and the current request.

        Args:
            path: The folder.
            factory: Function that makes the backbone, as `offramp.load` will look it up:
                `Factory("package.module:function", options)`; a registered backbone knows its own.
            weights: True embeds the network's weights. Default: True for networks of timm, torchvision and
                transformers, and if the model was loaded from an artifact that embeds them; else False.
        """
        mark_saved(self, SavedArtifact.at(path, save(self, path, factory=factory, weights=weights)))

    def push_to_hub(
        self,
        repository: str,
        *,
        revision: str | None = None,
        private: bool | None = None,
        license: str | None = None,
        card: bool = True,
        factory: Factory | None = None,
        weights: bool | None = None,
    ) -> str:
        """Upload the model to a repository of the Hugging Face Hub, with a page that describes it (extra `hub`).

        The token is that of `hf auth login` or HF_TOKEN. All files are in one commit, which also removes those of an
        artifact that was there before. The page has a picture of the frontier, its points, the guarantee, limits, and
        how to run the model. Class names and hashed ids of some samples are published too: docs/reference/artifact.md.

        Args:
            repository: `owner/name`; made if it is not there.
            revision: The branch to write to; made if it is not there. The branch main if left out.
            private: True makes a new repository private; the default of the owner if left out.
            license: Licence of the model, as the Hub calls it, such as "apache-2.0".
            card: False leaves README.md and the picture of the repository as they are.
            factory: As for `save`.
            weights: True embeds the network's weights. Default: True if the network has a factory, else False, and
                `load` then needs `backbone=`.

        Returns:
            The address of the commit for `offramp.load`, `hf://owner/name@commit`.

        Raises:
            ArtifactError: If there is no token, it has no access, or the Hub cannot be reached.
            MissingExtraError: If huggingface_hub is not installed.
        """
        return push(
            self,
            repository,
            revision=revision,
            private=private,
            licence=license,
            card=card,
            factory=factory,
            weights=weights,
        )

    def predictor(
        self,
        *,
        column: str | Sequence[str] | None = None,
        keep: Sequence[str] = (),
        budget: float | None = None,
        miscoverage: float = 0.05,
        probabilities: bool = False,
        batch_size: int = 64,
        backend: str | None = None,
        device: str | None = None,
        threads: int | None = None,
        artifact: str | Path | None = None,
        trust: Collection[str] = (),
    ) -> Predictor:
        """Return a function from columns of inputs to columns of answers, for Ray Data, Spark or a pool of processes.

        It is small and can be pickled, as it holds the place of the artifact and not the model; `Predictor` describes
        its columns, docs/how-to/scale.md how to use it.

        Args:
            column: Column of the inputs, or several for a network that takes a mapping, such as `("input_ids",
                "attention_mask")`; the only one if left out.
            keep: Columns to hand through, such as an id: engines may change the order of batches.
            budget: As for `predict`, one for all; the model's point if left out.
            miscoverage: Miscoverage of the prediction sets; models without sets have no such column.
            probabilities: Add the column `probabilities`.
            batch_size: Samples that a stage runs at a time. Give batches of many times as many: samples that have not
                left wait at their stage until as many are together again.
            backend: A name in `offramp.runtime.BACKENDS`; by default the one that the points were tuned on.
            device: Device of the network, such as "cuda"; the CPU if left out.
            threads: Number of torch threads per process; torch's own choice if left out.
            artifact: Folder or address (`s3://bucket/my-offramp`, `hf://owner/name`) where processes find a copy of the
                artifact, if they do not see the folder it was saved to.
            trust: As for `offramp.load`.

        Raises:
            ArtifactError: If the model was not saved, or changed since.
            BudgetError: If the budget is lower than the cost of the cheapest point.
        """
        return make_predictor(
            self,
            column=column,
            keep=keep,
            budget=budget,
            miscoverage=miscoverage,
            probabilities=probabilities,
            batch_size=batch_size,
            backend=backend,
            device=device,
            threads=threads,
            artifact=artifact,
            trust=trust,
        )

    def with_backend(
        self,
        backend: str,
        validation: "LabelledData",
        *,
        conformal: ConformalVariant = "pooled",
        store: str | Path | None = None,
        anyway: bool = False,
        progress: bool = True,
    ) -> "EarlyExitModel":
        """Return the model on another backend, with temperatures, points and guarantees tuned on its numbers.

        Points that were chosen in float32 lose accuracy in eight bits, those of texts most. The exits stay as they are;
        the network runs once over the validation samples, on the backend, and these are halved as in `fit`. `save`
        saves the backend, too.

        Args:
            backend: One of `offramp.runtime.BACKENDS`: "int8", "bfloat16", "onnx" or "eager". "int8" takes the ranges
                of activations from 256 of the samples that it tunes on.
            validation: Samples that neither the network nor the exits were trained on, as for `fit`. Those that the
                model was tuned on are tuned on again, and do not calibrate.
            conformal: As for `recalibrate`.
            store: Folder for the cached features; a temporary one if left out.
            anyway: Continue with a warning where the full network is no better than guessing.
            progress: Show progress bars.

        Returns:
            The model at its default point, with points of "threshold" and "stopping" as far as it had them: gates would
            have to be trained again. `evaluate` and `recalibrate` of it run on the backend.
        """
        return with_backend(
            self, backend, validation, conformal=conformal, store=store, anyway=anyway, progress=progress
        )

    def controller(self, budget: float, *, window: int = WINDOW) -> BudgetController:
        """Return a controller that keeps an average budget on a stream of batches, whatever the inputs.

        For each batch, predict with `budget=controller.next_budget`, then record `answer.relative_cost`.

        Args:
            budget: Cost per sample on average, as a share of the full network's cost.
            window: Number of samples over which an excess is paid back. A larger window gives better answers on streams
                with hard and easy phases, but the average may be off the budget for longer.

        Raises:
            BudgetError: If the budget is lower than the cost of the cheapest point.
        """
        return BudgetController(budget, costs=self.dial.costs, window=window)

    def on(
        self, backend: str | Backend, *, example: Any = None, latency: LatencyTable | None = None
    ) -> "EarlyExitModel":
        """Return the same model on another backend.

        Args:
            backend: One of `offramp.runtime.BACKENDS` ("eager", "bfloat16", "onnx"), or a backend made for this
                model's backbone, pooling and exits. For "int8" see `with_backend`; a model that it returned takes only
                the name of its own backend.
            example: Raw inputs, at least one, for a backend that is compiled with them: "onnx" needs them.
            latency: Times measured on this machine. Finished samples are then removed from a batch only where the next
                stage gains more time than the removal takes; by default at once.

        Returns:
            A model with the same answers, up to rounding. Where rounding is coarser than in calibration (bfloat16,
            eight bits, a backend without a true attribute `exact`) its point has no guarantee: `with_backend` tunes
            and calibrates on the backend.
        """
        self.backbone.eval()  # as for `predict`: the backend may hold a copy
        compaction = self.compaction if latency is None else Compaction(latency)
        if self.tuned_on is not None and backend == self.tuned_on.kind:
            return replace(self, chosen=self.point, compaction=compaction)
        refuse_tuned(self, hint="leave the backend out, or use the model as it was before with_backend")
        if backend == "int8":
            raise InputError(
                "backend",
                expected="eager, bfloat16 or onnx",
                got="int8, in which points chosen in float32 lose accuracy",
                hint="choose them in int8: model.with_backend('int8', validation), or offramp recalibrate --backend",
            )
        if isinstance(backend, str):
            make, prepared = BACKENDS.get(backend), None
            if example is not None:
                prepared = self.backbone.prepare(self.preprocessing(example))
            backend = make(self.backbone, self.pooling, self.exits_in_force, prepared)
        if getattr(backend, "precision", "") == "int8" and self.backbone.varies_in_size:
            raise InputError(
                "backend",
                expected=f"float32 for '{self.backbone.name}', whose samples differ in length",
                got="int8, in which points of texts chosen in float32 lose up to 3.5 points of accuracy",
                hint="choose them in int8: model.with_backend('int8', validation)",
            )
        point = self.point
        if point.guarantee is not None and not getattr(backend, "exact", False):
            point = replace(point, guarantee=None)
        return replace(self, chosen=point, backend=backend, compaction=compaction)

    @property
    def feature_backbone(self) -> Backbone:
        """The network that features are extracted with: as its backend computes it, if the points were tuned on it."""
        return self.backbone if self.tuned_on is None else self.tuned_on

    @cached_property
    def exits_in_force(self) -> ExitSet:
        """The set of classifiers that the current point uses."""
        return self.exits.take(self.point.classifier)

    @cached_property
    def dial_points(self) -> tuple[OperatingPoint, ...]:
        """Points that budgets pick from: those of the same policy and classifiers, without dominated ones."""
        # A model that held all classifiers would compute all of them. At the cost that the point was chosen for this is
        # the same, as the best of all points is the best of its own.
        return Dial(self._alike).front if self._alike else ()

    @property
    def _alike(self) -> list[OperatingPoint]:
        """Points of the current policy and classifiers."""
        candidates = self.points.get(self.point.policy, ())
        return [point for point in candidates if point.classifier == self.point.classifier]

    @cached_property
    def dial(self) -> Dial:
        """The rule by which budgets pick a point."""
        return Dial(self.engine.points.points)

    @cached_property
    def engine(self) -> Engine:
        """The engine that runs the stages, with the current point first and all that use the same classifiers."""
        alike = [point for point in self._alike if not same_decisions(point, self.point)]
        points = [self.point, *alike]
        backend, compaction = self.backend, self.compaction
        return Engine(self.backbone, self.pooling, self.exits_in_force, points, backend=backend, compaction=compaction)

    def outcomes_at(
        self, points: Sequence[OperatingPoint], source: BatchSource
    ) -> tuple[list[OperatingPoint], Outcomes]:
        """Compute the answers of the exits that these points use.

        Args:
            points: Points of any policy.
            source: Cached features of the samples.

        Returns:
            The points, each with the place of its classifiers in the outcomes; and the outcomes.
        """
        fingerprint = getattr(source, "backbone_fingerprint", None)
        if fingerprint is not None and fingerprint != self.feature_backbone.fingerprint():
            raise InputError(
                expected=f"features of this model's network '{self.backbone.name}'",
                got="features of another network",
                hint="extract them with model.feature_backbone, which may have fewer members than the cascade that was "
                "fitted",
            )
        # Only the classifiers that the points ask: of sixteen sets, a threshold uses one.
        used = sorted({point.classifier for point in points})
        probabilities = any("probabilities" in point.rule.reads for point in points)
        answers = compute_outcomes(self.exits.take(*used), source, self.temperatures[used], probabilities=probabilities)
        return [replace(point, classifier=used.index(point.classifier)) for point in points], answers

    @cached_property
    def _modules(self) -> tuple[nn.Module, ...]:
        # Looked up once: walking all modules takes as long as a stage does at batch 1.
        return tuple(self.backbone.modules())

    def prepare(self, inputs: Any) -> tuple[Hidden, Tensor]:
        """Return raw inputs as the backbone takes them, and their `N` sizes.

        Args:
            inputs: N inputs, as for `predict`.
        """
        if any(map(attrgetter("training"), self._modules)):
            self.backbone.eval()  # the user has put the network into training mode since
        prepared = self.preprocessing(inputs)
        with self.backbone.explain_errors(prepared):
            hidden = self.backbone.prepare(prepared)
            return hidden, self.backbone.sizes(hidden).cpu()

    def pick_rows(self, budget: float | Sequence[float] | Tensor | None, count: int) -> Tensor | None:
        """Return the rows of the engine's points that budgets pick; None, all at the first, without a budget.

        Args:
            budget: As for `predict`.
            count: N, the number of samples.
        """
        if budget is None:
            return None
        try:
            budgets = torch.as_tensor(budget, dtype=torch.float64).cpu()
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(expected="a budget as a number or numbers, such as 0.6", got=repr(budget)) from error
        if budgets.shape not in ((), (count,)):
            raise InputError(
                expected=f"one budget, or {count}, one per sample", got=f"budgets of shape {tuple(budgets.shape)}"
            )
        return self.dial.pick_rows(budgets.reshape(-1)).expand(count)

    def answer(self, probabilities: Tensor, exits: Tensor, sizes: Tensor, rows: Tensor | None) -> Answer:
        """Return the answers of samples that have left, with their costs and prediction sets.

        A sample without finite probabilities has the label -1 and an entry in `Answer.errors`.

        Args:
            probabilities: `n x K`, as the engine returns them.
            exits: `n` exits.
            sizes: `n` sizes of the samples.
            rows: `n` rows of the engine's points; None if all were at the first.
        """
        # On the device of costs and thresholds, wherever the backbone is.
        probabilities, exits = probabilities.cpu(), exits.cpu()
        labels, errors = probabilities.argmax(1), {}
        if not bool(probabilities.isfinite().all()):
            unanswered = ~probabilities.isfinite().all(1)
            labels = labels.masked_fill(unanswered, -1)
            errors = dict.fromkeys(unanswered.nonzero().squeeze(1).tolist(), NOT_FINITE)
        relative_cost, sets = self._costs_and_sets(probabilities, exits, sizes, rows)
        return Answer(labels, probabilities, exits, relative_cost, sets, self.classes, errors)

    def _costs_and_sets(
        self, probabilities: Tensor, exits: Tensor, sizes: Tensor, rows: Tensor | None
    ) -> tuple[Tensor, dict[float, Tensor]]:
        """Return relative costs and prediction sets of samples, each by the point it was at."""
        leaving, full = self._leaving_costs
        rows = torch.zeros_like(exits) if rows is None else rows
        powers = sizes[:, None].to(full.dtype) ** torch.arange(len(full))
        spent = (leaving[rows, exits] * powers).sum(1) / (powers @ full)
        return spent, {
            level: prediction_set(probabilities, table[rows, exits])
            for level, (table, known) in self._set_thresholds.items()
            if known is None or bool(known[rows].all())
        }

    @cached_property
    def _set_thresholds(self) -> dict[float, tuple[Tensor, Tensor | None]]:
        """`P x L` thresholds of prediction sets by miscoverage, and `P` flags of the points that have it; None if all.

        P are the points of the engine.
        """
        thresholds = [point.conformal_thresholds for point in self.engine.points.points]
        tables: dict[float, tuple[Tensor, Tensor | None]] = {}
        for level in dict.fromkeys(level for own in thresholds for level in own):
            known = torch.tensor([level in own for own in thresholds])
            empty = next(torch.zeros_like(own[level]) for own in thresholds if level in own)
            table = torch.stack([own.get(level, empty) for own in thresholds])
            tables[level] = table, None if bool(known.all()) else known
        return tables

    @cached_property
    def _leaving_costs(self) -> tuple[Tensor, Tensor]:
        """`P x L x C` costs of leaving at each exit, at each point of the engine, and `C` of the full network.

        C are the powers of the size, as in `Costs`.
        """
        tables = self.costs[self.point.policy].tables
        costs = [
            torch.stack([table.cumulative_costs(point.active) for table in tables], dim=-1)
            for point in self.engine.points.points
        ]
        return torch.stack(costs), torch.stack([table.full for table in tables])
