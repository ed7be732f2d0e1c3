"""Room that is being made: members nominated to nodes first, victims asked to leave then, all of it over at once.

    made --nominations stored, nodes held--> EVICTING (the binder evicts) --the last victim has left--> woken

One lone pod, or members of a pod group over many nodes: the same. A nomination is in etcd before anybody is evicted
(``records.py``), so a crash in between leaves either no victim touched or nominations that the next leader reads back,
and goes on with: a request of the dead may arrive yet, so the same node comes first, there who leaves already. While a
victim is still there, or a pod of lower priority leaves a nominated node, no second one is chosen. A pod that waits
still ``TOLD_AFTER_S`` after its victims were asked is told where it is to go, and why it waits, in one write of its
status. The nominations are the reservation: nobody of the same or lower priority takes that room
(``ClusterState.nominated_on``).

Room may also be kept for a pod group by nominations alone (``keep``): nobody is asked to leave, and the API server is
not told; whoever ends there leaves room that nobody else of the same or lower priority takes.

Beside another scheduler the nodes are closed to it before, and stay so until the pods are bound (``holds.py``). What
was made for a unit in vain, since others took it or nobody left, is counted (``Tries``): after some times in a row
nobody is asked to leave for it for a while.

A victim is asked once. One that is only assumed where it was to be may yet go elsewhere: it is asked when the watch
shows it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from services.coordinator.binding.plans import Ledger
from services.coordinator.core.instructions import EmitEvent
from services.coordinator.core.state import CoordinatorState
from services.coordinator.preemption.delayed import Delayed
from services.coordinator.preemption.departures import Departures
from services.coordinator.preemption.evictions import ASKED, EVICTED, GONE, REFUSED, UNKNOWN, PastEviction
from services.coordinator.preemption.holds import Holds
from services.coordinator.preemption.made_room import MadeRoom
from services.coordinator.preemption.promises import Promises
from services.coordinator.preemption.records import Records
from services.coordinator.preemption.requests import Requests
from services.coordinator.preemption.tries import Tries
from services.coordinator.status.reporter import StatusReporter
from shared.model.pod import Pod
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.reasons import UNSCHEDULABLE
from shared.wire.messages import Eviction, EvictionOutcome, EvictionReason, EvictionResult

OUTCOMES: dict[int, str] = {
    EvictionOutcome.EVICTED: EVICTED, EvictionOutcome.GONE: GONE, EvictionOutcome.UNKNOWN: UNKNOWN,
}  # fmt: skip
"""As people are told; all others: refused."""

MOST_UNKNOWN = 4
"""Times in a row that nobody knows whether a victim was asked: then others are looked for."""

TOLD_AFTER_S, TOLD_AT_LATEST_S = 1.0, 5.0
"""So long after its victims were asked, or in all, a pod's status is not told where it is to go: most are placed by
then, which spares the API server a write while it has the most to do (ADR 0075)."""

OF_QUEUES = (EvictionReason.RECLAIM, EvictionReason.OVER_LIMIT)
"""Reasons for which a queue wants a victim to leave (``queues/leaving.py``), nominated or not."""

NOTES: dict[int, str] = {
    EvictionReason.PREEMPTION: "Preempted by pod {0.preemptor} on node {0.node}",
    EvictionReason.RECLAIM: "Evicted since its queue gives back what it borrowed, for pod {0.preemptor}",
    EvictionReason.OVER_LIMIT: "Evicted since its queue uses more than its limits, which were lowered",
}
"""What people are told of a victim."""


class Nominations:
    """Those of one term by the nominated pod's uid; ``landing``: victims not seen bound yet."""

    def __init__(self, state: CoordinatorState, ledger: Ledger, reporter: StatusReporter) -> None:
        self._state = state
        self._reporter = reporter
        self.made: dict[str, MadeRoom] = {}
        self.departures = Departures(state, self.made)
        self.holds = Holds(state)
        self.tries = Tries(state)
        self.delayed = Delayed(state)
        self._closing: dict[str, list[MadeRoom]] = {}
        """By node that is still being closed, those of which all is stored, each under one of its nodes."""
        self.landing: set[str] = set()
        self.leaving: dict[str, dict[MadeRoom, None]] = {}
        """By victim that is to leave, or leaves, what room is made by that, oldest first."""
        self.given_up = 0
        """Counts what ended while somebody was still to leave for it, and victims that stay while nobody waits for
        them: those cost something again where others look for victims."""
        self.wanted: set[str] = set()
        """Victims that are to leave for a limit (``queues/leaving.py``), nominated or not."""
        self._requests = Requests(state, ledger)
        self._promises = Promises(state)
        self.records = Records(state)

    # --- made ---------------------------------------------------------------------------------------------------

    def leaves(self, pod: Pod) -> bool:
        """Whether a pod that stands is on its way out already: for one that room is made for here, for one that is
        placed since, or marked, as a leader before does right before it deletes. Not where that was for others."""
        if pod.uid in self.leaving or self._state.evicted.outcome(pod.uid) in (ASKED, EVICTED):
            return True
        return pod.preempted and not self._theirs(pod.uid)

    def _theirs(self, uid: str) -> bool:
        """Whether the node of a pod is meant for pods of another scheduler: its victims look like ours."""
        cluster = self._state.cluster
        account = cluster.cache.accounts.get(uid)
        there = cluster.nominated.get(account.node_name, {}) if account is not None else {}
        return any(pod.scheduler_name not in self._state.ours for pod in there.values())

    def make(
        self,
        nodes: Mapping[str, str],
        victims: Iterable[Pod],
        forced: frozenset[str],
        message: str,
        *,
        group: str = "",
        reason: EvictionReason = EvictionReason.PREEMPTION,
        told: str = UNSCHEDULABLE,
    ) -> MadeRoom:
        """Nominate the waiting pods ``nodes`` names, by uid, each to its node; the victims are asked once all of that
        is stored. Pods of lower priority that are nominated there have to look elsewhere. ``told``: the reason of their
        condition, which stays when they are nominated nowhere any more."""
        state = self._state
        accounts = state.cluster.cache.accounts
        leaving = {pod.uid: (pod, accounts[pod.uid].node_name) for pod in victims if pod.uid in accounts}
        held = self.holds.contended(pod for pod, _ in leaving.values())
        made_room = MadeRoom({}, leaving, forced, group, reason, held=held, left=dict.fromkeys(leaving))
        self._promise(made_room)
        self._nominate(made_room, nodes)
        for pod in made_room.pods.values():
            self._reporter.tell(pod, told, message, nominated=pod.nominated_node, after_s=TOLD_AT_LATEST_S)
        state.stats.preemptions += 1
        (state.stats.group_victims_s if group else state.stats.victims_s).append(len(leaving))
        return made_room

    def keep(self, nodes: Mapping[str, str], victims: Iterable[Pod], group: str) -> MadeRoom:
        """As ``make``, but nobody is asked to leave here: those that are there may end, or somebody else asks them.
        ``group``: the pod group of whose members it is; "": of a lone pod. To other schedulers the nodes are closed as
        soon as may be: nothing waits for that."""
        accounts = self._state.cluster.cache.accounts
        there = {pod.uid: (pod, accounts[pod.uid].node_name) for pod in victims if pod.uid in accounts}
        held = self.holds.contended(pod for pod, _ in there.values())
        made_room = MadeRoom({}, there, frozenset(), group, patient=True, held=held)
        self._nominate(made_room, nodes)
        return made_room

    def _nominate(self, made_room: MadeRoom, nodes: Mapping[str, str]) -> None:
        state = self._state
        for uid, node in nodes.items():
            waiting = state.queue.entries[uid].pod
            if waiting.nominated_node:
                made_room.before.add(uid)
            pod = replace(waiting, nominated_node=node)
            for other in state.cluster.nominated_below(node, pod.priority):
                if other.uid not in nodes:
                    self._displace(other)
            self.drop(uid)
            made_room.pods[uid] = pod
            self.made[uid] = made_room
            if made_room.held:
                self.holds.take(node)
            if made_room.patient:
                self.records.let_go(uid)
            else:
                self.records.keep(uid, pod.key, node)
            state.queue.renominate(uid, pod)
            state.cluster.nominate(pod)
            state.log("pod_nominated", pod_uid=uid, node=node, victims=len(made_room.victims))
        state.groups.touch(made_room.group)

    def _displace(self, other: Pod) -> None:
        """It would wait for room that is taken now (kube-scheduler clears these too)."""
        known, state = self.made.get(other.uid), self._state
        if known is not None and known.group:
            self.end(known)
            return
        if other.uid not in state.queue.entries:
            return  # another scheduler's
        self.drop(other.uid)
        state.cluster.withdraw_nomination(other.uid)
        self._tell_of_none(known, other)
        state.queue.renominate(other.uid, replace(other, nominated_node=""))
        state.queue.wake(other.uid, state.now)

    def _tell_of_none(self, known: MadeRoom | None, pod: Pod) -> None:
        """The pod is nominated nowhere any more, which its status and etcd are to say too. ``known`` None: a leader
        before nominated it."""
        self.records.let_go(pod.uid)
        if known is None or pod.uid in known.before or pod.uid in known.shown:
            self._reporter.clear_nomination(pod)
        else:
            self._reporter.withdraw_nomination(pod)

    def _promise(self, made_room: MadeRoom) -> None:
        """Its victims are to leave, and count against the budgets that cover them."""
        for uid, (pod, _) in made_room.victims.items():
            rooms = self.leaving.setdefault(uid, {})
            rooms[made_room] = None
            if len(rooms) == 1:
                self._promises.make(pod)

    def stored(self, uid: str, number: int) -> None:
        """etcd has a nomination; once it has all of them the victims may go."""
        known = self.made.get(uid)
        if known is None or known.evicting or not self.records.answers(uid, number):
            return
        known.stored.add(uid)
        if len(known.stored) < len(known.pods):
            return
        if known.held:
            known.open = dict.fromkeys(pod.nominated_node for pod in known.pods.values())
        self._begin_closed(known)

    def _begin_closed(self, known: MadeRoom) -> None:
        """Go on once every node that is to be closed is. Each is looked at until it is, and not again."""
        while known.open:
            node = next(iter(known.open))
            if not self.holds.stands(node):
                self._closing.setdefault(node, []).append(known)
                return
            del known.open[node]
        self._begin(known)

    def node_held(self, node: str, *, hold: bool, ok: bool, gone: bool) -> None:
        """A node was closed or opened, or not; those that waited for it may go on."""
        self.holds.answered(node, hold=hold, ok=ok, gone=gone)
        for known in self._closing.pop(node, ()):
            if not known.evicting and any(self.made.get(uid) is known for uid in known.pods):
                self._begin_closed(known)

    def _begin(self, known: MadeRoom) -> None:
        """Everything is as it must be for the victims to be asked, if that still helps."""
        state = self._state
        entries = [state.queue.entries.get(one) for one in known.pods]
        waiting = all(e is not None and e.place in (Place.UNSCHEDULABLE, Place.BACKOFF) for e in entries)
        if not waiting or (not known.group and state.constraints.finds_room(next(iter(known.pods.values())))):
            for one in known.pods:  # they go somewhere else, perhaps; parked again, they are considered again
                self.drop(one)
                state.queue.wake(one, state.now, ClusterEvent.POD_DELETED)
            return
        known.evicting = True
        self._evict(known, known.victims)

    # --- victims ------------------------------------------------------------------------------------------------

    def _evict(self, known: MadeRoom, victims: Iterable[str]) -> None:
        """Ask those of the victims to leave that still stand where they were, and were not asked yet."""
        state, cluster = self._state, self._state.cluster
        for uid in victims:
            _, node = known.victims[uid]
            account, seen = cluster.cache.accounts.get(uid), cluster.index.get(uid)
            if account is None or seen is None or account.node_name != node or seen.terminating:
                continue
            if account.assumed_at is not None:
                self.landing.add(uid)
                continue
            past = state.evicted.of(uid)
            if past is not None and past.outcome in (ASKED, EVICTED):
                continue  # it is on its way out already, for somebody before
            self._requests.add(self._request(known, uid))

    def _request(self, known: MadeRoom, uid: str) -> Eviction:
        """That the victim leave for one of those that it makes room for, whom people are told of from now on."""
        state, (pod, node) = self._state, known.victims[uid]
        by = self._leaves_for(known, node)
        state.evicted.asked(
            PastEviction(
                state.now, uid, pod.namespace, pod.name, pod.priority, node, by.uid, by.key, by.priority,
            )
        )  # fmt: skip
        return Eviction(uid, pod.namespace, pod.name, by.uid, node, uid in known.forced, known.reason)

    def has_in_line(self, shard: str, reason: int) -> bool:
        """Whether victims on nodes of the shard wait to be asked, for that reason, before any others."""
        return self._requests.has(shard, reason)

    def ask(self) -> None:
        """Ask victims to leave, in few plans at a time, and etcd to keep where pods are to go."""
        self.records.step()
        self._requests.send(self._addressed)

    def _addressed(self, eviction: Eviction) -> Eviction | None:
        """The request, for somebody who waits for the victim by now; None where nobody does, or it leaves anyway."""
        if self._left(eviction.uid):
            self._became(eviction.uid, GONE)
            self._promises.settle(eviction.uid)
            return None
        waiting = [known for known in self.leaving.get(eviction.uid, ()) if known.evicting]
        if self.made.get(eviction.preemptor) in waiting:
            return eviction
        for known in waiting:
            if self._needs(known, eviction.uid):
                return self._request(known, eviction.uid)
            self._spare(known, eviction.uid)
        charge = self._state.queues.charges.get(eviction.uid)
        if eviction.reason in OF_QUEUES and eviction.uid in self.wanted and charge is not None and charge.leaving:
            return eviction
        self._became(eviction.uid, REFUSED)  # asked for anew by those whose nominations are not stored yet
        return None

    def _left(self, uid: str) -> bool:
        pod = self._state.cluster.index.get(uid)
        return pod is None or pod.terminating

    def _needs(self, known: MadeRoom, uid: str) -> bool:
        """Whether the pod fits only where the victim leaves too, and not by what all its others leave: who was to leave
        for those nominated there before it is among them, and they may be gone. Groups are not looked at so closely."""
        state, cluster = self._state, self._state.cluster
        pod, victim = next(iter(known.pods.values())), known.victims[uid][0]
        row = cluster.table.row_of.get(pod.nominated_node)
        if known.group or victim.group or row is None:
            return True
        dry_run = DryRun(cluster, state.feasibility, state.constraints.prefiltered(pod), row)
        for other, _ in known.victims.values():
            if other.uid != uid and dry_run.holds(other):
                dry_run.remove(other)
        return not dry_run.takes_beside_nominated()

    def _spare(self, known: MadeRoom, uid: str) -> None:
        """The victim need not leave for it."""
        del known.victims[uid]
        known.left.pop(uid, None)
        self._waits_no_more(known, uid)
        if not self.departures.stands(known):
            self._state.queue.wake(next(iter(known.pods)), self._state.now)

    def _waits_no_more(self, known: MadeRoom, victim: str) -> None:
        del self.leaving[victim][known]
        if not self.leaving[victim]:
            del self.leaving[victim]
            self._promises.settle(victim)

    def _became(self, uid: str, outcome: str) -> None:
        self._state.evicted.became(uid, outcome)
        self.given_up += outcome in (REFUSED, UNKNOWN) and uid not in self.leaving

    def _waiting_for(self, eviction: Eviction) -> list[MadeRoom]:
        """What room is made, or kept, by this victim: not only for whom it was told to leave."""
        known = self.made.get(eviction.preemptor)
        kept = known is not None and known.patient and eviction.uid in known.victims
        return [*self.leaving.get(eviction.uid, ()), *((known,) if known is not None and kept else ())]

    def _leaves_for(self, known: MadeRoom, node: str) -> Pod:
        """The nominated pod for which a victim on the node is told to leave: one that comes there, else the first."""
        pods = [pod for uid, pod in known.pods.items() if self.made.get(uid) is known]
        return next((pod for pod in pods if pod.nominated_node == node), pods[0])

    def landed(self, pod: Pod) -> None:
        """The watch shows a pod bound that was only assumed: if it is a victim where it is now, it is to leave."""
        self.landing.discard(pod.uid)
        for known in list(self.leaving.get(pod.uid, ())):
            if known.evicting:
                self._evict(known, (pod.uid,))

    def insist(self, uid: str) -> None:
        """Ask those victims again of which nobody knows whether they were asked; to be evicted twice is once."""
        known = self.made.get(uid)
        if known is not None and known.unsure:
            unsure, known.unsure = known.unsure, set()
            self._evict(known, unsure)

    def evicted(self, eviction: Eviction, result: EvictionResult) -> None:
        """What became of one victim, by the binder; that it is gone only the watch says."""
        state = self._state
        if not result.waits:
            self._requests.ended(eviction)
        elif self._left(eviction.uid):
            result = EvictionResult(eviction.uid, EvictionOutcome.EVICTED)  # it had its end since the binder said so
        elif (request := self._addressed(eviction)) is not None and self._requests.again(request):
            return
        self._became(eviction.uid, OUTCOMES.get(result.outcome, REFUSED))
        self._promises.settle(eviction.uid)
        waiting = self._waiting_for(eviction)
        match result.outcome:
            case EvictionOutcome.EVICTED:
                state.stats.victims += 1
                for known in waiting:
                    self._is_asked(known)
                told_for = self.made.get(eviction.preemptor)
                if told_for is not None and told_for in waiting and not told_for.counted:
                    told_for.counted = True
                    self.tries.begun(told_for.group or eviction.preemptor)
                note = NOTES.get(eviction.reason, NOTES[EvictionReason.PREEMPTION]).format(eviction)
                state.out.append(
                    EmitEvent(
                        eviction.uid, eviction.namespace, eviction.name, "", "Normal", "Preempted", "Preempting", note
                    )
                )  # fmt: skip
            case EvictionOutcome.GONE:
                pass  # the watch tells when it left
            case EvictionOutcome.UNKNOWN:
                for known in waiting:
                    if known.evicting or known.patient:
                        known.unknown[eviction.uid] += 1
                        known.unsure.add(eviction.uid)
                        state.queue.wake(self._leaves_for(known, eviction.node).uid, state.now)
                most = 1 if result.waits else MOST_UNKNOWN
                hopeless = [known for known in waiting if known.unknown[eviction.uid] >= most]
                if hopeless:
                    self._not_gone(eviction, result, hopeless)
            case _:
                self._not_gone(eviction, result, waiting)

    def _not_gone(self, eviction: Eviction, result: EvictionResult, waiting: Iterable[MadeRoom]) -> None:
        """The victim stays: somebody else may have to go. Those who have not asked for it yet may do so."""
        facts = {"pod_uid": eviction.uid, "preemptor": eviction.preemptor, "reason": result.reason}
        self._state.log("eviction_failed", level="warning", **facts)
        for known in waiting:
            if known.evicting or known.patient:
                self.end(known)

    def asked_by_others(self, uid: str, *, leaves: bool) -> None:
        """What became of a victim that was asked to leave, and not for a pod: those who wait for its room need not ask;
        where it stays, they do."""
        if leaves:
            self._promises.settle(uid)
        for known in list(self.leaving.get(uid, ())):
            if leaves:
                self._is_asked(known)
            elif known.evicting:
                self._evict(known, (uid,))

    def _is_asked(self, known: MadeRoom) -> None:
        """A victim was asked to leave: soon people are to be told where the pods go."""
        for uid in known.pods if not known.asked else ():
            self._reporter.tell_by(uid, self._state.now + TOLD_AFTER_S)
        known.asked = True

    def not_asked(self, eviction: Eviction) -> None:
        """The plan that carried the request was refused: nobody was asked to leave by it."""
        self._became(eviction.uid, REFUSED)
        for known in self._waiting_for(eviction):
            if known.evicting or known.patient:
                self.end(known)

    # --- over -----------------------------------------------------------------------------------------------------

    def drop(self, uid: str) -> MadeRoom | None:
        """Room is made for the pod no more, by what is known here; an unknown one is fine. Its nomination stands."""
        known = self.made.pop(uid, None)
        if known is not None and known.held:
            self.holds.leave(known.pods[uid].nominated_node)
        if known is not None and not any(self.made.get(one) is known for one in known.pods):
            self._release(known)
        return known

    def _release(self, known: MadeRoom) -> None:
        """Nobody waits any more for what its victims leave, but for those that are others' too."""
        if known.patient:
            return
        self.given_up += self.departures.stands(known)
        for victim in known.victims:
            self._waits_no_more(known, victim)

    def clear(self, pod: Pod) -> None:
        """A pod that waits is nominated nowhere any more, whoever nominated it."""
        state = self._state
        known = self.drop(pod.uid)
        if pod.nominated_node:
            state.cluster.withdraw_nomination(pod.uid)
            if known is None or not known.patient:
                self._tell_of_none(known, pod)
            state.queue.renominate(pod.uid, replace(pod, nominated_node=""))

    def end(self, known: MadeRoom) -> None:
        """All of it is given up."""
        state = self._state
        state.groups.touch(known.group)
        for uid in known.pods:
            if self.made.get(uid) is known:
                self.drop(uid)
            state.cluster.withdraw_nomination(uid)
            entry = state.queue.entries.get(uid)
            if entry is not None:
                if not known.patient:
                    self._tell_of_none(known, entry.pod)
                state.queue.renominate(uid, replace(entry.pod, nominated_node=""))
                state.queue.wake(uid, state.now)

    def as_nominated(self, pod: Pod) -> Pod:
        """The pod, as the watch shows it, with the nomination that its status does not say yet. Once it does, and will
        go on to, etcd need not keep that any more."""
        known, kept = self.made.get(pod.uid), self.records.kept.get(pod.uid, "")
        fresh = known is not None and pod.uid not in known.shown
        node = known.pods[pod.uid].nominated_node if known is not None and fresh else kept
        if not node:
            return pod
        if pod.nominated_node != node:
            if known is None and self._passed_over(pod, node):
                self.records.let_go(pod.uid)
                return pod
            return replace(pod, nominated_node=node)
        if known is not None:
            known.shown.add(pod.uid)
        if node == kept and self._reporter.has_told(pod.uid, node) and (known is None or pod.uid in known.stored):
            self.records.let_go(pod.uid)
        return pod

    def _passed_over(self, pod: Pod, node: str) -> bool:
        """Whether the node of an inherited record is not where the pod goes any more: its status names another, where
        somebody leaves for it, as nobody does here. A leader that knows no records came in between, and asked him."""
        leaves = self.departures.leaves
        other = pod.nominated_node if pod.uid in self.records.inherited else ""
        return bool(other) and leaves(pod, other) and not leaves(pod, node)

    def untold(self, uid: str) -> str | None:
        """Where a pod is to go by a leader before, which did not tell it any more; None: nowhere, or it is told."""
        node = "" if uid in self.made else self.records.kept.get(uid, "")
        return node if node and not self._reporter.has_told(uid, node) else None

    def forget(self, uid: str, *, waits: bool = False) -> None:
        """The pod is placed or gone; or it ``waits``, outside the queue: where it was to go stands, and is its again
        once it is tried."""
        self.landing.discard(uid)
        self.tries.forget(uid)
        if not waits:
            self.records.let_go(uid)
        known = self.drop(uid)
        if known is None:
            return
        del known.pods[uid]
        known.stored.discard(uid)
        if known.pods and not known.evicting:
            self.end(known)  # one of them is gone before anybody was asked: the choice was made for all
