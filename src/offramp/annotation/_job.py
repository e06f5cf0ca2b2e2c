"""The steps of an annotation job: learn from bought answers, guarantee, answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from offramp._progress import progress_bar
from offramp.annotation._bill import Bill
from offramp.annotation._contents import Contents, Counts, nonzero_rows
from offramp.annotation._rows import READ_ROWS, InputRows
from offramp.annotation._sampling import (
    WORTH,
    Candidate,
    Passed,
    Plan,
    Scope,
    SetGuarantee,
    expect_errors,
    last_passing_point,
    plan_sample,
)
from offramp.backbone.adapters._callable import CalledModel
from offramp.errors import BudgetError, CallError, InputError
from offramp.model._fitting import fit_features
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import Outcomes, compute_outcomes, simulate
from offramp.policy import Guarantee, OperatingPoint
from offramp.pooling._rich import DEFAULT_POOLING

__all__ = ["Annotation", "Job"]

Rows = npt.NDArray[np.int64]

TUNE_SHARE, RANDOM_SHARE, STEP_SHARE = 0.1, 0.2, 0.1
FEWEST_TUNE = 30
"""Shares of the label budget: rows to tune on and rows to begin with, both random; then steps of the rows that the
cheap members are least sure of. A random start of 20 to 30 % was as good as any on Banking77 and CLINC150."""

POOL_ROWS = 50_000
"""Rows among which the least sure are looked for: all of a small job, a random part of a large one."""

RESERVED_SHARE, MOST_RESERVED = 0.5, 20_000
"""Rows kept from learning, if the guarantee is to be about future inputs: its sample must be a random one of all."""

MOST_DRAWN = 100_000
"""Rows that a guarantee's samples may be drawn from, in a large job."""

TESTS = 2
"""Tests of a guarantee, each at an equal part of the risk."""

PLANNED_POINTS = 32
"""Operating points that the size of the sample is planned with."""

FEWEST_LABELS = 100
"""Smallest label budget: fewer answers teach nothing."""


@dataclass(frozen=True)
class Annotation:
    """The answers of a job, its bill, its guarantee, and the model to go on with."""

    labels: npt.NDArray[np.int32]
    """`N` class numbers; -1 where the last member gave no answer and `on_failure` is "later"."""
    classes: tuple[str, ...]
    """Class names; empty if unknown."""
    exits: npt.NDArray[np.int16]
    """`N` exits that answered; the last is the last member."""
    failed: npt.NDArray[np.bool_]
    """`N` booleans: the last member was asked and gave no answer."""
    bill: Bill
    """Calls and prices."""
    guarantee: SetGuarantee | Guarantee | None
    """The bound: about these inputs, or about inputs to come; None if the last member was asked for everything. Failed
    inputs are not covered by it."""
    model: EarlyExitModel = field(repr=False)
    """The cascade with its trained exits, at the operating point of the job."""

    @property
    def names(self) -> list[str]:
        """`N` class names; empty texts where there is no answer."""
        if not self.classes:
            raise InputError(expected="class names", got="none", hint="give annotate(..., classes=[...])")
        return [self.classes[label] if label >= 0 else "" for label in self.labels.tolist()]


