"""`offramp annotate`."""

import csv
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from offramp.cli.console import print_json, resumable, say
from offramp.cli.options import (
    BackboneOption,
    ClassesOption,
    ColumnOption,
    DataOption,
    JsonOption,
    LabelOption,
    SplitOption,
)
from offramp.cli.places import check_artifact, check_writable, lock_output
from offramp.errors import InputError

if TYPE_CHECKING:
    from offramp.annotation import Annotation

__all__ = ["annotate"]

_BILL, _GUARANTEE = "The bill", "The guarantee"


def annotate(
    model: BackboneOption,
    data: DataOption,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File of answers to write, .csv.")],
    artifact: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save the model here, for [bold]offramp predict[/bold] and [bold]offramp monitor[/bold]. "
            "[dim]Without it: it is not kept.[/dim]",
        ),
    ] = None,
    label_budget: Annotated[
        int, typer.Option(metavar="N", help="Answers to buy for learning, at most.", rich_help_panel=_BILL)
    ] = 1000,
    max_spend: Annotated[
        float | None,
        typer.Option(
            metavar="PRICE",
            help="Spending cap for the last member, in the currency of its price, earlier runs with the same --store "
            "included. [dim]Without it: none.[/dim]",
            rich_help_panel=_BILL,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            metavar="",
            help="Ask for three tenths of --label-budget, estimate the bill with a 90 % interval, and stop. The "
            "answers are kept: the same command without --dry-run goes on from them.",
            rich_help_panel=_BILL,
        ),
    ] = False,
    max_drop: Annotated[
        float,
        typer.Option(
            "--max-drop",
            metavar="SHARE",
            help="Largest share of the answers that may differ from the last member's.",
            rich_help_panel=_GUARANTEE,
        ),
    ] = 0.02,
    confidence: Annotated[
        float, typer.Option(metavar="SHARE", help="Confidence of the guarantee.", rich_help_panel=_GUARANTEE)
    ] = 0.95,
    scope: Annotated[
        Literal["inputs", "future"],
        typer.Option(
            metavar="NAME",
            help="Subject of the guarantee: inputs, those of --data; or future, inputs to come that are drawn as these "
            "were, for an artifact that goes into production.",
            rich_help_panel=_GUARANTEE,
        ),
    ] = "inputs",
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            metavar="",
            help="Ask the last member for every input if nothing cheaper can be guaranteed. [dim]Without it: an error "
            "that says what it would take.[/dim]",
            rich_help_panel=_GUARANTEE,
        ),
    ] = False,
    on_failure: Annotated[
        Literal["cheap", "later"],
        typer.Option(
            metavar="NAME",
            help="Answer to an input for which all attempts failed: cheap, that of the cheap members; later, none, so "
            "that the next run asks again. The column failed marks both.",
        ),
    ] = "cheap",
    label: LabelOption = "label",
    column: ColumnOption = None,
    split: SplitOption = None,
    classes: ClassesOption = None,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the answers that were paid for and for features: nothing in it is asked twice. "
            "[dim]Without it: FILE.job, beside --out.[/dim]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the random samples.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Answer inputs with an expensive model at a fraction of the calls, with a bound on what changes.

    Give [bold]--model[/bold] twice or more, cheap to expensive; the last one is a function or a language model that is
    only called ([bold]package:function[/bold] that returns offramp.llm(...) or offramp.callable_model(...)). No labels
    are needed: cheap members learn from the last one's answers, and a random sample of them bounds the disagreement.

    Every answer is kept at once. If interrupted, the same command continues where it stopped and asks nothing twice.

    [bold]Example[/bold]: offramp annotate --model tickets:encoder --model tickets:llm --data tickets.csv --max-drop
    0.02 --out answers.csv --artifact tickets-offramp
    """
    from offramp import annotate as annotate_inputs
    from offramp.annotation import estimate_bill
    from offramp.cli.datasets import classes_for
    from offramp.cli.networks import make_network, trust_options
    from offramp.data import open_data

    if out.suffix != ".csv":
        raise InputError("--out", expected="a name that ends with .csv", got=f"'{out.name}'")
    check_writable(out.parent, "--out")
    if artifact is not None:
        check_artifact(artifact)
    folder = out.with_name(f"{out.name}.job") if store is None else store
    check_writable(folder, "--store")
    network = make_network(model, to_save=artifact is not None)
    names = classes_for(network, classes)
    source = open_data(data, label=label, column=column, split=split)
    job_options: dict[str, Any] = {
        "label_budget": label_budget,
        "max_drop": max_drop,
        "confidence": confidence,
        "scope": scope,
        "classes": names,
        "max_spend": max_spend,
        "store": folder,
        "seed": seed,
        "progress": not as_json,
    }
    with (
        lock_output(out),
        resumable(f"Answers are kept in {folder}; run the same command again: it continues where it stopped."),
    ):
        if dry_run:
            estimate = estimate_bill(source, network, **job_options)
            if as_json:
                prices = [estimate.price(count) for count in (estimate.asked, *estimate.interval)]
                print_json({**asdict(estimate), "price": prices[0], "price_interval": prices[1:]})
            else:
                say(f"Estimated: {estimate}.")
            return
        job = annotate_inputs(source, network, on_failure=on_failure, anyway=anyway, **job_options)
        _write(out, job, source.keys(0, len(source)), names)
        if artifact is not None:
            job.model.save(artifact)
    if as_json:
        guarantee = None if job.guarantee is None else asdict(job.guarantee)
        bill = {**asdict(job.bill), "asked": job.bill.asked, "share": job.bill.share}
        print_json({"out": str(out), "bill": bill, "guarantee": guarantee, "failed": int(job.failed.sum())})
        return
    say(f"{len(job.labels):,} answers in {out}. {job.bill}, {100 * job.bill.share:.1f} %.")
    say(f"Guaranteed: {job.guarantee}." if job.guarantee is not None else "Every input was asked: no answer differs.")
    if job.failed.any():
        say(f"{int(job.failed.sum()):,} inputs got no valid class from the last member (column failed): not covered.")
    if artifact is not None:
        if scope == "inputs":
            say("The guarantee is about these inputs. For one about new inputs: --scope future.")
        say(f"For new inputs: offramp predict {artifact} --data NEW --out more.csv{trust_options(job.model)}")


def _write(out: Path, job: "Annotation", inputs: list[str], classes: tuple[str, ...]) -> None:
    """Write one line per input: its identifier, label, the exit that answered, and whether the last member failed."""
    from offramp._files import write_atomically

    with write_atomically(out) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("input", "label", "exit", "failed"))
        rows = zip(inputs, job.labels.tolist(), job.exits.tolist(), job.failed.tolist(), strict=True)
        for name, number, exit, failed in rows:
            known = "" if number < 0 else classes[number] if classes else number
            writer.writerow((name, known, exit, int(failed)))
