"""The failure handler: what happens to every unit that a cycle, or the binder, did not place, and what it is told.

    no node takes it by the coordinator's own accounting --------> parked until that may have changed; who could leave?
    some node would, but nobody answered for it; too many races -> backoff, and its condition says why
    a race lost --------------------------------------------------> active again at once
    the spec cannot be read, or asks for what is not supported ---> told so, and left aside until it changes

A unit sleeps only on the verdict of that moment over all nodes (I3: nobody sleeps on half the truth). A lost race is
nobody's fault and is tried again at once; but two sides that disagree on "fits" would do so for ever (Nomad tracks
nodes that are rejected too often for the same reason), so after a few in a row the unit backs off.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from services.coordinator.binding.shards import widen
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.classes import MAX_CLASS_BYTES, OfferedClass
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.cycle.unblocking import unblock
from services.coordinator.preemption.search import Preemptor
from services.coordinator.status.reporter import StatusReporter
from shared.model.pod import Pod
from shared.model.units.unit import Unit, cause_id
from shared.scheduling.cycle.feasibility import failure_message
from shared.scheduling.gates import why_untried
from shared.scheduling.reasons import NOT_READY, SCHEDULER_ERROR, UNSCHEDULABLE


@dataclass(slots=True)
class _Race:
    """Losses in a row; by node that the binder refused, until which stamp of its row it is left out."""

    lost: int = 0
    avoided: dict[str, int] = field(default_factory=dict)


class ConflictTracker:
    """Races that units lost, by pod uid. Entries end when the pod is placed or gone, or backs off."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self.races: dict[str, _Race] = {}

    def lost(self, uid: str) -> bool:
        """Count one loss. True when there were too many in a row: back off."""
        race = self.races.setdefault(uid, _Race())
        race.lost += 1
        if race.lost >= self._state.settings.max_losses:
            self.forget(uid)
            return True
        return False

    def forget(self, uid: str) -> None:
        """The unit's race is over."""
        self.races.pop(uid, None)

    def parked(self, uid: str) -> None:
        """It sleeps: every node counts again, and so do the races it lost. Two units that the binder refuses on the
        last node with room would else park and wake each other in turns, and never back off."""
        if uid in self.races:
            self.races[uid].avoided.clear()

    def avoid(self, uid: str, node: str) -> None:
        """The binder refused this node for the pod: leave it out until its accounting here changes."""
        table = self._state.cache.table
        if node in table.row_of:
            # the unit's own release is still to come and changes the row once: hence the next generation
            self.races.setdefault(uid, _Race()).avoided[node] = int(table.clock) + 1

    def avoids(self, uid: str, node: str) -> bool:
        """Whether the node was refused and has not changed since."""
        race = self.races.get(uid)
        if race is None or node not in race.avoided:
            return False
        table = self._state.cache.table
        row = table.row_of.get(node)
        return row is not None and int(table.stamp[row]) <= race.avoided[node]


