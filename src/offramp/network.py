"""The network that lets samples leave: backbone, exits and a dial."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from offramp.backbone import Backbone, Hidden, Pooling, Preprocessing
from offramp.cost import Costs
from offramp.errors import InputError
from offramp.exits import ExitBank
from offramp.policy import OperatingPoint
from offramp.runtime import (
    BACKENDS,
    WINDOW,
    Backend,
    BudgetController,
    Compaction,
    Dial,
    Engine,
    run_dense,
    same_setting,
)
from offramp.uncertainty import prediction_set

__all__ = ["Answer", "EarlyExitNetwork"]


@dataclass(frozen=True)
class Answer:
    """What the network says of N inputs, in their order."""

    labels: Tensor
    """`N` predicted classes."""
    probabilities: Tensor
    """`N x K`, calibrated."""
    exits: Tensor
    """`N` exits the samples left at, 0-based."""
    relative_cost: Tensor
    """`N` costs, as shares of the full network's."""
    prediction_sets: Mapping[float, Tensor]
    """`N x K` booleans for each miscoverage: the true class is among them with probability 1 - miscoverage."""
    names: tuple[str, ...] = ()
    """`N` names of the predicted classes; empty where the network does not know its classes."""

    def __repr__(self) -> str:
        left = torch.bincount(self.exits).tolist()
        places = ", ".join(f"{count} at exit {place}" for place, count in enumerate(left) if count)
        first = [str(one) for one in (self.names or self.labels.tolist())[:3]]
        more = ", ..." if len(self.labels) > len(first) else ""
        cost = f"relative cost {float(self.relative_cost.mean()):.3g}" if len(self.labels) else "no samples"
        return f"Answer({len(self.labels)} samples: {', '.join(first)}{more}; {places or 'none left'}; {cost})"


