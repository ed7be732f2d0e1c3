"""Why a pod is where it is, from everything a leader knows: queue, cycles, placements, the nodes as they stand now.

Pure: it reads the core and changes nothing. The pod itself comes from the API server, so that the answer is about the
pod as it is now and not as a watch last showed it. It shows no label, image or environment of any pod, and is
no promise: what is feasible now may be taken a moment later.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.coordinator.core.core import Core
from services.coordinator.core.decisions import PastDecision
from services.coordinator.core.state import CoordinatorState
from services.coordinator.inspect.latency import latency_of
from services.coordinator.inspect.pending import reason_of, remedy_of, why_gated
from services.coordinator.inspect.reservations import kept_by, kept_from
from services.coordinator.inspect.waiting import waits_since
from services.coordinator.preemption.evictions import PastEviction
from shared.model.pod import Pod
from shared.scheduling.explain.pod_answer import add_verdicts, pod_answer, settled_state
from shared.scheduling.explain.preemption import VictimRules
from shared.scheduling.places import Place
from shared.scheduling.queue_entries import Entry
from shared.scheduling.reasons import means, page

NAMES_TOLD = 3


def explain(core: Core, pod: Pod, annotations: dict[str, str], now: float) -> dict[str, Any]:
    """The answer of ``GET /v1/explain``. ``now``: seconds of the core's clock; all times in it are durations.

    ``state`` says which part there is: pending pods have ``queue``, ``nodes`` and, where no node takes them,
    ``preemption``; bound ones ``decision``.
    """
    state, found = _where(core, pod)
    answer = pod_answer(pod, annotations, state, found)
    answer["story"] = _story(core, pod.uid, now)
    answer["latency"] = latency = latency_of(core, pod)
    if latency is not None and latency["problem"]:
        answer["summary"] = f"{answer['summary']}; latency: {latency['problem']}"
    if taken := kept_by(core, pod):
        answer["summary"] = f"{answer['summary']}; {taken}"
    decision = core.state.recent.of(pod.uid)
    if decision is not None:
        answer["decision"] = _decision(decision, now)
    victims, eviction = core.state.evicted.by(pod.uid), core.state.evicted.of(pod.uid)
    answer["evicted"] = [_victim(one, now) for one in victims] or None
    answer["victim_of"] = _preemptor(eviction, now) if eviction is not None else None
    if eviction is not None:
        answer["summary"] = f"{answer['summary']}; {victim_text(eviction, now)}"
    elif victims:
        answer["summary"] = f"{answer['summary']}; evicted {_names(victims)} for it"
    elif state == "pending" and (copy := core.state.evicted.copy_of(pod.workload)) is not None and pod.offline:
        answer["summary"] = f"{answer['summary']}; another of its controller, {copy.pod}, was {victim_text(copy, now)}"
    entry = core.state.queue.entries.get(pod.uid)
    if entry is not None:
        answer["queue"] = _queue(core.state, entry, now) | _reason(reason_of(core, entry))
        answer["queue"]["remedy"] = remedy_of(core, entry)
    if state in ("pending", "placing"):
        counted = core.pods.counted(pod)
        rules = VictimRules(
            core.state.settings.preemption_strict,
            lambda other: core.protected.would_evict(counted, other) and (not pod.group or other.group != pod.group),
            core.preemptor.spares,
        )
        add_verdicts(answer, core.state.cluster, core.state.feasibility, counted, rules=rules)
        if core.state.cluster.reserved.on and (kept := kept_from(core, counted)):
            answer["summary"] = f"{answer['summary']}; {kept}"
        answer["nodes"]["unowned"] = len(core.registry.ownership.unowned)
        answer["nodes"]["agents"] = len(core.registry.views)
        if entry is not None and entry.place is Place.GATED:  # no node lets in what its queue or its group holds
            for group in answer["nodes"]["groups"]:
                group["change"] = ""
            answer["preemption"] = None
    return answer


def explain_gone(core: Core, key: str, now: float) -> dict[str, Any] | None:
    """What is remembered of a pod that the API server does not have (any more); None where nothing is."""
    eviction, decision = core.state.evicted.named(key), core.state.recent.named(key)
    if eviction is None and decision is None:
        return None
    uid = eviction.uid if eviction is not None else decision.uid if decision is not None else ""
    answer: dict[str, Any] = {
        "pod": key, "uid": uid, "state": "gone", "summary": "", "priority": None, "qos": None, "qos_doubt": None,
        "scheduler_name": None, "node": None,
        "nominated_node": None, "condition": None, "policy": None, "decision": None, "queue": None, "nodes": None,
        "preemption": None, "evicted": None, "victim_of": None, "reasons": None, "rehearsed": None,
    }  # fmt: skip
    answer["story"] = _story(core, uid, now)
    if decision is not None:
        answer["decision"] = _decision(decision, now)
        ago = f"{max(0.0, now - decision.at):.0f} s ago"
        answer["summary"] = f"it is gone; it was given node {decision.node} {ago}"
    if eviction is not None:
        answer |= {"state": "evicted", "priority": eviction.priority, "victim_of": _preemptor(eviction, now)}
        answer["summary"] = f"it is gone: {victim_text(eviction, now)}"
    return answer


def victim_text(eviction: PastEviction, now: float) -> str:
    """For whom a victim left."""
    ago = f"{max(0.0, now - eviction.at):.0f} s ago"
    if not eviction.by_uid:
        return f"evicted from {eviction.node} {ago} for {eviction.by_pod}"
    by = f"{eviction.by_pod} (priority {eviction.by_priority})"
    return f"evicted from {eviction.node} {ago} for {by}, its own priority being {eviction.priority}"


def _story(core: Core, uid: str, now: float) -> list[dict[str, Any]]:
    """What happened to the pod in this term, oldest first, as far as that is kept."""
    told = core.state.queue.story.of(uid, core.state.groups.key_of.get(uid, ""))
    return [{"ago_s": round(max(0.0, now - at), 3), "text": text} for at, text in told]


def _names(victims: list[PastEviction]) -> str:
    more = f" and {len(victims) - NAMES_TOLD} more" if len(victims) > NAMES_TOLD else ""
    return ", ".join(f"{one.pod} (priority {one.priority})" for one in victims[:NAMES_TOLD]) + more


def _victim(one: PastEviction, now: float) -> dict[str, Any]:
    return {
        "pod": one.pod, "uid": one.uid, "priority": one.priority, "node": one.node,
        "ago_s": _left_s(now, one.at), "outcome": one.outcome,
    }  # fmt: skip


def _preemptor(one: PastEviction, now: float) -> dict[str, Any]:
    return {
        "pod": one.by_pod, "uid": one.by_uid, "priority": one.by_priority, "node": one.node,
        "ago_s": _left_s(now, one.at),
    }  # fmt: skip


def _where(core: Core, pod: Pod) -> tuple[str, str]:
    """(state, one sentence)."""
    settled = settled_state(pod, core.state.ours)
    if settled is not None:
        return settled
    placed = core.ledger.placed.get(pod.uid)
    if placed is not None:
        shard, plan = placed.shard, core.ledger.plans.get(placed.plan_id)
        said = "the binder has answered, the API server not yet" if placed.answered else "the binder has its plan"
        if not placed.answered and shard in core.ledger.leaderless():
            said = f"no binder leads shard {shard}; it waits for one"
        elif plan is not None and plan.borrows:
            said = f"the binder of shard {', '.join(sorted(set(plan.borrows.values())))} is asked to lend room"
        return "placing", f"on its way to {placed.placement.node}: {said}"
    if pod.uid in core.takeover.held:
        return "placing", "an earlier leader's intent for it is being finished or withdrawn"
    entry = core.state.queue.entries.get(pod.uid)
    if (gated := core.state.gated.get(pod.uid)) is not None and gated.lacks:
        return "pending", f"it waits for its claims: {gated.lacks}"
    if entry is None:
        return "pending", "the watch has not shown it to this leader yet"
    if entry.place is Place.IN_FLIGHT:
        return "pending", "it is being offered to the agents"
    if entry.place is Place.GATED:
        return "pending", why_gated(core, entry) or "it waits for its pod group, or for its queue"
    if core.state.paused is not None:
        return "pending", f"scheduling is paused by {core.state.paused.text}; it goes on when that is resumed"
    return "pending", pod.condition[2] or "it waits for its turn"


def _queue(state: CoordinatorState, entry: Entry, now: float) -> dict[str, Any]:
    """Its place, and for active ones how many go first (higher priority, or the same and earlier)."""
    ahead = 0
    if entry.place is Place.ACTIVE:
        mine = (-entry.pod.priority, entry.arrival)
        others = (e for e in state.queue.entries.values() if e.place is Place.ACTIVE)
        ahead = sum((-other.pod.priority, other.arrival) < mine for other in others)
    return {
        "place": entry.place.value,
        "ahead": ahead if entry.place is Place.ACTIVE else None,
        "attempts": entry.attempts,
        "waiting_s": _left_s(now, waits_since(state, entry.pod, entry.first_seen)),
        "in_place_s": _left_s(now, entry.since),
        "next_retry_s": retry_in_s(state, entry, now),
        "rejected_by": sorted(entry.plugins),
    }


def _reason(word: str) -> dict[str, str]:
    return {"reason": word, "means": means(word), "page": page(word)}


def retry_in_s(state: CoordinatorState, entry: Entry, now: float) -> float | None:
    """When it is tried next at the latest; None: it waits for its turn, or is under way."""
    match entry.place:
        case Place.BACKOFF:
            return _left_s(entry.ready_at, now)
        case Place.UNSCHEDULABLE:
            # sooner when an event happens that can help; this is the net under lost ones
            return _left_s(entry.since + state.queue.settings.sweep_age_s, now)
    return None


def _left_s(until: float, now: float) -> float:
    return round(max(0.0, until - now), 3)


def _decision(decision: PastDecision, now: float) -> dict[str, Any]:
    return {
        "ago_s": _left_s(now, decision.at),
        "unit": decision.unit,
        "node": decision.node,
        "policy": decision.policy,
        "policy_version": decision.policy_version,
        "candidates": msgspec.to_builtins(decision.considered),
    }
