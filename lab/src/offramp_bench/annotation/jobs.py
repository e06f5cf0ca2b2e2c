"""Annotation jobs of the benchmark, and new draws of the sample of their guarantee."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import offramp
from offramp.annotation._annotate import open_job
from offramp.annotation._contents import Counts
from offramp.annotation._job import Job
from offramp.annotation._sampling import Candidate, Plan, Scope
from offramp.backbone import Cascade
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import Outcomes, simulate
from offramp_bench.annotation.rows import AnnotationRows

__all__ = ["Redraw", "inputs_of", "learn", "make_job", "members_of"]

Rows = npt.NDArray[np.int64]

SAMPLE_AXES = {
    **dict.fromkeys(("labels", "sizes", "full"), 0),
    **dict.fromkeys(("predictions", "confidence", "margin", "conformal_scores", "evidence", "brier_gaps"), 1),
}
"""Axis of the samples in each tensor of outcomes."""


def inputs_of(rows: AnnotationRows) -> dict[str, Any]:
    """Return the inputs of a job: embeddings for the cheap member, row numbers for the expensive one."""
    return {"embedding": rows.embeddings, "row": np.arange(len(rows.answers))}


def members_of(rows: AnnotationRows) -> Cascade:
    """Return the cascade: untuned embeddings, then the tuned MiniLM, whose answers are looked up."""

    def ask(numbers: Any) -> Any:
        return rows.answers[np.asarray(numbers)]

    last = offramp.callable_model(ask, rows.num_classes, name="tuned", field="row", batch_size=100)
    return offramp.cascade(offramp.encoder(field="embedding"), last)


def learn(
    rows: AnnotationRows, folder: Path, *, seed: int, scope: Scope, label_budget: int = 1000
) -> tuple[Job, EarlyExitModel]:
    """Spend a label budget, and return the job and the model that learned from it.

    Args:
        rows: The rows.
        folder: Folder for features and answers.
        seed: Seed of the job.
        scope: Scope of the guarantee.
        label_budget: Answers to buy.
    """
    with make_job(rows, folder, seed=seed, scope=scope) as job:
        return job, job.learn(label_budget)


def make_job(
    rows: AnnotationRows, folder: Path, *, seed: int, scope: Scope, max_drop: float = 0.05
) -> AbstractContextManager[Job]:
    """Make a job that has not bought any answers yet.

    Args:
        rows: The rows.
        folder: Folder for features and answers.
        seed: Seed of the job.
        scope: Scope of the guarantee.
        max_drop: Share of answers that may differ.
    """
    return open_job(
        inputs_of(rows),
        members_of(rows),
        max_drop=max_drop,
        confidence=0.95,
        scope=scope,
        classes=(),
        max_spend=None,
        anyway=True,
        store=folder,
        seed=seed,
        progress=False,
    )


class Redraw(Job):
    """A job after learning, whose guarantee can draw new samples; no outcome is computed and no answer bought twice.

    For a guarantee about future inputs, samples are drawn with replacement: the reserved rows are then the whole
    distribution, and the true disagreement is known.

    Args:
        job: The job, after it learned.
        model: The model of the job.
        truth: `N` answers of the last member.
    """

    def __init__(self, job: Job, model: EarlyExitModel, truth: Rows) -> None:
        self.__dict__.update(job.__dict__)
        self.truth = truth
        self._learned_scores, self._order = dict(job.scores), job.drawing_order
        self._all_outcomes = _join([part for _, part in job._outcomes(model, np.arange(len(truth)))])
        self._plans: dict[Any, Plan | None] = {}
        self._unreserved_counts = job._unreserved()

    def draw(self, seed: int, *, max_drop: float) -> None:
        """Draw the sample again.

        Args:
            seed: Seed of the draw.
            max_drop: Largest disagreement.
        """
        generator = np.random.default_rng(seed)
        self.max_drop, self.sampled, self.drawn = max_drop, 0, 0
        self.scores, self.failures = dict(self._learned_scores), set()
        if self.scope == "inputs":
            self.drawing_order = generator.permutation(self._order)
            return
        reserved, others = self._order[: self.reserved], self._order[self.reserved :]
        self.drawing_order = np.concatenate([generator.choice(reserved, self.reserved), others])

    def loss(self, model: EarlyExitModel) -> tuple[float, float]:
        """Return the true disagreement at the model's point, and the share of inputs that go to the last member.

        Args:
            model: The model, at the point with the guarantee.
        """
        asked = self._asked()
        inputs = len(self.contents)
        rows = np.sort(self._order[: self.reserved]).astype(np.int64)
        if self.scope == "inputs":
            rows = np.flatnonzero(self._unasked())
        ((_, answers),) = self._outcomes(model, rows)
        exits = simulate([model.point], answers)[0]
        cheap = (exits < self.last_exit).numpy()
        predictions = answers.predictions[0, torch.arange(len(rows)), exits].numpy()
        wrong = int((cheap & (predictions != self.truth[rows])).sum())
        if self.scope == "inputs":
            return wrong / inputs, (len(asked) + int((~cheap).sum())) / inputs
        return wrong / len(rows), float((~cheap).mean())

    def _unreserved(self) -> Counts:
        return self._unreserved_counts

    def _plan(self, candidates: Sequence[Candidate], unanswered: int, available: int) -> Plan | None:
        key = (self.max_drop, tuple(candidates), unanswered, available)
        if key not in self._plans:
            self._plans[key] = super()._plan(candidates, unanswered, available)
        return self._plans[key]

    def buy(self, rows: Rows, what: str) -> Rows:
        """Look the answers up."""
        answers = np.eye(self.rows.cascade.num_classes, dtype=np.float32)[self.truth[rows]]
        self.scores.update(zip(rows.tolist(), answers, strict=True))
        return np.sort(rows)

    def _outcomes(self, model: EarlyExitModel, rows: Rows) -> Iterator[tuple[Rows, Outcomes]]:
        yield rows, _take(self._all_outcomes, torch.from_numpy(rows))


def _join(parts: list[Outcomes]) -> Outcomes:
    """Join outcomes of different samples."""
    tensors: dict[str, Any] = {
        name: torch.cat([getattr(part, name) for part in parts], dim=axis) for name, axis in SAMPLE_AXES.items()
    }
    return replace(parts[0], **tensors)


def _take(outcomes: Outcomes, rows: Tensor) -> Outcomes:
    """Return the outcomes of some samples."""
    parts: dict[str, Any] = {
        name: getattr(outcomes, name).index_select(axis, rows) for name, axis in SAMPLE_AXES.items()
    }
    return replace(outcomes, **parts)