@dataclass(frozen=True)
class EarlyExitNetwork:
    """A frozen network with exits, at an operating point that every batch, or every sample, may leave for another.

    Samples that have left are not computed any further: each stage runs on those that remain.
    """

    backbone: Backbone
    """The frozen network."""
    preprocessing: Preprocessing
    """From raw inputs to what the backbone takes."""
    pooling: Pooling
    """What exits see of a stage."""
    bank: ExitBank
    """The trained exits."""
    costs: Costs
    """What leaving at each exit costs."""
    point: OperatingPoint
    """Where samples are unless a budget is named."""
    points: Sequence[OperatingPoint] = ()
    """Where budgets may take them, in any order: settings of the same policy that ask the same classifiers."""
    backend: Backend | None = None
    """How stages and exits are computed; as torch does by itself if left out."""
    compaction: Compaction | None = None
    """When those who left are taken out of a batch; at once if left out."""
    classes: tuple[str, ...] = ()
    """Names of the classes, in the order of their numbers; empty where they are not known."""

    def __repr__(self) -> str:
        cost = self.point.promised.get("cost")
        at = "" if cost is None else f" at relative cost {cost:.3g}"
        return f"EarlyExitNetwork({self.backbone.name}, {self.backbone.num_exits} exits, {self.point.policy}{at})"

    @torch.inference_mode()
    def predict(
        self,
        inputs: Any,
        *,
        budget: float | Sequence[float] | Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Answer:
        """Answer a batch of raw inputs.

        Args:
            inputs: N inputs as the preprocessing takes them: arrays or tensors, a list of images, a list of texts, or
                what a tokenizer returns. Of one input, add the batch axis: `inputs[None]`, `[text]`.
            budget: Spend at most this share of the full network's cost, as far as tune can tell, or `N` shares, one
                per sample: at the most accurate setting of the `dial` within it. At `point` if left out.
            generator: Of the draws of a policy that samples; torch's own if left out.

        Returns:
            Labels, probabilities, exits, prediction sets and costs, all by the point that each sample was at.

        Raises:
            BudgetError: If a budget is lower than the cheapest setting.
            InputError: If the network cannot take the inputs, such as a single one without a batch axis.
        """
        hidden, sizes = self._prepared(inputs)
        rows = self._rows(budget, len(sizes))
        return self._answer(*self.engine.run(hidden, point=rows, generator=generator), sizes, rows)

    @torch.inference_mode()
    def predict_many(
        self, batches: Iterable[Any], *, budget: float | None = None, generator: torch.Generator | None = None
    ) -> Answer:
        """Answer many batches together, faster than one after the other, where nobody waits for the first answer.

        Those who stay of one batch go on with those of the next (`offramp.runtime.run_dense`), so that the late stages
        run full batches too, as large as the first one given. Inputs that differ in size, such as texts, are sorted by
        it. What is held does not grow with the batches, but for the answers and, where they are sorted, the inputs.

        Args:
            batches: Raw inputs, a batch at a time, each as `predict` takes them.
            budget: As for `predict`; one for all.
            generator: As for `predict`.

        Returns:
            The answers of all batches, in their order: those of `predict`, up to rounding.

        Example:
            >>> import offramp
            >>> from offramp.backbone import CifarResNet
            >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
            >>> quick = offramp.JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
            >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
            >>> frontier = offramp.fit(CifarResNet(8), *data, settings=quick, anyway=True, progress=False)
            >>> network = frontier.choose(cost=1.1)
            >>> network.predict_many(images.split(16)).labels.shape
            torch.Size([60])
        """
        sizes = [torch.empty(0)]

        def prepared() -> Iterator[Hidden]:
            for inputs in batches:
                hidden, found = self._prepared(inputs)
                sizes.append(found)
                yield hidden

        row = self._rows(budget, 1)
        point = 0 if row is None else int(row)
        found = run_dense(self.engine, prepared(), point=point, generator=generator)
        together = torch.cat(sizes)
        return self._answer(*found, together, None if row is None else row.expand(len(together)))

    def _prepared(self, inputs: Any) -> tuple[Hidden, Tensor]:
        """Raw inputs as the backbone takes them, and their `N` sizes."""
        if any(module.training for module in self._modules):
            self.backbone.eval()  # the model it was made of has been put into training mode since
        prepared = self.preprocessing(inputs)
        with self.backbone.explaining(prepared):
            hidden = self.backbone.prepare(prepared)
            return hidden, self.backbone.sizes(hidden).cpu()

    def _answer(self, probabilities: Tensor, exits: Tensor, sizes: Tensor, rows: Tensor | None) -> Answer:
        """What is told of samples, once they have left."""
        # Where costs and thresholds are, wherever the backbone is.
        probabilities, exits = probabilities.cpu(), exits.cpu()
        unanswered = (~probabilities.isfinite().all(1)).nonzero().squeeze(1)
        if len(unanswered):
            raise InputError(
                f"{len(unanswered)} of {len(exits)} inputs have no finite answer, the first is input "
                f"{int(unanswered[0])}; check it for NaN or infinite numbers"
            )
        spent, sets = self._told(probabilities, exits, sizes, rows)
        labels = probabilities.argmax(1)
        names = tuple(self.classes[label] for label in labels.tolist()) if self.classes else ()
        return Answer(labels, probabilities, exits, spent, sets, names)

    @cached_property
    def dial(self) -> Dial:
        """The settings that budgets pick from."""
        if not self.points:
            raise InputError("this network has one operating point, a budget needs several: frontier.choose gives them")
        return Dial(self.engine.points.points)

    def controller(self, budget: float, *, window: int = WINDOW) -> BudgetController:
        """What keeps an average budget on a stream of batches, however hard they are.

        Args:
            budget: What a sample may cost on average, as a share of the full network's cost.
            window: Samples over which it pays back what was spent beyond that: the more, the further the average may be
                from the budget for a while, and the better the answers where hard and easy inputs come in stretches.

        Returns:
            A controller: ask for `controller.asked`, then record what the answer has cost.

        Raises:
            BudgetError: If the budget is lower than the cheapest setting.

        Example:
            >>> import offramp
            >>> from offramp.backbone import CifarResNet
            >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
            >>> quick = offramp.JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
            >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
            >>> frontier = offramp.fit(CifarResNet(8), *data, settings=quick, anyway=True, progress=False)
            >>> network = frontier.choose(cost=1.1)
            >>> controller = network.controller(0.8)
            >>> for batch in images.split(20):
            ...     answer = network.predict(batch, budget=controller.asked)
            ...     controller.record(answer.relative_cost)
            >>> controller.count
            60
        """
        return BudgetController(budget, settings=self.dial.costs, window=window)

    def on(
        self, backend: str | Backend, *, example: Any = None, compaction: Compaction | None = None
    ) -> "EarlyExitNetwork":
        """The same network, computed in another way.

        Args:
            backend: One of `offramp.runtime.BACKENDS` ("eager", "bfloat16", "onnx"), or a backend made for
                this network's backbone, pooling and exits.
            example: Raw inputs, at least one, for a backend that makes itself ready with them: "onnx" needs them.
            compaction: When those who left are taken out of a batch; as it was if left out.

        Returns:
            A network with the same answers, up to rounding. Where that is coarser than what was calibrated (bfloat16,
            eight bits, a backend without a true attribute `exact`) its point has no guarantee.

        Example:
            >>> import offramp
            >>> from offramp.backbone import CifarResNet
            >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
            >>> quick = offramp.JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
            >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
            >>> frontier = offramp.fit(CifarResNet(8), *data, settings=quick, anyway=True, progress=False)
            >>> network = frontier.choose(cost=1.1).on("bfloat16")
            >>> network.predict(images).labels.shape
            torch.Size([60])
        """
        self.backbone.eval()  # as for `predict`: what is made may be a copy
        if isinstance(backend, str):
            make, prepared = BACKENDS.get(backend), None
            if example is not None:
                prepared = self.backbone.prepare(self.preprocessing(example))
            backend = make(self.backbone, self.pooling, self.bank, prepared)
        point = self.point
        if point.guarantee is not None and not getattr(backend, "exact", False):
            point = replace(point, guarantee=None)
        compaction = self.compaction if compaction is None else compaction
        return replace(self, point=point, backend=backend, compaction=compaction)

    @cached_property
    def _modules(self) -> tuple[nn.Module, ...]:
        # Looked up once: walking all modules takes as long as a stage does at batch 1.
        return tuple(self.backbone.modules())

    @cached_property
    def engine(self) -> Engine:
        """What runs it."""
        # One for all budgets; its first point is where samples are that have none.
        own = self.point
        points = [own, *(one for one in self.points if not same_setting(one, own))]
        return Engine(self.backbone, self.pooling, self.bank, points, backend=self.backend, compaction=self.compaction)

    def _rows(self, budget: float | Sequence[float] | Tensor | None, count: int) -> Tensor | None:
        """The engine's points for budgets, one a sample; None, all at the first, where none is named."""
        if budget is None:
            return None
        try:
            budgets = torch.as_tensor(budget, dtype=torch.float64).cpu()
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"expected a budget as a number or numbers, such as 0.6, got {budget!r}") from error
        if budgets.shape not in ((), (count,)):
            raise InputError(f"expected one budget, or {count}, one a sample, got some of shape {tuple(budgets.shape)}")
        return self.dial.rows(budgets.reshape(-1)).expand(count)

    def _told(
        self, probabilities: Tensor, exits: Tensor, sizes: Tensor, rows: Tensor | None
    ) -> tuple[Tensor, dict[float, Tensor]]:
        """What samples have cost and their prediction sets, each by the point it was at."""
        costs = self.costs.of(sizes)
        if rows is None or not len(rows):
            spent = costs.spent(exits, self.point.active) / costs.full
            limits = {miscoverage: found[exits] for miscoverage, found in self.point.conformal_thresholds.items()}
            return spent, {miscoverage: prediction_set(probabilities, found) for miscoverage, found in limits.items()}
        aboard, at = torch.unique(rows, return_inverse=True)
        points = [self.engine.points.points[row] for row in aboard.tolist()]
        actives = list(dict.fromkeys(point.active for point in points))
        spent = torch.stack([costs.spent(exits, active) / costs.full for active in actives])
        own = torch.tensor([actives.index(point.active) for point in points])[at]
        thresholds = {
            miscoverage: torch.stack([point.conformal_thresholds[miscoverage] for point in points])[at, exits]
            for miscoverage in points[0].conformal_thresholds
            if all(miscoverage in point.conformal_thresholds for point in points)
        }
        sets = {miscoverage: prediction_set(probabilities, limits) for miscoverage, limits in thresholds.items()}
        return spent[own, torch.arange(len(exits))], sets
