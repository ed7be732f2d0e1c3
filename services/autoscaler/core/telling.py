"""What an object's status says: conditions, one row per service, the last notable decisions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from services.autoscaler.core.deciding import ScalerDecision
from services.autoscaler.core.gates import Gate
from shared.model.controllers.autoscaler import Autoscaler

Json = dict[str, Any]

MESSAGE_BYTES = 1024
DESIGN_DUE = "DesignDue"
DECISIONS = 10
"""Notable decisions that a status shows; etcd keeps more, with all their inputs."""


def text_of(wall_s: float) -> str:
    """RFC 3339, whole seconds."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(
    scaler: Autoscaler,
    *,
    gate: Gate,
    gates: Mapping[str, Gate],
    problem: Gate,
    decided: ScalerDecision | None,
    due: str = "",
    foreign: Mapping[str, str] = {},
    unwritten: Mapping[str, str] = {},
) -> list[tuple[str, bool, str, str]]:
    """(type, holds, reason, message) of each. ``problem``: why nothing could be decided; ``due``: why the policy's
    design is to be run again; ``foreign``: by service, what somebody else wrote; ``unwritten``: why a write of it was
    refused."""
    bad = sorted(f"{name} {lines[0]}" for name, lines in (decided.bad if decided is not None else {}).items())
    # what one service is told of foreign writers, whatever the first reason not to write is
    gated = [one for one in gates.values() if one.reason in ("ForeignWriter", "SharedTarget")]
    # a write in its grace is told by its gate already
    gated += [
        Gate("ForeignWriter", f"{name}: {text}")
        for name, text in foreign.items()
        if name not in gates or gates[name].reason != "ForeignWriter"
    ]
    refused = [Gate("FailedRescale", f"{name}: {text}") for name, text in unwritten.items()]
    first = next((one for one in (problem, gate, *refused, *gates.values()) if one.reason), Gate())
    acting = not problem.reason and not gate.reason and not refused and any(not one.reason for one in gates.values())
    ready = Gate("Invalid", "; ".join(scaler.problems)) if scaler.problems else problem
    found = [
        ("Ready", not ready.reason, ready.reason or "Decided", ready.text or "decisions are made"),
        ("Acting", acting, "Acting" if acting else first.reason or "Waiting", first.text or "decisions are written"),
        ("MetricsGood", *_of_metrics(bad, decided)),
        (
            "ForeignWriter", bool(gated), gated[0].reason if gated else "None",
            "; ".join(one.text for one in gated) or "nobody else was seen to write",
        ),
    ]  # fmt: skip
    again = f"{due}; run conclave autoscale design {scaler.key}, and approve what it finds"
    found.append((DESIGN_DUE, bool(due), "Drift" if due else "None", again if due else "nothing speaks against it"))
    if decided is not None:
        trouble = decided.drifting or decided.failed or decided.unmade
        reason = "Drift" if decided.drifting else "PolicyFailed" if decided.failed else "Sound"
        reason = "PolicyUnusable" if decided.unmade and reason == "Sound" else reason
        if not trouble and (decided.lacking or decided.unknown):
            reason = "SignalsMissing" if decided.lacking else "CapacityUnknown"
            trouble = _said({**decided.unknown, **decided.lacking})
        found.append(("PolicySound", not trouble, reason, trouble or f"{decided.by} decides"))
    return found


def _of_metrics(bad: list[str], decided: ScalerDecision | None) -> tuple[bool, str, str]:
    """(holds, reason, message): what is lacking, which lasts and hides nothing, beside what is bad; both before what
    HPA's rule cannot go by."""
    if decided is None:
        return False, "Unknown", "nothing was decided yet"
    told = [_said(decided.lacking)] if decided.lacking else []
    told += [f"holding or rising: {'; '.join(bad)}"] if bad else []
    if told:
        return False, "SignalsMissing" if decided.lacking else "Bad", cut("; ".join(told))
    if decided.refused:
        reason = next(reason for reason, _ in decided.refused.values())
        return False, reason, _said({name: why for name, (_, why) in decided.refused.items()})
    return True, "Good", "every reading can be relied on"


def _said(lines: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in sorted(lines.items()))


def design_due(scaler: Autoscaler) -> str:
    """Why the design is to be run again, as an earlier leader of the same spec and go has told; "": it is not."""
    if scaler.written.get("observedGeneration") != scaler.generation:
        return ""
    told = scaler.written.get("conditions")
    for one in told if isinstance(told, list) else ():
        if isinstance(one, dict) and one.get("type") == DESIGN_DUE and one.get("status") == "True":
            return str(one.get("message", "")).partition("; run ")[0]
    return ""


