"""Answers for a set of inputs from a cascade that ends in an expensive model, with a bound on what changes."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from offramp.annotation._job import Annotation, Job
from offramp.annotation._rows import InputRows, as_inputs
from offramp.annotation._sampling import Scope
from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade as make_cascade
from offramp.backbone.adapters._callable import CalledModel
from offramp.calls._answers import AnswerStore
from offramp.errors import InputError
from offramp.model._choose import CONFIDENCE
from offramp.model._extraction import feature_folder
from offramp.pooling._rich import DEFAULT_POOLING

__all__ = ["annotate", "open_job"]


def annotate(
    inputs: Any,
    cascade: Backbone | Sequence[Any],
    *,
    label_budget: int = 1000,
    max_drop: float = 0.02,
    loss: str = "disagreement",
    confidence: float = CONFIDENCE,
    scope: Scope = "inputs",
    classes: Sequence[str] = (),
    max_spend: float | None = None,
    on_failure: Literal["cheap", "later"] = "cheap",
    anyway: bool = False,
    store: str | Path | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Annotation:
    """Answer inputs with a cascade that ends in an expensive model, asking it for as few of them as possible.

    No labels are needed: the answers of the last member are the truth. It is asked for a random sample, and for the
    inputs that the cheap members are least sure of; the cheap members learn from its answers; it is asked for one more
    random sample, which bounds the disagreement; and for the inputs that the cheap members are not sure enough of.

    Args:
        inputs: N inputs: a list of texts, an array, a dictionary of them (members then name their `field`), the path
            of a file or folder, or a source.
        cascade: The cascade, or its members: encoders, networks and functions, the last one a function or
            `offramp.llm`.
        label_budget: Answers to buy for learning, at most.
        max_drop: Largest share of the N answers that may differ from the last member's.
        loss: "disagreement"; for accuracy, where there are labels, use `offramp.fit`.
        confidence: Confidence of the guarantee.
        scope: What the guarantee is about: "inputs", these N inputs; "future", inputs to come that are drawn as these
            were, for a model that goes into production.
        classes: Class names, if no member knows them.
        max_spend: Spending cap for the last member, in its currency.
        on_failure: The answer to an input for which all attempts failed: "cheap", that of the cheap members; "later",
            none, so that the next run asks again. `Annotation.failed` marks both; the guarantee does not cover them.
        anyway: Ask the last member for everything where nothing cheaper can be guaranteed, rather than refuse.
        store: Folder for answers and features: a job that was interrupted goes on from there and asks nothing twice. A
            temporary one if left out.
        seed: Seed of the random samples.
        progress: Show progress bars.

    Raises:
        BudgetError: If it does not pay: no guarantee is possible that spares a tenth of the calls.
        CallError: If the last member does not answer any more, or the spending cap is reached. With a `store`, answers
            so far are kept.
    """
    if loss != "disagreement":
        raise InputError(
            "loss",
            expected="'disagreement'",
            got=loss,
            hint="for accuracy give offramp.fit labelled data: it takes the same cascade",
        )
    with open_job(
        inputs,
        cascade,
        max_drop=max_drop,
        confidence=confidence,
        scope=scope,
        classes=classes,
        max_spend=max_spend,
        anyway=anyway,
        store=store,
        seed=seed,
        progress=progress,
    ) as job:
        model, guarantee = job.guarantee(job.learn(label_budget))
        return job.answer(model, guarantee, on_failure)


@contextmanager
def open_job(
    inputs: Any,
    cascade: Backbone | Sequence[Any],
    *,
    max_drop: float,
    confidence: float,
    scope: Scope,
    classes: Sequence[str],
    max_spend: float | None,
    anyway: bool,
    store: str | Path | None,
    seed: int,
    progress: bool,
) -> Iterator[Job]:
    """Run the cheap members over the inputs, and yield the job, whose answers are kept while in this context.

    The arguments are those of `annotate`.
    """
    for name, share in (("max_drop", max_drop), ("confidence", confidence)):
        if not 0 < share < 1:
            raise InputError(expected=f"{name} above 0 and below 1", got=share)
    if scope not in ("inputs", "future"):
        raise InputError("scope", expected="'inputs' or 'future'", got=scope)
    if max_spend is not None and not max_spend > 0:
        raise InputError("max_spend", expected="a number above 0", got=max_spend)
    backbone = cascade if isinstance(cascade, Backbone) else make_cascade(*cascade, classes=classes)
    if classes and not backbone.classes and len(classes) == backbone.num_classes:
        backbone.classes = tuple(classes)
    if not isinstance(backbone, Cascade) or not isinstance(backbone.members[-1], CalledModel):
        raise InputError(
            "cascade",
            expected="a cascade whose last member is called: a function or offramp.llm",
            got=f"'{backbone.name}'",
            hint="for networks alone use offramp.fit",
        )
    source = as_inputs(inputs)
    with feature_folder(store) as folder, ExitStack() as stack:
        stack.enter_context(_keep_answers(backbone, folder / "answers.sqlite", max_spend))
        rows = InputRows(source, backbone, folder, pooling=DEFAULT_POOLING, progress=progress)
        yield Job(rows, max_drop, confidence, scope, anyway, seed, progress)


@contextmanager
def _keep_answers(backbone: Cascade, path: Path, max_spend: float | None) -> Iterator[None]:
    """Keep the answers of all called members in one file while in this context."""
    answers = AnswerStore(path)
    with ExitStack() as stack:
        stack.callback(answers.close)
        for member in backbone.members:
            if isinstance(member, CalledModel):
                cap = max_spend if member is backbone.members[-1] else None
                stack.enter_context(member.caller.keeping(answers, max_spend=cap))
        yield
