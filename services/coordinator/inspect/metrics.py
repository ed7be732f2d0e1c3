"""What a coordinator shows Prometheus about scheduling, under kube-scheduler's own names where the meaning is the same.

A dashboard or alert made for kube-scheduler (1.36) works on ``scheduler_*`` here; the mesh's own figures are called
``conclave_*``. Gauges and counters are read from the core when scraped and cost nothing in between; only the histograms
are fed after each turn. ``profile`` is the scheduler's name. Labels are from closed sets: places, results, rules and
events of ours, never text from the cluster but the names of its DRA drivers, which are few.

What has another meaning here is not counted: nothing is said about extension points, plugins' run times,
goroutines or permits, since there are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.coordinator.core.core import Core
from services.coordinator.core.counters import Stats
from services.coordinator.inspect.group_metrics import GroupMetrics
from services.coordinator.inspect.nodes import device_counts
from shared.runtime.observe.metrics import Metrics
from shared.scheduling.devices.census import STATES
from shared.scheduling.places import ClusterEvent, OwnEvent, Place
from shared.scheduling.reasons import INCOMPLETE, QUOTA

ATTEMPT_BUCKETS_S = tuple(0.001 * 2**n for n in range(15))
SLI_BUCKETS_S = tuple(0.01 * 2**n for n in range(20))
ATTEMPTS_BUCKETS = (1, 2, 4, 8, 16)
VICTIMS_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""kube-scheduler's own buckets (pkg/scheduler/metrics/metrics.go), so that quantiles compare."""

MANY_ATTEMPTS = 15
"""From here on the label ``attempts`` is ``15+``, as kube-scheduler's."""

QUEUES = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE)

EVENT_LABELS: dict[OwnEvent | ClusterEvent, str] = {
    OwnEvent.SEEN: "UnschedulablePodAdd",
    OwnEvent.CHANGED: "UnschedulablePodUpdate",
    OwnEvent.ATTEMPT_FAILED: "ScheduleAttemptFailure",
    OwnEvent.BACKOFF_COMPLETE: "BackoffComplete",
    OwnEvent.TIMEOUT: "UnschedulableTimeout",
    OwnEvent.WOKEN: "ForceActivate",
    OwnEvent.RACE_LOST: "ConclaveRaceLost",
    OwnEvent.QUOTA: QUOTA,
    OwnEvent.GATED: INCOMPLETE,
    OwnEvent.JOINED: "ConclavePodGroupJoined",
    ClusterEvent.NODE_ADDED: "NodeAdd",
    ClusterEvent.NODE_ALLOCATABLE: "NodeUpdateNodeAllocatable",
    ClusterEvent.NODE_LABELS: "NodeUpdateNodeLabel",
    ClusterEvent.NODE_TAINTS: "NodeUpdateNodeTaint",
    ClusterEvent.NODE_FEATURES: "NodeUpdateNodeDeclaredFeature",
    ClusterEvent.NODE_TOPOLOGY: "NodeResourceTopologyUpdate",
    ClusterEvent.NODE_LATENCY: "ConclaveNodeLatency",
    ClusterEvent.NODE_DELETED: "NodeDelete",
    ClusterEvent.POD_ADDED: "AssignedPodAdd",
    ClusterEvent.POD_LABELS: "AssignedPodUpdatePodLabel",
    ClusterEvent.POD_DELETED: "AssignedPodDelete",
    ClusterEvent.CLAIM_CHANGED: "PersistentVolumeClaimUpdate",
    ClusterEvent.VOLUME_CHANGED: "PersistentVolumeUpdate",
    ClusterEvent.STORAGE_CLASS_CHANGED: "StorageClassUpdate",
    ClusterEvent.CSI_NODE_CHANGED: "CSINodeUpdate",
    ClusterEvent.NAMESPACE_LABELS: "NamespaceUpdate",
    ClusterEvent.DEVICE_CLAIM_CHANGED: "ResourceClaimUpdate",
    ClusterEvent.RESOURCE_SLICE_CHANGED: "ResourceSliceUpdate",
    ClusterEvent.DEVICE_CLASS_CHANGED: "DeviceClassUpdate",
    ClusterEvent.AGENT_JOINED: "ConclaveAgentJoined",
    ClusterEvent.MEMBER_ADDED: "UnscheduledPodAdd",
    ClusterEvent.POD_GROUP_ADDED: "PodGroupAdd",
    ClusterEvent.POD_GROUP_CHANGED: "PodGroupUpdate",
}
"""kube-scheduler's labels of its events; where it has none, the word of the reason for which the pod waits from then
on, else a label of ours, which begins with ``Conclave``."""


RESULTS = ("scheduled", "unschedulable", "error")