def rows(decided: ScalerDecision, acted: frozenset[str]) -> list[Json]:
    """One row per service."""
    found: list[Json] = []
    for name, seen in decided.seen.services.items():
        wanted = decided.wanted.get(name)
        row: Json = {
            "name": name, "replicas": seen.replicas, "ready": seen.ready, "allowed": decided.verdict.allowed[name],
            "acted": name in acted, "why": why(decided, name),
        }  # fmt: skip
        if isinstance(wanted, int) and not isinstance(wanted, bool):
            row["wanted"] = wanted
        if name in decided.rule:
            row["rule"] = decided.rule[name]
        if (acted_in := decided.roles.get(name)) is not None:
            row["role"] = acted_in.role
        found.append(row)
    return found


def why(decided: ScalerDecision, name: str) -> str:
    """Why a service gets what it gets, in one line."""
    notes = [f"{safeguard}: {text}" for safeguard, text in decided.verdict.notes.get(name, ())]
    role = decided.roles.get(name)
    who = f"{decided.by} decided" + (f" as {role.role} ({role.why})" if role is not None else "")
    return cut("; ".join([who, *notes]))


def seen_text(decided: ScalerDecision, name: str) -> str:
    """What a decision went by, in one line."""
    one = decided.seen.services[name]
    readings = {
        **{f"{key}/pod": value for key, value in one.usage.items()}, "arrivals/s": one.arrivals,
        "failed/s": one.failed, "latency s": one.latency_s, "queue": one.queue,
    }  # fmt: skip
    parts = [f"{one.ready} ready, {one.starting} starting, {one.pending} pending"]
    parts += [f"{key} {value:.4g}" for key, value in readings.items() if value is not None]
    return cut(", ".join(parts))


def decision_rows(decided: ScalerDecision, acted: frozenset[str], wall_s: float) -> list[Json]:
    """The services that a decision is about, as the status keeps them."""
    found = []
    for row in rows(decided, acted):
        if row["allowed"] != row["replicas"] or decided.verdict.notes.get(row["name"]):
            shown: Json = {
                "at": text_of(wall_s), "service": row["name"], "from": row["replicas"], "to": row["allowed"],
                "by": decided.by if row["acted"] else f"{decided.by} (not written)", "why": row["why"],
                "seen": seen_text(decided, row["name"]),
            }  # fmt: skip
            found.append(shown | {key: row[key] for key in ("wanted", "rule", "role") if key in row})
    return found


def status(
    scaler: Autoscaler,
    found: list[tuple[str, bool, str, str]],
    *,
    digest: str,
    services: list[Json],
    decisions: list[Json],
    decided_by: str,
) -> Json:
    """The status without times; ``patch`` puts them in."""
    return {
        "observedGeneration": scaler.generation,
        "policy": scaler.policy,
        "digest": digest,
        "decidedBy": decided_by,
        "replicas": sum(int(row["replicas"]) for row in services),
        "services": services,
        "decisions": decisions,
        "conditions": [
            {
                "type": kind, "status": "True" if holds else "False", "reason": reason, "message": cut(message),
                "observedGeneration": scaler.generation,
            }
            for kind, holds, reason, message in found
        ],
    }  # fmt: skip


def same(status: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """Whether the API server has this status, times aside."""
    bare = [
        {key: value for key, value in one.items() if key != "lastTransitionTime"}
        for one in written.get("conditions") or ()
        if isinstance(one, dict)
    ]
    shown = {key: value for key, value in written.items() if key in status} | {"conditions": bare}
    return dict(status) == shown


def patch(status: Mapping[str, Any], scaler: Autoscaler, now: str) -> Json:
    """The merge patch of the status subresource; a condition keeps its time while it holds as it did."""
    before = {
        one.get("type"): one
        for one in scaler.written.get("conditions") or ()  # type: ignore[attr-defined]
        if isinstance(one, dict)
    }
    told = []
    for one in status["conditions"]:
        old = before.get(one["type"], {})
        kept = old.get("lastTransitionTime") if old.get("status") == one["status"] else None
        told.append({**one, "lastTransitionTime": kept or now})
    return {"metadata": {"uid": scaler.uid}, "status": {**status, "conditions": told, "decidedAt": now}}


def cut(text: str) -> str:
    """At most ``MESSAGE_BYTES`` characters."""
    return text if len(text) <= MESSAGE_BYTES else text[: MESSAGE_BYTES - 3] + "..."
