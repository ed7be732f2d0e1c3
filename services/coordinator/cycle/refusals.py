"""Units for which a round found no node: who is tried again, who sleeps, and what each is told.

A unit sleeps only if no node takes it by the coordinator's own accounting, at that moment (park). That some node would
take it and nobody answered for that node, a silent agent, one that is not there, makes it a retry with backoff that
says so (I3: nobody sleeps on half the truth).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.coordinator.agents.registry import Roster
from services.coordinator.core.state import State
from services.coordinator.cycle.classes import MAX_CLASS_BYTES, KnownClass
from services.coordinator.cycle.constraints import Guiding
from services.coordinator.cycle.losses import Losses
from services.coordinator.cycle.merging import AgentAnswers, Unit
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.preemption.search import Preemptor
from services.coordinator.status.reporter import SCHEDULER_ERROR, UNSCHEDULABLE, Notices
from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.model.unit import cause_id
from shared.scheduling.cycle.constraints import Guidance
from shared.scheduling.cycle.feasibility import failure_message, unavailable_message

PARKED_AT_ONCE = 256
"""Pods told in one turn that there are no nodes, or no agents."""


@dataclass(slots=True)
class Group:
    """The units of one class in a round, and what was said about them. ``asked``: slots wanted of each agent.

    ``unknown``: an agent did not know the class. ``candidate``: judged by the policy that is being rolled out;
    ``probe``: only to compare the two, nothing of it is placed (``variants.py``). ``workload``: of all its units, where
    the policy looks at it.
    """

    pod_class: PodClass
    known: KnownClass
    units: list[Unit] = field(default_factory=list)
    lists: list[AgentAnswers] = field(default_factory=list)
    unknown: bool = False
    asked: int = 0
    guidance: Guidance | None = None
    candidate: bool = False
    probe: bool = False
    workload: str = ""

    @property
    def guided(self) -> bool:
        """Whether more than the nodes themselves decides about these units."""
        return self.guidance is not None


class Refusals:
    """Gives units back to the queue."""

    def __init__(
        self, state: State, roster: Roster, notices: Notices, losses: Losses, guiding: Guiding, preemptor: Preemptor,
        requeuer: Requeuer,
    ) -> None:  # fmt: skip
        self._state = state
        self._preemptor = preemptor
        self._guiding = guiding
        self._roster = roster
        self._notices = notices
        self._losses = losses
        self._requeuer = requeuer

    def give_back(self, unit: Unit, group: Group, *, missing: int) -> None:
        """No node was left for the unit. ``missing``: agents that own nodes and said nothing."""
        state, pod = self._state, unit.pod
        if self._guiding.fits_nowhere(pod, guided=group.guided):
            self.park(unit, guided=group.guided)
            return
        unowned = len(self._roster.ownership.unowned)
        if group.lists or group.unknown or not (missing or unowned):
            self._lost(unit)
            return
        why = [f"{unowned} node(s) have no agent"] * bool(unowned) + [f"{missing} agent(s) did not answer"] * bool(
            missing
        )
        text = f"nodes that would take the pod are not answered for: {', '.join(why)}."
        self._notices.tell(pod, UNSCHEDULABLE, text)
        state.attempted(pod.uid, "error")
        self._retry(pod.uid)

    def park(self, unit: Unit, *, guided: bool) -> None:
        """By the coordinator's own accounting no node takes the unit: it sleeps until that may have changed."""
        state, pod = self._state, unit.pod
        if guided and (others := self._guiding.waits(pod)):
            state.queue.hold(pod.uid, others, state.now)
            self._requeuer.attempt_ended(pod.uid)
            return
        diagnosis = self._guiding.diagnosis(pod)
        self._losses.won(pod.uid)
        state.stats.parked += 1
        state.attempted(pod.uid, "unschedulable")
        state.log(
            "pod_unschedulable", level="debug", pod_uid=pod.uid, pod=pod.key,
            plugins=",".join(sorted(diagnosis.plugins)), cause_id=cause_id(state.term, unit.number),
        )  # fmt: skip
        state.queue.park(pod.uid, diagnosis.plugins, state.now)
        self._requeuer.attempt_ended(pod.uid)
        self._preemptor.consider(state.queue.entries[pod.uid].pod, failure_message(diagnosis))

    def too_large(self, pod: Pod, size_bytes: int) -> None:
        """The pod's constraints do not fit into an offer: it waits, the others go on."""
        message = f"selectors, affinity and tolerations take {size_bytes} bytes; at most {MAX_CLASS_BYTES} are offered"
        self._notices.tell(pod, SCHEDULER_ERROR, message)
        self._state.attempted(pod.uid, "error")
        self._retry(pod.uid)

    def no_nodes(self) -> None:
        """There is no node at all: everybody sleeps until one appears."""
        self._park_all(UNSCHEDULABLE, unavailable_message(0, {}))

    def no_agents(self) -> None:
        """Nobody decides for any node, and that is not because they are slow: say so, and wait for one to join."""
        roster = self._roster
        if roster.somebody_owns() or self._state.now < roster.grace_over_at():
            return
        message = "no agents are registered" if not roster.views else "no agent decides for any of the nodes"
        self._park_all(SCHEDULER_ERROR, message)

    def _lost(self, unit: Unit) -> None:
        """Somebody offered nodes, and others took them first."""
        state = self._state
        state.stats.losses += 1
        failed = self._losses.lost(unit.pod.uid)
        if failed:
            self._notices.tell(unit.pod, UNSCHEDULABLE, "every offered node was taken by other pods; trying again")
            state.attempted(unit.pod.uid, "error")
            self._retry(unit.pod.uid)
        else:
            state.queue.retry(unit.pod.uid, state.now, failed=False)

    def _retry(self, uid: str) -> None:
        """The pod backs off; what it was roused for goes to others meanwhile."""
        self._state.queue.retry(uid, self._state.now)
        self._requeuer.attempt_ended(uid)

    def _park_all(self, reason: str, message: str) -> None:
        state = self._state
        for pod in state.queue.pop(PARKED_AT_ONCE, state.now):
            state.stats.parked += 1
            self._notices.tell(pod, reason, message)
            state.attempted(pod.uid, "unschedulable" if reason == UNSCHEDULABLE else "error")
            state.queue.park(pod.uid, (), state.now)
            self._requeuer.attempt_ended(pod.uid)
