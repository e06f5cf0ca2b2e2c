import io
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from offramp.errors import InputError, StoreError, UnknownNameError
from offramp.features import ArraySource, StoreSource, extract, split_by_id
from offramp.features._extraction import extract_shard, make_plan
from offramp.features._source import Rows
from offramp.features._store import Store, begin_store, compile_manifest, pending_shards
from offramp.preprocessing import Preprocessing
from offramp.preprocessing._row_hashes import hash_rows
from tests.cases import each, refuses
from tests.features.examples import (
    CLEAN,
    SHIFTED,
    TokenBackbone,
    VectorBackbone,
    contents,
    images,
    small_resnet,
    vectors,
)


def column(store: Store, name: str) -> Tensor:
    return torch.cat([store.shard(shard)[name] for shard in range(store.plan.num_shards)])


def test_content_equals_a_direct_pass(store: Store) -> None:
    backbone, rows = small_resnet(), images(70).read(0, 70)
    hidden = CLEAN(rows.inputs)
    grids, means = [], []
    with torch.no_grad():
        for stage in backbone.stages:
            hidden = stage(hidden)
            grids.append(F.avg_pool2d(hidden, hidden.shape[-1] // 4).flatten(1))
            means.append(hidden.mean((2, 3)))
        logits = backbone(CLEAN(rows.inputs))
    assert store.widths("grid") == (256, 512, 1024)
    assert store.widths("mean") == (16, 32, 64)
    # fp16 keeps 11 bits.
    torch.testing.assert_close(column(store, "features.grid")[:, 0].float(), torch.cat(grids, 1), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(column(store, "features.mean")[:, 0].float(), torch.cat(means, 1), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(column(store, "logits.2")[:, 0], logits, rtol=1e-4, atol=1e-5)
    assert column(store, "labels").tolist() == rows.labels.tolist() == store.labels().tolist()
    assert column(store, "ids").tolist() == rows.ids.tolist() == store.ids().tolist()
    assert column(store, "sizes").tolist() == [1.0] * 70
    assert store.num_rows == 70
    assert store.own_heads == (2,)
    assert store.num_classes == 10
    assert store.plan.shard_rows == 16
    assert store.plan.backbone == backbone.fingerprint()


def test_second_view_is_another_and_comes_out_the_same_again(store: Store, tmp_path: Path) -> None:
    features = column(store, "features.mean")
    assert store.num_views == 2
    assert not torch.equal(features[:, 0], features[:, 1])
    views = (CLEAN, SHIFTED, SHIFTED)
    again = extract(small_resnet(), images(70), tmp_path, poolings=("mean",), views=views, batch_size=8, threads=1)
    assert torch.equal(column(again, "features.mean")[:, :2], features)  # one shard, where the other has five
    assert not torch.equal(column(again, "features.mean")[:, 1], column(again, "features.mean")[:, 2])


def test_chance_differs_from_batch_to_batch(tmp_path: Path) -> None:
    same = np.tile(np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), np.uint8), (24, 1, 1, 1))
    source = ArraySource(same, np.zeros(24, np.int64), name="same")
    store = extract(small_resnet(), source, tmp_path, poolings=("mean",), views=(CLEAN, SHIFTED), batch_size=8)
    clean, shifted = column(store, "features.mean").unbind(1)
    assert (clean == clean[0]).all()
    assert not torch.equal(shifted[:8], shifted[8:16])
    assert not torch.equal(shifted[8:16], shifted[16:])


def test_shards_written_apart_in_any_order_are_the_same_store(store: Store, tmp_path: Path) -> None:
    backbone, source, plan = small_resnet(), images(70), store.plan
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "000003.safetensors.0123.tmp").write_bytes(b"half a shard")
    begin_store(tmp_path, plan)
    assert set(contents(tmp_path)) == {"plan.json"}
    assert pending_shards(tmp_path, plan) == [0, 1, 2, 3, 4]
    for shard in (3, 0, 4, 2):
        extract_shard(backbone, source, plan, shard, tmp_path)
    assert pending_shards(tmp_path, plan) == [1]
    with refuses(StoreError, problem="000001.json"):
        compile_manifest(tmp_path)
    with refuses(StoreError, problem="not finished"):
        Store.open(tmp_path)
    extract_shard(backbone, source, plan, 1, tmp_path)
    compile_manifest(tmp_path)
    assert contents(tmp_path) == contents(store.path)


def test_threads_are_set_recorded_and_restored(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    seen = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(torch.get_num_threads())
            return x

    backbone, source = VectorBackbone([Spy()], 4), vectors(np.eye(4), np.arange(4))
    assert extract(backbone, source, tmp_path, poolings=("mean",), threads=3).plan.threads == 3
    assert seen[-1] == 3
    assert torch.get_num_threads() == before
    assert extract(backbone, source, tmp_path, poolings=("mean",)).plan.threads == 3  # left out: as it was begun


@each("dtype", [torch.bfloat16, torch.float16])
def test_backbone_in_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    full = extract(small_resnet(), images(6), tmp_path / "full", views=(CLEAN,), dtype=torch.float32)
    half = extract(small_resnet().to(dtype), images(6), tmp_path / "half", views=(CLEAN,), dtype=dtype)
    assert column(half, "features.rich").dtype == dtype
    assert column(full, "features.rich").dtype == torch.float32
    assert column(half, "logits.2").dtype == torch.float32
    assert half.fingerprint != full.fingerprint
    torch.testing.assert_close(
        column(half, "features.rich").float(), column(full, "features.rich"), rtol=0.05, atol=0.05
    )


def test_backbone_on_trees_with_sizes_and_two_heads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = TokenBackbone()
    lengths = torch.tensor([3, 1, 5, 2, 4])
    inputs = {
        "tokens": torch.arange(25).view(5, 5) % 20,
        "mask": (torch.arange(5) < lengths[:, None]).double(),  # arrives in the backbone's precision
    }
    source = ArraySource(inputs, np.array([0, 1, 2, 0, 1]), name="tokens")
    store = extract(backbone, source, tmp_path, poolings=("mean",), batch_size=2)
    assert store.own_heads == (0, 1)
    assert store.widths("mean") == (6, 4)
    assert column(store, "sizes").tolist() == lengths.tolist()
    assert StoreSource(store, pooling="mean").sizes().tolist() == lengths.tolist()
    assert StoreSource(store, pooling="mean", rows=np.array([1, 2, 4])).sizes().tolist() == [1, 5, 4]
    hidden = backbone.stages[0]({"tokens": inputs["tokens"], "mask": inputs["mask"].float()})
    torch.testing.assert_close(column(store, "logits.0")[:, 0], backbone.own_logits(hidden, 0))
    torch.testing.assert_close(column(store, "logits.1")[:, 0], backbone.own_logits(backbone.stages[1](hidden), 1))


def test_one_stage_and_a_batch_of_one(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=(3, 4))
    backbone = VectorBackbone([nn.Identity()], 4)
    store = extract(backbone, vectors(numbers, np.arange(3)), tmp_path, poolings=("mean",), batch_size=1, shard_mb=1e-6)
    assert store.plan.num_shards == 3
    np.testing.assert_array_equal(column(store, "features.mean")[:, 0].numpy(), numbers.astype(np.float16))


def test_a_stage_may_change_its_input_in_place(tmp_path: Path) -> None:
    backbone = VectorBackbone([nn.Identity(), nn.ReLU(inplace=True)], 2)
    store = extract(backbone, vectors(np.array([[-1, 2]]), np.array([0])), tmp_path, poolings=("mean",))
    assert column(store, "features.mean").flatten().tolist() == [-1, 2, 0, 2]


def test_overflow_names_stage_row_and_remedy(tmp_path: Path) -> None:
    class Times(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 1e5

    source = vectors(np.array([[0, 0], [0, 0], [-1, 0]]), np.zeros(3, np.int64))
    backbone = VectorBackbone([nn.Identity(), Times()], 2)
    with refuses(InputError, problem="of row 2 reach 1e+05, more than float16", hint="bfloat16"):
        extract(backbone, source, tmp_path / "half", poolings=("mean",), batch_size=2)
    stored = extract(backbone, source, tmp_path / "full", poolings=("mean",), dtype=torch.bfloat16)
    assert float(column(stored, "features.mean")[2, 0, 2]) == pytest.approx(-1e5, rel=0.01)


@each("value", [np.nan, np.inf])
def test_numbers_that_are_none_name_stage_and_row(value: float, tmp_path: Path) -> None:
    numbers = np.zeros((5, 2))
    numbers[3, 1] = value
    with refuses(InputError, problem="'mean' features after stage 0, view 0 of row 3 are not finite"):
        extract(
            VectorBackbone([nn.Identity()], 2),
            vectors(numbers, np.zeros(5, np.int64)),
            tmp_path,
            poolings=("mean",),
            batch_size=2,
        )


def test_logits_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    backbone = VectorBackbone([nn.Identity()], 2)
    backbone.heads["0"].bias.fill_(torch.nan)  # type: ignore[operator]
    with refuses(InputError, problem="own logits after stage 0"):
        extract(backbone, vectors(np.zeros((1, 2)), np.array([0])), tmp_path, poolings=("mean",))


@each("label", [-1, 10])
def test_labels_outside_the_classes_are_refused(label: int, tmp_path: Path) -> None:
    labels = np.array([0, 1, label])
    with refuses(InputError, problem="row 2", expected="0 to 9", got=str(label)):
        extract(VectorBackbone([nn.Identity()], 2), vectors(np.zeros((3, 2)), labels), tmp_path, poolings=("mean",))


def test_rows_may_repeat_inside_a_shard_and_across(tmp_path: Path) -> None:
    backbone = VectorBackbone([nn.Identity()], 2)
    source = ArraySource(np.zeros((4, 2), np.float32), np.zeros(4, np.int64), name="twins", ids=[5, 6, 7, 5])
    assert extract(backbone, source, tmp_path / "one", poolings=("mean",)).ids().tolist() == [5, 6, 7, 5]
    apart = extract(backbone, source, tmp_path / "two", poolings=("mean",), batch_size=1, shard_mb=1e-6)
    assert apart.ids().tolist() == [5, 6, 7, 5]
    assert [part.tolist() for part in apart.hold_out([2])] == [part.tolist() for part in split_by_id([5, 6, 7, 5], [2])]


def test_arguments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    backbone, source = small_resnet(), images(3)
    with pytest.raises(InputError, match="empty"):
        extract(backbone, images(0), tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean 'grid'"):
        extract(backbone, source, tmp_path, poolings=("gird",), views=(CLEAN,))
    with refuses(InputError, problem="dtype", got="int64"):
        extract(backbone, source, tmp_path, dtype=torch.int64)
    with refuses(InputError, problem="batch_size"):
        extract(backbone, source, tmp_path, batch_size=0)
    with refuses(InputError, expected="at least one view"):
        extract(backbone, source, tmp_path, views=())
    with refuses(InputError, expected="views that are Preprocessing", got="<function"):
        extract(backbone, source, tmp_path, views=(lambda inputs: inputs,))  # type: ignore[arg-type]
    with refuses(InputError, problem="preprocessing parameters"):
        extract(backbone, source, tmp_path, views=(CLEAN, SHIFTED.then("shift_and_flip", shift=torch.tensor(1))))
    assert contents(tmp_path) == {}


class _Broken:
    """A source that does not keep its word."""

    name = "broken"

    def __init__(self, labels: object, ids: object, inputs: object = None) -> None:
        self._rows = Rows(np.zeros((2, 2)) if inputs is None else inputs, labels, ids)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return 2

    def read(self, start: int, stop: int) -> Rows:
        return self._rows


@each(
    "source",
    [
        _Broken(np.zeros(3, np.int64), np.arange(2)),
        _Broken(np.zeros(2), np.arange(2)),
        _Broken(np.zeros(2, np.int64), np.zeros((2, 1), np.int64)),
        _Broken(np.zeros(2, np.int64), np.arange(2), np.zeros((3, 2))),
    ],
)
def test_sources_that_break_their_word_are_refused(source: _Broken, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        extract(VectorBackbone([nn.Identity()], 2), source, tmp_path, poolings=("mean",))


def test_fingerprint_is_keyed_by_backbone_pooling_and_preprocessing() -> None:
    other = small_resnet()
    other.stages[0][0].conv1.weight.add_(1)  # type: ignore[index]
    plans = [
        make_plan(small_resnet(), images(3), views=(CLEAN,)),
        make_plan(other, images(3), views=(CLEAN,)),
        make_plan(small_resnet(), images(3), views=(CLEAN,), poolings=("mean",)),
        make_plan(small_resnet(), images(3), views=(CLEAN, SHIFTED)),
    ]
    assert len({plan.fingerprint for plan in plans}) == 4
    assert make_plan(small_resnet(), images(5), views=(CLEAN,), batch_size=7).fingerprint == plans[0].fingerprint


def test_shards_are_about_as_large_as_asked_and_hold_whole_batches() -> None:
    plan = make_plan(small_resnet(), images(3), views=(CLEAN,), shard_mb=2, batch_size=50)
    assert plan.shard_rows % 50 == 0
    assert 1.7e6 < plan.shard_rows * plan.row_bytes <= 2e6


def test_no_bar_without_a_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    extract(VectorBackbone([nn.Identity()], 2), vectors(np.zeros((3, 2)), np.arange(3)), tmp_path, poolings=("mean",))
    assert capfd.readouterr() == ("", "")


def test_bar_on_a_terminal_shows_throughput(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr("rich.console.Console", lambda stderr: console)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    backbone, source = VectorBackbone([nn.Identity()], 2), vectors(np.zeros((30, 2)), np.zeros(30, np.int64))
    extract(backbone, source, tmp_path / "shown", poolings=("mean",), batch_size=3, shard_mb=0.0005)
    assert "30/30" in shown.getvalue()
    assert "rows/s" in shown.getvalue()
    (tmp_path / "shown" / "shards" / "000000.json").unlink()
    shown.truncate(0)
    extract(backbone, source, tmp_path / "shown", poolings=("mean",), batch_size=3, shard_mb=0.0005)
    assert "30/30" in shown.getvalue()  # counts on from the rows that are there
    shown.truncate(0)
    extract(backbone, source, tmp_path / "hidden", poolings=("mean",), progress=False)
    assert "30/30" not in shown.getvalue()


def test_ids_of_an_array_source_reach_the_store(tmp_path: Path) -> None:
    backbone, source = VectorBackbone([nn.Identity()], 2), vectors(np.zeros((3, 2)), np.arange(3))
    store = extract(backbone, source, tmp_path, poolings=("mean",))
    np.testing.assert_array_equal(store.ids(), hash_rows(np.zeros((3, 2), np.float32)))
    assert store.plan.views == (Preprocessing(),)
