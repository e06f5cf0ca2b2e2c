"""The claims of [Regol2024], judged on the results of the tracks.

Every contestant was tuned by the same budget. Accuracies at equal cost are means over costs on a linear axis, in the
range of each task; figures of single exits are those of `details`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from offramp_bench.paper.equal_cost import Results
from offramp_bench.paper.exit_claims import judge_success, judge_where_samples_leave
from offramp_bench.paper.training_claims import (
    judge_ablation,
    judge_diff_branch,
    judge_exit_if_min,
    judge_full_gradient,
    judge_graphs,
    judge_joint_training,
    judge_learned_gates,
    judge_tailored_architectures,
    judge_training_time,
)
from offramp_bench.paper.uncertainty_claims import (
    judge_calibration_by_depth,
    judge_conformal_variants,
    judge_uncertainty,
    judge_uncertainty_parts,
)

__all__ = ["judge_claims"]


def judge_claims(tasks: Mapping[str, Results], details: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all claims with their verdicts, in a form that JSON can hold.

    Args:
        tasks: Results of the tracks, by task.
        details: Details by task, as `paper.details` gives them; tasks may be missing.
    """
    claims = [
        judge_joint_training(tasks),
        judge_learned_gates(tasks),
        judge_where_samples_leave(tasks, details),
        judge_uncertainty(tasks, details),
        judge_tailored_architectures(),
        *judge_uncertainty_parts(tasks, details),
        judge_ablation(tasks),
        judge_diff_branch(tasks),
        judge_conformal_variants(details),
        judge_calibration_by_depth(details),
        judge_full_gradient(tasks, details),
        judge_exit_if_min(tasks),
        judge_success(details),
        judge_graphs(tasks),
        judge_training_time(tasks),
    ]
    return [asdict(claim) for claim in claims]