class SchedulerMetrics:
    """The metrics of one process; ``core`` gives the term's core, None while this process stands by."""

    def __init__(self, metrics: Metrics, *, profile: str, core: Callable[[], Core | None]) -> None:
        registry = metrics.registry
        attempt = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            ["result", "profile"], buckets=ATTEMPT_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self._sli = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time the pod enters the queue, all attempts included",
            ["attempts"], buckets=SLI_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self._attempts = Histogram(
            "scheduler_pod_scheduling_attempts", "Number of attempts to successfully schedule a pod",
            buckets=ATTEMPTS_BUCKETS, registry=registry,
        )  # fmt: skip
        self._victims = Histogram(
            "scheduler_preemption_victims", "Number of selected preemption victims",
            buckets=VICTIMS_BUCKETS, registry=registry,
        )  # fmt: skip
        self._round = metrics.histogram("round_duration_seconds", "One round: offers handed over to plan handed over")
        self.turn = metrics.histogram("turn_duration_seconds", "One turn of the leader's loop, a batch of events")
        self.turn_cpu = metrics.histogram(
            "turn_cpu_seconds", "CPU time of one turn: well below its duration, the machine is short of cores"
        )
        self._attempt = attempt
        self._attempt_of = {(r, profile): attempt.labels(r, profile) for r in RESULTS}
        self._sli_of: dict[int, Histogram] = {}
        self._results: Counter[tuple[str, str]] = Counter({(r, profile): 0 for r in RESULTS})
        registry.register(_CoreCollector(core, self._results))
        self._groups = GroupMetrics(metrics, profile=profile, core=core)

    def observe(self, stats: Stats, rounds_s: Iterable[float]) -> None:
        """Take over what happened since the last turn."""
        attempts, scheduled, victims = stats.take_attempts()
        for result, took_s, profile in attempts:
            ended = result, profile
            observed = self._attempt_of.get(ended)
            if observed is None:
                observed = self._attempt_of[ended] = self._attempt.labels(*ended)
            observed.observe(took_s)
            self._results[ended] += 1
        for attempt, sli_s in scheduled:
            attempt = min(attempt, MANY_ATTEMPTS)
            self._attempts.observe(attempt)
            sli = self._sli_of.get(attempt)
            if sli is None:
                label = f"{attempt}+" if attempt == MANY_ATTEMPTS else str(attempt)
                sli = self._sli_of[attempt] = self._sli.labels(label)
            sli.observe(sli_s)
        for count in victims:
            self._victims.observe(count)
        for round_s in rounds_s:
            self._round.observe(round_s)
        self._groups.observe(stats)


class _CoreCollector(Collector):
    """Reads the core when scraped; a standby shows zeros, so that a dashboard's sums need no special case."""

    def __init__(self, core: Callable[[], Core | None], results: Counter[tuple[str, str]]) -> None:
        self._core = core
        self._results = results

    def collect(self) -> Iterable[Metric]:
        core = self._core()
        stats = core.state.stats if core is not None else Stats()
        tried = CounterMetricFamily(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result; error: something other than the cluster kept the pod from a node",
            labels=["result", "profile"],
        )
        for (result, named), count in self._results.items():
            tried.add_metric([result, named], count)
        yield tried
        yield CounterMetricFamily(
            "scheduler_preemption_attempts", "Total preemption attempts in the cluster till now",
            value=stats.preemption_searches,
        )  # fmt: skip
        yield from self._queue(core)
        yield from self._cache(core)
        yield from self._devices(core)
        for name, value in stats.as_dict().items():
            text = name.replace("_", " ").capitalize()
            yield CounterMetricFamily(f"conclave_coordinator_{name}", f"{text}, in this term", value=value)

    def _queue(self, core: Core | None) -> Iterable[Metric]:
        pending = GaugeMetricFamily(
            "scheduler_pending_pods", "Pending pods, by the queue they are in", labels=["queue"]
        )
        counts = core.state.queue.count() if core is not None else {}
        for place in QUEUES:
            pending.add_metric([place.value], counts.get(place, 0))
        pending.add_metric(["gated"], core.state.gated_count if core is not None else 0)
        yield pending
        yield GaugeMetricFamily(
            "conclave_pods_in_flight", "Pods taken off the queue, until they are bound or come back",
            value=counts.get(Place.IN_FLIGHT, 0),
        )  # fmt: skip
        incoming = CounterMetricFamily(
            "scheduler_queue_incoming_pods", "Pods added to scheduling queues, by event and queue type",
            labels=["queue", "event"],
        )  # fmt: skip
        reasons = GaugeMetricFamily(
            "scheduler_unschedulable_pods", "Unschedulable pods by the rules that reject them; one may count twice",
            labels=["plugin", "profile"],
        )  # fmt: skip
        if core is not None:
            for (place, event), count in core.state.queue.incoming.items():
                incoming.add_metric([place.value, EVENT_LABELS[event]], count)
            parked = [e for e in core.state.queue.entries.values() if e.place is Place.UNSCHEDULABLE]
            by_plugin = Counter((plugin, e.pod.scheduler_name) for e in parked for plugin in e.plugins)
            for (plugin, named), count in sorted(by_plugin.items()):
                reasons.add_metric([plugin, named], count)
        yield incoming
        yield reasons

    def _cache(self, core: Core | None) -> Iterable[Metric]:
        size = GaugeMetricFamily(
            "scheduler_cache_size", "Nodes, pods and assumed pods in the scheduler's cache", labels=["type"]
        )
        cache = core.state.cache if core is not None else None
        size.add_metric(["nodes"], len(cache.table.row_of) if cache is not None else 0)
        size.add_metric(["pods"], len(cache.accounts) if cache is not None else 0)
        size.add_metric(["assumed_pods"], len(core.ledger.placed) if core is not None else 0)
        yield size

    def _devices(self, core: Core | None) -> Iterable[Metric]:
        devices = GaugeMetricFamily(
            "conclave_devices", "Devices that DRA drivers publish, each in one state", labels=["driver", "state"]
        )
        claims = GaugeMetricFamily(
            "conclave_device_claims", "ResourceClaims, by whether they have devices", labels=["state"]
        )
        known = core.state.devices if core is not None else None
        for driver, counts in device_counts(core).items() if core is not None else ():
            for state in STATES:
                devices.add_metric([driver, state], getattr(counts, state))
        shown = known.accounts.shown.values() if known is not None else ()
        given = sum(claim.allocation is not None for claim in shown)
        claims.add_metric(["allocated"], given)
        claims.add_metric(["pending"], len(shown) - given)
        yield devices
        yield claims
        yield GaugeMetricFamily(
            "conclave_pods_awaiting_claims", "Pods that are on no node until a claim of theirs is there, or is another",
            value=len(core.state.awaited_claims) if core is not None else 0,
        )  # fmt: skip
