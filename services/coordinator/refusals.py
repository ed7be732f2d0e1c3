"""Units for which a round found no node: who is tried again, who sleeps, and what each is told.

A unit sleeps only if every node was judged and none takes it (park). Whatever is missing to that, a silent agent, a
node that nobody decides for, makes it a retry with backoff that says so (I3: nobody sleeps on half the truth).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.coordinator.classes import MAX_CLASS_BYTES, KnownClass
from services.coordinator.guiding import Guiding
from services.coordinator.losses import Losses
from services.coordinator.merging import AgentAnswers, Unit
from services.coordinator.notices import SCHEDULER_ERROR, UNSCHEDULABLE, Notices
from services.coordinator.preempting import Preemptor
from services.coordinator.roster import Roster
from services.coordinator.state import State
from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.scheduling.feasibility import failure_message, unavailable_message
from shared.scheduling.guidance import Guidance
from shared.wire.messages import Refusal


@dataclass(slots=True)
class Group:
    """The units of one class in a round, and what was said about them. ``asked``: slots wanted of each agent.

    ``unknown``: an agent did not know the class. ``candidate``: judged by the policy that is being rolled out;
    ``probe``: only to compare the two, nothing of it is placed (``lanes.py``). ``workload``: of all its units, where
    the policy looks at it.
    """

    pod_class: PodClass
    known: KnownClass
    units: list[Unit] = field(default_factory=list)
    lists: list[AgentAnswers] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
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
        self, state: State, roster: Roster, notices: Notices, losses: Losses, guiding: Guiding, preemptor: Preemptor
    ) -> None:
        self._state = state
        self._preemptor = preemptor
        self._guiding = guiding
        self._roster = roster
        self._notices = notices
        self._losses = losses

    def give_back(self, unit: Unit, group: Group, *, missing: int) -> None:
        """No node was left for the unit. ``missing``: agents that own nodes and said nothing."""
        state, uid = self._state, unit.pod.uid
        if group.guided:
            self._give_back_guided(unit, group, missing)
            return
        if group.lists or group.unknown:
            self._lost(unit)
            return
        reasons: Counter[str] = Counter()
        plugins: set[str] = set()
        for refusal in group.refusals:
            reasons.update(refusal.reasons)
            plugins.update(refusal.plugins)
        nodes = len(state.cache.table.row_of)
        judged = sum(refusal.nodes for refusal in group.refusals)
        unowned = len(self._roster.ownership.unowned)
        message = unavailable_message(nodes, dict(reasons))
        if missing or unowned or judged < nodes:
            if unowned:
                message += f" {unowned} of them have no agent."
            if missing:
                message += f" {missing} agent(s) did not answer for {max(0, nodes - judged - unowned)} of them."
            self._notices.tell(unit.pod, UNSCHEDULABLE, message)
            state.attempted(uid, "error")
            state.queue.retry(uid, state.now)
            return
        self._park(unit, message, plugins)

    def _give_back_guided(self, unit: Unit, group: Group, missing: int) -> None:
        """The coordinator knows itself whether any node takes the unit; agents only had to choose among those."""
        state, pod = self._state, unit.pod
        if self._guiding.takes_nobody(pod, self._guiding.judge(pod)):
            diagnosis = self._guiding.diagnosis(pod)
            self._park(unit, failure_message(diagnosis), diagnosis.plugins)
            return
        unowned = len(self._roster.ownership.unowned)
        if group.lists or group.unknown or not (missing or unowned):
            self._lost(unit)
            return
        self._notices.tell(
            pod,
            UNSCHEDULABLE,
            f"nodes that would take the pod are not answered for: {unowned} node(s) have no agent, "
            f"{missing} agent(s) did not answer.",
        )
        state.attempted(pod.uid, "error")
        state.queue.retry(pod.uid, state.now)

    def _park(self, unit: Unit, message: str, plugins: Iterable[str]) -> None:
        """Every node was judged and none takes the unit."""
        state, uid, plugins = self._state, unit.pod.uid, frozenset(plugins)
        self._losses.won(uid)
        state.stats.parked += 1
        state.attempted(uid, "unschedulable")
        state.log(
            "pod_unschedulable", level="debug", pod_uid=uid, pod=unit.pod.key, plugins=",".join(sorted(plugins)),
            cause_id=f"{state.term:x}-{unit.number:x}",
        )  # fmt: skip
        state.queue.park(uid, plugins, state.now)
        self._preemptor.consider(state.queue.entries[uid].pod, message)

    def too_large(self, pod: Pod, size_bytes: int) -> None:
        """The pod's constraints do not fit into an offer: it waits, the others go on."""
        message = f"selectors, affinity and tolerations take {size_bytes} bytes; at most {MAX_CLASS_BYTES} are offered"
        self._notices.tell(pod, SCHEDULER_ERROR, message)
        self._state.attempted(pod.uid, "error")
        self._state.queue.retry(pod.uid, self._state.now)

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
        state.queue.retry(unit.pod.uid, state.now, failed=failed)

    def _park_all(self, reason: str, message: str) -> None:
        state = self._state
        for pod in state.queue.pop(len(state.queue.entries), state.now):
            state.stats.parked += 1
            self._notices.tell(pod, reason, message)
            state.attempted(pod.uid, "unschedulable" if reason == UNSCHEDULABLE else "error")
            state.queue.park(pod.uid, (), state.now)
