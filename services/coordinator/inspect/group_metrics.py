"""What a coordinator shows Prometheus about pod groups and queues; kube-scheduler's names where they mean the same.

As ``metrics.py``: gauges are read from the core when scraped, only histograms are fed after a turn. Names of queues are
the administrators' and few: at most ``MOST_QUEUES`` of them become labels, and ``MOST_RESOURCES`` resources each; how
many there are is told too, so that nobody takes a part for the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.coordinator.core.core import Core
from services.coordinator.core.counters import Stats
from services.coordinator.inspect.group_facts import phases
from services.coordinator.inspect.queue_facts import queue_facts, queue_names, queue_totals
from services.coordinator.inspect.queues import QueueFacts, rank
from services.coordinator.inspect.units import UnitCounts
from shared.runtime.observe.metrics import Metrics
from shared.scheduling.places import Place

MOST_QUEUES, MOST_RESOURCES = 100, 8

ATTEMPT_BUCKETS_S = tuple(0.001 * 2**n for n in range(15))
SPAN_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
VICTIMS_BUCKETS = tuple(2**n for n in range(11))
RESULTS = ("scheduled", "unschedulable")


class GroupMetrics:
    """The metrics of one process; ``core`` gives the term's core, None while this process stands by."""

    def __init__(self, metrics: Metrics, *, profile: str, core: Callable[[], Core | None]) -> None:
        attempt = Histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "From taking a pod group off the scheduling queue to its last Binding, or to the refusal",
            ["result", "profile"], buckets=ATTEMPT_BUCKETS_S, registry=metrics.registry,
        )  # fmt: skip
        self._attempt = {result: attempt.labels(result, profile) for result in RESULTS}
        self._span = Histogram(
            "conclave_gang_bind_span_seconds", "Between the first and the last Binding of a gang's members",
            buckets=SPAN_BUCKETS_S, registry=metrics.registry,
        )  # fmt: skip
        self._search = Histogram(
            "scheduler_podgroup_preemption_attempt_duration_seconds",
            "A search for whom to evict for a pod group, from its begin to its end; 0 within one turn",
            buckets=ATTEMPT_BUCKETS_S, registry=metrics.registry,
        )  # fmt: skip
        self._victims = Histogram(
            "scheduler_podgroup_preemption_victims", "Number of selected preemption victims of a pod group",
            buckets=VICTIMS_BUCKETS, registry=metrics.registry,
        )  # fmt: skip
        self._results: Counter[str] = Counter()
        metrics.registry.register(_GroupCollector(core, profile, self._results))

    def observe(self, stats: Stats) -> None:
        """Take over what happened since the last turn."""
        attempts, spans_s = stats.take_gangs()
        for result, took_s in attempts:
            self._attempt[result].observe(took_s)
            self._results[result] += 1
        for span_s in spans_s:
            self._span.observe(span_s)
        searches_s, victims = stats.take_group_preemptions()
        for search_s in searches_s:
            self._search.observe(search_s)
        for count in victims:
            self._victims.observe(count)


class _GroupCollector(Collector):
    """Reads the core when scraped; a standby shows zeros."""

    def __init__(self, core: Callable[[], Core | None], profile: str, results: Counter[str]) -> None:
        self._core = core
        self._profile = profile
        self._results = results

    def collect(self) -> Iterable[Metric]:
        core = self._core()
        tried = CounterMetricFamily(
            "scheduler_podgroup_schedule_attempts", "Attempts to schedule pod groups, by result",
            labels=["result", "profile"],
        )  # fmt: skip
        for result in RESULTS:
            tried.add_metric([result, self._profile], self._results[result])
        yield tried
        stats = core.state.stats if core is not None else Stats()
        yield CounterMetricFamily(
            "scheduler_podgroup_preemption_attempts", "Searches for whom to evict for a pod group",
            value=stats.group_preemption_searches,
        )  # fmt: skip
        yield from _groups(core)
        yield from _queues(core)


def _groups(core: Core | None) -> Iterable[Metric]:
    counts = phases(core) if core is not None else UnitCounts()
    groups = GaugeMetricFamily("conclave_pod_groups", "Pod groups, by what they do", labels=["phase"])
    for phase in UnitCounts.__struct_fields__:
        groups.add_metric([phase], getattr(counts, phase))
    yield groups
    places = core.state.queue.groups_by_place() if core is not None else Counter[Place]()
    queued = GaugeMetricFamily(
        "conclave_pod_groups_queued", "Pod groups whose members move as one, by place in the scheduling queue",
        labels=["place"],
    )  # fmt: skip
    for place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.IN_FLIGHT):
        queued.add_metric([place.value], places[place])
    yield queued


def _queues(core: Core | None) -> Iterable[Metric]:
    totals = queue_totals(core) if core is not None else None
    yield GaugeMetricFamily(
        "conclave_queues", "Queues; the first hundred are shown by name", value=totals.total if totals else 0
    )
    yield GaugeMetricFamily(
        "conclave_queue_problems", "Queues that cannot be used as they are written, or should be corrected",
        value=totals.problems if totals else 0,
    )  # fmt: skip
    yield GaugeMetricFamily(
        "conclave_units_held", "Units that wait since a quota holds them back",
        value=totals.blocked_units if totals else 0,
    )  # fmt: skip
    used = GaugeMetricFamily("conclave_queue_used", "What a queue uses", labels=["queue", "resource"])
    guaranteed = GaugeMetricFamily("conclave_queue_guaranteed", "A queue's own quota", labels=["queue", "resource"])
    maximum = GaugeMetricFamily("conclave_queue_maximum", "A queue's hard limit", labels=["queue", "resource"])
    pending = GaugeMetricFamily(
        "conclave_queue_pending_units", "Units of a queue that are not bound yet, whatever they wait for",
        labels=["queue"],
    )  # fmt: skip
    held = GaugeMetricFamily("conclave_queue_held_units", "Units of it that a quota holds back", labels=["queue"])
    for facts in _first(core):
        name, queue = facts.queue.name, facts.queue
        names = sorted({*facts.used, *queue.guaranteed, *queue.maximum}, key=rank)[:MOST_RESOURCES]
        for family, amounts in ((used, facts.used), (guaranteed, queue.guaranteed), (maximum, queue.maximum)):
            for resource in names:
                if resource in amounts or family is used:
                    family.add_metric([name, resource], amounts.get(resource, 0))
        pending.add_metric([name], facts.pending_units)
        held.add_metric([name], facts.blocked_units)
    yield from (used, guaranteed, maximum, pending, held)


def _first(core: Core | None) -> Iterable[QueueFacts]:
    """The first queues in the order of the tree."""
    if core is None:
        return
    for name in queue_names(core)[:MOST_QUEUES]:
        facts = queue_facts(core, name, 0.0)
        if facts is not None:
            yield facts
