"""The paper's tables of Mul-Adds: committed counts equal new ones, and a wrong count shows."""

import json
from dataclasses import replace

import torch
from fvcore.nn import FlopCountAnalysis
from torch import Tensor, nn

from offramp_bench.costs import (
    FVCORE_SURPLUS,
    KNOWN,
    TABLES,
    PublishedTable,
    count_table,
    find_differences,
    format_like,
)
from offramp_bench.places import RESULTS
from tests.cases import each

BY_NAME = {published.name: published for published in TABLES}


class Einsum(nn.Module):
    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.einsum(self.equation, first, second)


@each("published", TABLES)
def test_every_cell_but_the_known_ones(published: PublishedTable) -> None:
    counts = count_table(published)
    differences = find_differences(published, counts)
    places = {(cell["network"], cell["row"], cell["exit"]) for cell in differences}
    assert places == {place for place in KNOWN if place[0] == published.name}
    assert counts["trainable"] == published.trainable
    committed = json.loads((RESULTS / "costs.json").read_text())
    assert committed[published.name] == counts
    assert [cell for cell in committed["differing"] if cell["network"] == published.name] == differences


def test_increments() -> None:
    for name, classifier, gate in (("T2T-ViT-7", 2570, 96), ("T2T-ViT-14", 38_500, 906)):
        published = BY_NAME[name]
        counts = count_table(published)
        exits = [*range(1, published.depth), published.depth - 1]  # the last answers by itself
        assert counts["classifiers"] == [exit * classifier for exit in exits]
        assert counts["gates"] == [exit * gate for exit in exits]
        for total, *parts in zip(*(counts[row] for row in ("total", "base", "classifiers", "gates")), strict=True):
            assert total == sum(parts)


def test_a_count_a_little_off_would_show() -> None:
    published = BY_NAME["T2T-ViT-7"]
    counts = count_table(published)
    counts["base"] = [number + 200_000 for number in counts["base"]]  # less than a norm
    assert any(cell["reason"] is None for cell in find_differences(published, counts))
    counts = count_table(published)
    assert find_differences(replace(published, gates=published.gates.replace("384", "385")), counts)


@each(
    ("number", "cell"),
    [(414_258_732, "414.3M"), (785_993_004, "786M"), (1_157_733_996, "1158M"), (38_500, "38.5K"), (77_000, "77K")],
)
def test_printed_as_the_paper_does(number: int, cell: str) -> None:
    assert format_like(number, cell) == cell
    assert format_like(number * 1.01, cell) != cell


def test_the_excess_of_the_papers_counter() -> None:
    surplus = 0.0
    for tokens in (56 * 56, 28 * 28):
        # A performer's products as einsums: features of keys and queries, their sums, keys by values, queries by those.
        for equation, first, second, mul_adds in (
            ("bti,mi->btm", (1, tokens, 64), (32, 64), tokens * 64 * 32),
            ("bti,mi->btm", (1, tokens, 64), (32, 64), tokens * 64 * 32),
            ("bti,bi->bt", (1, tokens, 32), (1, 32), tokens * 32),
            ("bin,bim->bnm", (1, tokens, 64), (1, tokens, 32), tokens * 64 * 32),
            ("bti,bni->btn", (1, tokens, 32), (1, 64, 32), tokens * 32 * 64),
        ):
            analysis = FlopCountAnalysis(Einsum(equation), (torch.zeros(first), torch.zeros(second)))
            surplus += analysis.total() - mul_adds
    assert surplus == FVCORE_SURPLUS
