"""What a demo was asked for and what came of it: the JSON and the picture. Pure but for reading the audit file.

Counts come from the audit file alone, costs from the supervisor, bytes and latencies from the services. ``Timing``
takes the moments of creation and binding from audit entries; ``StatsBook`` keeps the last figures that each incarnation
of a coordinator showed, so that a killed leader's counters are not lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lab.audit.audit import Audit, AuditReport
from lab.audit.judges.units import CHECKS
from lab.audit.log import LogEntry
from lab.audit.timeline import UtilisationPicture, UtilisationTimeline
from lab.cli.audit import entries_of
from lab.cli.demo.gangs import Shares, unfair
from lab.cli.demo.kills import Kill
from lab.cli.demo.latency import Served, unserved
from lab.cli.demo.tidal import Tides, idle
from lab.cli.demo.workload import EXTRA_PREFIX, DemoWorkload
from services.cli.local.mesh import MeshSettings
from services.cli.local.supervisor import ProcessUsage
from shared.model.pod import POLICY_ANNOTATION
from shared.quantiles import nearest_rank


class Timing:
    """Create-to-bind times and the rate, from audit entries."""

    def __init__(self) -> None:
        self._created_s: dict[str, float] = {}
        self._bound_s: dict[str, float] = {}

    def feed(self, entry: LogEntry) -> None:
        """Take one accepted change into account."""
        if entry.kind != "Pod":
            return
        if entry.verb == "create":
            self._created_s.setdefault(entry.name, entry.time_s)
        elif entry.verb == "bind":
            self._bound_s.setdefault(entry.name, entry.time_s)

    @property
    def extra(self) -> int:
        """Pods beyond the workload."""
        return sum(name.startswith(EXTRA_PREFIX) for name in self._created_s)

    def pods_per_s(self) -> float:
        """Bound pods of the workload over the time from its first creation to its last bind."""
        names = [name for name in self._bound_s if not name.startswith(EXTRA_PREFIX) and name in self._created_s]
        if len(names) < 2:
            return 0.0
        span_s = max(self._bound_s[name] for name in names) - min(self._created_s[name] for name in names)
        return len(names) / span_s if span_s > 0 else 0.0

    def create_to_bind_ms(self) -> dict[str, float]:
        """p50 and p99 of the time from a pod's creation to its Binding, as the API server saw both."""
        times = [(at - self._created_s[name]) * 1000 for name, at in self._bound_s.items() if name in self._created_s]
        p50, p99 = nearest_rank(times, 0.5, 0.99)
        return {"p50": round(p50, 3), "p99": round(p99, 3)}


class StatsBook:
    """Last ``/v1/stats`` of every incarnation of a service that was asked."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[str, Any]] = {}

    def put(self, incarnation: str, stats: Mapping[str, Any] | None) -> None:
        """Remember; None (no answer) keeps what was there."""
        if stats:
            self._last[incarnation] = stats

    def sums(self) -> dict[str, float]:
        """The coordinators' counters, added up over incarnations."""
        total: dict[str, float] = {}
        for stats in self._last.values():
            for name, value in (stats.get("coordinator") or {}).items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    total[name] = total.get(name, 0) + value
        return total

    def latency_ms(self) -> dict[str, float]:
        """Watch event seen to Binding sent. p50 and p99 of the incarnation that placed most; ``count`` of all."""
        found = [(stats.get("quantiles") or {}).get("schedule_latency_ms") or {} for stats in self._last.values()]
        found = [one for one in found if one.get("count")]
        if not found:
            return {"p50": 0.0, "p99": 0.0, "count": 0}
        most = max(found, key=lambda one: one["count"])
        count = sum(one["count"] for one in found)
        return {"p50": round(most["p50"], 3), "p99": round(most["p99"], 3), "count": count}

    def bytes_per(self) -> tuple[float, dict[str, float]]:
        """(bytes per (unit, node) answer from agents, bytes per placed pod on every hop)."""
        sums = self.sums()
        answers, placed = sums.get("answers", 0), sums.get("bound", 0)
        per_decision = sums.get("decision_bytes", 0) / answers if answers else 0.0
        hops = {name: round(sums[name] / placed, 1) for name in sorted(sums) if name.endswith("_bytes") and placed}
        return per_decision, hops


def costs(usage: Mapping[str, list[ProcessUsage]], pods_bound: int) -> tuple[dict[str, float], dict[str, float]]:
    """(rss_mb per service, the largest process of each; cpu_ms_per_pod per service and ``total``)."""
    rss = {service: round(max(u.peak_rss_bytes for u in found) / 1e6, 1) for service, found in usage.items() if found}
    cpu_s = {service: sum(u.cpu_s for u in found) for service, found in usage.items()}
    pods = max(pods_bound, 1)
    per_pod = {service: round(seconds * 1000 / pods, 3) for service, seconds in cpu_s.items()}
    per_pod["total"] = round(sum(cpu_s.values()) * 1000 / pods, 3)
    return rss, per_pod


