"""What a demo was asked for and what came of it: the JSON and the picture, made from the audit file and the costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from services.cli.audit import entries_of
from services.cli.demo.chaos import Kill
from services.cli.demo.figures import StatsBook, Timing, costs, problems
from services.cli.demo.workload_source import Workload
from services.cli.local.process_usage import ProcessUsage
from shared.audit.audit import Audit
from shared.audit.log import Entry
from shared.audit.timeline import Picture, Timeline
from shared.model.pod import POLICY_ANNOTATION


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What ``conclave demo`` was asked for."""

    workload: Workload
    coordinators: int
    agents: int
    binders: int
    policy: str
    seed: int
    speed: float
    kills: tuple[Kill, ...]
    audit_file: Path
    port: int
    state_dir: Path
    quiet: bool = False
    learner: bool = False


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The JSON and the picture."""

    figures: dict[str, Any]
    picture: Picture | None


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
) -> DemoResult:
    """The figures. ``stuck``: why the run was given up, if it was. ``ConfigError``: the audit file is damaged."""
    audit, timing, timeline = Audit("conclave"), Timing(), Timeline(speed=settings.speed)
    placed: dict[str, str] = {}
    for entry in entries_of(settings.audit_file):
        _note_policy(entry, placed)
        audit.feed(entry)
        timing.feed(entry)
        timeline.feed(entry)
    report, picture = audit.report(), timeline.picture()
    found = problems(report, failovers) + ([stuck] if stuck else [])
    per_decision, per_pod = stats.bytes_per()
    rss_mb, cpu_ms = costs(usage, report.pods_bound)
    figures = {
        "workload": settings.workload.name,
        "policy": settings.policy,
        "placed_by": dict(sorted(Counter(placed.values()).items())),
        "learning": dict(learning),
        "seed": settings.seed,
        "speed": settings.speed,
        "nodes": len(settings.workload.nodes),
        "coordinators": settings.coordinators,
        "agents": settings.agents,
        "binders": settings.binders,
        **{name: value for name, value in report.to_json().items() if name != "ok"},
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
    return DemoResult(figures, picture)


def _note_policy(entry: Entry, placed: dict[str, str]) -> None:
    """By which policy a pod was bound, as its annotation says."""
    if entry.kind == "Pod":
        policy = (entry.object.get("metadata", {}).get("annotations") or {}).get(POLICY_ANNOTATION)
        if policy:
            placed[entry.uid] = policy
