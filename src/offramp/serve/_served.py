"""A model with all that a scheduler keeps for it: the points by guarantee, and those of overload."""

from offramp.errors import BudgetError, InputError
from offramp.model._guarantees import Shortfall, list_guaranteed
from offramp.model._model import EarlyExitModel
from offramp.policy import OperatingPoint
from offramp.runtime._dial import same_decisions
from offramp.serve._overload import OverloadControl, choose_levels

__all__ = ["ServedModel", "check_replaces", "input_tensor", "takes_texts"]

MOST_GUARANTEES = 64
"""Values of `max_drop` whose points are kept: anybody may ask for ever new ones."""


class ServedModel:
    """A model behind a scheduler.

    Args:
        model: The model, at the operating point of requests that name none.
        overload_drop: As for `Scheduler`; so is `slow_ms`.
        slow_ms: Milliseconds in the queue from which on there is overload.

    Attributes:
        model: As above.
        levels: Operating points by their rows in the engine, from the normal one to the cheapest under overload.
        control: The choice among them.

    Raises:
        BudgetError: If `overload_drop` cannot be guaranteed, or by no point that is cheaper than the model's own.
    """

    def __init__(self, model: EarlyExitModel, *, overload_drop: float | None, slow_ms: float) -> None:
        self.model = model
        self._guaranteed: dict[float, tuple[int, OperatingPoint]] = {}
        self.levels = {0: model.point}
        if overload_drop is not None:
            self.levels |= self._overload_levels(overload_drop)
        self.control = OverloadControl(list(self.levels), slow_s=slow_ms / 1000)

    @property
    def point(self) -> OperatingPoint:
        """The operating point of requests that name none, as of the last batch."""
        return list(self.levels.values())[self.control.level]

    def pick_point(self, budget: float | None, max_drop: float | None) -> tuple[int | None, OperatingPoint]:
        """Return the operating point for a request, and its row in the engine; None if the load decides.

        Args:
            budget: As for `Scheduler.submit`.
            max_drop: As for `Scheduler.submit`.
        """
        if budget is not None and max_drop is not None:
            raise InputError(expected="budget or max_drop", got="both", hint="leave one out")
        if max_drop is not None:
            return self._pick_guaranteed(max_drop)
        rows = self.model.pick_rows(budget, 1)
        return (None, self.model.point) if rows is None else (int(rows), self.model.engine.points.points[int(rows)])

    def _pick_guaranteed(self, max_drop: float) -> tuple[int, OperatingPoint]:
        """Return the cheapest point with a guarantee, of the confidence and loss that the model was chosen for."""
        known = self._guaranteed.get(max_drop)
        if known is None:
            asked, policy = self.model.request, self.model.point.policy
            point = self.model.at(
                max_drop=max_drop, confidence=asked.confidence, loss=asked.loss, bound=asked.bound, policy=policy
            ).point
            row = self._find_row(point)
            if row is None or point.guarantee is None:
                raise BudgetError(
                    f"max_drop {max_drop:g} cannot be guaranteed by the classifiers and the backend that run",
                    hint="name it when the model is chosen: model.at(max_drop=...)",
                )
            if len(self._guaranteed) >= MOST_GUARANTEES:
                self._guaranteed.clear()
            known = self._guaranteed[max_drop] = row, point
        return known

    def _find_row(self, point: OperatingPoint) -> int | None:
        """Return the row of a point in the engine, if it is there."""
        points = self.model.engine.points.points
        return next((row for row, other in enumerate(points) if same_decisions(point, other)), None)

    def _overload_levels(self, max_drop: float) -> dict[int, OperatingPoint]:
        """Return the points that an overload may lower the model to, by their rows in the engine."""
        _, cheapest = self._pick_guaranteed(max_drop)
        given = cheapest.guarantee
        assert given is not None
        guaranteed = list_guaranteed(
            self.model.points[cheapest.policy],
            max_drop=max_drop,
            confidence=given.confidence,
            loss=given.loss,
            bound=self.model.request.bound or "ltt",
        )
        assert not isinstance(guaranteed, Shortfall)  # `cheapest` is one of them
        levels = choose_levels(self.model.point, guaranteed)
        rows = {row: point for point in levels if (row := self._find_row(point)) is not None}
        if not rows:
            raise BudgetError(
                expected=f"a point that is cheaper than {self.model.point.tune_metrics['cost']:.4f}, the model's own",
                got=f"none for which a drop of {max_drop:g} is guaranteed",
                hint="allow more under overload, or leave it out",
            )
        return rows


def takes_texts(model: EarlyExitModel) -> bool:
    """Tell if a model takes texts.

    Args:
        model: The model.
    """
    members = () if model.backbone.factory is None else model.backbone.factory.members
    every = [model.preprocessing, *(member.preprocessing for member in members)]
    return any(name == "tokenize" for preprocessing in every for name, _ in preprocessing.steps)


def input_tensor(model: EarlyExitModel) -> tuple[str, str, list[int]]:
    """Return the name, the datatype and the shape of the tensor that a model takes, as the protocol has them.

    Args:
        model: The model.
    """
    if takes_texts(model):
        return "text", "BYTES", [-1]
    return ("image", "UINT8", [-1, -1, -1, -1]) if model.preprocessing.steps else ("input", "FP32", [-1])


def check_replaces(model: EarlyExitModel, current: EarlyExitModel) -> None:
    """Refuse a model whose clients would have to change.

    Args:
        model: The model.
        current: The model that it replaces.
    """
    if (model.backbone.num_classes, model.classes) != (current.backbone.num_classes, current.classes):
        other = next((name for name in model.classes if name not in current.classes), None)
        names = "others" if other is None else f"others, such as '{other}'"
        raise InputError(
            "the classes of the new model",
            expected=f"the same {current.backbone.num_classes}, in the same order",
            got=names if len(model.classes) == len(current.classes) else f"{model.backbone.num_classes}",
            hint="start another server",
        )
    if input_tensor(model) != input_tensor(current):
        raise InputError(
            "the new model",
            expected=f"one that takes the same inputs ({input_tensor(current)[0]})",
            got=f"one that takes others ({input_tensor(model)[0]})",
            hint="start another server",
        )
    missing = sorted(set(current.point.conformal_thresholds) - set(model.point.conformal_thresholds))
    if missing:
        raise InputError(
            "the new model",
            expected=f"prediction sets of miscoverage {', '.join(map(str, missing))}, as the current model has them",
            got="none",
            hint="recalibrate it with labels",
        )
