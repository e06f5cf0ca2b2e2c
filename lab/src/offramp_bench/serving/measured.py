"""Write the table of measured servers in docs/evidence/serving.md.

    python -m offramp_bench.serving.measured

Reads the files that the checks wrote, lab/results/serving.json and lab/results/serving-*.json; a check without a file
has not been measured.
"""

import json
from typing import Any

from offramp_bench.marks import replace_marked
from offramp_bench.places import RESULTS, ROOT

__all__ = ["CHECKS", "PAGE", "make_page", "read_checks"]

PAGE = ROOT / "docs" / "evidence" / "serving.md"
CHECKS = {
    "serving": "serve",
    "serving-peer": "peer",
    "serving-overload": "overload",
    "serving-int8": "int8",
    "serving-replicas": "replicas",
    "serving-hostile": "hostile",
}
"""Names of the checks by file name."""

HELD = {True: "holds", False: "**missed**"}


def read_checks() -> dict[str, dict[str, Any]]:
    """Return the results of the checks that have been measured."""
    files = {check: RESULTS / f"{name}.json" for name, check in CHECKS.items()}
    return {check: json.loads(file.read_text("utf-8")) for check, file in files.items() if file.exists()}


def make_page(page: str, checks: dict[str, dict[str, Any]]) -> str:
    """Return the page with the figures of some checks.

    Args:
        page: The page.
        checks: Results by name of the check.
    """
    rows = [
        f"| `{check}` | {bar['name']} | {bar['figure']:.3g} | {bar['at_most']:.3g} | {HELD[bar['held']]} |"
        for check, results in checks.items()
        for bar in results["bars"]
    ]
    table = ["| `offramp-bench check` | what | measured | at most | |", "|---|---|---|---|---|", *rows]
    processors = sorted({results["processor"] for results in checks.values()})
    missing = sorted(set(CHECKS.values()) - set(checks))
    table += ["", f"Processor: {', '.join(processors)}."]
    if missing:
        table += [f"Not measured to the end yet: {', '.join(f'`{check}`' for check in missing)}."]
    return replace_marked(page, "measured", "\n".join(table))


if __name__ == "__main__":
    PAGE.write_text(make_page(PAGE.read_text("utf-8"), read_checks()), "utf-8")
