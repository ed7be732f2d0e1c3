"""What the dashboard shows of autoscaled services, from what their autoscaler recorded. Pure.

The coordinator decides nothing about them; it reads the autoscaler's records, which are as old as the last decision
that was recorded: one that differs from the one before, or one every few minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain, pairwise

import msgspec

from shared.runtime.records.autoscaling import DecidedService, DecisionRecord
from shared.wire.records import AutoscaleRecord

ACTS = ("act-on-hpa-bounds", "act-on-scale")
MOST_TOLD = 50
TROUBLES = ("SharedTarget", "ForeignWriter", "NoHPA", "RuleBroken")
"""Reasons not to write that somebody is to look into; that a go is missing is told beside."""


class ServiceShown(msgspec.Struct, frozen=True, kw_only=True):
    """One service at the last decision. ``hpa``: replicas HPA's rule would have had. ``arrivals``: requests per second,
    ``cores``: used by all its ready pods; null: no reading to rely on. ``safeguards``: who changed its number;
    ``held``: why nothing of it is written; ``bad``: what is wrong with its readings."""

    name: str
    replicas: int
    ready: int
    starting: int
    pending: int
    hpa: int | None
    wanted: int | None
    allowed: int
    written: bool
    role: str
    why: str
    arrivals: float | None
    cores: float | None
    latency_s: float | None
    safeguards: list[str]
    held: str
    bad: list[str]


class ScaledShown(msgspec.Struct, frozen=True, kw_only=True):
    """One ResilientAutoscaler. ``go``: counts, none, void (given for something else than what is there now) or "" where
    its mode writes nothing; ``go_by``: who gave it. ``trouble``: why the policy has no say, or what else keeps it from
    being carried out. ``foreign``: by service, who else sets its replicas."""

    namespace: str
    name: str
    at: str
    term: int
    mode: str
    policy: str
    decided_by: str
    go: str
    go_by: str
    trouble: str
    foreign: dict[str, str]
    services: list[ServiceShown]


class ScaledMoment(msgspec.Struct, frozen=True, kw_only=True):
    """All services of an object together at one decision; ``hpa`` null: its rule had nothing to go by. ``arrivals``: of
    services that no other calls."""

    at: str
    replicas: int
    hpa: int | None
    arrivals: float | None
    cores: float | None


class ScaledDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One service's part of a decision that changed something, or that a safeguard had a part in."""

    at: str
    service: str
    before: int
    after: int
    by: str
    role: str
    why: str
    written: bool


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Over ``seconds``, from the first to the last recorded decision: what was asked for, and what HPA's rule would
    have had at the same moments (its own would-be past is not played)."""

    seconds: float
    replica_hours: float
    hpa_replica_hours: float


class ScaledWhole(ScaledShown, frozen=True, kw_only=True):
    """One object with its past: ``history`` oldest first, ``decisions`` newest first."""

    cost: Cost
    history: list[ScaledMoment]
    decisions: list[ScaledDecision]


def shown(key: str, record: AutoscaleRecord, decision: DecisionRecord | None) -> ScaledShown:
    """One object; without its decision, what the record alone says."""
    namespace, _, name = key.partition("/")
    foreign = {service: one.by or "somebody" for service, one in record.foreign.items()}
    if decision is None:
        return ScaledShown(
            namespace=namespace, name=name, at="", term=record.term, mode="", policy="", decided_by="", go="",
            go_by=record.go[0], trouble="", foreign=foreign, services=[],
        )  # fmt: skip
    return ScaledShown(
        namespace=namespace,
        name=name,
        at=decision.at,
        term=decision.term,
        mode=decision.mode,
        policy=decision.policy,
        decided_by=decision.by,
        go=_go(decision),
        go_by=decision.go.by,
        trouble=_trouble(decision),
        foreign=foreign,
        services=[_service(decision, one) for one in decision.services],
    )


def whole(key: str, record: AutoscaleRecord, ring: Sequence[DecisionRecord]) -> ScaledWhole:
    """One object with its past. ``ring``: oldest first."""
    newest = ring[-1] if ring and ring[-1].number == record.number else None
    head = shown(key, record, newest)
    moments = [_moment(one) for one in ring]
    told = [row for one in reversed(ring) for row in _told(one)]
    return ScaledWhole(
        **{field: getattr(head, field) for field in ScaledShown.__struct_fields__},
        cost=cost_of(moments),
        history=moments,
        decisions=told[:MOST_TOLD],
    )


def cost_of(moments: Sequence[ScaledMoment]) -> Cost:
    """Replica hours: what each decision found is taken to have held until the next one."""
    seconds = ours = hpas = 0.0
    for one, after in pairwise(moments):
        lasted_s = max((_time(after.at) - _time(one.at)).total_seconds(), 0.0)
        seconds += lasted_s
        ours += one.replicas * lasted_s / 3600
        hpas += (one.replicas if one.hpa is None else one.hpa) * lasted_s / 3600
    return Cost(seconds=seconds, replica_hours=ours, hpa_replica_hours=hpas)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat("1970-01-01T00:00:00Z")


def _trouble(decision: DecisionRecord) -> str:
    """What is wrong, the gravest first; a mode that only looks on, a pause and a canary are what somebody asked for."""
    gated = (f"{reason}: {text}" for reason, text in decision.gates.values() if reason in TROUBLES)
    lacking = (f"SignalsMissing: {name}: {why}" for name, why in decision.lacking.items())
    unknown = (f"CapacityUnknown: {name}: {why}" for name, why in decision.unknown.items())
    refused = (f"{reason}: {name}: {why}" for name, (reason, why) in decision.refused.items())
    return decision.drifting or decision.failed or decision.unmade or next(chain(gated, lacking, unknown, refused), "")


def _go(decision: DecisionRecord) -> str:
    if decision.mode not in ACTS:
        return ""
    if not decision.go.digest:
        return "none"
    return "void" if any(reason == "NotApproved" for reason, _ in decision.gates.values()) else "counts"


def _service(decision: DecisionRecord, one: DecidedService) -> ServiceShown:
    seen = decision.seen.services.get(one.name)
    return ServiceShown(
        name=one.name,
        replicas=one.replicas,
        ready=one.ready,
        starting=seen.starting if seen is not None else 0,
        pending=seen.pending if seen is not None else 0,
        hpa=one.rule,
        wanted=one.wanted,
        allowed=one.allowed,
        written=one.acted,
        role=one.role,
        why=one.why,
        arrivals=seen.arrivals if seen is not None else None,
        cores=_cores(decision, one),
        latency_s=seen.latency_s if seen is not None else None,
        safeguards=[name for name, _ in decision.safeguards.get(one.name, ())],
        held=": ".join(part for part in decision.gates.get(one.name, ("", "")) if part),
        bad=list(decision.bad.get(one.name, ())),
    )


def _cores(decision: DecisionRecord, one: DecidedService) -> float | None:
    seen = decision.seen.services.get(one.name)
    used = seen.usage.get("cpu") if seen is not None else None
    return None if used is None else used * one.ready


def _moment(decision: DecisionRecord) -> ScaledMoment:
    called = {callee for _, callee in decision.seen.calls}
    rules = [one.rule for one in decision.services if one.rule is not None]
    return ScaledMoment(
        at=decision.at,
        replicas=sum(one.replicas for one in decision.services),
        hpa=sum(rules) if rules and len(rules) == len(decision.services) else None,
        arrivals=_sum(seen.arrivals for name, seen in decision.seen.services.items() if name not in called),
        cores=_sum(_cores(decision, one) for one in decision.services),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    """None where there is none, or one is not known: a part is no sum."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


def _told(decision: DecisionRecord) -> list[ScaledDecision]:
    return [
        ScaledDecision(
            at=decision.at, service=one.name, before=one.replicas, after=one.allowed, by=decision.by, role=one.role,
            why=one.why, written=one.acted,
        )
        for one in decision.services
        if one.allowed != one.replicas or decision.safeguards.get(one.name)
    ]  # fmt: skip
