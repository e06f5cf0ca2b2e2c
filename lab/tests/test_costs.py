"""The paper's tables of Mul-Adds: what is committed is what is counted, and a wrong count shows."""

import json
from dataclasses import replace

import torch
from fvcore.nn import FlopCountAnalysis
from torch import Tensor, nn

from offramp_bench.costs import FVCORE_SURPLUS, KNOWN, TABLES, Published, counted, differing, printed
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
def test_every_cell_but_the_known_ones(published: Published) -> None:
    found = counted(published)
    differences = differing(published, found)
    places = {(cell["network"], cell["row"], cell["exit"]) for cell in differences}
    assert places == {place for place in KNOWN if place[0] == published.name}
    assert found["trainable"] == published.trainable
    committed = json.loads((RESULTS / "costs.json").read_text())
    assert committed[published.name] == found
    assert [cell for cell in committed["differing"] if cell["network"] == published.name] == differences


def test_increments() -> None:
    for name, classifier, gate in (("T2T-ViT-7", 2570, 96), ("T2T-ViT-14", 38_500, 906)):
        published = BY_NAME[name]
        found = counted(published)
        exits = [*range(1, published.depth), published.depth - 1]  # the last answers by itself
        assert found["classifiers"] == [exit * classifier for exit in exits]
        assert found["gates"] == [exit * gate for exit in exits]
        for total, *parts in zip(*(found[row] for row in ("total", "base", "classifiers", "gates")), strict=True):
            assert total == sum(parts)


def test_a_count_a_little_off_would_show() -> None:
    published = BY_NAME["T2T-ViT-7"]
    found = counted(published)
    found["base"] = [number + 200_000 for number in found["base"]]  # less than a norm
    assert any(cell["reason"] is None for cell in differing(published, found))
    found = counted(published)
    assert differing(replace(published, gates=published.gates.replace("384", "385")), found)


@each(
    ("number", "cell"),
    [(414_258_732, "414.3M"), (785_993_004, "786M"), (1_157_733_996, "1158M"), (38_500, "38.5K"), (77_000, "77K")],
)
def test_printed_as_the_paper_does(number: int, cell: str) -> None:
    assert printed(number, cell) == cell
    assert printed(number * 1.01, cell) != cell


def test_what_the_papers_counter_adds() -> None:
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