def problems(report: AuditReport, failovers: list[dict[str, Any]]) -> list[str]:
    """What keeps the run from being a success, in words; empty: it was one."""
    found = []
    for name in (
        "double_bound", "overcommitted_nodes", "zones_overcommitted", "lent_overcommitted", "lent_wrong",
        "reserved_wrong", "gpu_violations", "misplaced", "devices_twice", "claims_leaked", "schedulable_but_unbound",
    ):  # fmt: skip
        count = getattr(report, name)
        if count:
            found.append(f"{name} is {count}, must be 0")
    if report.lost > report.schedulable_but_unbound:
        found.append(f"lost is {report.lost}, must be 0")
    for name, count in asdict(report.units).items():
        if name in CHECKS.values() and count:
            found.append(f"{name} is {count}, must be 0")
    if report.units.gangs_whole < report.units.gangs:
        found.append(f"{report.units.gangs - report.units.gangs_whole} of {report.units.gangs} gangs never ran")
    if report.pods_submitted == 0:
        found.append("no pod was submitted")
    for failover in failovers:
        if not failover["killed"]:
            found.append(f"kill {failover['victim']}@{failover['at_s']:g} did not happen")
        elif failover["recovery_s"] is None:
            found.append(f"kill {failover['victim']}@{failover['at_s']:g} was not recovered from")
    return found


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What ``conclave demo`` was asked for. ``mesh``: its etcd and admin ports are known once it runs."""

    workload: DemoWorkload
    mesh: MeshSettings
    kills: tuple[Kill, ...]
    audit_file: Path
    port: int
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The JSON and the picture."""

    figures: dict[str, Any]
    picture: UtilisationPicture | None
    day: Mapping[str, list[float]] | None = None
    """Of the workload tidal, its course (``Tides.course``)."""


NO_LEARNING: Mapping[str, Any] = MappingProxyType({})


def build_result(
    settings: DemoSettings,
    failovers: list[dict[str, Any]],
    *,
    stats: StatsBook,
    usage: Mapping[str, list[ProcessUsage]],
    restarts: Mapping[str, int],
    stuck: str,
    elapsed_s: float,
    learning: Mapping[str, Any] = NO_LEARNING,
    served: Served | None = None,
) -> DemoResult:
    """The figures. ``stuck``: why the run was given up, if it was. ``ConfigError``: the audit file is damaged."""
    audit, timing, timeline = Audit("conclave"), Timing(), UtilisationTimeline(speed=settings.mesh.speed)
    shares = Shares(settings.workload.weights)
    tides = Tides(settings.mesh.speed) if settings.workload.name == "tidal" else None
    placed: dict[str, str] = {}
    for entry in entries_of(settings.audit_file):
        _note_policy(entry, placed)
        audit.feed(entry)
        timing.feed(entry)
        timeline.feed(entry)
        shares.feed(entry)
        if tides is not None:
            tides.feed(entry)
        if served is not None:
            served.feed(entry)
    report, picture = audit.report(), timeline.picture()
    shared = shares.figures() if settings.workload.weights else {}
    latency = served.figures() if served is not None else {}
    tidal = tides.figures() if tides is not None else {}
    found = [
        *problems(report, failovers),
        *unfair(shared),
        *unserved(latency, settings.mesh.policy),
        *idle(tidal),
        *([stuck] if stuck else []),
    ]
    per_decision, per_pod = stats.bytes_per()
    rss_mb, cpu_ms = costs(usage, report.pods_bound)
    figures = {
        "workload": settings.workload.name,
        "policy": settings.mesh.policy,
        "placed_by": dict(sorted(Counter(placed.values()).items())),
        "learning": dict(learning),
        "seed": settings.mesh.seed,
        "speed": settings.mesh.speed,
        "nodes": len(settings.workload.nodes),
        "coordinators": settings.mesh.coordinators,
        "agents": settings.mesh.agents,
        "binders": settings.mesh.binders,
        **{name: value for name, value in report.to_json().items() if name != "ok"},
        "pods_extra": timing.extra,
        "shares": shared,
        "latency": latency,
        "tidal": tidal,
        "pods_per_s": round(timing.pods_per_s(), 2),
        "schedule_latency_ms": stats.latency_ms(),
        "create_to_bind_ms": timing.create_to_bind_ms(),
        "bytes_per_decision": round(per_decision, 2),
        "bytes_per_pod": per_pod,
        "rss_mb": rss_mb,
        "cpu_ms_per_pod": cpu_ms,
        "failovers": failovers,
        "restarts": dict(restarts),
        "imbalance": round(picture.imbalance, 5) if picture is not None else 0.0,
        "elapsed_s": round(elapsed_s, 2),
        "problems": found,
        "ok": not found,
    }
    return DemoResult(figures, picture, tides.course() if tides is not None else None)


def _note_policy(entry: LogEntry, placed: dict[str, str]) -> None:
    """By which policy a pod was bound, as its annotation says."""
    if entry.kind == "Pod":
        policy = (entry.object.get("metadata", {}).get("annotations") or {}).get(POLICY_ANNOTATION)
        if policy:
            placed[entry.uid] = policy
