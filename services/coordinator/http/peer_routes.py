"""What operators may ask a coordinator: who leads, who decides for what, what waits, and why a pod is where it is.

Read-only; ``/v1/stats`` and ``/metrics`` come with ``shared.runtime.http.peers``. Of a pod's spec it shows what a
verdict rests on (requests, selectors, host ports), of its labels none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from prometheus_client import Counter, Histogram

from services.coordinator.core.core import Core
from services.coordinator.health.monitor import Vitals, register
from services.coordinator.inspect.attribution import reasons
from services.coordinator.inspect.explain import explain, explain_gone
from services.coordinator.inspect.group_explain import member_of
from services.coordinator.inspect.latency import measured
from services.coordinator.inspect.metrics import SchedulerMetrics
from services.coordinator.inspect.overview import queue_counts
from services.coordinator.inspect.throughput import Throughput
from services.coordinator.io.cluster_identity import ClusterIdentity
from services.coordinator.io.control import Following
from services.coordinator.io.kube_writes import KubeWrites
from services.coordinator.io.peers import Peers
from services.coordinator.io.totals import Totals
from services.coordinator.lending.ledger import LoanLedger
from services.coordinator.rollout.pointer import ActivePolicy
from services.coordinator.rollout.window_ring import WindowRing
from services.coordinator.usage.desk import ReadingsDesk
from services.coordinator.usage.speakers import ReadingsRefused
from shared.errors import ConclaveError, KubeRejected, KubeUnknown
from shared.kube.pods.convert import owner_of, pod_from_api
from shared.kube.pods.convert_relations import images_of
from shared.kube.resources import PODS
from shared.policy.observation import Need
from shared.policy.rollout.rollout import rehearsed_of
from shared.ports import KubeApi
from shared.runtime.http.callers import Caller
from shared.runtime.http.peers import FiguresRoute, PeerRoute
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.leading import Face
from shared.runtime.lease.leadership import leader_of, leadership_figures
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.etcd_upkeep import EtcdVerdict
from shared.runtime.process.service import boottime
from shared.scheduling.profiles import own_policy
from shared.wire.codec import decode, encode
from shared.wire.messages import Readings

LOOKUP_TIMEOUT_S = 3.0

TELLERS = frozenset({"agent", "sensor"})
READINGS_BYTES = 64 * 1024

MAX_EXPLAINING = 4
"""Questions answered at once: each judges every node on the leader's loop, beside which it has pods to place."""


WRITE_FIGURES: dict[str, tuple[str, Callable[[KubeWrites], int]]] = {
    "events_written": ("Kubernetes events created or continued in this term", lambda w: w.events_written),
    "events_waiting": ("Kubernetes events not written yet", lambda w: w.recorder.waiting),
    "events_combined": ("Events written as one with others, there being too many", lambda w: w.recorder.combined),
    "events_lost": ("Events that the API server did not take", lambda w: w.recorder.lost),
}


