"""Kubernetes events on an object: what was scaled, what is wrong and what is held, at a bounded rate. Pure.

A trouble is told when it begins, and again only after it was away for ``QUIET_S``; that it goes on is the status's to
say. ``EVENTS_AT_ONCE`` events of one object may follow each other, then one in ``EVERY_S``: what is wrong waits for its
turn, what was scaled and finds no room is counted and not told (client-go's spam filter: 25, and one in 300 s).
"""

from __future__ import annotations

from services.autoscaler.core.deciding import ScalerDecision
from services.autoscaler.core.gates import Gate
from services.autoscaler.core.instructions import Announce, Instruction, ScaleTo, SetBounds
from services.autoscaler.core.state import ScalerState
from services.autoscaler.core.watched import EVENTS_AT_ONCE, WatchedScaler

QUIET_S = 300.0
EVERY_S = 30.0
NORMAL, WARNING = "Normal", "Warning"
OWN_DOING = ("Observing", "Recommending", "Paused", "Canary")
"""Reasons not to write that are what somebody asked for."""
HOLDS = ("held", "foreign", "nobody-ready", "budget", "pending", "room", "cost", "fallback", "drift")
"""Safeguards whose word is worth an event; rates and bounds are everyday, bad readings are told by themselves."""

Trouble = tuple[str, str, str]
"""(reason, service or "", what tells two of them apart)."""


def troubles_of(
    watched: WatchedScaler,
    decided: ScalerDecision | None,
    problem: Gate,
    gates: dict[str, Gate],
    foreign: dict[str, str],
) -> dict[Trouble, tuple[str, str]]:
    """What is wrong, or held, with an object: (Normal or Warning, the words) by trouble. ``problem``: of the whole
    object; ``foreign``: what others wrote, in words."""
    found: dict[Trouble, tuple[str, str]] = {}
    if problem.reason and problem.reason not in OWN_DOING:
        found[problem.reason, "", ""] = (WARNING, problem.text)
    for name, gate in gates.items():
        told = name in foreign if gate.reason == "ForeignWriter" else gate.reason in (*OWN_DOING, problem.reason)
        if gate.reason and not told:
            found[gate.reason, name, ""] = (WARNING, gate.text)
    for name, text in foreign.items():
        theirs = watched.foreign[name]
        found["ForeignWriter", name, f"{theirs.value} {theirs.times}"] = (WARNING, f"{name}: {text}")
    for name, text in watched.unwritten.items():
        found["FailedRescale", name, ""] = (WARNING, f"{name}: {text}")
    if decided is None:
        return found
    for name, why in decided.lacking.items():
        found["SignalsMissing", name, ""] = (WARNING, f"{name}: {why}")
    for name, why in decided.unknown.items():
        found["CapacityUnknown", name, ""] = (WARNING, f"{name}: {why}")
    for name, lines in decided.bad.items():
        found["FailedGetMetrics", name, ""] = (WARNING, f"{name}: {lines[0]}")
    for name, (reason, why) in decided.refused.items():
        if name in decided.bad:
            continue  # the same cause, told already
        found[reason, name, ""] = (WARNING, f"{name}: {why}")
    for name, notes in decided.verdict.notes.items():
        before, allowed = decided.seen.services[name].replicas, decided.verdict.allowed[name]
        for safeguard, why in notes:
            if safeguard in HOLDS:
                found["ScalingHeld", name, safeguard] = (NORMAL, f"{name}: {allowed}, now {before}; {safeguard}: {why}")
    return found


def troubles(state: ScalerState, watched: WatchedScaler, now: float) -> list[Instruction]:
    """The events for what began to be wrong."""
    out: list[Instruction] = []
    told = watched.announced
    for trouble, (kind, note) in watched.troubles.items():
        if trouble not in told and not _room(watched, now):
            state.stats.events_withheld += 1
            continue
        if trouble not in told:
            state.stats.events += 1
            out.append(Announce(watched.scaler, kind, trouble[0], "Reconcile", note))
        told[trouble] = now
    for trouble in [one for one, last in told.items() if now - last > QUIET_S]:
        del told[trouble]
    return out


def rescaled(
    state: ScalerState, watched: WatchedScaler, write: ScaleTo | SetBounds, before: int, now: float
) -> list[Instruction]:
    """The event for a write that was made."""
    if not _room(watched, now):
        state.stats.events_withheld += 1
        return []
    rows = watched.status.get("services")
    found = [one for one in rows if one["name"] == write.service] if isinstance(rows, list) else []
    why = f"; {found[0]['why']}" if found else ""
    if isinstance(write, ScaleTo):
        note = f"New size: {write.replicas}; {write.service} ({write.ref}) had {before}{why}"
    else:
        note = f"HPA {write.name} of {write.service}: minReplicas {write.minimum}, maxReplicas {write.maximum}{why}"
    state.stats.events += 1
    return [Announce(watched.scaler, NORMAL, "SuccessfulRescale", "Rescale", note)]


def _room(watched: WatchedScaler, now: float) -> bool:
    """Whether one more event may be told now; if so it is counted."""
    left = min(watched.events_left + max(now - watched.events_at, 0.0) / EVERY_S, EVENTS_AT_ONCE)
    watched.events_at, watched.events_left = now, left - 1 if left >= 1 else left
    return left >= 1
