"""Metrics of a server: they are those of its answers."""

from collections import Counter
from typing import Any

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from offramp.errors import InputError
from offramp.monitor import full_labels
from offramp.serve import Scheduler
from offramp.serve._history import BIN_S, BINS, History
from offramp.serve._metrics import REASONS, Metrics
from offramp.serve._record import record_request
from offramp.serve._shadow import Shadow
from tests.model.examples import images
from tests.serve.examples import model
from tests.serve.test_app import call, serving
from tests.serve.test_scheduler import Clock


def read(metrics: Metrics) -> dict[tuple[str, str], float]:
    """Return the value of each sample by its name and its first label."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in families
        for sample in family.samples
    }


class TestMetrics:
    def test_of_batches_are_those_of_predict(self) -> None:
        metrics, inputs = Metrics(), images(20, seed=3)[0]
        scheduler = Scheduler(model(), max_batch=16, observer=metrics)
        metrics.watch(scheduler)
        for row in range(20):
            scheduler.submit(inputs[row : row + 1])
        assert read(metrics)["offramp_queue_samples", ""] == 20
        while scheduler.run_batch():
            pass
        values, expected = read(metrics), model().predict(inputs)
        left = Counter(expected.exits.tolist())
        assert {int(exit): value for (name, exit), value in values.items() if name == "offramp_samples_total"} == left
        assert values["offramp_relative_cost_total", ""] == pytest.approx(float(expected.relative_cost.sum()), rel=1e-4)
        assert values["offramp_batch_samples_count", ""] == 2
        assert values["offramp_batch_samples_sum", ""] == 20
        assert values["offramp_queue_samples", ""] == 0
        assert values["offramp_point_cost", ""] == model().point.tune_metrics["cost"]
        assert values["offramp_point_level", ""] == 0
        stages = {stage for name, stage in values if name == "offramp_stage_seconds_count"}
        assert set(map(str, left)) <= stages

    def test_of_requests_count_answers_and_refusals(self) -> None:
        metrics, history = Metrics(), History()
        observe = [metrics.observe_request, history.observe_request]
        body = {"inputs": images(2, seed=3)[0].tolist()}
        with serving(Scheduler(model()), on_request=observe) as port:
            for _ in range(3):
                assert call(port, "/predict", body)[0] == 200
            call(port, "/predict", {"inputs": []})
            call(port, "/v2/models/other/infer", {})
        values = read(metrics)
        assert values["offramp_request_seconds_count", "predict"] == 3
        assert values["offramp_queue_seconds_count", ""] == 3
        refusals = {reason: values["offramp_refusals_total", reason] for reason in REASONS.values()}
        assert refusals == {**dict.fromkeys(REASONS.values(), 0.0), "invalid": 1, "unknown_model": 1}
        assert values["offramp_errors_total", ""] == 0
        total = history.total()
        assert total.statuses == {200: 3, 400: 1, 404: 1}
        assert total.exits == Counter(3 * model().predict(images(2, seed=3)[0]).exits.tolist())


class TestShadow:
    @staticmethod
    def run(share: float, count: int) -> dict[tuple[str, str], float]:
        metrics, inputs = Metrics(), images(count, seed=3)[0]
        scheduler = Scheduler(model(), observer=metrics, shadow=share)
        for row in range(count):
            scheduler.submit(inputs[row : row + 1])
            scheduler.run_batch()
            while scheduler.run_shadow():
                pass
        return read(metrics)

    def test_counts_disagreements_with_the_full_network(self) -> None:
        inputs = images(40, seed=3)[0]
        full = full_labels(model(), inputs, torch.arange(40))
        values = self.run(1.0, 40)
        assert values["offramp_shadow_samples_total", ""] == 40
        disagreements = int((full != model().predict(inputs).labels).sum())
        assert values["offramp_shadow_disagreements_total", ""] == disagreements

    def test_takes_a_share_of_requests(self) -> None:
        assert self.run(0.0, 10)["offramp_shadow_samples_total", ""] == 0
        draws = Shadow(0.25, max_samples=1)
        assert sum(draws.draw() for _ in range(4000)) == pytest.approx(1000, abs=140)  # 5 standard deviations
        with pytest.raises(InputError, match="between 0 and 1"):
            Shadow(1.5, max_samples=1)

    def test_keeps_no_more_than_it_may_and_runs_when_idle(self) -> None:
        metrics, inputs = Metrics(), images(24, seed=3)[0]
        with Scheduler(model(), max_batch=8, observer=metrics, shadow=1.0) as scheduler:
            for _ in range(2):
                scheduler.submit(inputs).result(timeout=60)
            while len(scheduler._shadow):
                pass
        compared = read(metrics)["offramp_shadow_samples_total", ""]
        assert 8 <= compared <= 48

    def test_a_failure_is_nobodys(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        def fail(*arguments: Any) -> None:
            raise RuntimeError("a secret")

        monkeypatch.setattr("offramp.serve._shadow.label_hidden", fail)
        assert self.run(1.0, 1)["offramp_shadow_samples_total", ""] == 0
        assert "RuntimeError" in caplog.text
        assert "secret" not in caplog.text


class TestHistory:
    def test_keeps_fifteen_minutes(self) -> None:
        clock = Clock()
        history = History(clock=clock)

        def observe(count: int) -> None:
            for _ in range(count):
                with record_request("predict", {}, [history.observe_request]):
                    pass

        observe(3)
        clock.now += BIN_S
        observe(2)
        assert [part.statuses[200] for part in history.bins()][-2:] == [0, 3]  # the current bin is incomplete
        assert history.total().statuses[200] == 5
        clock.now += BIN_S * (BINS - 1)
        observe(1)
        assert history.total().statuses[200] == 3
        counts = [part.statuses[200] for part in history.bins()]
        assert (len(counts), counts[0], sum(counts)) == (BINS, 3, 5)
        clock.now += 2 * BIN_S * BINS
        assert history.total().statuses[200] == 0
        assert all(part.quantile_s(0.5) != part.quantile_s(0.5) for part in history.bins())  # NaN
