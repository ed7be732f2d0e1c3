"""What a pod's story tells beside its way through the queue: what was heard of it, and what was asked for it.

The queue writes the moves (``PodQueue.story``); the core looks up here who tells of an event, before it is taken in,
and of an instruction; what became of a plan is told as its results are taken in (``binding/outcomes.py``). Most of
either are not about one pod. Limits: see ``scheduling.story``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.coordinator.binding.plans import Ledger
from services.coordinator.core import events, instructions
from services.coordinator.core.state import CoordinatorState
from shared.model import cluster_events
from shared.model.units.unit import cause_id
from shared.scheduling.story import FACT_CHARS


def _upserted(state: CoordinatorState, ledger: Ledger, event: cluster_events.PodUpserted) -> None:
    """Only what ends a wait: the queue tells what is new or changed, and most pods are not ours."""
    pod = event.pod
    if not (pod.node_name or pod.finished or pod.terminating):
        return
    if pod.uid in state.queue.entries or pod.uid in ledger.placed:
        what = "bound" if pod.node_name else "finished" if pod.finished else "terminating"
        state.queue.story.add(pod.uid, "the watch shows it {} {}", what, pod.node_name)


def _deleted(state: CoordinatorState, ledger: Ledger, event: cluster_events.PodDeleted) -> None:
    if event.uid in state.queue.entries or event.uid in ledger.placed:
        state.queue.story.add(event.uid, "the watch shows it deleted")


def _plan_failed(state: CoordinatorState, ledger: Ledger, event: events.PlanFailed) -> None:
    open_plan = ledger.plans.get(event.plan_id)
    for placement in open_plan.plan.placements if open_plan is not None else ():
        state.queue.story.add(placement.uid, "plan {} got no answer: {}", event.plan_id, event.code)


def _fetched(state: CoordinatorState, _: Ledger, event: events.PodFetched) -> None:
    pod = event.pod
    said = "nothing" if event.failed else "it is gone" if pod is None else f"it is on {pod.node_name or 'no node'}"
    state.queue.story.add(event.uid, "the API server, asked, says {}", said)


def _unwritten(state: CoordinatorState, _: Ledger, event: events.ConditionFailed) -> None:
    why = "refused" if event.refused else "throttled" if event.throttled else "failed"
    state.queue.story.add(event.uid, "its condition was not written: {}", why)


def _nominated(state: CoordinatorState, _: Ledger, event: events.NominationStored) -> None:
    state.queue.story.add(event.uid, "nominated to {}", event.node)


def _planned(state: CoordinatorState, send: instructions.SendPlan) -> None:
    plan, add = send.plan, state.queue.story.add
    for placed in plan.placements:
        unit = cause_id(plan.term, placed.unit)
        add(placed.uid, "plan {} sent: {} by {}@{} as unit {}", plan.plan_id, placed.node, placed.policy,
            placed.policy_version, unit)  # fmt: skip
    for eviction in plan.evictions:
        add(eviction.uid, "plan {} evicts it from {} for {}", plan.plan_id, eviction.node, eviction.preemptor)
        add(eviction.preemptor, "plan {} evicts {} from {} for it", plan.plan_id, eviction.uid, eviction.node)


def _told(state: CoordinatorState, patch: instructions.PatchCondition) -> None:
    state.queue.story.add(patch.uid, "told {}: {}", patch.reason, patch.message[:FACT_CHARS])


def _asked(state: CoordinatorState, fetch: instructions.FetchPod) -> None:
    state.queue.story.add(fetch.uid, "the API server is asked what it is")


TELL_EVENT: dict[type[events.Event], Callable[[CoordinatorState, Ledger, Any], None]] = {
    cluster_events.PodUpserted: _upserted,
    cluster_events.PodDeleted: _deleted,
    events.PlanFailed: _plan_failed,
    events.PodFetched: _fetched,
    events.ConditionFailed: _unwritten,
    events.NominationStored: _nominated,
}

TELL_INSTRUCTION: dict[type[instructions.Instruction], Callable[[CoordinatorState, Any], None]] = {
    instructions.SendPlan: _planned,
    instructions.PatchCondition: _told,
    instructions.FetchPod: _asked,
}
