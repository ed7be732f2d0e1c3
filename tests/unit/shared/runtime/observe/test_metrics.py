"""Quantiles are exact, exposition has our names, figures are JSON."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.adapters.peers.traffic import Traffic
from shared.runtime.observe.metrics import Metrics, ReservoirQuantiles


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_the_nearest_rank(values: list[float], q: float):
    recorder = ReservoirQuantiles()
    for value in values:
        recorder.record(value)
    assert recorder.quantile(q) == sorted(values)[max(1, math.ceil(q * len(values))) - 1]


def test_beyond_its_capacity_a_recorder_keeps_a_fair_bounded_sample():
    recorder = ReservoirQuantiles(capacity=1000)
    for value in range(100_000):
        recorder.record(float(value))
    assert len(recorder.values()) == 1000
    assert (recorder.count, recorder.maximum) == (100_000, 99_999.0)
    assert recorder.quantile(0.5) == pytest.approx(50_000, rel=0.1)


def test_without_values_a_summary_is_zeros():
    assert ReservoirQuantiles().summary()["p99"] == 0.0


def test_exposition_has_names_under_our_prefix_and_the_processs_own():
    metrics = Metrics("coordinator")
    metrics.counter("explain_requests_total", "Questions", ["result"]).labels("ok").inc(3)
    text = metrics.exposition().decode()
    assert 'conclave_explain_requests_total{result="ok"} 3.0' in text
    assert "process_resident_memory_bytes" in text
    assert "process_cpu_seconds_total" in text


def test_traffic_is_read_when_scraped():
    metrics, traffic = Metrics("agent"), Traffic()
    metrics.watch_traffic("client", traffic)
    traffic.route("/v1/offer").count(sent=10, received=20, outcome="ok")
    text = metrics.exposition().decode()
    assert 'conclave_http_body_bytes_total{direction="sent",route="/v1/offer",side="client"} 10.0' in text
    assert 'conclave_http_requests_total{outcome="ok",route="/v1/offer",side="client"} 1.0' in text


def test_stats_are_json_with_quantiles_traffic_and_own_figures():
    metrics = Metrics("binder")
    metrics.quantiles("schedule_latency_ms").record(4.0)
    metrics.figure("bound", lambda: 7)
    stats = msgspec.json.decode(msgspec.json.encode(metrics.stats()))
    assert stats["quantiles"]["schedule_latency_ms"]["p50"] == 4.0
    assert stats["bound"] == 7
    assert stats["rss_bytes"] > 1 << 20