class Job:
    """The state of a job: which rows were asked, and what the last member said.

    Rows with the same content are one: the first of them stands for all.
    """

    def __init__(
        self,
        rows: InputRows,
        max_drop: float,
        confidence: float,
        scope: Scope,
        anyway: bool,
        seed: int,
        progress: bool,
    ) -> None:
        self.rows, self.max_drop, self.confidence = rows, max_drop, confidence
        self.scope, self.anyway, self.seed, self.progress = scope, anyway, seed, progress
        self.contents = Contents(rows.ids, len(rows))
        # Rows to test with, by seed alone: a job that starts again goes the same way, and they must not depend on what
        # is learned from.
        order = np.arange(len(rows), dtype=np.int32)
        np.random.default_rng(seed).shuffle(order)
        self.drawing_order: npt.NDArray[np.int32] = order[:MOST_DRAWN].copy()
        self.scores: dict[int, npt.NDArray[np.float32]] = {}
        self.failures: set[int] = set()
        self.learning = 0
        self.sampled = 0
        self.reserved = self.drawn = 0

    @property
    def last_exit(self) -> int:
        """The exit of the last member."""
        return len(self.rows.widths) - 1

    def _check_budget(self, label_budget: int) -> None:
        """Refuse a label budget that leaves nothing to learn from, or nothing to save."""
        if not FEWEST_LABELS <= label_budget < len(self.contents):
            raise InputError(
                expected=f"a label_budget of {FEWEST_LABELS} or more that is smaller than the number of different "
                f"inputs, {len(self.contents):,}",
                got=label_budget,
                hint="for few inputs, ask the last member for all of them",
            )

    def ask(self, rows: Rows, what: str) -> Iterator[tuple[Rows, npt.NDArray[np.float32]]]:
        """Ask the last member for rows, ascending; yield the answered ones with their `n x K` scores, in blocks."""
        caller = self.rows.last.caller
        with progress_bar(f"asking '{caller.name}' {what}", len(rows), unit="inputs", show=self.progress) as advance:
            for start in range(0, len(rows), READ_ROWS):
                some = rows[start : start + READ_ROWS]
                scores = caller.ask(self.rows.read(some))
                good = ~np.isnan(scores[:, 0])
                self.failures.update(some[~good].tolist())
                yield some[good], scores[good]
                advance(len(some))

    def buy(self, rows: Rows, what: str) -> Rows:
        """Ask for rows and remember their scores; return those that were answered, ascending."""
        answered = [np.empty(0, np.int64)]
        for some, scores in self.ask(np.sort(rows), what):
            self.scores.update(zip(some.tolist(), scores, strict=True))
            answered.append(some)
        return np.concatenate(answered)

    # Learn

    @property
    def trains(self) -> bool:
        """True if a cheap member has an exit to train."""
        return len(self.rows.cascade.own_heads) < self.rows.cascade.num_exits

    def start(self, label_budget: int) -> tuple[Rows, Rows, Rows]:
        """Spend the first part of the label budget, on random rows.

        Args:
            label_budget: Answers to buy for learning, at most.

        Returns:
            The answered rows to tune on and to fit on, and the rows that the rest of the budget may be spent on.
        """
        self._check_budget(label_budget)
        tune_count = max(FEWEST_TUNE, round(TUNE_SHARE * label_budget))
        first_count = round(RANDOM_SHARE * label_budget)
        if self.scope == "future":
            self.reserved = min(MOST_RESERVED, round(RESERVED_SHARE * len(self.rows)))
        among = self._unreserved()
        if (most := np.count_nonzero(among)) < label_budget:
            raise InputError(
                expected=f"a label_budget of at most {most:,}, as the guarantee about future inputs keeps "
                f"{self.reserved:,} inputs from learning",
                got=label_budget,
                hint="give fewer answers to learn from, more inputs, or scope='inputs'",
            )
        free = self.contents.draw(among, max(label_budget, POOL_ROWS), seed=self.seed)
        self.learning = tune_count + first_count
        tune = self.buy(free[:tune_count], "to tune on")
        fit = self.buy(free[tune_count : self.learning], "to learn from")
        if not len(tune) or not len(fit):
            raise CallError(
                f"'{self.rows.last.name}' answered {len(tune) + len(fit)} of the first {self.learning:,} inputs: there "
                "is nothing to learn from",
                hint="run again when it answers",
            )
        return tune, fit, free[self.learning :]

    def learn(self, label_budget: int) -> EarlyExitModel:
        """Spend the label budget and fit the cheap members on the answers.

        Args:
            label_budget: Answers to buy for learning, at most.
        """
        tune, fit, pool = self.start(label_budget)
        if not self.trains:
            return self.fit(None, np.union1d(tune, fit))
        step = round(STEP_SHARE * label_budget)
        while True:
            model = self.fit(fit, tune)
            more = min(step, label_budget - self.learning)
            if more < 1 or not len(pool):
                return model
            pool = np.sort(pool)
            order = np.argsort(self._margins(model, pool), kind="stable")
            unsure, pool = pool[order[:more]], pool[order[more:]]
            self.learning += len(unsure)
            fit = np.union1d(fit, self.buy(unsure, "to learn from"))

    def fit(self, fit: Rows | None, tune: Rows) -> EarlyExitModel:
        """Fit the cheap members on answered rows.

        Args:
            fit: Rows to fit exits on, ascending; None if there is nothing to train.
            tune: Rows to tune on, ascending.
        """
        backbone = self.rows.cascade
        return fit_features(
            backbone,
            None if fit is None else self._source(fit),
            self._source(tune),
            None,
            example=None,
            preprocessing=backbone.preprocessing,
            pooling=DEFAULT_POOLING,
            method="logistic",
            policies=("threshold",),
        )

    def _source(self, rows: Rows) -> Any:
        return self.rows.answered(rows, np.stack([self.scores[row] for row in rows.tolist()]))

    def _margins(self, model: EarlyExitModel, rows: Rows) -> npt.NDArray[np.float32]:
        """Return the margins of the last cheap exit."""
        margins = [answers.margin[0, :, self.last_exit - 1] for _, answers in self._outcomes(model, rows)]
        return torch.cat(margins).numpy()

    def _outcomes(self, model: EarlyExitModel, rows: Rows) -> Iterator[tuple[Rows, Outcomes]]:
        for some, source in self.rows.unanswered(rows):
            yield some, compute_outcomes(model.exits, source, model.temperatures)

    # Guarantee

    def guarantee(self, model: EarlyExitModel) -> tuple[EarlyExitModel, SetGuarantee | Guarantee | None]:
        """Buy a sample, and return the model at the cheapest point with a guarantee; None if there is none.

        There are two tests, each at half the risk: the first on a sample whose size is planned by the confidences; if
        it ends before the planned point, the second on another sample, planned by the errors in the first. The second
        sample has none of the first's inputs: its size depends on their errors, and the test must not.
        """
        points = _sort_points(model)
        best: Passed | None = None
        tested: list[Candidate] = []
        for _ in range(TESTS):
            about, drawn = self._guaranteed()
            candidates = self._count(model, points, about)
            total = int(about.sum())
            if tested:
                candidates = [expect_errors(new, old) for new, old in zip(candidates, tested, strict=True)]
            plan = self._plan(candidates, total, len(drawn))
            if plan is None or (best is not None and plan.asked >= total - candidates[best.place].accepted):
                break
            sample = self._buy_sample(drawn[: plan.size])
            if not len(sample):
                break
            tested = self._test(model, points, candidates, sample)
            place = last_passing_point(
                tested,
                scope=self.scope,
                allowed=self._allowed,
                samples=len(sample),
                confidence=self._test_confidence,
            )
            if place is not None and (best is None or place > best.place):
                best = Passed(place, tested[place], len(sample))
            if best is not None and tested[best.place].accepted >= plan.accepted:
                break
        if best is None or best.candidate.accepted <= WORTH * total:
            return self._give_up(model, tested or candidates, total)
        measured, chosen = best.candidate.errors / best.samples, points[best.place]
        if self.scope == "inputs":
            bound = SetGuarantee(self.max_drop, self.confidence, len(self.rows), best.samples, measured)
            return replace(model, chosen=chosen), bound
        future = Guarantee("disagreement", self.max_drop, self.confidence, "ltt", best.samples, measured)
        return replace(model, chosen=replace(chosen, guarantee=future)), future

    def candidates(self, model: EarlyExitModel) -> list[Candidate]:
        """Return the operating points of a model, counted over the inputs that a test would be about now.

        Args:
            model: A model that has learned from some answers.
        """
        about, _ = self._guaranteed()
        return self._count(model, _sort_points(model), about)

    def count_spared(self, candidates: Sequence[Candidate]) -> float:
        """Return the share of the inputs not asked yet that could be spared, if the confidences were exact.

        Args:
            candidates: As `candidates` returns them.
        """
        total = int(self._guaranteed()[0].sum())
        errors, accepted = zip(*((each.expected_errors, each.accepted) for each in candidates), strict=True)
        return float(np.interp(self._allowed_of(total), errors, accepted)) / total

    def foresee(self, candidates: Sequence[Candidate], *, growth: float) -> float:
        """Return the share of the inputs not asked yet that would be asked after learning, the guarantee included.

        Args:
            candidates: As `candidates` returns them.
            growth: Factor by which learning goes on to raise the number of inputs with a given number of errors.
        """
        about, drawn = self._guaranteed()
        total = int(about.sum())
        grown = [replace(each, accepted=min(total, round(growth * each.accepted))) for each in candidates]
        plan = self._plan(grown, total, len(drawn))
        return 1.0 if plan is None else plan.asked / total

    def _allowed_of(self, inputs: int) -> float:
        """Return the errors that a number of inputs may have."""
        return self._allowed if self.scope == "inputs" else self.max_drop * inputs

    @property
    def _allowed(self) -> float:
        """Errors that may be left in the set, or the error rate of inputs to come."""
        return self.max_drop * len(self.rows) if self.scope == "inputs" else self.max_drop

    @property
    def _test_confidence(self) -> float:
        return 1 - (1 - self.confidence) / TESTS

    def _plan(self, candidates: Sequence[Candidate], unanswered: int, available: int) -> Plan | None:
        """Plan a sample with some of the candidates, which are in the order of `_sort_points`."""
        every = max(1, -(-len(candidates) // PLANNED_POINTS))
        return plan_sample(
            candidates[::-1][::every],
            scope=self.scope,
            allowed=self._allowed,
            unanswered=unanswered,
            available=available,
            confidence=self._test_confidence,
        )

    def _guaranteed(self) -> tuple[Counts, Rows]:
        """Return how often a test is about each row, and the rows that its sample is drawn from, in random order.

        A row with copies is there as often as it occurs: what is guaranteed is a share of rows, not of contents.
        """
        in_order = self.contents.stands_for[self.drawing_order].astype(np.int64)
        if self.scope == "inputs":
            return self._unasked(), in_order[~np.isin(in_order, self._asked())]
        return self._unreserved(), in_order[self.drawn : self.reserved]

    def _unasked(self) -> Counts:
        """Return how many rows each row stands for, 0 if it was asked."""
        left = self.contents.copies.copy()
        left[self._asked()] = 0
        return left

    def _unreserved(self) -> Counts:
        """Return how many of the rows that each row stands for are not kept from learning."""
        left = self.contents.copies.copy()
        np.subtract.at(left, self.contents.stands_for[self.drawing_order[: self.reserved]], 1)
        return left

    def _buy_sample(self, rows: Rows) -> Rows:
        """Ask for rows, each content once; return those that were answered, ascending, as often as they occur."""
        self.drawn += len(rows)
        contents = np.unique(rows)
        self.sampled += len(np.setdiff1d(contents, self._asked()))
        return np.sort(rows[np.isin(rows, self.buy(contents, "for the guarantee"))])

    def _asked(self) -> Rows:
        return np.array(sorted({*self.scores, *self.failures}), np.int64)

    def _count(self, model: EarlyExitModel, points: Sequence[OperatingPoint], about: Counts) -> list[Candidate]:
        """Count the rows that each point accepts, and the errors that its confidences expect among them."""
        accepted, errors = np.zeros(len(points), np.int64), np.zeros(len(points))
        for rows in nonzero_rows(about):
            for some, answers in self._outcomes(model, rows):
                leaves, doubts = self._accepted(points, answers)
                accepted += leaves @ about[some]
                errors += (leaves * doubts) @ about[some]
        return [
            Candidate(accepted=int(count), expected_errors=doubt)
            for count, doubt in zip(accepted.tolist(), errors.tolist(), strict=True)
        ]

    def _accepted(
        self, points: Sequence[OperatingPoint], answers: Outcomes
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float32]]:
        """Return `P x n`: True where a cheap member answers, and one minus its confidence."""
        exits = simulate(points, answers)
        confidence = answers.confidence[0].gather(1, exits.T).T
        return (exits < self.last_exit).numpy(), (1 - confidence).numpy()

    def _test(
        self,
        model: EarlyExitModel,
        points: Sequence[OperatingPoint],
        candidates: Sequence[Candidate],
        sample: Rows,
    ) -> list[Candidate]:
        """Return the candidates with the errors in the answered part of the sample.

        Sampled rows without an answer are left out: the rest is a random sample of the rows that can be answered, and
        the test is on the safe side with more rows accepted than there are of those.
        """
        sampled, errors = np.zeros(len(points), np.int64), np.zeros(len(points), np.int64)
        contents, copies = np.unique(sample, return_counts=True)
        for some, answers in self._outcomes(model, contents):
            counts = copies[np.searchsorted(contents, some)]
            exits = simulate(points, answers)
            leaves = (exits < self.last_exit).numpy()
            said = answers.predictions[0].gather(1, exits.T).T.numpy()
            truth = np.array([self.scores[row].argmax() for row in some.tolist()])
            sampled += leaves @ counts
            errors += (leaves & (said != truth)) @ counts
        return [
            replace(candidate, sampled=int(count), errors=int(wrong))
            for candidate, count, wrong in zip(candidates, sampled, errors, strict=True)
        ]

    def _give_up(
        self, model: EarlyExitModel, candidates: Sequence[Candidate], rows: int
    ) -> tuple[EarlyExitModel, None]:
        if self.anyway:
            return model, None
        most = max(candidates, key=lambda candidate: candidate.accepted)
        rate = most.expected_errors / max(1, most.accepted)
        finding = f"about {100 * rate:.1f} % of them wrong by their own confidence"
        if most.sampled:
            finding = f"{most.errors:,} of {most.sampled:,} wrong in a sample"
        raise BudgetError(
            f"it does not pay: expected a guarantee of at most {100 * self.max_drop:g} % that spares a tenth of the "
            f"calls; after {self.learning:,} answers the cheap members would answer {most.accepted:,} of {rows:,} "
            f"inputs, {finding}",
            hint="give a larger label_budget, a better encoder or a larger max_drop; or anyway=True to ask the last "
            "member for everything",
        )

    # Answer

    def answer(
        self,
        model: EarlyExitModel,
        guarantee: SetGuarantee | Guarantee | None,
        on_failure: Literal["cheap", "later"],
    ) -> Annotation:
        """Answer every input: by what is known, by the cheap members, or by asking."""
        count = len(self.rows)
        labels, exits = np.full(count, -1, np.int32), np.full(count, self.last_exit, np.int16)
        failed = np.zeros(count, np.bool_)
        for row, scores in self.scores.items():
            labels[row] = scores.argmax()
        asked, send = self._asked(), []
        for rows in nonzero_rows(self.contents.copies):
            unasked = np.setdiff1d(rows, asked, assume_unique=True)
            if guarantee is None:
                send.append(unasked)
                continue
            for some, answers in self._outcomes(model, unasked):
                left = simulate([model.point], answers)[0]
                cheap = (left < self.last_exit).numpy()
                labels[some[cheap]] = answers.predictions[0, torch.arange(len(some)), left].numpy()[cheap]
                exits[some[cheap]] = left.numpy()[cheap]
                send.append(some[~cheap])
        sent = np.concatenate(send) if send else np.empty(0, np.int64)
        for some, scores in self.ask(sent, "for unsure inputs"):
            labels[some] = scores.argmax(1)
        for some, answers in self._outcomes(model, np.array(sorted(self.failures), np.int64)):
            failed[some] = True
            if on_failure == "cheap":
                labels[some] = answers.predictions[0, :, self.last_exit - 1].numpy()
                exits[some] = self.last_exit - 1
        for values in (labels, exits, failed):
            self.contents.copy_to_all(values)
        if isinstance(guarantee, SetGuarantee) and failed.any():
            guarantee = guarantee.without(int(failed.sum()))
        return Annotation(
            labels=labels,
            classes=self.rows.cascade.classes,
            exits=exits,
            failed=failed,
            bill=self._bill(len(sent)),
            guarantee=guarantee,
            model=replace(model, classes=self.rows.cascade.classes),
        )

    def full_price(self) -> float:
        """Return the price of asking the last member for every input, estimated where prices vary."""
        last = self.rows.last.caller
        base, slope = last.price_line
        full = base * len(self.contents)
        if slope:
            for rows in nonzero_rows(self.contents.copies):
                for start in range(0, len(rows), READ_ROWS):
                    full += slope * float(last.sizes(self.rows.read(rows[start : start + READ_ROWS])).sum())
        return full

    def _bill(self, sent: int) -> Bill:
        last = self.rows.last.caller
        called = [member for member in self.rows.cascade.members if isinstance(member, CalledModel)]
        priced = [
            member.caller
            for member in called
            if member.caller is last or (member.price is not None and member.price.currency == last.price.currency)
        ]
        assert last.answers is not None
        spent = sum(last.answers.usage(caller.identity).spent for caller in priced)
        inputs, full = len(self.contents), self.full_price()
        return Bill(inputs, self.learning, self.sampled, sent, spent, full, last.price.currency)


def _sort_points(model: EarlyExitModel) -> list[OperatingPoint]:
    """Return the operating points, from the one that accepts fewest inputs to the one that accepts most."""
    return sorted(model.points["threshold"], key=lambda point: -point.tune_metrics["cost"])
