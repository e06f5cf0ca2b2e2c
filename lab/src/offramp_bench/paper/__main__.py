"""Judge the claims of the paper on the results of the tracks, under equal tuning.

    python -m offramp_bench.paper [--check] [--tasks nci1 superpixels ...]

For each of --tasks, the paper's method is fitted once more to measure what the tracks do not record: figures of single
exits, prediction sets at all levels, calibration by depth, accuracy after every epoch. They are written to
lab/results/paper/, and are not measured again while the settings stay the same. Then all claims are judged on
lab/results/tracks/ and lab/results/paper/, and written to lab/results/claims.json.

With --check nothing is measured or written: the committed claims are compared with those that the committed results
give.
"""

import json
import sys

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp_bench import places
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.json_files import write_json
from offramp_bench.paper.claims import judge_claims
from offramp_bench.paper.details import detail_file, identity, read_details, run_details, tuned_settings
from offramp_bench.paper.tasks import COMPARED, TASKS, Task
from offramp_bench.tracks.results import read_results

CLAIMS = places.RESULTS / "claims.json"
"""Committed claims with their verdicts."""


def measure(task: Task) -> None:
    """Measure the details of a task, unless they are there with the same settings."""
    file, settings = detail_file(task.name), tuned_settings(task)
    if file.exists() and json.loads(file.read_text())["identity"] == identity(task, settings):
        return
    write_json(file, run_details(task, settings), indent=1)
    say(f"{task.name}: details in {file}")


def check() -> int:
    """Compare the committed claims with those that the committed results give."""
    claims = json.loads(json.dumps(judge_claims(read_results(), read_details())))
    committed_claims = json.loads(CLAIMS.read_text()) if CLAIMS.exists() else []
    claim_of_name = {claim["name"]: claim for claim in committed_claims}
    stale = [claim["name"] for claim in claims if claim_of_name.get(claim["name"]) != claim]
    return report({"stale": stale}, [Bar("claims that the results do not give", len(stale), 0)], check=True)


def main() -> int:
    """Measure details and judge the claims."""
    options = parser(__doc__)
    options.add_argument("--tasks", nargs="*", default=[], choices=COMPARED, metavar="TASK", help="tasks to measure")
    arguments = options.parse_args()
    if arguments.check:
        return check()
    for name in arguments.tasks:
        measure(TASKS[name])
    claims = judge_claims(read_results(), read_details())
    write_json(CLAIMS, claims, indent=1)
    say(f"claims in {CLAIMS}")
    return report({"verdicts": {claim["name"]: claim["verdict"] for claim in claims}}, [], check=False)


if __name__ == "__main__":
    sys.exit(main())
