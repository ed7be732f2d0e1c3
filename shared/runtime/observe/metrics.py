"""Figures of one process: Prometheus metrics for operators, exact quantiles for the demo's JSON.

Our own names begin with ``conclave_``; where the meaning is kube-scheduler's, the coordinator uses its names as they
are (``services/coordinator/inspect/metrics.py``). Labels are from closed sets of our own; it refuses text from the
cluster as a label (cardinality, injection).
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.adapters.peers.traffic import Traffic
from shared.quantiles import nearest_rank

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The target is p50 5 ms and p99 25 ms: bucket borders lie on both."""

RESERVOIR = 65_536
"""Values kept per recorder (512 KB when full). Below it quantiles are exact; above, a uniform sample (Vitter's R)."""


class ReservoirQuantiles:
    """Exact quantiles of up to ``RESERVOIR`` values, a fair sample of more; ``count``, ``sum`` and ``max`` exact."""

    def __init__(self, *, capacity: int = RESERVOIR, seed: int = 0) -> None:
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0
        self._capacity = capacity
        self._values = array("d")
        self._rng = random.Random(seed)

    def record(self, value: float) -> None:
        """Add one value (0.2 us)."""
        self.count += 1
        self.total += value
        if value > self.maximum:
            self.maximum = value
        if len(self._values) < self._capacity:
            self._values.append(value)
            return
        place = self._rng.randrange(self.count)
        if place < self._capacity:
            self._values[place] = value

    def quantile(self, q: float) -> float:
        """By nearest rank, of a share ``q`` from 0 to 1; 0.0 without values."""
        return nearest_rank(self._values, q)[0]

    def summary(self) -> dict[str, float]:
        """Figures as JSON wants them, in the unit of the values."""
        p50, p90, p99 = nearest_rank(self._values, 0.5, 0.9, 0.99)
        mean = self.total / self.count if self.count else 0.0
        return {"count": self.count, "mean": mean, "p50": p50, "p90": p90, "p99": p99, "max": self.maximum}

    def values(self) -> list[float]:
        """The kept values, for merging figures of several processes."""
        return list(self._values)


class Metrics:
    """The registry of one process. Make each metric once, at start."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.registry = CollectorRegistry()
        self._process = ProcessCollector(registry=self.registry)
        self._quantiles: dict[str, ReservoirQuantiles] = {}
        self._figures: dict[str, Callable[[], Any]] = {}
        self._traffic: dict[str, Traffic] = {}
        self._leader: Gauge | None = None
        self._started = time.monotonic()
        self.registry.register(_TrafficCollector(self._traffic))
        self.late_heads = self.counter(
            "http_late_heads_total", "Connections cut, since a request's head took too long", ["listener"]
        )

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """A counter ``conclave_NAME``; end names with ``_total``."""
        return Counter(f"conclave_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """A gauge ``conclave_NAME``."""
        return Gauge(f"conclave_{name}", text, labels, registry=self.registry)

    def gauge_of(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when scraped: costs nothing in between."""
        self.gauge(name, text).set_function(read)

    def leader(self, role: str, read: Callable[[], bool]) -> None:
        """Whether this process leads as ``role``; a process may be a candidate for several."""
        if self._leader is None:
            self._leader = self.gauge("leader", "1 while this process leads", ["role"])
        self._leader.labels(role).set_function(lambda: float(read()))

    def counter_of(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A counter ``conclave_NAME`` that is read when scraped; end names with ``_total``."""
        self.registry.register(_ReadCounter(f"conclave_{name}", text, read))

    def histogram(self, name: str, text: str, labels: Sequence[str] = ()) -> Histogram:
        """A histogram of seconds ``conclave_NAME``; end names with ``_seconds``."""
        return Histogram(f"conclave_{name}", text, labels, buckets=LATENCY_BUCKETS_S, registry=self.registry)

    def quantiles(self, name: str) -> ReservoirQuantiles:
        """The exact recorder of ``name`` (unit in the name: ``schedule_latency_ms``), shown at ``/v1/stats``."""
        recorder = self._quantiles.get(name)
        if recorder is None:
            recorder = self._quantiles[name] = ReservoirQuantiles()
        return recorder

    def figure(self, name: str, read: Callable[[], Any]) -> None:
        """A JSON-able figure of ``/v1/stats``, read when asked."""
        self._figures[name] = read

    def watch_traffic(self, side: str, traffic: Traffic) -> None:
        """Show the bytes and requests of ``traffic``; ``side`` is ``client`` or ``server``."""
        self._traffic[side] = traffic

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def stats(self) -> dict[str, Any]:
        """Everything at ``GET /v1/stats``: process figures, quantiles, traffic, and what the service added."""
        return {
            "service": self.service,
            "uptime_s": round(time.monotonic() - self._started, 3),
            "rss_bytes": self._resident_bytes(),
            "cpu_s": time.process_time(),
            "quantiles": {name: recorder.summary() for name, recorder in self._quantiles.items()},
            "traffic": {side: traffic.as_dict() for side, traffic in self._traffic.items()},
            **{name: read() for name, read in self._figures.items()},
        }

    def _resident_bytes(self) -> int:
        """0 where there is no /proc."""
        found = (metric for metric in self._process.collect() if metric.name == "process_resident_memory_bytes")
        return next((int(metric.samples[0].value) for metric in found), 0)


class _ReadCounter(Collector):
    def __init__(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._name, self._text, self._read = name, text, read

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text, value=self._read())


class _TrafficCollector(Collector):
    def __init__(self, sides: dict[str, Traffic]) -> None:
        self._sides = sides

    def collect(self) -> Iterable[Metric]:
        moved = CounterMetricFamily(
            "conclave_http_body_bytes", "Bytes of bodies between services", labels=["side", "route", "direction"]
        )
        requests = CounterMetricFamily(
            "conclave_http_requests", "Requests between services", labels=["side", "route", "outcome"]
        )
        for side, traffic in self._sides.items():
            for route, counters in traffic.routes.items():
                moved.add_metric([side, route, "sent"], counters.bytes_sent)
                moved.add_metric([side, route, "received"], counters.bytes_received)
                for outcome, number in counters.outcomes.items():
                    requests.add_metric([side, route, outcome], number)
        yield moved
        yield requests
