"""The paper's two tables of Mul-Adds, counted anew.

    python -m offramp_bench.costs [--check]

T2T-ViT-7 on CIFAR-10 and T2T-ViT-14 on CIFAR-100 at 224 x 224, by the paper's rule: one a multiply-add, layer norms 5
an element, the final one at every exit. Results go to stdout as JSON, what differs to stderr.
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
"""fvcore, the paper's counter, takes einsums from what numpy prints of them, four digits: the T2T module's come out
this much too high. It decides one cell, 947.7M (947.648 counted, 947.655 with it)."""


@dataclass(frozen=True)
class Published:
    """A table of the paper (appendix "Inference cost"), cells as printed: M is a million, K a thousand."""

    depth: int
    width: int
    num_classes: int
    base: str
    """The network, its final norm at every exit."""
    classifiers: str
    """What the exits' classifiers add up to."""
    gates: str
    """What the gates add up to."""
    total: str
    """All of it."""
    trainable: int
    """Parameters of classifiers and gates."""

    @property
    def name(self) -> str:
        """The network's."""
        return f"T2T-ViT-{self.depth}"

    @property
    def rows(self) -> dict[str, list[str]]:
        """The table's cells."""
        return {row: getattr(self, row).split() for row in ("base", "classifiers", "gates", "total")}


TABLES = (
    Published(
        7,
        256,
        10,
        base="414.3M 538.2M 662.1M 786M 909.9M 1034M 1158M",
        classifiers="2570 5140 7710 10280 12850 15420 15420",
        gates="96 192 288 384 480 576 576",
        total="414.3M 538.2M 662.1M 786M 909.9M 1034M 1158M",
        trainable=15_450,
    ),
    Published(
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


def printed(number: float, cell: str) -> str:
    """A number as a cell writes it: millions to four digits, thousands to two behind the point, no trailing zeros."""
    if cell.endswith("M"):
        return f"{number / 1e6:.4g}M"
    if cell.endswith("K"):
        return f"{number / 1e3:.2f}".rstrip("0").rstrip(".") + "K"
    return f"{number:.0f}"


def counted(published: Published) -> dict[str, Any]:
    """The same rows, counted."""
    depth, num_classes = published.depth, published.num_classes
    backbone = T2TViT(depth, num_classes=num_classes)
    found = count_backbone(backbone, torch.zeros(1, 3, 224, 224), FirstPooling(), layer_norms=True)
    exits = LinearExits((published.width,) * depth, tuple(range(depth - 1)), num_classes)
    (table,) = price(found, exits, decision=GatePolicy().mul_adds(num_classes)).tables
    own = found.head[0]
    trained = [*exits.parameters(), *Gates(depth).parameters()]
    return {
        "base": (table.stage + table.carry + own).cumsum(0).tolist(),
        "classifiers": (table.answer - own).cumsum(0).tolist(),
        "gates": table.decide.cumsum(0).tolist(),
        "total": table.cumulative_costs().tolist(),
        "trainable": sum(parameter.numel() for parameter in trained),
        "network": sum(parameter.numel() for parameter in T2TViT(depth).parameters()),
    }


def differing(published: Published, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells of a table that are not what was counted, as the paper would print it."""
    differences = []
    for row, cells in published.rows.items():
        surplus = FVCORE_SURPLUS if row in ("base", "total") else 0
        for exit, (cell, number) in enumerate(zip(cells, found[row], strict=True), start=1):
            if printed(number + surplus, cell) != cell:
                reason = KNOWN.get((published.name, row, exit))
                place = {"network": published.name, "row": row, "exit": exit}
                differences.append({**place, "paper": cell, "counted": number, "reason": reason})
    return differences


def main() -> int:
    arguments = parser(__doc__).parse_args()
    found = {published.name: counted(published) for published in TABLES}
    differences = [cell for published in TABLES for cell in differing(published, found[published.name])]
    for cell in differences:
        say(f"{cell['network']} {cell['row']} {cell['exit']}: {cell['counted']:,.0f}, in the paper {cell['paper']}")
    unexplained = [cell for cell in differences if cell["reason"] is None]
    bars = [Bar("table cells that differ, and not for a known reason", len(unexplained), 0)]
    for published in TABLES:
        off = abs(found[published.name]["trainable"] - published.trainable)
        bars.append(Bar(f"{published.name}: trainable parameters away from the paper's", off, 0))
    cells = sum(len(row) for published in TABLES for row in published.rows.values())
    return report({**found, "cells": cells, "differing": differences}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