LOAN_FIGURES = {
    "lent_cpu_cores": ("CPU that nodes lend to offline pods", "cpu_millis", 0.001),
    "lent_memory_bytes": ("Memory that nodes lend to offline pods", "memory_bytes", 1.0),
    "lending_nodes": ("Nodes that lend anything", "lending", 1.0),
    "lending_nodes_without_metrics": ("Nodes that lend nothing for want of metrics", "degraded", 1.0),
    "lending_nodes_doubted": ("Nodes whose metrics are not believed", "doubted", 1.0),
    "lending_nodes_of_others": ("Nodes whose lent resources another manager writes", "foreign", 1.0),
    "lending_writes": ("Writes of what nodes lend in this term", "writes", 1.0),
}
"""Name, text, which of the ledger's figures, its scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermParts:
    """What a leader shows of the term it leads."""

    core: Core
    api: KubeApi
    peers: Peers
    writes: KubeWrites
    desk: ReadingsDesk
    loans: LoanLedger
    following: Following
    active_policy: ActivePolicy
    throughput: Throughput
    windows: WindowRing
    vitals: Vitals
    totals: Totals
    began: str
    """When this process was elected, RFC 3339."""


class Admin(Face[TermParts]):
    """Routes and figures of this process."""

    def __init__(self, service_id: str) -> None:
        super().__init__(service_id)
        self.scheduler_metrics: SchedulerMetrics | None = None
        self._explaining = 0
        self._explained: Counter | None = None
        self._explain_seconds: Histogram | None = None
        self.cluster = ClusterIdentity()
        self.warnings: Callable[[], Sequence[str]] = tuple
        """What is wrong with this process, one line each."""
        self.stands_by = ""
        """Which other mesh we leave the cluster to, in a line."""
        self.etcd: Callable[[], EtcdVerdict] = EtcdVerdict
        """Whether etcd has room."""

    @property
    def core(self) -> Core | None:
        """The leader's, there from the beginning of its term."""
        return self.parts.core if self.parts is not None else None

    @property
    def loans(self) -> LoanLedger | None:
        """The leader's, likewise."""
        return self.parts.loans if self.parts is not None else None

    def routes(self) -> tuple[FiguresRoute | PeerRoute, ...]:
        """``GET /v1/status``, ``GET /v1/explain/NAMESPACE/POD``; ``POST /v1/readings``, for agents and sensors."""
        return (
            PeerRoute(
                "/v1/readings",
                self.readings,
                roles=TELLERS,
                max_body_bytes=READINGS_BYTES,
                max_in_flight=256,
                of_one=8,
                addressed=True,
            ),
            FiguresRoute("/v1/status", self.status),
            FiguresRoute("/v1/explain/{namespace}/{pod}", self.explain_counted),
        )

    def register(self, metrics: Metrics) -> None:
        """Show the figures at ``/v1/stats`` and the gauges at ``/metrics``."""
        metrics.figure("coordinator", self.stats)
        self._explained = metrics.counter("explain_requests_total", "Questions about a pod, by result", ["result"])
        self._explain_seconds = metrics.histogram("explain_duration_seconds", "Answering one, API server included")
        register(metrics, lambda: self.parts.vitals if self.parts is not None and self.term > 0 else None)
        metrics.leader("coordinator", lambda: self.term > 0)
        metrics.gauge_of(
            "agents", "Agents registered", lambda: float(len(self.core.registry.views) if self.core else 0)
        )
        metrics.gauge_of("longest_turn_seconds", "Longest turn of the leader's loop in the last minute", self._turn_s)
        metrics.gauge_of("nodes", "Nodes known", lambda: float(self._nodes()))
        metrics.gauge_of(
            "conditions_waiting",
            "Pending pods with news that are not written yet; newer counts of a reason told before are none",
            lambda: float(self._conditions_waiting()),
        )
        for name, (text, read) in WRITE_FIGURES.items():
            metrics.gauge_of(name, text, partial(self._of_writes, read))
        metrics.gauge_of("nodes_measured", "Nodes of which somebody measures the use", self._measured)
        metrics.gauge_of(
            "latency_limits_broken", "Placed pods whose node is beyond their hard latency limit", self._beyond
        )
        for name, (text, figure, scale) in LOAN_FIGURES.items():
            metrics.gauge_of(name, text, partial(self._of_loans, figure, scale))

    def _of_loans(self, figure: str, scale: float) -> float:
        if self.loans is None or not self.term:
            return 0.0
        return scale * (self.loans.writes if figure == "writes" else self.loans.figures.get(figure, 0))

    def status(self) -> dict[str, Any]:
        """Who leads, since which term; agents with the size of their partition; the queue."""
        answer = leadership_figures(self.service_id, self.leadership)
        answer |= {"warnings": list(self.warnings()), "stands_by": self.stands_by}
        core = self.core
        if core is not None:
            ownership = core.registry.ownership
            answer |= {
                "synced": core.state.started,
                "missing": core.takeover.missing,
                "partition_epoch": ownership.epoch,
                "nodes": self._nodes(),
                "nodes_unowned": len(ownership.unowned),
                "agents": [
                    {
                        "id": agent,
                        "url": view.record.url,
                        "node": view.record.node,
                        "nodes": ownership.sizes.get(agent, 0),
                        "revision": view.revision,
                        "suspect": view.suspect,
                    }
                    for agent, view in sorted(core.registry.views.items())
                ],
                "binders": {
                    shard: {"url": binder.url, "term": binder.term}
                    for shard, binder in sorted(core.ledger.binders.items())
                },
                "queue": self._queue(),
                "plans_open": len(core.ledger.plans),
                "placements_open": len(core.ledger.placed),
                "intents_held": len(core.takeover.held),
                "policies": core.evaluation.figures(),
            }
        return answer

    async def readings(self, body: bytes, caller: Caller) -> bytes:
        """Readings to ReadingsAck. Refused: ``WireError`` (400), 403 ``forbidden`` and ``foreign_agent``, 421
        ``not_leader``, 503 ``not_ready``."""
        if self.parts is None or not self.term:
            raise RequestRefused(f"{self.service_id} does not lead", code="not_leader")
        core, desk = self.parts.core, self.parts.desk
        message = decode(body, Readings)
        if caller.role and (caller.role == "sensor") is (message.boot is None):
            raise RequestRefused(
                f"{caller.title} sends what a sensor does not, or what it alone does", code="forbidden"
            )
        if message.boot is not None and not core.state.started:
            raise RequestRefused(f"still listing: {', '.join(core.takeover.missing)}", code="not_ready")
        if caller.name and caller.name != message.agent:
            raise RequestRefused(f"{caller.title} may not speak for agent {message.agent}", code="foreign_agent")
        wanted = Need.USAGE in core.variants.needs or self.parts.loans.on
        try:
            return encode(desk.heard(message, core.registry.views, boottime(), wanted=wanted, address=caller.address))
        except ReadingsRefused as error:
            raise RequestRefused(str(error), code=error.code) from error

    async def explain_counted(self, namespace: str, pod: str) -> dict[str, Any]:
        """``explain`` within its limit, with its result counted. Refused: 429 ``overloaded``, and as ``explain``."""
        started, result = time.perf_counter(), "internal"
        self._explaining += 1
        try:
            if self._explaining > MAX_EXPLAINING:
                raise RequestRefused(f"{MAX_EXPLAINING} questions are being answered", code="overloaded")
            answer = await self.explain(namespace, pod)
            result = "ok"
            return answer
        except ConclaveError as error:
            result = error.code
            raise
        finally:
            self._explaining -= 1
            if self._explained is not None and self._explain_seconds is not None:
                self._explained.labels(result).inc()
                self._explain_seconds.observe(time.perf_counter() - started)

    async def explain(self, namespace: str, name: str) -> dict[str, Any]:
        """Why the pod is where it is. Refused: 421 ``not_leader``, 503 ``not_ready``, 404 ``pod_unknown``, 409
        ``kube_rejected``; the API server's silence is 503 ``kube_unknown``."""
        parts = self.parts
        if parts is None or not self.term:
            leader = leader_of(self.leadership)
            where = f"; {leader[0].identity} at {leader[0].url} does" if leader is not None else ""
            raise RequestRefused(f"{self.service_id} does not lead{where}", code="not_leader")
        core = parts.core
        if not core.state.started:
            missing = ", ".join(core.takeover.missing)
            raise RequestRefused(f"still listing: {missing}", code="not_ready")
        try:
            found = await parts.api.get(PODS, namespace=namespace, name=name, timeout_s=LOOKUP_TIMEOUT_S)
        except KubeUnknown as error:
            raise KubeUnknown(f"the API server does not say what {namespace}/{name} is: {error}") from error
        except KubeRejected as error:
            raise RequestRefused(f"the API server refuses {namespace}/{name}: {error}", code="kube_rejected") from error
        if found is None:
            remembered = explain_gone(core, f"{namespace}/{name}", boottime())
            if remembered is not None:
                return remembered
            raise RequestRefused(
                f"there is no pod {namespace}/{name}: it is gone, or was never created", code="pod_unknown"
            )
        pod = msgspec.structs.replace(pod_from_api(found), images=images_of(found.spec), owner=owner_of(found.metadata))
        pod = core.state.settings.profiles.applied(pod)
        if pod.extended:
            pod = core.state.devices.described(pod)
        answer = explain(core, pod, found.metadata.annotations or {}, boottime())
        answer["group"] = member_of(core, pod)
        pointer = core.variants.pointer
        asks = pointer is not None and not own_policy(pod.pod_class)
        policy = await parts.active_policy.get(pointer) if pointer is not None and asks else None
        answer["reasons"] = reasons(core, pod, policy) if policy is not None else None
        said = rehearsed_of(pointer, pointer.active) if pointer is not None else None
        answer["rehearsed"] = None if said is None else msgspec.to_builtins(said)
        return answer

    def stats(self) -> dict[str, Any]:
        """Counters of the term, bytes per hop, and what ``bytes_per_decision`` is made of."""
        figures, parts = self.figures(), self.parts
        if parts is not None:
            figures |= parts.core.state.stats.as_dict()
            figures["queue"] = self._queue()
            figures["longest_turn_ms"] = round(self._turn_s() * 1000, 3)
            figures["conditions_waiting"] = self._conditions_waiting()
            figures["measured"] = measured(parts.core)
            figures |= {name: read(parts.writes) for name, (_, read) in WRITE_FIGURES.items()}
            figures |= parts.peers.figures()
        return figures

    def _turn_s(self) -> float:
        return self.parts.vitals.pulse.longest_turn_s(boottime()) if self.parts is not None else 0.0

    def _conditions_waiting(self) -> int:
        return self.core.reporter.waiting if self.core is not None else 0

    def _of_writes(self, read: Callable[[KubeWrites], int]) -> float:
        return float(read(self.parts.writes)) if self.parts is not None else 0.0

    def _measured(self) -> float:
        return float(len(self.core.variants.used)) if self.core is not None else 0.0

    def _beyond(self) -> float:
        return float(self.core.variants.limits.broken) if self.core is not None else 0.0

    def _nodes(self) -> int:
        return len(self.core.state.cache.table.row_of) if self.core is not None else 0

    def _queue(self) -> dict[str, int]:
        return queue_counts(self.core) if self.core is not None else {}