class FailureHandler:
    """Gives units back to the queue, with their reason."""

    def __init__(
        self, state: CoordinatorState, reporter: StatusReporter, preemptor: Preemptor, requeuer: Requeuer
    ) -> None:
        self._state = state
        self._reporter = reporter
        self._preemptor = preemptor
        self._requeuer = requeuer
        self.conflicts = ConflictTracker(state)

    # --- a cycle found no node ----------------------------------------------------------------------------------

    def give_back(self, unit: Unit, offered: OfferedClass, *, missing: int, unowned: int) -> None:
        """No node was left for the unit. ``missing``: agents that own nodes and said nothing; ``unowned``: nodes for
        which no agent decides."""
        state, pod = self._state, unit.pod
        guided = offered.guidance is not None
        # Asked of this very moment: parked on the verdict of the offer, it would sleep through what came since (I3).
        if state.constraints.fits_nowhere(pod, guided=guided):
            self.park(unit, guided=guided)
        elif offered.lists or offered.unknown or not (missing or unowned):
            state.stats.losses += 1  # somebody offered nodes, and others took them first
            if self.conflicts.lost(pod.uid):
                self._back_off(pod, NOT_READY, "every offered node was taken by other pods; trying again")
            else:
                state.queue.retry(pod.uid, state.now, failed=False)
        else:
            why = [f"{unowned} node(s) have no agent"] if unowned else []
            why += [f"{missing} agent(s) did not answer"] if missing else []
            text = f"nodes that would take the pod are not answered for: {', '.join(why)}."
            self._back_off(pod, NOT_READY, text)

    def park(self, unit: Unit, *, guided: bool) -> None:
        """By the coordinator's own accounting no node takes the unit: it sleeps until that may have changed."""
        state, pod = self._state, unit.pod
        if widen(state, pod):
            state.queue.retry(pod.uid, state.now, failed=False)
            return
        # Not a failed attempt: those on their way have only to be seen bound (ADR 0012).
        if guided and (others := state.constraints.waits(pod)):
            state.queue.hold(pod.uid, others, state.now)
            self._requeuer.attempt_ended(pod.uid)
            return
        if pod.asks is not None:
            self._as_claimed_now(pod.uid)
            unblock(state, pod, fits_nowhere=True)
        diagnosis = state.constraints.diagnosis(pod)
        self.conflicts.parked(pod.uid)
        state.stats.parked += 1
        state.attempted(pod.uid, "unschedulable")
        state.log(
            "pod_unschedulable", level="debug", pod_uid=pod.uid, pod=pod.key,
            plugins=",".join(sorted(diagnosis.plugins)), cause_id=cause_id(state.term, unit.number),
        )  # fmt: skip
        state.queue.park(pod.uid, diagnosis.plugins, state.now)
        self._requeuer.attempt_ended(pod.uid)
        self._preemptor.consider(state.queue.entries[pod.uid].pod, failure_message(diagnosis))

    def _as_claimed_now(self, uid: str) -> None:
        """It is parked with those whose claims ask as its own do now."""
        state = self._state
        entry = state.queue.entries.get(uid)
        if entry is None:
            return
        entry.pod = state.devices.described(entry.pod)
        if state.devices.lacking(entry.pod):
            state.awaited_claims.add(entry.pod)

    def too_large(self, pod: Pod, size_bytes: int) -> None:
        """The pod's constraints do not fit into an offer: it waits, the others go on."""
        message = f"selectors, affinity and tolerations take {size_bytes} bytes; at most {MAX_CLASS_BYTES} are offered"
        self._back_off(pod, SCHEDULER_ERROR, message)

    def park_all(self, reason: str, message: str) -> bool:
        """There is no node, or nobody decides for any: everybody sleeps until one appears, so many as the turn's work
        allows. True: there are more. ``reason``: what pods are told that a node would help."""
        state, together = self._state, dict[str, None]()
        pods = state.queue.pop(state.work, state.now)
        state.work -= len(pods)
        alone = state.constraints.reasons(pods) if reason == UNSCHEDULABLE else {}
        helped = Counter(pod.group for pod in pods if alone and alone.get(pod.uid, reason) == reason)
        for pod in pods:
            state.stats.parked += 1
            own = told = alone.get(pod.uid, reason)
            if alone and state.queue.entries[pod.uid].group is not None:  # a node helps all or none of a gang
                told = reason if helped[pod.group] >= state.groups.lacking(pod.group) else NOT_READY
            why = message if own == reason else failure_message(state.constraints.diagnosis(pod))
            self._reporter.tell(pod, told, why)
            state.attempted(pod.uid, "unschedulable" if reason == UNSCHEDULABLE else "error")
            if state.queue.entries[pod.uid].group is not None:
                together[pod.group] = None
            else:
                state.queue.park(pod.uid, (), state.now)
                state.queue.waiting.tell(pod.uid, told)
            self._requeuer.attempt_ended(pod.uid)
        if pods:
            self._requeuer.nobody_decides()
        for key in together:
            state.queue.park_group(key, (), state.groups.lacking(key), state.now)
            state.groups.touch(key)
        state.queue.waiting.judge(
            (pod.uid, alone[pod.uid]) for pod in pods if pod.uid in alone and pod.group in together
        )
        return state.queue.has_active()

    # --- the binder gave it back, or it cannot be scheduled as it is ----------------------------------------------

    def not_bound(self, uid: str, reason: str, *, failed: bool) -> None:
        """The pod holds its node no longer. ``failed``: it backs off, and ``reason`` is told unless it is empty."""
        state = self._state
        entry = state.queue.entries.get(uid)
        if entry is not None and entry.pod.nominated_node:
            state.cluster.nominate(entry.pod)  # what its victims left stays kept for it
        if entry is not None and failed and reason:
            self._reporter.tell(entry.pod, SCHEDULER_ERROR, reason)
        state.queue.retry(uid, state.now, failed=failed)

    def refuse(self, pod: Pod) -> None:
        """The pod cannot be read, or asks for what nobody looks at: say so, do not queue it."""
        state = self._state
        state.queue.remove(pod.uid)
        state.cluster.withdraw_nomination(pod.uid)
        self._preemptor.nominations.forget(pod.uid, waits=True)
        self._requeuer.attempt_ended(pod.uid)
        before, since = state.untried.get(pod.uid, (None, state.now))
        state.untried[pod.uid] = pod, since
        if state.started:
            self._say_refused(pod, before)

    def begin(self) -> None:
        """Everybody's pods are known: those that are left aside are told so, by what they say now."""
        for pod, _ in self._state.untried.values():
            self._say_refused(pod, None)

    def _say_refused(self, pod: Pod, before: Pod | None) -> None:
        state = self._state
        if before is None or (before.invalid, before.unsupported) != (pod.invalid, pod.unsupported):
            state.stats.invalid_pods += 1
            problem = pod.invalid or pod.unsupported
            state.log("pod_refused", level="warning", pod_uid=pod.uid, pod=pod.key, problem=problem)
        self._reporter.tell(pod, *why_untried(pod))

    def forget(self, uid: str, *, waits: bool = False) -> None:
        """The pod is placed or gone, or it ``waits`` outside the queue: nothing that failed matters any more."""
        if uid in self._reporter.notices:
            self._reporter.forget(uid)
        if uid in self.conflicts.races:
            self.conflicts.forget(uid)
        nominations = self._preemptor.nominations
        if nominations.made or nominations.landing or nominations.records.kept:
            nominations.forget(uid, waits=waits)
        self._requeuer.attempt_ended(uid)
        nominations.delayed.forget(uid)
        self._state.untried.pop(uid, None)

    def _back_off(self, pod: Pod, reason: str, message: str) -> None:
        """The attempt failed, for this reason; what the pod was woken for goes to others meanwhile."""
        state = self._state
        self._reporter.tell(pod, reason, message)
        state.attempted(pod.uid, "error")
        state.queue.retry(pod.uid, state.now)
        self._requeuer.attempt_ended(pod.uid)
