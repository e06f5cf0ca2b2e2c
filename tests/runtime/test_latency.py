"""Latency tables: read off straight lines, priced piece by piece, saved and loaded."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from offramp.errors import InputError
from offramp.exits import LadderExits, LinearExits
from offramp.exits._averaging import Averaging
from offramp.policy._threshold import ThresholdPolicy
from offramp.runtime import LatencyTable
from offramp.runtime._batch import Compaction
from offramp.runtime._latency import LatencyPrices
from offramp.runtime._run_times import RunTime
from tests.cases import each, refuses

TABLE = LatencyTable(
    backend="eager",
    threads=1,
    batch_sizes=(1, 8, 64),
    stage=((1.0, 8.0, 64.0), (2.0, 2.0, 2.0), (3.0, 24.0, 96.0)),
    answer=((0.1, 0.2, 0.3), (0.5, 0.6, 0.7), (0.2, 0.2, 0.2)),
    carry=((0.04, 0.04, 0.04), (0.05, 0.06, 0.07), (0.0, 0.0, 0.0)),
    select=((0.5, 0.8, 0.5),) * 3,
    engine={"start": (0.2, 0.2, 0.2), "pass": (0.01, 0.01, 0.01), "finish": (0.03, 0.03, 0.03)},
    decide={"threshold": (0.02, 0.02, 0.02), "gates": (0.3, 0.3, 0.3)},
    full=(5.5, 30.0, 150.0),
    network="three",
    stage_weights=(7, 8, 9),
    exits="LadderExits of width 2 for 3 classes",
    widths=(4, 5, 6),
    machine="an abacus",
    torch="2.0",
)
LADDER = LadderExits((4, 5, 6), (0, 1), 3, width=2)
RUN = RunTime("onnx", 8, 3, ms=2.0, least_ms=1.5, most_ms=3.0, full_ms=5.0)


@each(("size", "expected"), [(1, 1.0), (8, 8.0), (36, 36.0), (64, 64.0), (100, 100.0), (0, 1.0)])
def test_sizes_between_and_beyond(size: int, expected: float) -> None:
    assert TABLE.at("stage", 0, size) == pytest.approx(expected)


def test_the_full_network_as_it_was_measured() -> None:
    assert TABLE.full_ms(8) == 30.0
    assert TABLE.full_ms(36) == pytest.approx(90.0)
    with refuses(InputError, expected="the full network"):
        replace(TABLE, full=()).full_ms(1)


def test_one_batch_size_is_for_all() -> None:
    table = LatencyTable("eager", 1, (4,), ((3.0,),), ((0.0,),), ((0.0,),), ((0.0,),))
    assert table.at("stage", 0, 1) == table.at("stage", 0, 99) == 3.0


def two_stages(*, select: float) -> LatencyTable:
    pieces = ((0.5, 0.5),) * 2
    return LatencyTable("eager", 1, (1, 64), ((1.0, 64.0),) * 2, pieces, pieces, ((select, select),) * 2)


def test_taking_out_pays_where_the_next_stage_gains_more_than_it_costs() -> None:
    assert Compaction(two_stages(select=0.5)).pays(1, 64, 63)
    assert not Compaction(TABLE).pays(1, 64, 1)  # the second stage takes as long for one
    slow = two_stages(select=9.0)
    assert not Compaction(slow).pays(1, 64, 60)
    assert Compaction(slow).pays(1, 64, 50)


class TestCosts:
    def test_one_sample_piece_by_piece(self) -> None:
        (table,) = TABLE.costs(LADDER).tables
        first, second, third = 0.2 + 0.01 + 1.0, 0.01 + 2.0, 0.01 + 3.0
        # All exits: each stage, what its exit takes, and a decision; behind the last one the answers are given.
        at_first = first + 0.1 + 0.02
        at_second = at_first + second + 0.5 + 0.02
        assert table.cumulative_costs().tolist() == pytest.approx([at_first, at_second, at_second + third + 0.2 + 0.03])
        # Exit 0 out of force: what its state takes remains.
        passed = first + 0.04
        expected = [passed, passed + second + 0.5 + 0.02, passed + second + 0.52 + third + 0.23]
        assert table.cumulative_costs([1, 2]).tolist() == pytest.approx(expected)
        assert float(table.full) == 5.5
        assert table.carries_state

    def test_by_gates_decisions_take_longer(self) -> None:
        one, other = (TABLE.costs(LADDER, policy=policy).tables[0] for policy in ("threshold", "gates"))
        assert (other.cumulative_costs() - one.cumulative_costs()).tolist() == pytest.approx([0.28, 0.56, 0.56])

    def test_a_sample_of_a_batch_takes_its_share(self) -> None:
        (table,) = TABLE.costs(LADDER, batch_size=8).tables
        first = (0.2 + 0.01 + 8.0 + 0.2 + 0.02 + 0.8) / 8  # those who stay are copied: half of the batch
        assert float(table.cumulative_costs()[0]) == pytest.approx(first)
        assert float(table.full) == pytest.approx(30.0 / 8)

    def test_a_head_that_a_later_one_averages_with_is_asked_by_all(self) -> None:
        exits = LadderExits((4, 5, 6), (0,), 3, width=2)
        heads = replace(TABLE, carry=(TABLE.carry[0], (0.0, 0.0, 0.0), TABLE.carry[2]))
        alone = heads.costs(exits).tables[0].cumulative_costs([0, 2])
        exits.averaging = Averaging((1, 2), torch.tensor([0.0, 0.4]), torch.ones(2))
        together = heads.costs(exits).tables[0].cumulative_costs([0, 2])
        assert (together - alone).tolist() == pytest.approx([0, 0.5, 0.5])

    def test_samples_of_other_sizes(self) -> None:
        def of_size(size: float) -> LatencyTable:
            factor = 1 + 0.5 * size + 0.01 * size**2
            grown: Any = {
                name: tuple(tuple(factor * value for value in row) for row in getattr(TABLE, name))
                for name in ("stage", "answer", "carry", "select")
            }
            named: Any = {
                name: {key: tuple(factor * value for value in row) for key, row in getattr(TABLE, name).items()}
                for name in ("engine", "decide")
            }
            return replace(TABLE, **grown, **named, full=tuple(factor * value for value in TABLE.full), size=size)

        table = replace(of_size(40.0), others=(of_size(10.0), of_size(20.0)))
        costs = table.costs(LADDER)
        assert len(costs.tables) == 3
        found = costs.of(torch.tensor([10.0, 15.0, 40.0]))
        for row, size in enumerate((10.0, 15.0, 40.0)):
            (expected,) = of_size(size).costs(LADDER).tables
            assert found.cumulative_costs([1, 2])[row].tolist() == pytest.approx(
                expected.cumulative_costs([1, 2]).tolist()
            )
            assert float(found.full[row]) == pytest.approx(float(expected.full))
        two = replace(table, others=table.others[:1]).costs(LADDER)
        assert len(two.tables) == 3  # the square is 0

    def test_as_prices(self) -> None:
        one, other = LatencyPrices(TABLE, 8).price(LADDER, ThresholdPolicy()), TABLE.costs(LADDER, batch_size=8)
        assert torch.equal(one.tables[0].cumulative_costs(), other.tables[0].cumulative_costs())

    @each(
        ("asked", "told"),
        [
            ({"exits": LinearExits((4, 5, 6), (0, 1), 3)}, "LinearExits for 3 classes, got .* LadderEx"),
            ({"exits": LadderExits((4, 5), (0,), 3, width=2)}, r"see \(4, 5\) features.*got \(4, 5, 6\)"),
            ({"exits": LadderExits((4, 5, 7), (0, 1), 3, width=2)}, r"see \(4, 5, 7\) features"),
            (
                {"exits": LadderExits((4, 5, 6), (0, 1), 3, width=3)},
                "of width 3 for 3 classes, got .* of width 2 for 3",
            ),
            ({"exits": LadderExits((4, 5, 6), (0, 1), 4, width=2)}, "of width 2 for 4 classes"),
            ({"exits": LADDER, "batch_size": 65}, r"within those measured, \(1, 8, 64\), got 65; measure it too"),
            ({"exits": LADDER, "batch_size": 0}, "within those measured"),
            ({"exits": LADDER, "policy": "dice"}, "policy 'dice', got threshold, gates"),
        ],
    )
    def test_what_was_not_measured_is_refused(self, asked: dict[str, Any], told: str) -> None:
        exits = asked.pop("exits")
        with pytest.raises(InputError, match=told):
            TABLE.costs(exits, **asked)
        with pytest.raises(InputError, match=told):
            replace(TABLE, others=(replace(TABLE, size=9.0),)).costs(exits, **asked)

    @each("missing", [{"engine": {}}, {"full": ()}, {"engine": {"start": (0.2, 0.2, 0.2)}}])
    def test_tables_made_by_hand_need_all_of_it(self, missing: dict[str, Any]) -> None:
        with refuses(InputError, expected="engine and full network"):
            replace(TABLE, **missing).costs(LADDER)
        with refuses(InputError, expected="engine and full network"):
            replace(TABLE, others=(replace(TABLE, size=9.0, **missing),)).costs(LADDER)

    def test_every_size_has_every_policy(self) -> None:
        other = replace(TABLE, size=9.0, decide={"gates": TABLE.decide["gates"]})
        with refuses(InputError, expected="policy 'threshold'", got="gates"):
            replace(TABLE, others=(other,)).costs(LADDER)


def test_times_that_do_not_add_up_are_suspect() -> None:
    assert TABLE.suspect_ratio is None  # unknown
    assert replace(TABLE, sum_ratio=(0.81, 1.0, 1.19)).suspect_ratio is None
    assert replace(TABLE, sum_ratio=(0.9, 1.3, 0.75)).suspect_ratio == 1.3
    assert (
        replace(TABLE, sum_ratio=(1.0, 1.0, 1.0), others=(replace(TABLE, sum_ratio=(0.5, 1.0, 1.0)),)).suspect_ratio
        == 0.5
    )


def test_fewer_stages() -> None:
    table = replace(TABLE, others=(replace(TABLE, size=9.0),), runs=(RUN,)).with_stages((0, 2), "two")
    assert table.runs == ()  # of the whole network
    assert (table.network, table.stage) == ("two", (TABLE.stage[0], TABLE.stage[2]))
    assert table.others[0].answer == (TABLE.answer[0], TABLE.answer[2])
    assert table.full == TABLE.full
    assert (table.stage_weights, table.widths) == ((7, 9), (4, 6))


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        replace(TABLE, others=(replace(TABLE, size=9.0),), runs=(RUN,)).save(tmp_path / "table.json")
        return tmp_path / "table.json"

    def test_what_is_saved_is_what_is_loaded(self, path: Path) -> None:
        assert LatencyTable.load(path) == replace(TABLE, others=(replace(TABLE, size=9.0),), runs=(RUN,))
        assert LatencyTable.load(path).fastest_run == RUN
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "sum_ratio": [1, 1.5, 1]}))
        assert LatencyTable.load(path).sum_ratio == (1.0, 1.5, 1.0)
        assert (content["format"], content["version"], content["machine"]) == ("offramp latency", 2, "an abacus")

    @each(
        ("change", "told"),
        [
            (lambda table: table.update(version=1), "expected version 2, got 1; measure again"),
            (lambda table: table.update(format="else"), "a latency table, got another file"),
            (lambda table: table.pop("stage"), "no complete latency table: 'stage'"),
            (lambda table: table.update(stage=[]), "the same number of rows"),
            (lambda table: table["stage"].pop(), "the same number of rows"),
            (lambda table: table["stage"][0].pop(), "field 'stage': expected 3 milliseconds"),
            (lambda table: table["answer"][0].insert(0, "1"), "field 'answer'"),
            (lambda table: table["carry"][0].__setitem__(0, -1), "field 'carry'"),
            (lambda table: table["carry"][0].__setitem__(0, float("nan")), "field 'carry'"),
            (lambda table: table.update(full=[0, 1, 2]), "field 'full': expected milliseconds above 0"),
            (lambda table: table.update(sum_ratio=[1, 1]), "field 'sum_ratio'"),
            (lambda table: table.update(batch_sizes=[8, 1, 64]), "ascending"),
            (lambda table: table.update(batch_sizes=[True, 8, 64]), "whole numbers"),
            (lambda table: table.update(batch_sizes=7), "whole numbers"),
            (lambda table: table.update(threads="1"), "threads"),
            (lambda table: table.update(network=7), "expected texts"),
            (lambda table: table.update(size=0), "size"),
            (lambda table: table["widths"].pop(), "field 'widths'"),
            (lambda table: table.update(stage_weights=[1, 2, -3]), "field 'stage_weights'"),
            (lambda table: table.update(stage_weights=[1, 2, 3.5]), "field 'stage_weights'"),
            (lambda table: table.pop("widths"), "no complete latency table: 'widths'"),
            (lambda table: table.update(widths=7), "no complete latency table"),
            (lambda table: table["engine"].pop("finish"), "field 'engine'"),
            (lambda table: table.update(decide=[]), "no complete latency table"),
            (lambda table: table["decide"].update(gates=[1]), r"field 'decide\.gates'"),
            (lambda table: table["others"][0].update(size=1.0), "samples of other sizes"),
            (lambda table: table["others"][0].update(others=[dict(table["others"][0])]), "without tables of their own"),
            (lambda table: table.update(others=[7]), "no complete latency table"),
            (lambda table: table.pop("runs"), "no complete latency table: 'runs'"),
            (lambda table: table.update(runs=[{"backend": "eager"}]), "no complete latency table"),
            (lambda table: table["runs"][0].update(ms=-1), "field 'runs'"),
        ],
    )
    def test_incomplete_files(self, path: Path, change: Callable[[Any], object], told: str) -> None:
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        with pytest.raises(InputError, match=told):
            LatencyTable.load(path)

    @each("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
    def test_files_of_something_else(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "table.json").write_bytes(content)
        with pytest.raises(InputError, match=r"table\.json"):
            LatencyTable.load(tmp_path / "table.json")

    def test_places_that_cannot_be_read_or_written(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="cannot read"):
            LatencyTable.load(tmp_path / "nowhere.json")
        with pytest.raises(InputError, match="cannot write"):
            TABLE.save(tmp_path / "no" / "where.json")
