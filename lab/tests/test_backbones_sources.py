"""Parts of the datasets: disjoint, chosen by class and id; long tails follow their formula."""

from typing import Any

import numpy as np
import pytest

from offramp.errors import UnknownNameError
from offramp.features import ArraySource, Source
from offramp_bench.backbones import BACKBONES, minilm, sources
from offramp_bench.cifar import SHEET_ROWS, Sheets, data_folder
from tests.cases import each


def whole(source: Source) -> Any:
    return source.read(0, len(source))


@pytest.fixture
def _no_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace images by one black pixel, where only labels and ids matter: the real ones take long to unpack."""
    monkeypatch.setattr(Sheets, "_sheet", lambda *_: np.zeros((SHEET_ROWS, 1, 1, 1), np.uint8))


def test_ranks_count_a_class_by_ids() -> None:
    draw = np.random.default_rng(0)
    labels, ids = draw.integers(0, 4, 60), draw.permutation(1000)[:60]
    ranks = sources.ranks(labels, ids)
    for row in range(60):
        assert ranks[row] == sum(labels[other] == labels[row] and ids[other] < ids[row] for other in range(60))
    order = draw.permutation(60)
    assert np.array_equal(sources.ranks(labels[order], ids[order]), ranks[order])


def test_a_subset_is_read_in_order() -> None:
    draw = np.random.default_rng(0)
    inputs, labels = draw.normal(size=(50, 3)), draw.integers(0, 4, 50)
    source = ArraySource(inputs, labels, name="all")
    mask = draw.random(50) < 0.3
    subset = sources.Subset(source, mask, name="some")
    assert (subset.name, len(subset)) == ("some", mask.sum())
    for start, stop in ((0, len(subset)), (0, 1), (3, 9), (len(subset) - 1, len(subset))):
        read = subset.read(start, stop)
        assert np.array_equal(read.inputs, inputs[mask][start:stop])
        assert np.array_equal(read.labels, labels[mask][start:stop])
        assert np.array_equal(read.ids, source.read(0, 50).ids[mask][start:stop])


HELD_OUT = {"gnn-nci1": 1 / 8, "minilm-agnews": 1 / 3, "minilm-sst2": 6735 / 15735}
"""Share of the train rows that is unseen, where it is not a fifth."""


@pytest.mark.data
@pytest.mark.usefixtures("_no_pixels")
@each("name", BACKBONES)
def test_parts_share_no_row(name: str) -> None:
    backbone = BACKBONES[name]
    parts = {part: whole(getattr(backbone, part)()) for part in sources.PARTS}
    ids = np.concatenate([rows.ids for rows in parts.values()])
    assert len(np.unique(ids)) == len(ids)
    train = len(parts["seen"].ids) + len(parts["unseen"].ids)
    share = HELD_OUT.get(name, 1 / 5)
    assert len(parts["unseen"].ids) / train == pytest.approx(share, abs=0.005)
    assert len({getattr(backbone, part)().name for part in sources.PARTS}) == 3


@pytest.mark.data
@pytest.mark.usefixtures("_no_pixels")
@each("rows", [sources.cifar10, sources.cifar100, sources.superpixels])
def test_every_class_is_held_out_alike(rows: Any) -> None:
    seen, unseen = (np.bincount(whole(rows(part)).labels) for part in ("seen", "unseen"))
    assert np.array_equal(unseen, (seen + unseen) // 5)


@pytest.mark.data
def test_pixels_stay_with_their_labels() -> None:
    sheets = Sheets(data_folder() / "cifar10", "train")
    everything, unseen = sheets.read(0, 5000), sources.cifar10("unseen").read(0, 900)
    rows = {sample: row for row, sample in enumerate(everything.ids.tolist())}
    for place in range(0, 900, 97):
        row = rows[int(unseen.ids[place])]
        assert np.array_equal(unseen.inputs[place], everything.inputs[row])
        assert unseen.labels[place] == everything.labels[row]


@pytest.mark.data
@pytest.mark.usefixtures("_no_pixels")
def test_the_long_tail_follows_its_formula() -> None:
    parts = {part: whole(sources.cifar100_long_tailed(part)) for part in (*sources.PARTS, "long-tailed test")}
    counts = {part: np.bincount(rows.labels, minlength=100) for part, rows in parts.items()}
    kept = [round(500 * 100 ** (-c / 99)) for c in range(100)]
    assert (kept[0], kept[-1]) == (500, 5)
    assert (counts["seen"] + counts["unseen"]).tolist() == kept
    assert counts["unseen"].tolist() == [number // 5 for number in kept]
    assert counts["test"].tolist() == [100] * 100
    assert counts["long-tailed test"].tolist() == [max(1, round(100 * 100 ** (-c / 99))) for c in range(100)]
    assert set(parts["long-tailed test"].ids) < set(parts["test"].ids)
    # Not the first of each class: within a class, files are sorted by names of near-synonyms.
    order = {sample: row for row, sample in enumerate(Sheets(data_folder() / "cifar100", "train").read(0, 50_000).ids)}
    last = [
        order[sample] // 100 for sample, label in zip(parts["seen"].ids, parts["seen"].labels, strict=True) if label
    ]
    assert np.mean(last) == pytest.approx(249.5, abs=10)


@pytest.mark.data
@pytest.mark.usefixtures("_no_pixels")
def test_a_photograph_is_seen_whole_or_not_at_all() -> None:
    with np.load(data_folder() / "svhn" / "train-labels.npz") as saved:
        photographs = saved["src"][: sources.SVHN_ROWS]
    row_of = {sample: row for row, sample in enumerate(whole(Sheets(data_folder() / "svhn", "train", 10_000)).ids)}
    seen, unseen = (
        {photographs[row_of[sample]] for sample in whole(sources.svhn(part)).ids} for part in ("seen", "unseen")
    )
    assert not seen & unseen
    assert len(seen | unseen) == len(set(photographs)) < 10_000


@pytest.mark.data
def test_nodes_have_intensities_and_places() -> None:
    rows = sources.superpixels("test").read(0, 50)
    x, nodes = rows.inputs["x"], rows.inputs["nodes"]
    assert x.shape == (nodes.sum(), 3)
    assert x.dtype == np.float32
    assert 0 <= x[:, 0].min() < 0.01
    assert 0.9 < x[:, 0].max() <= 1
    assert -1 <= x[:, 1:].min() < -0.8
    assert 0.8 < x[:, 1:].max() <= 1
    # Regions that touch are near one another.
    ends = rows.inputs["edge_index"]
    apart = np.linalg.norm(x[ends[0], 1:] - x[ends[1], 1:], axis=1)
    assert apart.mean() < 0.4
    assert np.array_equal(np.repeat(np.arange(50), nodes)[ends[0]], np.repeat(np.arange(50), nodes)[ends[1]])


@pytest.mark.data
@each("rows", [sources.cifar10, sources.cifar100_long_tailed, sources.superpixels, sources.nci1])
def test_an_unknown_part(rows: Any) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'unseen'"):
        rows("unsen")


@pytest.mark.data
def test_no_phrase_of_a_text_to_tune_on_was_seen() -> None:
    seen, unseen = (whole(minilm.sst2(part)).inputs for part in ("seen", "unseen"))
    runs = {run for text in unseen for run in zip(*(text.split()[start:] for start in range(5)), strict=False)}
    assert len(runs) > 10_000
    assert not any(
        run in runs for text in seen for run in zip(*(text.split()[start:] for start in range(5)), strict=False)
    )
    assert not {*seen} & {text for text in unseen if len(text.split()) < 5}
