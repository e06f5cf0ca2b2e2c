"""Count the Mul-Adds of the paper's two tables again, and compare them.

    python -m offramp_bench.costs [--check]

T2T-ViT-7 on CIFAR-10 and T2T-ViT-14 on CIFAR-100 at 224 x 224, by the paper's rule: one per multiply-add, 5 per element
of a layer norm, and the final layer norm at every exit. Results go to stdout as JSON, differences to stderr.
"""

import sys
from dataclasses import dataclass
from typing import Any

import torch

from offramp.cost import count_backbone
from offramp.cost._mul_adds import price
from offramp.exits import LinearExits
from offramp.exits._gate import Gates
from offramp.policy._gates import GatePolicy
from offramp.pooling._pooling import FirstPooling
from offramp_bench.backbones.t2t_vit import T2TViT
from offramp_bench.bars import Bar, parser, report, say

FVCORE_SURPLUS = 7_020
"""Excess of fvcore, the paper's counter, on the T2T module: it reads the counts of einsums from text that numpy prints,
with four digits. It decides one cell, 947.7M (947.648 counted, 947.655 with the excess)."""


@dataclass(frozen=True)
class PublishedTable:
    """A table of the paper (appendix "Inference cost"), cells as printed: M is a million, K a thousand."""

    depth: int
    width: int
    num_classes: int
    base: str
    """Mul-Adds of the network, with its final norm at every exit."""
    classifiers: str
    """Mul-Adds of the exits' classifiers, summed up to each exit."""
    gates: str
    """Mul-Adds of the gates, summed up to each exit."""
    total: str
    """Mul-Adds of everything."""
    trainable: int
    """Parameters of classifiers and gates."""

    @property
    def name(self) -> str:
        """Name of the network."""
        return f"T2T-ViT-{self.depth}"

    @property
    def rows(self) -> dict[str, list[str]]:
        """Cells of each row of the table."""
        return {row: getattr(self, row).split() for row in ("base", "classifiers", "gates", "total")}


TABLES = (
    PublishedTable(
        7,
        256,
        10,
        base="414.3M 538.2M 662.1M 786M 909.9M 1034M 1158M",
        classifiers="2570 5140 7710 10280 12850 15420 15420",
        gates="96 192 288 384 480 576 576",
        total="414.3M 538.2M 662.1M 786M 909.9M 1034M 1158M",
        trainable=15_450,
    ),
    PublishedTable(
        14,
        384,
        100,
        base="626.2M 947.7M 1269M 1590M 1912M 2233M 2555M 2876M 3198M 3519M 3841M 4162M 4483M 4805M",
        classifiers="38.5K 77K 115.5K 154K 192.5K 231K 269.5K 308K 346.5K 385K 423.5K 462K 500.5K 500.5K",
        gates="906 1812 2718 3624 4530 5436 6342 7248 8154 9060 9.96K 10.87K 11.78K 11.78K",
        total="626.3M 947.7M 1269M 1591M 1912M 2233M 2555M 2876M 3198M 3519M 3841M 4162M 4483M 4805M",
        trainable=500_565,
    ),
)

KNOWN = {
    ("T2T-ViT-14", "base", 4): "cut where its neighbours are rounded",
    ("T2T-ViT-14", "gates", 11): "cut where its neighbours are rounded",
    ("T2T-ViT-14", "total", 6): "the base again, without what the exits add",
    ("T2T-ViT-14", "total", 8): "the base again, without what the exits add",
    ("T2T-ViT-14", "total", 13): "the base again, without what the exits add",
}
"""Cells that do not follow from the rest of their own table, by network, row and exit (from 1)."""


def format_like(number: float, cell: str) -> str:
    """Format a number like a cell: millions with four digits, thousands with two decimals, no trailing zeros."""
    if cell.endswith("M"):
        return f"{number / 1e6:.4g}M"
    if cell.endswith("K"):
        return f"{number / 1e3:.2f}".rstrip("0").rstrip(".") + "K"
    return f"{number:.0f}"


def count_table(published: PublishedTable) -> dict[str, Any]:
    """Count the Mul-Adds of all rows of a table."""
    depth, num_classes = published.depth, published.num_classes
    backbone = T2TViT(depth, num_classes=num_classes)
    mul_adds = count_backbone(backbone, torch.zeros(1, 3, 224, 224), FirstPooling(), layer_norms=True)
    exits = LinearExits((published.width,) * depth, tuple(range(depth - 1)), num_classes)
    (table,) = price(mul_adds, exits, decision=GatePolicy().mul_adds(num_classes)).tables
    own = mul_adds.head[0]
    parameters = [*exits.parameters(), *Gates(depth).parameters()]
    return {
        "base": (table.stage + table.carry + own).cumsum(0).tolist(),
        "classifiers": (table.answer - own).cumsum(0).tolist(),
        "gates": table.decide.cumsum(0).tolist(),
        "total": table.cumulative_costs().tolist(),
        "trainable": sum(parameter.numel() for parameter in parameters),
        "network": sum(parameter.numel() for parameter in T2TViT(depth).parameters()),
    }


def find_differences(published: PublishedTable, counts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of a table that differ from the counts, formatted as in the paper."""
    differences = []
    for row, cells in published.rows.items():
        surplus = FVCORE_SURPLUS if row in ("base", "total") else 0
        for exit, (cell, number) in enumerate(zip(cells, counts[row], strict=True), start=1):
            if format_like(number + surplus, cell) != cell:
                reason = KNOWN.get((published.name, row, exit))
                place = {"network": published.name, "row": row, "exit": exit}
                differences.append({**place, "paper": cell, "counted": number, "reason": reason})
    return differences


def main() -> int:
    arguments = parser(__doc__).parse_args()
    counts = {published.name: count_table(published) for published in TABLES}
    differences = [cell for published in TABLES for cell in find_differences(published, counts[published.name])]
    for cell in differences:
        say(f"{cell['network']} {cell['row']} {cell['exit']}: {cell['counted']:,.0f}, in the paper {cell['paper']}")
    unexplained = [cell for cell in differences if cell["reason"] is None]
    bars = [Bar("table cells that differ, and not for a known reason", len(unexplained), 0)]
    for published in TABLES:
        off = abs(counts[published.name]["trainable"] - published.trainable)
        bars.append(Bar(f"{published.name}: trainable parameters away from the paper's", off, 0))
    cells = sum(len(row) for published in TABLES for row in published.rows.values())
    return report({**counts, "cells": cells, "differing": differences}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
