"""Claims about single exits: where samples leave, and that easy samples stay easy."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from offramp_bench.paper.details import BASELINE, JEI
from offramp_bench.paper.equal_cost import Results
from offramp_bench.paper.training_claims import BASELINES, THRESHOLD
from offramp_bench.paper.verdicts import Claim, differences, improves, is_alike, judge, noise_of_share, signed

__all__ = ["judge_success", "judge_where_samples_leave"]

ALIKE = 0.01
"""Accuracies of exits on all samples that differ by less are alike."""

SUCCESS = 0.9
"""Conditional accuracy that the paper reports for all exits."""

Tasks = Mapping[str, Results]
Details = Mapping[str, Any]


def judge_where_samples_leave(tasks: Tasks, details: Mapping[str, Details]) -> Claim:
    """Judge observation 3: easy samples leave at the exits in use, whose classifiers are no better than others'."""
    easier = differences(
        details,
        _lead_of_leavers,
        lambda task_details: noise_of_share(task_details["full accuracy"], task_details["test"]),
    )
    what = "points more on samples that leave at a much-used exit than that exit has on all samples"
    measures = [improves(what, easier)]
    for rival in (*BASELINES, THRESHOLD):
        gaps = differences(tasks, partial(_exits_apart, rival=rival), lambda task: ALIKE)
        whose = "linear exits trained on all samples" if rival == THRESHOLD else rival
        measures.append(is_alike(f"points of exits on all samples above those of {whose}", gaps))
    return judge(
        "3. Where samples leave",
        "At the exits that most samples leave at, accuracy on those who leave is above the exit's accuracy on all: "
        "easy samples are sent there. The exits themselves are about as accurate on all samples as the baselines'.",
        measures,
        cause=_describe_exits(tasks),
        note="Much used is an exit before the last that more than an even share leaves at; all cost weights, one seed.",
    )


def judge_success(details: Mapping[str, Details]) -> Claim:
    """Judge that what an exit has right, the next one has right too."""

    def least(task_details: Details) -> float:
        shares = task_details["accuracy after success"][JEI]["right before"]
        return float(min(share for share in shares if share is not None))

    def above(task_details: Details) -> float:
        rows = task_details["accuracy after success"][JEI]
        pairs = zip(rows["right before"], rows["all"], strict=True)
        return float(np.mean([conditional - on_all for conditional, on_all in pairs if conditional is not None]))

    cause = ""
    if details:
        name = min(details, key=lambda task: least(details[task]))
        shares = details[name]["accuracy after success"][JEI]["right before"]
        baseline = details[name]["accuracy after success"][BASELINE]["right before"]
        place = shares.index(min(share for share in shares if share is not None))
        cause = (
            f"On {name}, exit {place + 2} has {100 * shares[place]:.1f} % of the samples right that exit {place + 1} "
            f"has right"
        )
        cause += "." if baseline[place] is None else f"; of BoostedNet's exits it is {100 * baseline[place]:.1f} %."
    return judge(
        "Easy stays easy",
        "Samples that an exit has right are right at the next exit too: over 90 % at every exit, and more than of all "
        "samples, so that leaving as soon as possible is sensible.",
        [
            improves(
                "points that the least conditional accuracy of an exit is above 90 %",
                differences(
                    details,
                    lambda task_details: least(task_details) - SUCCESS,
                    lambda task_details: noise_of_share(SUCCESS, task_details["test"]),
                ),
            ),
            improves(
                "points of conditional accuracy above the accuracy on all samples",
                differences(
                    details,
                    above,
                    lambda task_details: noise_of_share(task_details["full accuracy"], task_details["test"]),
                ),
            ),
        ],
        cause=cause,
        note="Exits are counted from 1; exits of JEI-DNN, mean over cost weights, one seed.",
    )


def _lead_of_leavers(details: Mapping[str, Any]) -> float | None:
    """Return the accuracy of leavers above the exit's on all samples, at much-used exits, mean over leavers."""
    leave, above = 0, 0.0
    for row in details["cost weights"]:
        exits = row["exits"]
        even_share = sum(exit_row["leave"] for exit_row in exits) / len(exits)
        for exit_row in exits[:-1]:
            if exit_row["leave"] > even_share:
                leave += exit_row["leave"]
                above += exit_row["leave"] * (exit_row["accuracy"] - exit_row["accuracy of all"])
    return above / leave if leave else None


def _describe_exits(tasks: Tasks) -> str:
    """Return a sentence on the exits' accuracy on all samples, with the paper's loss and with that of its code."""
    plain = "JEI-DNN, plain loss"
    means = []
    for name in (JEI, plain):
        leads = [_exits_apart(task, rival=THRESHOLD, contestant=name) for task in tasks.values()]
        values = [lead for lead in leads if lead is not None]
        means.append(100 * sum(values) / len(values) if values else None)
    if means[0] is None or means[1] is None:
        return ""
    return (
        f"Trained on the samples that leave there, JEI-DNN's exits are {signed(means[0])} points from linear exits on "
        f"all samples, and {signed(means[1])} with the plain loss, to which the loss of the authors' code amounts."
    )


def _exits_apart(task: Results, *, rival: str, contestant: str = JEI) -> float | None:
    """Return how much more accurate a contestant's exits are on all samples, mean over exits but the last."""
    ours, theirs = (task["contestants"].get(name, {}).get("exit accuracy") for name in (contestant, rival))
    if not ours or not theirs or len(ours) != len(theirs) or len(ours) < 2:
        return None
    return float(np.mean(np.subtract(ours, theirs)[:-1]))
